// Models for tests of the search.
#pragma once
#include <cleave/cleave.h>

#include <string>
#include <vector>

namespace cleave::test {

struct Block : Module {
  int64_t heads, headDim;
  LayerNorm norm1, norm2;
  Linear qkv, projection, up, down;
  Block(Module &parent, std::string name, int64_t width, int64_t heads)
      : Module(parent, std::move(name)), heads(heads), headDim(width / heads), norm1{*this, "norm1", width},
        norm2{*this, "norm2", width}, qkv{*this, "qkv", width, 3 * width},
        projection{*this, "projection", width, width}, up{*this, "up", width, 4 * width},
        down{*this, "down", 4 * width, width} {}
  Tensor forward(Tensor x) {
    const int64_t b = x.size(0), t = x.size(1);
    Tensor packed = reshape(qkv(norm1(x)), {b, t, 3, heads, headDim});
    auto part = [&](int64_t i) { return transpose(select(packed, 2, i), 1, 2); };
    Tensor mixed = scaledDotProductAttention(part(0), part(1), part(2), {.causal = true});
    x = x + projection(reshape(transpose(mixed, 1, 2), {b, t, heads * headDim}));
    return x + down(gelu(up(norm2(x))));
  }
};

struct Gpt : Module {
  Embedding embed, positions;
  ModuleList<Block> blocks;
  LayerNorm norm;
  Gpt(int layers, int64_t width, int64_t heads, int64_t context, int64_t vocab, const std::string &name = "blocks")
      : embed{*this, "embed", vocab, width}, positions{*this, "positions", context, width}, blocks{*this, name},
        norm{*this, "norm", width} {
    for (int i = 0; i < layers; ++i)
      blocks.emplace(width, heads);
  }
  Tensor forward(Tensor tokens) { return linear(norm(blocks(embed(tokens) + positions.weight)), embed.weight); }
};

struct Mlp : Module {
  ModuleList<Linear> layers;
  Linear head;
  explicit Mlp(const std::vector<int64_t> &widths, const std::string &name = "layers")
      : layers{*this, name}, head{*this, "head", widths.back(), 10} {
    for (size_t i = 0; i < widths.size(); ++i)
      layers.emplace(i == 0 ? 784 : widths[i - 1], widths[i]);
  }
  Tensor forward(Tensor image) {
    Tensor x = flatten(image, 1);
    for (Linear &layer : layers)
      x = relu(layer(x));
    return head(x);
  }
};

} // namespace cleave::test
