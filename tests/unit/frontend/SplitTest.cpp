// Models whose splits once gave wrong gradients, invalid IR or crashes: every mesh computes the same values as the
// graph.
#include "runtime/plan/plan_generated.h"
#include "runtime/plan/summary/PlanSummary.h"
#include "tests/unit/frontend/Support.h"

#include <filesystem>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <fstream>
#include <map>
#include <unistd.h>

using namespace cleave;
using namespace cleave::test;

namespace {

/// The modules of the test models; each body uses some of them.
struct Parts : Module {
  using Body = std::function<Tensor(Parts &, Tensor)>;
  Linear in{*this, "in", 784, 32}, a{*this, "a", 32, 32}, b{*this, "b", 32, 32}, part{*this, "part", 196, 32},
      out{*this, "out", 32, 10};
  LayerNorm norm{*this, "norm", 32};
  Parameter scale{*this, "scale", {32}, init::ones()}, frozen{*this, "frozen", {32}, init::ones()};
  Body body;
  explicit Parts(Body body) : body(std::move(body)) { frozen.requiresGrad(false); }

  Tensor forward(Tensor image) { return out(body(*this, image)); }
  Tensor start(Tensor image) { return relu(in(flatten(image, 1))); }
  /// Both biases have the same gradient value.
  Tensor twice(Tensor x) { return cleave::tanh(a(x) + b(x)); }
  Tensor quarter(Tensor image, int64_t i) { return part(select(reshape(image, {image.size(0), 4, 196}), 1, i)); }
};

struct Case {
  const char *name;
  std::vector<const char *> meshes;
  Parts::Body body;
};

TrainConfig config() { return {.data = Mnist{}, .loss = crossEntropy, .optimizer = Sgd{.lr = 0.1}, .batch = 12}; }

std::string differenceOf(const Parts::Body &body, const std::string &mesh) {
  Parts model(body);
  RunOptions options{.mesh = mesh, .microbatches = 2, .threads = 1, .steps = 2, .data = "synthetic"};
  return Trainer(model, config()).check(options).difference;
}

void check(const std::vector<Case> &cases) {
  for (const Case &one : cases)
    for (const char *mesh : one.meshes) {
      INFO(one.name << " on " << mesh);
      CHECK(differenceOf(one.body, mesh) == "");
    }
}

} // namespace

TEST_CASE("a message that is the gradient of a parameter on both sides") {
  struct Sums : Module {
    Linear in{*this, "in", 784, 10};
    Parameter first{*this, "first", {12, 10}, init::ones()}, second{*this, "second", {12, 10}, init::ones()};
    Tensor forward(Tensor image) {
      Tensor x = in(flatten(image, 1)) + first.tensor();
      stage(1);
      return x + second.tensor();
    }
  };
  for (const char *schedule : {"1f1b", "zb-h1"}) {
    Sums model;
    const RunOptions options{.mesh = "pp=2", .schedule = schedule, .threads = 1, .steps = 2, .data = "synthetic"};
    CHECK(Trainer(model, config()).check(options).difference == "");
  }
}

TEST_CASE("parameters that several stages use") {
  check({{"two layers whose biases have one gradient",
          {"pp=2", "dp=2,tp=2,pp=2"},
          [](Parts &m, Tensor image) {
            Tensor x = m.twice(m.start(image));
            stage(1);
            return m.twice(x);
          }},
         {"a norm in three stages",
          {"pp=3"},
          [](Parts &m, Tensor image) {
            Tensor x = m.twice(m.start(image));
            stage(1);
            x = m.twice(m.norm(x));
            stage(2);
            return m.twice(m.norm(x));
          }},
         {"a marked view of a parameter, read behind a cut",
          {"pp=2", "tp=2,pp=2"},
          [](Parts &m, Tensor image) {
            Tensor x = m.start(image), row = withSharding(reshape(m.scale.tensor(), {1, 32}), {"", ""});
            stage(1);
            return m.a(x) + row;
          }},
         {"a vector added as it is, its broadcast made in the first stage",
          {"pp=2", "tp=2,pp=2"},
          [](Parts &m, Tensor image) {
            Tensor x = m.start(image), wide = x * 0 + m.scale;
            stage(1);
            return relu(m.a(x)) * wide + m.scale + m.frozen;
          }}});
}

TEST_CASE("vectors used where their dimension is split and where it is whole") {
  check({{"added before and behind a product", {"tp=2", "tp=4"}, [](Parts &m, Tensor image) {
            return relu(m.a(m.start(image) + m.scale)) + m.scale;
          }},
         {"multiplied", {"tp=2"}, [](Parts &m, Tensor image) { return relu(m.a(m.start(image) * m.scale)) * m.scale; }},
         {"a norm", {"tp=2", "dp=2,tp=2"}, [](Parts &m, Tensor image) {
            return m.norm(relu(m.a(m.norm(m.start(image)))));
          }}});
}

TEST_CASE("reshapes that regroup dimensions") {
  check({{"24 elements as 6 x 4 and as 4 x 6", {"dp=1", "dp=2", "tp=2"}, [](Parts &m, Tensor image) {
            Tensor x = m.start(image);
            const int64_t n = x.size(0);
            Tensor y = reshape(reshape(slice(x, 1, 0, 24), {n, 6, 4}), {n, 4, 6});
            return x + sum(mean(y, {1}), {1}, true);
          }},
         {"a picture in pieces", {"dp=1", "tp=2", "pp=2"}, [](Parts &m, Tensor image) {
            const int64_t n = image.size(0);
            Tensor y = reshape(reshape(reshape(image, {n, 4, 196}), {n, 14, 56}), {n, 49, 16});
            return m.start(image) + mean(mean(y, {1}), {1}, true);
          }},
         {"reshape and transpose in turn", {"dp=1", "tp=2", "pp=2"}, [](Parts &m, Tensor image) {
            const int64_t n = image.size(0);
            Tensor pieces = m.part(reshape(image, {n, 4, 196}));
            Tensor turned = transpose(reshape(pieces, {n, 2, 2, 32}), 1, 2);
            return m.start(image) + mean(transpose(reshape(turned, {n, 4, 32}), 1, 2), {2});
          }}});
}

TEST_CASE("values used late, and ops outside any module behind a mark") {
  check({{"the input in the last stage",
          {"pp=2", "dp=2,pp=2"},
          [](Parts &m, Tensor image) {
            Tensor x = m.start(image);
            stage(1);
            return m.a(x) + m.quarter(image, 1);
          }},
         {"a module again and again",
          {"pp=2", "dp=2,tp=2,pp=2"},
          [](Parts &m, Tensor image) {
            Tensor x = relu(m.b(m.quarter(image, 0)));
            stage(1);
            for (int i = 1; i < 4; ++i)
              x = relu(m.b(x + m.quarter(image, i)));
            return x;
          }},
         {"ops between the mark and the first layer", {"pp=2", "tp=2,pp=2"}, [](Parts &m, Tensor image) {
            Tensor x = m.start(image), y = x * 2;
            stage(1);
            return m.a(exp(-x) + y);
          }}});
}

TEST_CASE("a value and its gradient cross a cut once each") {
  // The next stage uses x twice, directly and as a view, and passes it on unchanged to the last stage.
  Parts model([](Parts &m, Tensor image) {
    Tensor x = m.start(image);
    stage(1);
    Tensor y = m.a(x) + x + m.norm(reshape(reshape(x, {x.size(0), 4, 8}), x.shape()));
    stage(2);
    return m.b(y) + y;
  });
  const PlanSummary report = summaryOf(*PlanFile::fromBytes(
      Trainer(model, config()).plan({.mesh = "pp=3", .data = "synthetic", .code = false}), "plan"));
  std::map<std::pair<uint32_t, uint32_t>, uint64_t> bytes;
  for (const PlanSummary::Message &message : report.messages)
    bytes[{message.from, message.to}] += message.bytes;
  const uint64_t once = 12 * 32 * 4;
  CHECK(bytes == std::map<std::pair<uint32_t, uint32_t>, uint64_t>{
                     {{0, 1}, once}, {{1, 0}, once}, {{1, 2}, once}, {{2, 1}, once}});
}

namespace {

/// Attention whose heads come from a fused product or grouped queries, with rotations in between.
struct Heads : Module {
  bool fused;
  Embedding embed{*this, "embed", 8, 48};
  Linear qkv{*this, "qkv", 48, 144}, q{*this, "q", 48, 64}, k{*this, "k", 48, 32}, v{*this, "v", 48, 32},
      proj{*this, "proj", 48, 48}, projGrouped{*this, "projGrouped", 64, 48}, out{*this, "out", 48, 10};
  explicit Heads(bool fused) : fused(fused) {}

  static Tensor rotated(Tensor x) {
    const int64_t d = x.size(3);
    return x * 0.5 + concat({-slice(x, 3, d / 2, d), slice(x, 3, 0, d / 2)}, 3);
  }
  static Tensor heads(Tensor x, int64_t count) {
    return transpose(reshape(x, {x.size(0), x.size(1), count, x.size(2) / count}), 1, 2);
  }
  static Tensor joined(Tensor x) {
    return reshape(transpose(x, 1, 2), {x.size(0), x.size(2), x.size(1) * x.size(3)});
  }
  Tensor forward(Tensor image) {
    const int64_t n = image.size(0);
    Tensor x = embed(cast(mean(reshape(image, {n, 28, 28}), {2}) * 4.0, DType::I32));
    if (fused) {
      Tensor y = permute(reshape(qkv(x), {n, 28, 3, 3, 16}), {2, 0, 3, 1, 4});
      x = x + proj(joined(scaledDotProductAttention(rotated(select(y, 0, 0)), rotated(select(y, 0, 1)), select(y, 0, 2))));
    } else {
      x = x + projGrouped(joined(scaledDotProductAttention(rotated(heads(q(x), 4)), rotated(heads(k(x), 2)),
                                                           heads(v(x), 2))));
    }
    return out(mean(x, {1}));
  }
};

} // namespace

TEST_CASE("heads are seen through rotations, fused products and grouped queries") {
  for (bool fused : {true, false}) {
    Heads model(fused);
    Trainer trainer(model, config());
    const PlanSummary report =
        summaryOf(*PlanFile::fromBytes(trainer.plan({.mesh = "tp=2", .data = "synthetic", .code = false}), "plan"));
    for (const PlanSummary::Collective &collective : report.collectives)
      CHECK(collective.kind == "all-reduce");
    for (const PlanSummary::Tensor &tensor : report.tensors)
      if (tensor.name == (fused ? "qkv.weight" : "k.weight"))
        CHECK(tensor.sharding == (fused ? "[3*3/tp*16, 48]" : "[32/tp, 48]"));
    CHECK(trainer.check({.mesh = "tp=2", .threads = 1, .data = "synthetic"}).difference == "");
  }
}

TEST_CASE("a view of a parameter that is kept for the backward pass") {
  check({{"the smaller of a view and an activation", {"tp=2", "pp=2"}, [](Parts &m, Tensor image) {
            return minimum(withSharding(reshape(m.scale.tensor(), {1, 32}), {"", ""}), m.start(image));
          }},
         {"a view that is sent", {"pp=2"}, [](Parts &m, Tensor image) {
            Tensor x = m.start(image), row = reshape(m.scale.tensor(), {1, 32}) + constant({1}, {0.0});
            stage(1);
            return m.a(x) + row;
          }}});
}

TEST_CASE("a buffer that another stage changes is refused") {
  struct Count : Module {
    Linear fc{*this, "fc", 16, 16};
    Buffer sum{*this, "sum", {16}, init::zeros()};
    Count(Module &parent, std::string name) : Module(parent, std::move(name)) {}
    Tensor forward(Tensor x) override {
      sum.set(sum.tensor() + mean(x, {0}));
      return fc(x);
    }
  };
  struct Net : Module {
    Linear in{*this, "in", 784, 16}, out{*this, "out", 16, 10};
    Count count{*this, "count"};
    Tensor forward(Tensor image) {
      Tensor x = count(in(flatten(image, 1)));
      stage(1);
      return out(count(x));
    }
  } model;
  RunOptions options{.mesh = "pp=2", .threads = 1, .data = "synthetic"};
  CHECK_THROWS_WITH(Trainer(model, config()).check(options),
                    Catch::Contains("buffer \"count.sum\", which changes, is used in stages 0 and 1"));
}

TEST_CASE("an automatic cut keeps the uses of a buffer that changes in one stage") {
  struct Net : Module {
    Linear a{*this, "a", 784, 16}, b{*this, "b", 16, 16}, c{*this, "c", 16, 16}, d{*this, "d", 16, 10};
    Buffer center{*this, "center", {16}, init::zeros()}, scale{*this, "scale", {16}, init::constant(0.5)};
    bool constant;
    explicit Net(bool constant) : constant(constant) {}
    Tensor forward(Tensor image) override {
      Tensor x = a(flatten(image, 1)) * scale.tensor();
      if (!constant)
        center.set(center.tensor() * 0.9 + mean(x, {0}) * 0.1);
      return d(c(relu(b(x))) * scale.tensor() + center.tensor());
    }
  };
  Net changing(false), constant(true);
  const RunOptions two{.mesh = "pp=2", .threads = 1, .data = "synthetic"},
      four{.mesh = "pp=4", .threads = 1, .data = "synthetic"};
  CHECK(Trainer(changing, config()).check(two).difference == "");
  CHECK_THROWS_WITH(Trainer(changing, config()).check(four),
                    Catch::Contains("the last use of buffer \"center\" count as one"));
  CHECK(Trainer(constant, config()).check(four).difference == ""); // `scale` is in several stages
}

TEST_CASE("half of the scores of causal attention count as work") {
  struct Net : Module {
    bool causal;
    explicit Net(bool causal) : causal(causal) {}
    Linear in{*this, "in", 28, 32}, out{*this, "out", 28 * 32, 10};
    Tensor forward(Tensor image) override {
      Tensor x = reshape(in(reshape(image, {image.size(0), 28, 28})), {image.size(0), 28, 4, 8});
      x = transpose(x, 1, 2);
      return out(flatten(scaledDotProductAttention(x, x, x, {.causal = causal}), 1));
    }
  };
  const auto flops = [](bool causal) {
    Net model(causal);
    const auto bytes = // where attention is one step
        Trainer(model, config()).plan({.backend = "cuda", .precision = "bf16", .data = "synthetic", .code = false});
    return PlanFile::fromBytes(bytes, "plan")->plan().stages()->Get(0)->flops();
  };
  const double products = 14.0 * config().batch * 4 * 28 * 28 * 8; // forward 2, backward 5, two operations each
  CHECK(flops(false) - flops(true) == Approx(products / 2));
}

namespace {

/// One layer of a GPT with fused products; slices, or reshape and select, take the attention's product apart.
struct Fused : Module {
  bool slices;
  int64_t heads, keys;
  Embedding embed{*this, "embed", 8, 48};
  Linear qkv, proj{*this, "proj", 48, 48}, fc{*this, "fc", 48, 60}, down{*this, "down", 30, 48},
      out{*this, "out", 48, 10};
  explicit Fused(bool slices, int64_t heads = 3, int64_t keys = 3)
      : slices(slices), heads(heads), keys(keys), qkv(*this, "qkv", 48, 48 + 2 * keys * (48 / heads)) {}

  Tensor forward(Tensor image) {
    const int64_t n = image.size(0), d = 48 / heads;
    Tensor x = embed(cast(mean(reshape(image, {n, 28, 28}), {2}) * 4.0, DType::I32));
    Tensor y = qkv(x), gates = fc(x);
    std::vector<Tensor> parts, halves = chunk(gates, 2, -1);
    if (slices) {
      parts = split(y, {48, keys * d, keys * d}, 2);
      for (Tensor &part : parts)
        part = Heads::heads(part, part.size(2) / d);
    } else {
      y = permute(reshape(y, {n, 28, 3, heads, d}), {2, 0, 3, 1, 4});
      parts = {select(y, 0, 0), select(y, 0, 1), select(y, 0, 2)};
    }
    x = x + proj(Heads::joined(scaledDotProductAttention(parts[0], parts[1], parts[2])));
    return out(mean(x + down(silu(halves[0]) * halves[1]), {1}));
  }
};

/// A strategy file that exists as long as the object.
struct StrategyFile {
  const std::filesystem::path path;
  explicit StrategyFile(const std::string &text)
      : path(std::filesystem::temp_directory_path() / fmt::format("cleave-split-{}.toml", getpid())) {
    std::ofstream(path) << text;
  }
  ~StrategyFile() { std::filesystem::remove(path); }
};

/// The number of collectives by kind, and the sharding of tensors by name.
struct Plan {
  std::map<std::string, int64_t> collectives;
  std::map<std::string, std::string> tensors;
  Plan(Module &model, const std::string &mesh, const std::string &strategy = "") {
    const RunOptions options{.mesh = mesh, .strategy = strategy, .data = "synthetic", .code = false};
    const PlanSummary report = summaryOf(*PlanFile::fromBytes(Trainer(model, config()).plan(options), "plan"));
    for (const PlanSummary::Collective &collective : report.collectives)
      collectives[collective.kind] += collective.count;
    for (const PlanSummary::Tensor &tensor : report.tensors)
      tensors[tensor.name] = tensor.sharding;
  }
};

} // namespace

TEST_CASE("slices of a fused product keep its split, as reshape and select do") {
  Fused sliced(true), selected(false);
  const Plan a(sliced, "tp=2"), b(selected, "tp=2");
  CHECK(a.collectives == b.collectives);
  CHECK(a.collectives.count("all-gather") == 0);
  for (const Plan *plan : {&a, &b}) {
    CHECK(plan->tensors.at("qkv.weight") == "[3*3/tp*16, 48]");
    CHECK(plan->tensors.at("qkv.bias") == "[3*3/tp*16]");
    CHECK(plan->tensors.at("fc.weight") == "[2*30/tp, 48]");
    CHECK(plan->tensors.at("down.weight") == "[48, 30/tp]");
  }
  for (const char *mesh : {"tp=2", "tp=3", "dp=2,tp=2"}) {
    INFO(mesh);
    CHECK(Trainer(sliced, config()).check({.mesh = mesh, .threads = 1, .data = "synthetic"}).difference == "");
  }
}

TEST_CASE("fewer keys than queries in one product: no split suits all slices, so it is gathered once") {
  Fused model(true, 6, 2);
  CHECK(Plan(model, "tp=2").tensors.at("qkv.weight") == "[80/tp, 48]");
  const StrategyFile byHeads("mesh = { tp = 2 }\n[shard]\n\"qkv.weight\" = { heads = \"tp\" }\n");
  const std::string said = mistake([&] { Plan(model, "", byHeads.path.string()); });
  CHECK(has(said, "no dimension of this tensor becomes the heads"));
  CHECK(Trainer(model, config()).check({.mesh = "tp=2", .threads = 1, .data = "synthetic"}).difference == "");
}

TEST_CASE("products put together keep their split") {
  struct Joined : Module {
    Linear a{*this, "a", 784, 12}, b{*this, "b", 784, 24}, out{*this, "out", 36, 10};
    Tensor forward(Tensor image) {
      Tensor x = flatten(image, 1);
      return out(relu(concat({a(x), b(x)}, 1)));
    }
  } model;
  const Plan plan(model, "tp=2");
  CHECK(plan.collectives.count("all-gather") == 0);
  CHECK(plan.tensors.at("out.weight") == "[10, 3*12/tp]");
  CHECK(Trainer(model, config()).check({.mesh = "tp=2", .threads = 1, .data = "synthetic"}).difference == "");
}

namespace {

/// Plans a model, then plans it again with the strategy that the first plan writes. Returns the layers of the first
/// plan's stages.
std::string stagesGivenBack(Module &model, const std::string &mesh) {
  const auto plan = [&](const RunOptions &options) {
    return PlanFile::fromBytes(Trainer(model, config()).plan(options), "plan");
  };
  const auto first = plan({.mesh = mesh, .data = "synthetic", .code = false});
  const StrategyFile written(first->plan().strategy()->str());
  const auto again = plan({.strategy = written.path.string(), .data = "synthetic", .code = false});
  const PlanSummary a = summaryOf(*first), b = summaryOf(*again);
  std::string text;
  REQUIRE(a.stages.size() == b.stages.size());
  for (size_t s = 0; s < a.stages.size(); ++s) {
    CHECK(a.stages[s].layers == b.stages[s].layers);
    CHECK(a.stages[s].flops == b.stages[s].flops);
    CHECK(a.stages[s].parameters == b.stages[s].parameters);
    text += fmt::format("{}{}", s ? " | " : "", fmt::join(a.stages[s].layers, ", "));
  }
  CHECK(first->plan().programs()->size() == again->plan().programs()->size());
  return text;
}

Parts again(int marked) {
  return Parts([marked](Parts &m, Tensor image) {
    Tensor x = m.start(image);
    for (int i = 0; i < 6; ++i) {
      if (i == marked)
        stage(1);
      x = relu(i % 2 ? m.b(x) : m.a(x));
    }
    return x;
  });
}

} // namespace

TEST_CASE("a strategy that a plan writes, given back, cuts at the same places") {
  for (auto [marked, stages] : {std::pair{2, "in, a, b | a use 2, out"}, {5, "in, a, b | b use 3, out"}}) {
    Parts model = again(marked);
    CHECK(stagesGivenBack(model, "pp=2") == stages);
  }
  // Without a mark between two uses, the cut is before or after the second layer.
  Parts unmarked = again(-1);
  CHECK(has(stagesGivenBack(unmarked, "pp=4"), " use "));
  // A mark inside a module, and one before ops outside any module.
  struct Inside : Module {
    struct Pair : Module {
      Linear one{*this, "one", 784, 32}, two{*this, "two", 32, 10};
      using Module::Module;
      Tensor forward(Tensor x) {
        Tensor y = one(x);
        stage(1);
        return two(y);
      }
    };
    Pair pair{*this, "pair"};
    Linear last{*this, "last", 10, 10};
    Parameter scale{*this, "scale", {10}, init::ones()};
    Tensor forward(Tensor image) {
      Tensor x = last(pair(flatten(image, 1)));
      stage(2);
      return x * scale;
    }
  } inside;
  CHECK(stagesGivenBack(inside, "pp=3") == "pair | pair use 2, last | ");
}

TEST_CASE("wrong uses of a layer in a strategy file") {
  const auto said = [](const std::string &stages) {
    Parts model = again(-1);
    const StrategyFile file("mesh = { pp = 2 }\nstages = " + stages + "\n");
    return mistake([&] { Trainer(model, config()).plan({.strategy = file.path.string(), .data = "synthetic"}); });
  };
  CHECK(has(said(R"([["in", "a"], ["b", "a use 4", "out"]])"), "\"a use 4\", but the model uses layer \"a\" 3 times"));
  CHECK(has(said(R"([["in", "a", "b", "a use 3"], ["a use 2", "out"]])"),
            "layer \"a use 3\" is in stage 0, but layers that run before it are in stage 1"));
  CHECK(has(said(R"([["in", "a use 2", "b"], ["out"]])"), "layer \"a\" of the model is in no stage"));
  CHECK(has(said(R"([["in", "a", "b"], ["a use two", "out"]])"), "a later use of a layer is written \"embed use 2\""));
  CHECK(has(said(R"([["in", "a", "b", "out"], []])"), "stage 1 is empty in the order in which the model runs"));
}

TEST_CASE("a stage without parameters is refused") {
  Parts::Body body = [](Parts &m, Tensor image) {
    Tensor x = flatten(image, 1);
    stage(1);
    return m.start(image) + sum(x, {1}, true);
  };
  CHECK(has(mistake([&] { differenceOf(body, "pp=2"); }), "stage 0 has no parameters"));
}
