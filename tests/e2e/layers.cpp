// Networks whose layers want different splits: convolutions before wide layers, a large table before small layers.
#include <cleave/cleave.h>

#include <cstring>
using namespace cleave;

/// VGG-16 (Simonyan and Zisserman 2015).
struct Vgg : Module {
  ModuleList<Conv2d> convs{*this, "convs"};
  Linear fc1{*this, "fc1", 512 * 7 * 7, 4096}, fc2{*this, "fc2", 4096, 4096}, fc3{*this, "fc3", 4096, 1000};
  std::vector<bool> pools;

  Vgg() {
    int64_t in = 3;
    for (const int64_t out : {64, 64, 0, 128, 128, 0, 256, 256, 256, 0, 512, 512, 512, 0, 512, 512, 512, 0}) {
      if (out) {
        convs.emplace(std::exchange(in, out), out, Conv2dOptions{.kernel = 3, .padding = 1});
        pools.push_back(false);
      } else {
        pools.back() = true;
      }
    }
  }
  Tensor forward(Tensor x) {
    for (int64_t i = 0; i < convs.size(); ++i) {
      x = relu(convs[i](x));
      if (pools[static_cast<size_t>(i)])
        x = maxPool2d(x, 2);
    }
    return fc3(relu(fc2(relu(fc1(flatten(x, 1))))));
  }
};

struct Clicks : Dataset {
  int64_t rows, ids;
  std::vector<DataField> list;
  Clicks(int64_t rows, int64_t ids)
      : rows(rows), ids(ids), list{{"ids", FieldType::I32, {ids}}, {"rating", FieldType::F32, {1}}} {}
  const std::vector<DataField> &fields() const override { return list; }
  int64_t samples(Split) const override { return 1 << 20; }
  void read(Split, int64_t index, size_t field, std::byte *to) const override {
    for (int64_t i = 0; i < (field ? 1 : ids); ++i) {
      const auto id = static_cast<int32_t>((index * 31 + i * 7919) % rows);
      const auto rating = static_cast<float>(id % 5);
      std::memcpy(to + 4 * i, field ? static_cast<const void *>(&rating) : &id, 4);
    }
  }
};

/// One table for all ids of a sample, and a small network over their sum.
struct Recommender : Module {
  Embedding table;
  Linear fc1, fc2{*this, "fc2", 1024, 1024}, fc3{*this, "fc3", 1024, 1};
  Recommender(int64_t rows, int64_t width) : table{*this, "table", rows, width}, fc1{*this, "fc1", width, 1024} {}
  Tensor forward(Tensor ids) { return fc3(relu(fc2(relu(fc1(sum(table(ids), {1})))))); }
};

int main(int argc, char **argv) {
  Program program{"layers", argc, argv};
  const std::string net = program.option("--net", "vgg", "vgg or recommender", {"vgg", "recommender"});
  const int64_t rows =
                    program.option("--rows", 10'000'000, "rows of the recommender's table", between(1, 1'000'000'000)),
                width = program.option("--width", 64, "width of its rows", between(1, 1'000'000));
  if (net == "vgg")
    return program.run<Vgg>(
        {.data = SyntheticImages{}, .loss = crossEntropy, .optimizer = Sgd{.lr = 0.01, .momentum = 0.9}, .batch = 256});
  return program.run<Recommender>(
      {.data = std::make_shared<Clicks>(rows, 26), .loss = mseLoss, .optimizer = Sgd{.lr = 0.01}, .batch = 4096}, rows,
      width);
}
