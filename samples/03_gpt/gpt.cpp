// Lesson 3: a small GPT on the characters of a text. README.md beside this file walks through it.
// Radford et al. 2019 (GPT-2): pre-norm blocks, learned positions, tanh-GELU, head tied to the token embedding.
#include <cleave/cleave.h>
#include <cmath>
using namespace cleave;

struct GptOptions {
  int64_t layers = 4, width = 128, heads = 4, context = 64, vocab = 128;
};

/// GPT-2's beginnings: N(0, 0.02), and less for what is added to the residual stream, which adds up over the layers.
static LinearOptions linearInit(double scale = 1) {
  return {.weightInit = init::normal(0, 0.02 * scale), .biasInit = init::zeros()};
}
static double residualScale(const GptOptions &o) { return 1 / std::sqrt(2.0 * static_cast<double>(o.layers)); }

struct Attention : Module {
  int64_t heads;
  Linear qkv, projection;

  Attention(Module &parent, std::string name, const GptOptions &o)
      : Module(parent, std::move(name)), heads(o.heads), qkv{*this, "qkv", o.width, 3 * o.width, linearInit()},
        projection{*this, "projection", o.width, o.width, linearInit(residualScale(o))} {}

  Tensor forward(Tensor x) {
    const int64_t b = x.size(0), t = x.size(1), width = x.size(2);
    Tensor packed = reshape(qkv(x), {b, t, 3, heads, width / heads});
    auto part = [&](int64_t i) { return transpose(select(packed, 2, i), 1, 2); }; // [b, heads, t, width / heads]
    Tensor mixed = scaledDotProductAttention(part(0), part(1), part(2), {.causal = true});
    return projection(reshape(transpose(mixed, 1, 2), {b, t, width}));
  }
};

struct FeedForward : Module {
  Linear up, down;

  FeedForward(Module &parent, std::string name, const GptOptions &o)
      : Module(parent, std::move(name)), up{*this, "up", o.width, 4 * o.width, linearInit()},
        down{*this, "down", 4 * o.width, o.width, linearInit(residualScale(o))} {}

  Tensor forward(Tensor x) { return down(gelu(up(x), Gelu::Tanh)); }
};

struct Block : Module {
  LayerNorm norm1;
  Attention attention;
  LayerNorm norm2;
  FeedForward mlp;

  Block(Module &parent, std::string name, const GptOptions &o)
      : Module(parent, std::move(name)), norm1{*this, "norm1", o.width}, attention{*this, "attention", o},
        norm2{*this, "norm2", o.width}, mlp{*this, "mlp", o} {}

  Tensor forward(Tensor x) {
    x = x + attention(norm1(x));
    return x + mlp(norm2(x));
  }
};

struct Gpt : Module {
  Embedding embed, positions;
  ModuleList<Block> blocks;
  LayerNorm norm;

  explicit Gpt(const GptOptions &o)
      : embed{*this, "embed", o.vocab, o.width, {init::normal(0, 0.02)}}, positions{*this,
                                                                                    "positions",
                                                                                    o.context,
                                                                                    o.width,
                                                                                    {init::normal(0, 0.02)}},
        blocks{*this, "blocks", o.layers, o}, norm{*this, "norm", o.width} {}

  Tensor forward(Tensor tokens) {
    Tensor x = embed(tokens) + positions.weight; // [b, t, width] + [t, width]
    return linear(norm(blocks(x)), embed.weight);
  }
};

int main(int argc, char **argv) {
  Program program{"gpt", argc, argv};
  const GptOptions options{.layers = program.option("--layers", 4, "transformer blocks"),
                           .width = program.option("--width", 128, "width of the residual stream"),
                           .heads = program.option("--heads", 4, "attention heads; they divide the width"),
                           .context = program.option("--context", 64, "characters that the model sees"),
                           .vocab = program.option("--vocab", 128, "character codes lie below this")};
  return program.run<Gpt>({.data = Text{.context = options.context, .vocab = options.vocab},
                           .loss = crossEntropy,
                           .optimizer = AdamW{.lr = 0.001},
                           .batch = 16},
                          options);
}
