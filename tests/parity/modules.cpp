// Compares modules and composed functions with PyTorch's numbers (goldens/modules.json, made by make_goldens.py from
// modules.py). Each case is written with the DSL, traced, differentiated and run by the interpreter.
#include "frontend/trace/Trace.h"
#include "frontend/trace/TraceModel.h"
#include "passes/decompose/Decompose.h"
#include "passes/differentiate/Differentiate.h"
#include "passes/simplify/Simplify.h"
#include "tests/unit/passes/Programs.h"

#include <catch2/catch.hpp>
#include <cleave/cleave.h>

using namespace cleave;
using namespace cleave::testing;

namespace {

/// A data set of one sample with the fields "unused" and "c".
struct OneSample : Dataset {
  std::vector<DataField> all;
  explicit OneSample(const Shape &cotangent)
      : all{{"unused", FieldType::F32, {}, 0}, {"c", FieldType::F32, cotangent, 0}} {}
  const std::vector<DataField> &fields() const override { return all; }
  int64_t samples(Split) const override { return 1; }
  void read(Split, int64_t, size_t, std::byte *) const override {}
};

/// A model whose parameters are the case's inputs, so that they have gradients. Its result is stored in a buffer.
struct Root : Module {
  std::map<std::string, std::unique_ptr<Parameter>> inputs;
  std::vector<std::shared_ptr<void>> kept;
  std::unique_ptr<Buffer> result;
  std::function<Tensor()> body;

  Tensor operator[](const std::string &name) { return inputs.at(name)->tensor(); }
  template <class T, class... Args> T &make(Args &&...args) {
    auto made = std::make_shared<T>(*this, std::forward<Args>(args)...);
    kept.push_back(made);
    return *made;
  }
  Tensor forward(Tensor) {
    Tensor y = body();
    result->set(y);
    return y;
  }
};

Tensor flat(const std::vector<Tensor> &tensors) {
  std::vector<Tensor> rows;
  for (Tensor tensor : tensors)
    rows.push_back(flatten(tensor));
  return concat(rows, 0);
}

using Body = std::function<Tensor()>;

Body normCase(const std::string &name, Root &r) {
  if (name == "rms_norm")
    return [&, &norm = r.make<RmsNorm>("norm", 6)] { return norm(r["x"]); };
  if (name == "group_norm")
    return [&, &norm = r.make<GroupNorm>("norm", 2, 4)] { return norm(r["x"]); };
  if (name == "instance_norm")
    return [&, &norm = r.make<InstanceNorm2d>("norm", 4, GroupNormOptions{})] { return norm(r["x"]); };
  if (name == "instance_norm_plain")
    return [&, &norm = r.make<InstanceNorm2d>("norm", 4)] { return norm(r["x"]); };
  if (name == "prelu")
    return [&, &prelu = r.make<PReLU>("prelu", 4)] { return prelu(r["x"]); };
  return {};
}

Body attentionCase(const std::string &name, Root &r) {
  const auto attend = [&](AttentionOptions options) {
    return scaledDotProductAttention(r["q"], r["k"], r["v"], options);
  };
  if (name == "attention_float_mask" || name == "attention_grouped_mask")
    return [&, attend] { return attend({.mask = r["m"]}); };
  if (name == "attention_bool_mask" || name == "attention_hidden_rows")
    return [&, attend] { return attend({.mask = r["m"] > 0}); };
  if (name == "attention_causal_mask")
    return [&, attend] {
      return attend({.causal = true, .scale = 0.3, .mask = r["m"], .alignment = CausalAlignment::LowerRight});
    };
  if (name == "attention_grouped")
    return [&, attend] { return attend({}); };
  if (name == "rotary")
    return [&] { return rotaryEmbedding(r["x"]); };
  if (name == "rotary_start")
    return [&] { return rotaryEmbedding(r["x"], {.base = 100, .start = 3}); };
  if (name == "multihead_attention")
    return [&, &mha = r.make<MultiheadAttention>("mha", 6, 2)] { return mha(r["x"]); };
  if (name == "multihead_attention_cross")
    return [&, &mha = r.make<MultiheadAttention>("mha", 6, 3, MultiheadAttentionOptions{.bias = false})] {
      return mha(r["q"], r["k"], r["v"], r["m"]);
    };
  return {};
}

Body sequenceCase(const std::string &name, Root &r) {
  const bool both = name.find("_bidirectional") != std::string::npos;
  if (name == "lstm" || name == "lstm_bidirectional")
    return [&, &lstm = r.make<LSTM>("lstm", 3, 4, RecurrentOptions{.layers = 2, .bidirectional = both})] {
      auto [y, state] = lstm(r["x"], {r["h"], r["c0"]});
      return flat({y, state.h, state.c});
    };
  if (name == "lstm_plain")
    return [&, &lstm = r.make<LSTM>("lstm", 3, 4, RecurrentOptions{.bias = false})] { return Tensor(lstm(r["x"])); };
  if (name == "gru" || name == "gru_bidirectional")
    return [&, &gru = r.make<GRU>("gru", 3, 4, RecurrentOptions{.layers = 2, .bidirectional = both})] {
      auto [y, h] = gru(r["x"], r["h"]);
      return flat({y, h});
    };
  if (name == "gru_plain" || name == "gru_bidirectional_plain")
    return [&, &gru = r.make<GRU>("gru", 3, 4, RecurrentOptions{.bias = !both, .bidirectional = both})] {
      return Tensor(gru(r["x"]));
    };
  if (name == "sequential")
    return [&, &row = r.make<Sequential>(
                   "row", layer<Linear>(3, 4), [](Tensor x) { return cleave::tanh(x); }, layer<Linear>(4, 2))] {
      return row(r["x"]);
    };
  return {};
}

Body bodyOf(const std::string &name, Root &r) {
  for (auto make : {normCase, attentionCase, sequenceCase})
    if (Body body = make(name, r))
      return body;
  FAIL("modules.json has a case that modules.cpp does not know: " << name);
  return {};
}

GraphModule tracedCase(const nlohmann::json &example) {
  Root root;
  for (const auto &[name, value] : example["parameters"].items())
    if (name.find('.') == std::string::npos)
      root.inputs[name] = std::make_unique<Parameter>(root, name, value["shape"].get<Shape>());
  const Shape shape = example["result"]["shape"];
  root.result = std::make_unique<Buffer>(root, "result", shape);
  root.body = bodyOf(example["name"], root);
  TrainConfig config{.data = std::make_shared<OneSample>(shape), .loss = [](Tensor y, Tensor c) {
                       return Loss{sum(y * squeeze(c, 0)), full({}, 1), {}, 1};
                     }};
  return traceModel(makeModel(root), config, 1);
}

Arrays argumentsOfCase(const nlohmann::json &example) {
  Arrays arguments;
  for (const auto &[name, value] : example["parameters"].items())
    arguments["parameter:" + name] = arrayOf(value);
  Array cotangent = arrayOf(example["c"]);
  cotangent.shape.insert(cotangent.shape.begin(), 1);
  arguments["input:c"] = cotangent;
  arguments["input:unused"] = {{1}, {0}};
  Array result = arrayOf(example["result"]);
  result.data.assign(result.data.size(), 0);
  arguments["buffer:result"] = result;
  return arguments;
}

} // namespace

TEST_CASE("modules and their gradients equal PyTorch's", "[parity]") {
  for (const auto &example : golden("modules.json")) {
    const std::string name = example["name"];
    DYNAMIC_SECTION(name) {
      GraphModule whole = tracedCase(example);
      passes::differentiate(whole.module(), 1);
      REQUIRE(whole.verify().empty());
      GraphModule parts = whole.clone();
      passes::simplify(parts.module());
      passes::decompose(parts.module());
      passes::simplify(parts.module());
      REQUIRE(parts.verify().empty());
      for (const GraphModule *module : {&whole, &parts}) {
        Arrays results = evaluate(*module, "train", argumentsOfCase(example));
        CHECK(apart(results.at("buffer:result"), arrayOf(example["result"])) < 5e-6);
        for (const auto &[parameter, gradient] : example["gradients"].items()) {
          INFO(parameter);
          const Array wanted = arrayOf(gradient);
          CHECK(apart(gradientOf(results, parameter, wanted.shape), wanted) < 1e-5);
        }
      }
    }
  }
}
