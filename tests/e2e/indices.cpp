// A classifier of ids whose data has one value that no label or id may have: --reader chooses which function reads it.
#include <cleave/cleave.h>

#include <cstring>
#include <limits>
using namespace cleave;

constexpr int64_t length = 4, rows = 6, width = 8; // of a sample's ids, and of the table

struct Odd : Dataset {
  std::vector<DataField> list;
  Split split;
  int64_t label, id;

  Odd(int64_t classes, const std::string &split, int64_t label, int64_t id)
      : list{{"ids", FieldType::I32, {length}}, {"byte", FieldType::U8, {2}}, {"label", FieldType::I32, {}, classes}},
        split(split == "eval" ? Split::Eval : Split::Train), label(label), id(id) {}
  const std::vector<DataField> &fields() const override { return list; }
  int64_t samples(Split) const override { return 32; }
  void read(Split of, int64_t index, size_t field, std::byte *to) const override {
    const bool odd = of == split && index == 7;
    if (field == 0) {
      for (int64_t i = 0; i < length; ++i) {
        const auto value = static_cast<int32_t>(odd && i == 2 ? id : (index + i) % rows);
        std::memcpy(to + 4 * i, &value, 4);
      }
    } else if (field == 1) {
      to[0] = std::byte(odd ? id : index % rows), to[1] = std::byte(255);
    } else {
      const auto value = static_cast<int32_t>(odd ? label : index % 3);
      std::memcpy(to, &value, 4);
    }
  }
};

struct Net : Module {
  std::string reader;
  Outside outside;
  Embedding table;
  Linear out;
  Net(std::string reader, bool zero, int64_t classes)
      : reader(std::move(reader)), outside(zero ? Outside::Zero : Outside::Error),
        table(*this, "table", rows, width, {.outside = outside}), out(*this, "out", width, classes) {}

  /// [b, n] to [b, n, width].
  Tensor looked(Tensor ids, Tensor byte) {
    const Tensor weight = table.weight;
    if (reader == "gather") {
      const Tensor flat = reshape(ids, {-1, 1});
      return reshape(gather(weight, 0, expand(flat, {flat.size(0), width}), outside), {ids.size(0), -1, width});
    }
    if (reader == "indexSelect")
      return reshape(indexSelect(weight, 0, reshape(ids, {-1}), outside), {ids.size(0), -1, width});
    if (reader == "oneHot")
      return matmul(oneHot(ids, rows, DType::F32, outside), weight);
    if (reader == "indexAdd")
      return reshape(
                 indexAdd(full({rows, 1}, 0), 0, slice(reshape(ids, {-1}), 0, 0, rows), full({rows, 1}, 1), outside),
                 {1, rows, 1}) *
             expand(reshape(mean(weight), {1, 1, 1}), {ids.size(0), rows, width});
    if (reader == "part") // the third id is not read
      return table(slice(ids, 1, 0, 2));
    if (reader == "byte")
      return table(slice(cast(byte, DType::I32), 1, 0, 1));
    if (reader == "computed")
      return table(ids * 2 - ids);
    if (reader == "clamped")
      return table(clamp(ids, 0, rows - 1));
    if (reader == "best") // of indices that are known to be valid
      return table(argmax(oneHot(ids, rows, DType::F32, Outside::Zero), -1));
    return table(ids);
  }
  Tensor forward(Tensor ids, Tensor byte) {
    const Tensor logits = out(mean(looked(ids, byte), {1}));
    return reader == "nan" ? logits * std::numeric_limits<double>::quiet_NaN() : reader == "ties" ? logits * 0 : logits;
  }
};

Loss focal(Tensor logits, Tensor labels) {
  const Tensor p = softmax(logits, -1), own = sum(oneHot(labels, logits.size(-1), DType::F32) * p, {-1});
  const Tensor known = cast(labels >= 0, DType::F32);
  return {sum(-((1 - own) * (1 - own)) * log(own + 1e-6) * known), sum(known), {}, labels.elements()};
}

int main(int argc, char **argv) {
  Program program{"indices", argc, argv};
  const std::string reader = program.option("--reader", "embedding", "what reads the ids");
  const std::string loss = program.option("--loss", "plain", "what reads the labels");
  const int64_t declared = program.option("--declared", 0, "classes of the labels that the data declare"),
                outputs = program.option("--outputs", 3, "outputs of the model"),
                label = program.option("--label", 0, "the odd label"), id = program.option("--id", 0, "the odd id"),
                ignored = program.option("--ignored", -100, "the label that the loss ignores");
  const std::string split = program.option("--odd", "train", "the split with the odd sample, train or eval");
  const bool zero = program.option("--zeros", false, "ids outside the table are zeros");
  const CrossEntropyOptions ignoring{.ignoreIndex = ignored};
  LossFunction used = crossEntropy;
  if (loss == "ignoring")
    used = [=](Tensor x, Tensor y) { return crossEntropy(x, y, ignoring); };
  if (loss == "smooth")
    used = [](Tensor x, Tensor y) { return crossEntropy(x, y, {.labelSmoothing = 0.1}); };
  if (loss == "weights")
    used = [=](Tensor x, Tensor y) {
      return crossEntropy(x, y, {.classWeights = std::vector<float>(size_t(outputs), 2.0F)});
    };
  if (loss == "nll")
    used = [](Tensor x, Tensor y) { return nllLoss(logSoftmax(x, -1), y); };
  if (loss == "focal")
    used = focal;
  if (loss == "shifted") // indices that the loss computes
    used = [](Tensor x, Tensor y) { return crossEntropy(x, y + 1 - 1); };
  if (loss == "top")
    used = [](Tensor x, Tensor y) {
      Loss made = crossEntropy(x, where(y >= x.size(-1), -1, y));
      made.top = {{2, topCorrect(x, y, 2)}};
      return made;
    };
  const auto data = std::make_shared<Odd>(declared, split, label, id);
  return program.run<Net>({.data = data, .loss = used, .optimizer = Sgd{.lr = 0.1}, .batch = 8}, reader, zero, outputs);
}
