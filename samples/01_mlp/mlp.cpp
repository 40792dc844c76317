// Lesson 1: a multi-layer perceptron on handwritten digits. README.md in this folder explains it.
#include <cleave/cleave.h>
using namespace cleave;

struct Mlp : Module {
  ModuleList<Linear> layers{*this, "layers"};
  explicit Mlp(const std::vector<int64_t> &hidden) {
    int64_t in = 784;
    for (int64_t width : hidden)
      layers.emplace(std::exchange(in, width), width);
    layers.emplace(in, 10);
  }
  Tensor forward(Tensor image) {
    Tensor x = flatten(image, 1);
    for (int64_t i = 0; i < layers.size(); ++i)
      x = i ? layers[i](relu(x)) : layers[i](x);
    return x;
  }
};

int main(int argc, char **argv) {
  Program program{"mlp", argc, argv};
  auto hidden = program.option("--hidden", std::vector<int64_t>{512, 512}, "widths of the hidden layers", atLeast(1));
  return program.run<Mlp>(
      {.data = Mnist{}, .loss = crossEntropy, .optimizer = Sgd{.lr = 0.05, .momentum = 0.9}, .batch = 128}, hidden);
}
