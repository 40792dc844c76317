// Lesson 2: a small convolutional network on handwritten digits. README.md in this folder explains it.
#include <cleave/cleave.h>
using namespace cleave;

/// 5x5 convolution with unchanged image size, batch normalisation, ReLU, and pooling to half the size.
struct Block : Module {
  Conv2d conv;
  BatchNorm2d norm;

  Block(Module &parent, std::string name, int64_t in, int64_t out)
      : Module(parent, std::move(name)),
        conv{*this, "conv", in, out, {.kernel = 5, .padding = 2}},
        norm{*this, "norm", out} {}
  Tensor forward(Tensor x) { return maxPool2d(relu(norm(conv(x))), 2); }
};

struct ConvNet : Module {
  Block block1{*this, "block1", 1, 16}, block2{*this, "block2", 16, 32};
  Linear fc{*this, "fc", 32 * 7 * 7, 10};

  Tensor forward(Tensor image) { return fc(flatten(block2(block1(image)), 1)); }
};

int main(int argc, char **argv) {
  Program program{"convnet", argc, argv};
  return program.run<ConvNet>({.data = Mnist{}, .loss = crossEntropy, .optimizer = Adam{.lr = 0.001}, .batch = 100});
}
