// A test network without normalisation: ReLU follows a convolution with a bias and one without.
#include <cleave/cleave.h>
using namespace cleave;

struct Plain : Module {
  Conv2d first{*this, "first", 1, 8, {.kernel = 3, .padding = 1}};
  Conv2d second{*this, "second", 8, 16, {.kernel = 3, .stride = 2, .padding = 1, .bias = false}};
  Linear fc{*this, "fc", 16 * 14 * 14, 10};

  Tensor forward(Tensor image) { return fc(flatten(relu(second(relu(first(image)))), 1)); }
};

int main(int argc, char **argv) {
  Program program{"plain", argc, argv};
  return program.run<Plain>({.data = Mnist{}, .loss = crossEntropy, .optimizer = Sgd{.lr = 0.01}, .batch = 16});
}
