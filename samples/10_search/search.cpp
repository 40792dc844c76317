// Lesson 10: a recommender whose split a search finds. README.md in this folder explains it.
#include <cleave/cleave.h>
#include <cstring>
using namespace cleave;

/// Whether a user who likes the items of a history likes one item more, which is the last of the ids. Every item has a
/// character of four numbers, drawn from its id; the answer is yes if the last item's character points in the direction
/// of the sum of the others. The model sees the ids alone.
struct Histories : Dataset {
  int64_t items, length;
  std::vector<DataField> list;

  Histories(int64_t items, int64_t length)
      : items(items),
        length(length),
        list{{"ids", FieldType::I32, {length + 1}}, {"likes", FieldType::I32, {}, 2}} {}
  const std::vector<DataField> &fields() const override { return list; }
  int64_t samples(Split split) const override { return split == Split::Train ? 16384 : 2048; }

  void read(const SampleId &sample, Random &, std::span<std::byte *const> to) const override {
    Random drawn(sample.split == Split::Train ? 1 : 2, 0, sample.index); // the same in every epoch
    std::vector<int32_t> ids(static_cast<size_t>(length + 1));
    for (int32_t &id : ids)
      id = static_cast<int32_t>(drawn.integer(0, items));
    if (to[0])
      std::memcpy(to[0], ids.data(), ids.size() * sizeof ids[0]);
    if (!to[1])
      return;
    const Character last = characterOf(ids.back());
    double sum = 0;
    for (size_t i = 0; i + 1 < ids.size(); ++i) {
      const Character liked = characterOf(ids[i]);
      for (size_t k = 0; k < liked.size(); ++k)
        sum += liked[k] * last[k];
    }
    const int32_t likes = sum > 0;
    std::memcpy(to[1], &likes, sizeof likes);
  }

private:
  using Character = std::array<double, 4>;
  static Character characterOf(int32_t id) {
    Random numbers(3, 0, id);
    Character found;
    for (double &number : found)
      number = numbers.normal();
    return found;
  }
};

/// A residual block, for every item: x + down(gelu(up(norm(x)))).
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

struct RecommenderOptions {
  int64_t items, width, blocks;
};

struct Recommender : Module {
  Embedding items;
  ModuleList<Block> blocks;
  Linear hidden, head;

  explicit Recommender(const RecommenderOptions &o)
      : items{*this, "items", o.items, o.width, {init::normal(0, 0.5)}},
        blocks{*this, "blocks", o.blocks, o.width},
        hidden{*this, "hidden", 3 * o.width, o.width},
        head{*this, "head", o.width, 2} {}

  Tensor forward(Tensor ids) {
    Tensor x = blocks(items(ids)); // [b, length + 1, width]
    const int64_t length = x.size(1) - 1;
    Tensor user = mean(slice(x, 1, 0, length), {1}), item = select(x, 1, length); // [b, width]
    return head(relu(hidden(concat({user, item, user * item}, 1))));
  }
};

int main(int argc, char **argv) {
  Program program{"search", argc, argv};
  const Range sizes = between(1, 1'000'000'000);
  const int64_t history = program.option("--history", 4, "items of a history", sizes);
  const RecommenderOptions options{.items = program.option("--items", 128, "rows of the table of items", sizes),
                                   .width = program.option("--width", 16, "numbers for an item", sizes),
                                   .blocks = program.option("--blocks", 2, "residual blocks", between(1, 10'000))};
  return program.run<Recommender>({.data = std::make_shared<Histories>(options.items, history),
                                   .loss = crossEntropy,
                                   .optimizer = AdamW{.lr = 0.003},
                                   .batch = 64},
                                  options);
}
