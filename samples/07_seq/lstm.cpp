// Lesson 7: an LSTM on the characters of a text. README.md in this folder explains it.
// Hochreiter and Schmidhuber 1997: the state is passed from character to character.
#include <cleave/cleave.h>
using namespace cleave;

struct SeqOptions {
  int64_t layers = 1, width = 64, context = 32, vocab = 128;
};

struct Seq : Module {
  Embedding embed;
  LSTM lstm;
  Linear head;

  explicit Seq(const SeqOptions &o)
      : embed{*this, "embed", o.vocab, o.width},
        lstm{*this, "lstm", o.width, o.width, {.layers = o.layers}},
        head{*this, "head", o.width, o.vocab} {}

  Tensor forward(Tensor tokens) {
    auto [output, state] = lstm(embed(tokens)); // [b, t, width]; the final state is not needed
    return head(output);
  }
};

int main(int argc, char **argv) {
  Program program{"lstm", argc, argv};
  const Range sizes = between(1, 1'000'000'000);
  const SeqOptions options{.layers = program.option("--layers", 1, "LSTM layers", between(1, 10'000)),
                           .width = program.option("--width", 64, "width of embedding and state", sizes),
                           .context = program.option("--context", 32, "characters that the model sees", sizes),
                           .vocab = program.option("--vocab", 128, "character codes lie below this", sizes)};
  return program.run<Seq>({.data = Text{.context = options.context, .vocab = options.vocab},
                           .loss = crossEntropy,
                           .optimizer = Adam{.lr = 0.005},
                           .clipNorm = 1,
                           .batch = 16},
                          options);
}
