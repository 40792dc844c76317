// Sequence parallelism, by an option and by marks in the model.
#include "runtime/plan/summary/PlanSummary.h"
#include "tests/unit/frontend/Support.h"

#include <algorithm>
#include <map>

using namespace cleave;
using namespace cleave::test;

namespace {

constexpr int64_t width = 48, context = 28;

/// A block of a transformer. `marks`: activations between products are marked as split along the sequence.
struct Block : Module {
  bool marks;
  LayerNorm norm1{*this, "norm1", width}, norm2{*this, "norm2", width};
  Linear qkv{*this, "qkv", width, 3 * width}, projection{*this, "projection", width, width},
      up{*this, "up", width, 4 * width}, down{*this, "down", 4 * width, width};
  Block(Module &parent, const std::string &name, bool marks) : Module(parent, name), marks(marks) {}

  Tensor split(Tensor x) const { return marks ? withSharding(x, {"", "tp", ""}) : x; }

  Tensor forward(Tensor x) override {
    const int64_t n = x.size(0);
    Tensor y = permute(reshape(qkv(norm1(x)), {n, context, 3, 4, width / 4}), {2, 0, 3, 1, 4});
    y = scaledDotProductAttention(select(y, 0, 0), select(y, 0, 1), select(y, 0, 2), {.causal = true});
    x = split(x + split(projection(reshape(transpose(y, 1, 2), {n, context, width}))));
    return split(x + split(dropout(down(gelu(up(norm2(x)))), 0.1)));
  }
};

struct Transformer : Module {
  Embedding embed{*this, "embed", 8, width};
  Block first, second;
  LayerNorm norm{*this, "norm", width};
  Linear out{*this, "out", width, 10};
  explicit Transformer(bool marks) : first(*this, "first", marks), second(*this, "second", marks) {}

  Tensor forward(Tensor image) {
    Tensor x = embed(cast(mean(reshape(image, {image.size(0), context, context}), {2}) * 4.0, DType::I32));
    x = first.split(x);
    return out(mean(norm(second(first(x))), {1}));
  }
};

TrainConfig config() { return {.data = Mnist{}, .loss = crossEntropy, .optimizer = Sgd{.lr = 0.1}, .batch = 12}; }

/// Traffic of a plan's collectives: bytes and counts of activations by kind, total bytes of gradients; and the peak
/// memory of rank 0.
struct Plan {
  std::map<std::string, uint64_t> bytes, count;
  uint64_t gradients = 0, peak = 0;
  explicit Plan(Transformer &model, bool option, const std::string &mesh = "tp=2", int64_t batch = 12) {
    const RunOptions options{
        .mesh = mesh, .batch = batch, .sequenceParallel = option, .data = "synthetic", .code = false};
    const PlanSummary report = summaryOf(*PlanFile::fromBytes(Trainer(model, config()).plan(options), "plan"));
    for (const PlanSummary::Collective &collective : report.collectives)
      if (collective.source.starts_with("activation"))
        bytes[collective.kind] += collective.bytes, count[collective.kind] += collective.count;
      else
        gradients += collective.bytes;
    peak = report.peakBytes.front();
  }
};

} // namespace

TEST_CASE("sequence parallelism replaces all-reduces by as many bytes, and needs less memory") {
  // With one row per rank the joined dimension of batch and sequence equals the sequence alone.
  for (const auto &[mesh, batch] : {std::pair("tp=2", 12), {"tp=2", 1}, {"dp=2,tp=2", 2}, {"dp=2,tp=2", 4}}) {
    INFO(mesh << ", batch " << batch);
    Transformer model(false);
    const Plan whole(model, false, mesh, batch), split(model, true, mesh, batch);
    CHECK(whole.bytes.count("reduce-scatter") == 0);
    CHECK(split.bytes.count("all-reduce") <= 1); // of the products before the loss
    // In a ring, an all-reduce sends 2 (n-1)/n of its bytes, a gather or scatter (n-1)/n. The backward pass gathers the
    // inputs of products again instead of keeping them whole.
    const uint64_t sums =
        whole.bytes.at("all-reduce") - (split.bytes.count("all-reduce") ? split.bytes.at("all-reduce") : 0);
    INFO(split.bytes.at("all-gather") << " gathered, " << split.bytes.at("reduce-scatter") << " scattered, " << sums
                                      << " summed before");
    CHECK(split.bytes.at("all-gather") + split.bytes.at("reduce-scatter") <= 2 * sums * 5 / 4);
    CHECK(split.peak < whole.peak);
    // Only layers that work on a part of the sequence have gradients to sum: norms, and biases of row-split products.
    CHECK(split.gradients <= whole.gradients + 4 * 16 * width);
  }
}

TEST_CASE("marks along the sequence reach the plan of the option") {
  Transformer model(false), marked(true);
  const Plan byOption(model, true), byMarks(marked, false);
  CHECK(byMarks.bytes == byOption.bytes);
  CHECK(byMarks.count == byOption.count);
  CHECK(byMarks.peak == byOption.peak);
}

TEST_CASE("a sequence-parallel model equals one rank") {
  for (const bool marks : {false, true})
    for (const char *mesh : {"tp=2", "tp=3", "dp=2,tp=2", "tp=2,pp=2"}) {
      INFO(mesh << (marks ? ", marked" : ", by option"));
      Transformer model(marks);
      const RunOptions options{
          .mesh = mesh, .microbatches = 2, .threads = 1, .steps = 2, .sequenceParallel = !marks, .data = "synthetic"};
      CHECK(Trainer(model, config()).check(options).difference == "");
    }
}
