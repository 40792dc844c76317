// Lesson 3: a small GPT on the characters of a text. README.md in this folder explains it.
// Radford et al. 2019 (GPT-2): pre-norm blocks, learned positions, tanh-GELU, head tied to the token embedding.
#include <algorithm>
#include <cleave/cleave.h>
#include <cmath>
#include <iostream>
#include <random>
using namespace cleave;

struct GptOptions {
  int64_t layers = 4, width = 128, heads = 4, context = 64, vocab = 128;
};

/// GPT-2's initial values: N(0, 0.02), smaller for layers that add to the residual stream, which accumulates.
static LinearOptions linearInit(double scale = 1) {
  return {.weightInit = init::normal(0, 0.02 * scale), .biasInit = init::zeros()};
}
static double residualScale(const GptOptions &o) { return 1 / std::sqrt(2.0 * static_cast<double>(o.layers)); }

struct Attention : Module {
  int64_t heads;
  Linear qkv, projection;

  Attention(Module &parent, std::string name, const GptOptions &o)
      : Module(parent, std::move(name)),
        heads(o.heads),
        qkv{*this, "qkv", o.width, 3 * o.width, linearInit()},
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
      : Module(parent, std::move(name)),
        up{*this, "up", o.width, 4 * o.width, linearInit()},
        down{*this, "down", 4 * o.width, o.width, linearInit(residualScale(o))} {}

  Tensor forward(Tensor x) { return down(gelu(up(x), Gelu::Tanh)); }
};

struct Block : Module {
  LayerNorm norm1;
  Attention attention;
  LayerNorm norm2;
  FeedForward mlp;

  Block(Module &parent, std::string name, const GptOptions &o)
      : Module(parent, std::move(name)),
        norm1{*this, "norm1", o.width},
        attention{*this, "attention", o},
        norm2{*this, "norm2", o.width},
        mlp{*this, "mlp", o} {}

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
      : embed{*this, "embed", o.vocab, o.width, {init::normal(0, 0.02)}},
        positions{*this, "positions", o.context, o.width, {init::normal(0, 0.02)}},
        blocks{*this, "blocks", o.layers, o},
        norm{*this, "norm", o.width} {}

  Tensor forward(Tensor tokens) {
    Tensor x = embed(tokens) + positions.weight; // [b, t, width] + [t, width]
    return linear(norm(blocks(x)), embed.weight);
  }
};

/// Draws from softmax(logits / temperature) with `u` uniform in [0, 1); the largest logit at temperature 0.
static int64_t draw(std::span<const float> logits, double temperature, double u) {
  const auto largest = std::max_element(logits.begin(), logits.end());
  if (temperature == 0)
    return largest - logits.begin();
  std::vector<double> upTo(logits.size());
  double sum = 0;
  for (size_t i = 0; i < logits.size(); ++i)
    upTo[i] = sum += std::exp((static_cast<double>(logits[i]) - *largest) / temperature);
  const auto found = std::upper_bound(upTo.begin(), upTo.end(), u * sum);
  return std::min<int64_t>(found - upTo.begin(), static_cast<int64_t>(logits.size()) - 1);
}

struct SampleOptions {
  std::string prompt;
  int64_t tokens;
  double temperature;
  int64_t seed;
};

/// Prints the prompt and its continuation by the model. Attention is causal, so padding after the last character of the
/// window changes nothing before it.
static void sample(Predictor &model, const GptOptions &o, const SampleOptions &s) {
  std::vector<int32_t> text;
  for (unsigned char c : s.prompt) {
    if (c >= o.vocab)
      throw std::invalid_argument("--prompt: character codes lie below " + std::to_string(o.vocab) + ", found " +
                                  std::to_string(c));
    text.push_back(c);
  }
  if (!(s.temperature >= 0))
    throw std::invalid_argument("--temperature: must not be negative, found " + std::to_string(s.temperature));
  if (model.writes())
    std::cout << s.prompt;
  if (text.empty())
    text.push_back('\n'); // the model's input for an empty prompt
  std::mt19937_64 random(static_cast<uint64_t>(s.seed));
  for (int64_t i = 0; i < s.tokens; ++i) {
    const int64_t seen = std::min<int64_t>(o.context, static_cast<int64_t>(text.size()));
    std::vector<int32_t> window(text.end() - seen, text.end());
    window.resize(static_cast<size_t>(o.context));
    const std::vector<float> logits = model(window);
    const std::span<const float> last(logits.data() + (seen - 1) * o.vocab, static_cast<size_t>(o.vocab));
    text.push_back(static_cast<int32_t>(draw(last, s.temperature, static_cast<double>(random() >> 11) * 0x1p-53)));
    if (model.writes())
      std::cout << static_cast<char>(text.back()) << std::flush;
  }
  if (model.writes())
    std::cout << '\n';
}

int main(int argc, char **argv) {
  Program program{"gpt", argc, argv};
  const Range sizes = between(1, 1'000'000'000);
  const GptOptions options{.layers = program.option("--layers", 4, "transformer blocks", between(1, 10'000)),
                           .width = program.option("--width", 128, "width of the residual stream", sizes),
                           .heads = program.option("--heads", 4, "attention heads; they divide the width", sizes),
                           .context = program.option("--context", 64, "characters that the model sees", sizes),
                           .vocab = program.option("--vocab", 128, "character codes are below this", sizes)};
  Command command = program.command("sample", "continues a text, character by character");
  const SampleOptions wish{.prompt = command.option("--prompt", "", "the text"),
                           .tokens = command.option<int64_t>("--tokens", 200, "characters to generate", atLeast(0)),
                           .temperature = command.option("--temperature", 1.0, "0: always the likeliest character"),
                           .seed = command.option<int64_t>("--seed", 1, "seed of the random draws", atLeast(0))};
  command.does([&](Predictor &model) { sample(model, options, wish); });
  return program.run<Gpt>({.data = Text{.context = options.context, .vocab = options.vocab},
                           .loss = crossEntropy,
                           .optimizer = AdamW{.lr = 0.001},
                           .batch = 16},
                          options);
}
