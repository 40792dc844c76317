// Lesson 6: a small Llama on the characters of a text. README.md in this folder explains it.
// Touvron et al. 2023: RMS norm, rotary positions, a gated MLP (SwiGLU), and k and v heads shared by several q heads.
#include <cleave/cleave.h>
using namespace cleave;

struct LlamaOptions {
  int64_t layers = 2, width = 64, heads = 4, kvHeads = 2, context = 64, vocab = 128;
};

/// Options of every projection: N(0, 0.02), no bias.
static const LinearOptions plain{.bias = false, .weightInit = init::normal(0, 0.02)};

struct Attention : Module {
  int64_t size; ///< width of one head
  Linear q, k, v, o;

  Attention(Module &parent, std::string name, const LlamaOptions &l)
      : Module(parent, std::move(name)),
        size(l.width / l.heads),
        q{*this, "q_proj", l.width, l.width, plain},
        k{*this, "k_proj", l.width, l.kvHeads * size, plain},
        v{*this, "v_proj", l.width, l.kvHeads * size, plain},
        o{*this, "o_proj", l.width, l.width, plain} {}

  /// [b, t, heads * size] -> [b, heads, t, size]
  Tensor heads(Tensor x) { return transpose(reshape(x, {x.size(0), x.size(1), -1, size}), 1, 2); }

  Tensor forward(Tensor x) {
    Tensor mixed = scaledDotProductAttention(rotaryEmbedding(heads(q(x))), rotaryEmbedding(heads(k(x))), heads(v(x)),
                                             {.causal = true});
    return o(flatten(transpose(mixed, 1, 2), 2));
  }
};

struct FeedForward : Module {
  Linear gate, up, down;

  FeedForward(Module &parent, std::string name, int64_t width, int64_t inner)
      : Module(parent, std::move(name)),
        gate{*this, "gate_proj", width, inner, plain},
        up{*this, "up_proj", width, inner, plain},
        down{*this, "down_proj", inner, width, plain} {}

  Tensor forward(Tensor x) { return down(silu(gate(x)) * up(x)); }
};

struct Block : Module {
  RmsNorm inputNorm;
  Attention attention;
  RmsNorm postNorm;
  FeedForward mlp;

  Block(Module &parent, std::string name, const LlamaOptions &o)
      : Module(parent, std::move(name)),
        inputNorm{*this, "input_layernorm", o.width},
        attention{*this, "self_attn", o},
        postNorm{*this, "post_attention_layernorm", o.width},
        mlp{*this, "mlp", o.width, 3 * o.width} {}

  Tensor forward(Tensor x) {
    x = x + attention(inputNorm(x));
    return x + mlp(postNorm(x));
  }
};

struct Llama : Module {
  Embedding embed;
  ModuleList<Block> layers;
  RmsNorm norm;
  Linear head;

  explicit Llama(const LlamaOptions &o)
      : embed{*this, "embed_tokens", o.vocab, o.width, {init::normal(0, 0.02)}},
        layers{*this, "layers", o.layers, o},
        norm{*this, "norm", o.width},
        head{*this, "lm_head", o.width, o.vocab, plain} {}

  Tensor forward(Tensor tokens) { return head(norm(layers(embed(tokens)))); }
};

int main(int argc, char **argv) {
  Program program{"llama", argc, argv};
  const Range sizes = between(1, 1'000'000'000);
  const LlamaOptions options{
      .layers = program.option("--layers", 2, "transformer blocks", between(1, 10'000)),
      .width = program.option("--width", 64, "width of the residual stream", sizes),
      .heads = program.option("--heads", 4, "heads of the queries; they divide the width into even sizes", sizes),
      .kvHeads = program.option("--kv-heads", 2, "heads of keys and values; they divide --heads", sizes),
      .context = program.option("--context", 64, "characters that the model sees", sizes),
      .vocab = program.option("--vocab", 128, "character codes lie below this", sizes)};
  return program.run<Llama>({.data = Text{.context = options.context, .vocab = options.vocab},
                             .loss = crossEntropy,
                             .optimizer = AdamW{.lr = 0.002},
                             .clipNorm = 1,
                             .batch = 16},
                            options);
}
