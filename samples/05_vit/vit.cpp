// Lesson 5: a vision transformer. README.md in this folder explains it.
// Dosovitskiy et al. 2021: an image is a sequence of patches. The classifier uses the mean of all positions.
#include <cleave/cleave.h>
using namespace cleave;

struct VitOptions {
  int64_t layers = 2, width = 64, heads = 4, patch = 7;
  int64_t image = 28, classes = 10, channels = 1;
};

struct Block : Module {
  LayerNorm norm1;
  MultiheadAttention attention;
  LayerNorm norm2;
  Sequential mlp;

  Block(Module &parent, std::string name, const VitOptions &o)
      : Module(parent, std::move(name)),
        norm1{*this, "norm1", o.width},
        attention{*this, "attention", o.width, o.heads},
        norm2{*this, "norm2", o.width},
        mlp{*this, "mlp", layer<Linear>(o.width, 4 * o.width), [](Tensor x) { return gelu(x); },
            layer<Linear>(4 * o.width, o.width)} {}

  Tensor forward(Tensor x) {
    x = x + attention(norm1(x));
    return x + mlp(norm2(x));
  }
};

struct Vit : Module {
  int64_t patch, across, pixels; ///< pixels: numbers of a patch
  Linear embed;
  Parameter positions;
  ModuleList<Block> blocks;
  LayerNorm norm;
  Linear head;

  explicit Vit(const VitOptions &o)
      : patch(o.patch),
        across(o.image / o.patch),
        pixels(o.channels * o.patch * o.patch),
        embed{*this, "embed", pixels, o.width},
        positions{*this, "positions", {across * across, o.width}, init::normal(0, 0.02)},
        blocks{*this, "blocks", o.layers, o},
        norm{*this, "norm", o.width},
        head{*this, "head", o.width, o.classes} {}

  /// [b, channels, height, width] -> [b, patches, channels * patch * patch]
  Tensor patches(Tensor image) {
    Tensor parts = reshape(image, {image.size(0), image.size(1), across, patch, across, patch});
    return reshape(permute(parts, {0, 2, 4, 1, 3, 5}), {image.size(0), across * across, pixels});
  }

  Tensor forward(Tensor image) {
    Tensor x = embed(patches(image)) + positions; // [b, patches, width] + [patches, width]
    return head(mean(norm(blocks(x)), {1}));
  }
};

int main(int argc, char **argv) {
  Program program{"vit", argc, argv};
  const Range sizes = between(1, 1'000'000'000);
  const VitOptions options{.layers = program.option("--layers", 2, "transformer blocks", between(1, 10'000)),
                           .width = program.option("--width", 64, "width of the residual stream", sizes),
                           .heads = program.option("--heads", 4, "attention heads; they divide the width", sizes),
                           .patch = program.option("--patch", 7, "side of a patch, pixels; divides --image", sizes),
                           .image = program.option("--image", 28, "height and width of the images", sizes),
                           .classes = program.option("--classes", 10, "classes", sizes),
                           .channels = program.option("--channels", 1, "channels of the images", sizes)};
  Pictures pictures{
      .channels = options.channels, .height = options.image, .width = options.image, .classes = options.classes};
  if (options.channels == 3) {
    pictures.train = imageNetTraining(options.image);
    pictures.eval = imageNetEvaluation(options.image);
  }
  return program.run<Vit>(
      {.data = pictures, .loss = crossEntropy, .optimizer = AdamW{.lr = 0.001, .weightDecay = 0.05}, .batch = 64},
      options);
}
