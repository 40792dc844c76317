// A model with an option of every type.
#include <cleave/cleave.h>
using namespace cleave;

struct Net : Module {
  ModuleList<Linear> layers{*this, "layers"};
  double scale;
  Net(const std::vector<int64_t> &hidden, int64_t width, bool wide, double scale) : scale(scale) {
    int64_t in = 784;
    for (const int64_t each : hidden)
      layers.emplace(std::exchange(in, each), each);
    layers.emplace(std::exchange(in, wide ? 2 * width : width), in);
    layers.emplace(in, 10);
  }
  Tensor forward(Tensor image) { return layers(flatten(image, 1) * scale); }
};

int main(int argc, char **argv) {
  Program program{"own_options", argc, argv};
  const bool wide = program.option("--wide", false, "twice the width");
  const int64_t width = program.option("--width", 8, "width of the last layer", between(1, 1000));
  const double scale = program.option("--scale", 0.1, "factor of the images");
  program.option("--tag", "", "any text");
  const auto hidden = program.option("--hidden", std::vector<int64_t>{}, "widths of further layers", atLeast(1));
  return program.run<Net>({.data = Mnist{}, .loss = crossEntropy, .optimizer = Sgd{.lr = 0.01}, .batch = 16}, hidden,
                          width, wide, scale);
}
