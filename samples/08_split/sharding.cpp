// Lesson 8: convolutions before one very wide layer, which want different splits. README.md in this folder explains it.
// Krizhevsky 2014 ("One weird trick"): split the samples of convolutions and the weights of wide layers, over the same
// devices.
#include <cleave/cleave.h>
using namespace cleave;

/// 5x5 convolution with unchanged image size, ReLU, and pooling to half the size.
struct Block : Module {
  Conv2d conv;

  Block(Module &parent, std::string name, int64_t in, int64_t out)
      : Module(parent, std::move(name)),
        conv{*this, "conv", in, out, {.kernel = 5, .padding = 2}} {}
  Tensor forward(Tensor x) { return maxPool2d(relu(conv(x)), 2); }
};

struct SplitNet : Module {
  bool bySamples;
  Block block1{*this, "block1", 1, 16}, block2{*this, "block2", 16, 32};
  Linear wide, head;

  SplitNet(int64_t width, bool bySamples)
      : bySamples(bySamples),
        wide{*this, "wide", 32 * 7 * 7, width},
        head{*this, "head", width, 10} {}

  Tensor forward(Tensor image) {
    if (bySamples)
      image = withSharding(image, {"dp+tp", "", "", ""}); // the convolutions see a part of the samples on every rank
    Tensor x = flatten(block2(block1(image)), 1);
    if (bySamples)
      x = withSharding(x, {"dp", "whole"}); // the wide layer sees all samples on every rank of tp
    return head(relu(wide(x)));
  }
};

int main(int argc, char **argv) {
  Program program{"sharding", argc, argv};
  const int64_t width = program.option("--width", 4096, "width of the wide layer", between(1, 1'000'000'000));
  const std::string convolutions = program.option(
      "--convolutions", "default", "what tp splits in them: default, or samples", {"default", "samples"});
  return program.run<SplitNet>(
      {.data = Mnist{}, .loss = crossEntropy, .optimizer = Sgd{.lr = 0.02, .momentum = 0.9}, .batch = 64}, width,
      convolutions == "samples");
}
