// Lesson 9: a deep stack of equal blocks, for pipelines. README.md in this folder explains it.
#include <cleave/cleave.h>
using namespace cleave;

/// A residual block: x + down(gelu(up(norm(x)))). All blocks have the same shapes, so every stage can have equal work.
struct Block : Module {
  LayerNorm norm;
  Linear up, down;

  Block(Module &parent, std::string name, int64_t width)
      : Module(parent, std::move(name)),
        norm{*this, "norm", width},
        up{*this, "up", width, 4 * width},
        down{*this, "down", 4 * width, width} {}
  Tensor forward(Tensor x) { return x + down(gelu(up(norm(x)))); }
};

struct Stack : Module {
  Linear embed;
  ModuleList<Block> blocks;
  LayerNorm norm;
  Linear head;

  Stack(int64_t count, int64_t width)
      : embed{*this, "embed", 784, width},
        blocks{*this, "blocks", count, width},
        norm{*this, "norm", width},
        head{*this, "head", width, 10} {}

  Tensor forward(Tensor image) { return head(norm(blocks(embed(flatten(image, 1))))); }
};

int main(int argc, char **argv) {
  Program program{"schedule", argc, argv};
  const int64_t blocks = program.option("--blocks", 8, "residual blocks", between(1, 10'000));
  const int64_t width = program.option("--width", 64, "width of the residual stream", between(1, 1'000'000'000));
  return program.run<Stack>({.data = Mnist{}, .loss = crossEntropy, .optimizer = AdamW{.lr = 0.001}, .batch = 64},
                            blocks, width);
}
