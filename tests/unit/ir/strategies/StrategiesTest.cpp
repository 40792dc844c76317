// Every strategy computes the same step: compares the distributed interpreter on an applied strategy, with a thread per
// rank, with the reference interpreter on global shapes. Uses no device and no plan. Adam has a large eps: some
// gradients are zero except for rounding (a bias before a normalisation), and a small eps would amplify the rounding.
#include "frontend/trace/TraceModel.h"
#include "ir/graph/Graph.h"
#include "ir/interpreter/Distributed.h"
#include "passes/pipeline/Phases.h"
#include "tests/support/FunctionModels.h"

#include <catch2/catch.hpp>
#include <cleave/cleave.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <functional>
#include <random>

using namespace cleave;
using ir::HostTensor;
using ir::SlotKey;
using ir::Slots;

namespace {

/// Marks in the model's code. A test that draws marks sets it; by default it does nothing.
std::function<Tensor(Tensor)> mark = [](Tensor x) { return x; };

// ---- models: small ones that together use the features of the samples -----------------------------------------------

struct Mlp : Module {
  Linear fc1{*this, "fc1", 12, 10}, fc2{*this, "fc2", 10, 7}, fc3{*this, "fc3", 7, 5};
  Tensor forward(Tensor image) { return fc3(mark(relu(mark(fc2(dropout(mark(gelu(fc1(flatten(image, 1)))), 0.25)))))); }
};

struct ConvBlock : Module {
  Conv2d conv;
  BatchNorm2d norm;
  ConvBlock(Module &parent, std::string name, int64_t in, int64_t out)
      : Module(parent, std::move(name)), conv{*this, "conv", in, out, {.kernel = 3, .padding = 1}}, norm{*this, "norm",
                                                                                                         out} {}
  Tensor forward(Tensor x) { return mark(maxPool2d(relu(mark(norm(mark(conv(x))))), 2)); }
};

struct ConvNet : Module {
  ConvBlock block1{*this, "block1", 2, 6}, block2{*this, "block2", 6, 4};
  Linear fc{*this, "fc", 4, 5};
  Tensor forward(Tensor image) { return fc(flatten(globalAvgPool(block2(block1(image))), 1)); }
};

struct Block : Module {
  LayerNorm norm1, norm2;
  Linear qkv, projection, up, down;
  Block(Module &parent, std::string name)
      : Module(parent, std::move(name)), norm1{*this, "norm1", 8}, norm2{*this, "norm2", 8}, qkv{*this, "qkv", 8, 24},
        projection{*this, "projection", 8, 8}, up{*this, "up", 8, 16}, down{*this, "down", 16, 8} {}
  Tensor forward(Tensor x) {
    int64_t b = x.size(0), t = x.size(1);
    Tensor packed = reshape(qkv(norm1(x)), {b, t, 3, 4, 2});
    auto part = [&](int64_t i) { return transpose(select(packed, 2, i), 1, 2); };
    Tensor mixed = scaledDotProductAttention(part(0), part(1), part(2), {.causal = true});
    x = mark(x + mark(projection(reshape(transpose(mark(mixed), 1, 2), {b, t, 8}))));
    return x + mark(down(gelu(mark(up(mark(norm2(x)))), Gelu::Tanh)));
  }
};

struct Gpt : Module {
  Embedding embed{*this, "embed", 11, 8}, positions{*this, "positions", 6, 8};
  ModuleList<Block> blocks{*this, "blocks", 2};
  LayerNorm norm{*this, "norm", 8};
  Tensor forward(Tensor tokens) { return linear(norm(blocks(embed(tokens) + positions.weight)), embed.weight); }
};

/// Models that together call every function of the DSL.
const std::map<std::string, test::FunctionModel> functionModels = test::functionModels();

TrainConfig configOf(const std::string &model) {
  if (auto found = functionModels.find(model); found != functionModels.end())
    return found->second.config;
  if (model == "gpt")
    return {.data = Text{.context = 6, .vocab = 11}, .optimizer = AdamW{.lr = 0.01, .eps = 1e-2}, .clipNorm = 0.5};
  if (model == "convnet")
    return {.data = SyntheticImages{.channels = 2, .height = 8, .width = 8, .classes = 5},
            .optimizer = Adam{.lr = 0.01, .eps = 1e-2}};
  return {.data = SyntheticImages{.channels = 3, .height = 2, .width = 2, .classes = 5},
          .optimizer = Sgd{.lr = 0.1, .momentum = 0.9}};
}

GraphModule trace(const std::string &model, int64_t rows) {
  if (auto found = functionModels.find(model); found != functionModels.end())
    return traceModel(found->second.make(), found->second.config, rows);
  Mlp mlp;
  ConvNet convNet;
  Gpt gpt;
  Model chosen = model == "gpt" ? makeModel(gpt) : model == "convnet" ? makeModel(convNet) : makeModel(mlp);
  return traceModel(chosen, configOf(model), rows);
}

// ---- slots ---------------------------------------------------------------------------------------------------------

struct Named {
  ir::SlotKind kind;
  std::string name;
  HostTensor type;
};

Named namedOf(mlir::DictionaryAttr attributes, mlir::Type type) {
  auto text = [&](llvm::StringRef key) {
    auto value = attributes.getAs<mlir::StringAttr>(key);
    return value ? value.str() : std::string();
  };
  auto tensor = mlir::cast<mlir::RankedTensorType>(type);
  mlir::Type element = tensor.getElementType();
  DType dtype = element.isF32() ? DType::F32 : element.isInteger(32) ? DType::I32 : DType::I1;
  Named named{ir::slotKindOf(text(ir::attr::kind)), text(ir::attr::name), HostTensor(tensor.getShape().vec(), dtype)};
  if (named.name.empty())
    named.name = ir::text(named.kind);
  return named;
}

std::vector<Named> argumentsOf(mlir::func::FuncOp func) {
  std::vector<Named> list;
  for (unsigned i = 0; i < func.getNumArguments(); ++i)
    list.push_back(namedOf(func.getArgAttrDict(i), func.getArgument(i).getType()));
  return list;
}
std::vector<Named> resultsOf(mlir::func::FuncOp func) {
  std::vector<Named> list;
  for (unsigned i = 0; i < func.getNumResults(); ++i)
    list.push_back(namedOf(func.getResultAttrDict(i), func.getResultTypes()[i]));
  return list;
}

/// Numbers that depend only on the slot and the microbatch. Labels are in [-1, 4]: some rows are ignored.
HostTensor filled(const Named &slot, int64_t microbatch) {
  HostTensor tensor = slot.type;
  uint32_t state = static_cast<uint32_t>(microbatch * 77 + 1);
  for (char c : std::string(ir::text(slot.kind)) + slot.name)
    state = state * 31 + static_cast<uint32_t>(c);
  for (double &value : tensor.values) {
    state = state * 1664525u + 1013904223u;
    double unit = (state >> 8) * 0x1p-24;
    value = tensor.dtype == DType::I32 ? std::floor(unit * 6) - (slot.name == "label")
                                       : (slot.kind == ir::SlotKind::Input ? 2 : 0.6) * (unit - 0.5);
  }
  if (slot.kind == ir::SlotKind::State)
    tensor = HostTensor(tensor.shape, tensor.dtype);
  tensor.round();
  return tensor;
}

constexpr double lr = 0.05, trainingStep = 1;
const ir::Context context{.seed = 3, .trainingStep = 1};

passes::CompileOptions oneDevice(int64_t rows, int64_t microbatches) {
  passes::CompileOptions options;
  options.strategy.mesh = partitioner::parseMesh("dp=1");
  options.strategy.microbatches = microbatches;
  options.batch = rows * microbatches;
  return options;
}

/// All slots that exist before the step.
Slots beginning(const GraphModule &step, int64_t microbatches) {
  Slots slots{{{ir::SlotKind::Scalar, "lr"}, HostTensor({}, DType::F32, lr)},
              {{ir::SlotKind::Scalar, "step"}, HostTensor({}, DType::F32, trainingStep)}};
  for (const char *name : {"train", "update"})
    for (const Named &slot : argumentsOf(step.module().lookupSymbol<mlir::func::FuncOp>(name))) {
      if (slot.kind == ir::SlotKind::Parameter || slot.kind == ir::SlotKind::Buffer || slot.kind == ir::SlotKind::State)
        slots[{slot.kind, slot.name}] = filled(slot, 0);
      for (int64_t m = 0; slot.kind == ir::SlotKind::Input && m < microbatches; ++m)
        slots[{slot.kind, slot.name, m}] = filled(slot, m);
    }
  return slots;
}

/// One iteration on global shapes.
Slots wholeStep(const GraphModule &step, Slots slots, int64_t microbatches) {
  auto train = step.module().lookupSymbol<mlir::func::FuncOp>("train"),
       update = step.module().lookupSymbol<mlir::func::FuncOp>("update");
  for (int64_t m = 0; m < microbatches; ++m) {
    std::vector<HostTensor> inputs;
    for (const Named &slot : argumentsOf(train))
      inputs.push_back(slots.at({slot.kind, slot.name, slot.kind == ir::SlotKind::Input ? m : 0}));
    ir::Context now = context;
    now.microbatch = m;
    auto results = ir::evaluate(train, inputs, now);
    auto names = resultsOf(train);
    for (size_t i = 0; i < names.size(); ++i) {
      bool sums = names[i].kind != ir::SlotKind::Buffer;
      bool metric = ir::isMetric(names[i].kind);
      SlotKey key{metric ? ir::SlotKind::Metric : names[i].kind, names[i].name};
      if (sums && (m > 0 || slots.count(key)))
        for (int64_t j = 0; j < results[i].size(); ++j)
          results[i].values[j] += slots.at(key).values[j];
      slots[key] = results[i];
    }
  }
  std::vector<HostTensor> inputs;
  for (const Named &slot : argumentsOf(update))
    inputs.push_back(slots.at({slot.kind, slot.name}));
  auto results = ir::evaluate(update, inputs, context);
  auto names = resultsOf(update);
  for (size_t i = 0; i < names.size(); ++i)
    slots[{names[i].kind, names[i].name}] = results[i];
  return slots;
}

struct Run {
  Slots slots;   // whole parameters, buffers and states after the step
  Slots metrics; // of rank 0
};

/// One iteration under a strategy, a thread per rank.
Run distributedStep(const std::string &model, const std::string &mesh, const std::string &schedule,
                    int64_t microbatches, int64_t rows, const Slots &before,
                    const std::vector<partitioner::ShardRule> &rules = {}, passes::CompileOptions options = {}) {
  options.strategy.shard = rules;
  options.strategy.mesh = partitioner::parseMesh(mesh);
  options.strategy.schedule = schedule;
  options.strategy.microbatches = microbatches;
  options.batch = rows * microbatches;
  GraphModule traced = trace(model, rows);
  partitioner::LocalPrograms applied = passes::applyStrategy(traced, options);
  ir::DistributedProgram program{applied.module->getOperation(), applied.decisions.mesh, {}, {}};
  program.functions.resize(static_cast<size_t>(program.mesh.ranks()));
  program.schedules.resize(program.functions.size());
  for (const partitioner::RankClass &rankClass : applied.classes)
    for (int64_t rank : rankClass.ranks) {
      for (const auto &[segment, function] : rankClass.functions)
        program.functions[static_cast<size_t>(rank)][segment.str()] = function;
      for (const partitioner::ScheduleItem &item : applied.train[static_cast<size_t>(rankClass.position)])
        program.schedules[static_cast<size_t>(rank)].push_back({item.segment.str(), item.microbatch});
    }
  auto after = ir::runDistributed(program, ir::scatterSlots(program, before), context);
  Run run{ir::gatherSlots(program, after), {}};
  for (auto &[key, value] : after[0])
    if (key.kind == ir::SlotKind::Metric)
      run.metrics[key] = value;
  return run;
}

/// Compares parameters, buffers, states and metrics; fails if a slot is missing.
void compare(const Slots &expected, const Run &found, double tolerance) {
  int64_t compared = 0;
  for (const auto &[key, tensor] : expected) {
    bool metric = key.kind == ir::SlotKind::Metric;
    if (!metric && key.kind != ir::SlotKind::Parameter && key.kind != ir::SlotKind::Buffer &&
        key.kind != ir::SlotKind::State)
      continue;
    const Slots &where = metric ? found.metrics : found.slots;
    INFO(ir::text(key.kind) << " " << key.name);
    REQUIRE(where.count(key));
    REQUIRE(ir::largestError(tensor, where.at(key)) <= tolerance);
    ++compared;
  }
  REQUIRE(compared > 6);
}

} // namespace

TEST_CASE("any mesh, schedule and uneven split computes the step of one device") {
  struct Case {
    std::string model, mesh, schedule;
    int64_t microbatches;
  };
  std::vector<Case> cases;
  for (std::string model : {"mlp", "convnet", "gpt"}) {
    for (std::string mesh : {"dp=1", "dp=2", "dp=3", "tp=2", "tp=3", "dp=2,tp=2"})
      cases.push_back({model, mesh, "1f1b", 2});
    for (std::string mesh : {"pp=2", "dp=2,tp=2,pp=2"})
      for (std::string schedule : {"1f1b", "gpipe"})
        cases.push_back({model, mesh, schedule, 3});
  }
  constexpr int64_t rows = 4;
  std::map<std::pair<std::string, int64_t>, std::pair<Slots, Slots>> references;
  for (const Case &c : cases) {
    auto [entry, added] = references.try_emplace({c.model, c.microbatches});
    auto &[before, expected] = entry->second;
    if (added) {
      passes::CompileOptions options = oneDevice(rows, c.microbatches);
      GraphModule step = passes::step(trace(c.model, rows), options);
      before = beginning(step, c.microbatches);
      expected = wholeStep(step, before, c.microbatches);
    }
    INFO(fmt::format("{} {} {} {} microbatches", c.model, c.mesh, c.schedule, c.microbatches));
    compare(expected, distributedStep(c.model, c.mesh, c.schedule, c.microbatches, rows, before), 2e-5);
  }
}

TEST_CASE("every function of the DSL computes the same under any split") {
  constexpr int64_t rows = 6, microbatches = 2;
  for (const auto &[model, unused] : functionModels) {
    passes::CompileOptions options = oneDevice(rows, microbatches);
    GraphModule step = passes::step(trace(model, rows), options);
    Slots before = beginning(step, microbatches), expected = wholeStep(step, before, microbatches);
    for (std::string mesh : {"dp=2", "dp=3,tp=2", "tp=3", "dp=2,tp=2,pp=2"}) {
      INFO(model << " " << mesh);
      compare(expected, distributedStep(model, mesh, "1f1b", microbatches, rows, before), 5e-5);
    }
  }
}

TEST_CASE("half precision, whatever type the gradients are reduced in") {
  constexpr int64_t rows = 4, microbatches = 3;
  for (std::string model : {"mlp", "convnet", "gpt"}) {
    passes::CompileOptions options = oneDevice(rows, microbatches);
    options.precision = {.type = Precision::Type::Bf16, .level = 2};
    GraphModule step = passes::step(trace(model, rows), options);
    Slots before = beginning(step, microbatches), expected = wholeStep(step, before, microbatches);
    for (std::string mesh : {"dp=3", "dp=2,tp=2", "dp=2,tp=2,pp=2"})
      for (Precision::Type reduce : {Precision::Type::Fp32, Precision::Type::Bf16}) {
        INFO(fmt::format("{} {} reduced in {}", model, mesh, text(reduce)));
        options.precision.reduce = reduce;
        compare(expected, distributedStep(model, mesh, "1f1b", microbatches, rows, before, {}, options), 3e-2);
        // A parameter split over dp: its gradient is finished in every microbatch.
        if (model != "mlp")
          continue;
        const std::vector<partitioner::ShardRule> rules{{"fc1.weight", {{"0", "dp"}}, "file"}};
        compare(expected, distributedStep(model, mesh, "gpipe", microbatches, rows, before, rules, options), 3e-2);
      }
  }
}

TEST_CASE("channels last, split or not, computes the same step") {
  constexpr int64_t rows = 4, microbatches = 3;
  passes::CompileOptions options = oneDevice(rows, microbatches);
  GraphModule step = passes::step(trace("convnet", rows), options);
  Slots before = beginning(step, microbatches), expected = wholeStep(step, before, microbatches);
  options.channelsLast = true;
  for (std::string mesh : {"dp=1", "dp=3", "tp=2", "tp=3", "dp=2,tp=2", "pp=2", "dp=2,tp=2,pp=2"}) {
    INFO(mesh);
    compare(expected, distributedStep("convnet", mesh, "1f1b", microbatches, rows, before, {}, options), 2e-5);
  }
}

TEST_CASE("the same strategy gives the same bits, whichever thread is first") {
  constexpr int64_t rows = 4, microbatches = 3;
  passes::CompileOptions options = oneDevice(rows, microbatches);
  Slots before = beginning(passes::step(trace("gpt", rows), options), microbatches);
  Run first = distributedStep("gpt", "dp=2,tp=2,pp=2", "1f1b", microbatches, rows, before);
  for (int i = 0; i < 3; ++i) {
    Run again = distributedStep("gpt", "dp=2,tp=2,pp=2", "1f1b", microbatches, rows, before);
    CHECK((first.slots == again.slots)); // parameters, gradients, stashes, ...
    CHECK((first.metrics == again.metrics));
  }
}

namespace {

/// Random marks and rules that are legal by construction: an axis splits a tensor at most once, and only a dimension
/// that is large enough.
class Draw {
public:
  Draw(uint32_t seed, const std::string &mesh) : random(seed), mesh(partitioner::parseMesh(mesh)) {}

  std::vector<partitioner::ShardRule> rules(const GraphModule &step) {
    std::vector<partitioner::ShardRule> rules;
    for (const Named &slot : argumentsOf(step.module().lookupSymbol<mlir::func::FuncOp>("train")))
      if (slot.kind == ir::SlotKind::Parameter && random() % 2) {
        partitioner::ShardRule rule{slot.name, {}, "file"};
        std::vector<std::string> dims = split(slot.type.shape);
        for (size_t d = 0; d < dims.size(); ++d)
          if (!dims[d].empty())
            rule.dims[std::to_string(d)] = dims[d];
        text += fmt::format("{} [{}]; ", slot.name, fmt::join(dims, ", "));
        rules.push_back(std::move(rule));
      }
    return rules;
  }

  Tensor operator()(Tensor x) {
    if (random() % 3)
      return x;
    std::vector<std::string> dims = split(x.shape());
    for (std::string &entry : dims)
      if (entry.empty() && random() % 2)
        entry = "whole";
    text += fmt::format("mark [{}]; ", fmt::join(dims, ", "));
    return withSharding(x, dims);
  }

  std::string text; ///< the drawn rules and marks, for messages

private:
  std::minstd_rand random;
  Mesh mesh;

  std::vector<std::string> split(const std::vector<int64_t> &shape) {
    std::vector<std::string> dims(shape.size());
    std::vector<std::string> axes{"dp", "tp"};
    if (random() % 4 == 0 && !shape.empty() && shape[0] >= mesh.size(axes)) {
      dims[0] = random() % 2 ? "dp+tp" : "tp+dp";
      return dims;
    }
    for (const std::string &axis : axes)
      if (size_t d = random() % (shape.size() + 1); d < shape.size() && dims[d].empty() && shape[d] >= mesh.size(axis))
        dims[d] = axis;
    return dims;
  }
};

} // namespace

TEST_CASE("whatever the user pins and marks, the step is that of one device") {
  constexpr int64_t rows = 6, microbatches = 2;
  for (std::string model : {"mlp", "convnet", "gpt"}) {
    passes::CompileOptions options = oneDevice(rows, microbatches);
    GraphModule step = passes::step(trace(model, rows), options);
    Slots before = beginning(step, microbatches), expected = wholeStep(step, before, microbatches);
    for (std::string mesh : {"dp=2,tp=2", "tp=3", "dp=3,tp=2", "dp=2,tp=2,pp=2"})
      for (uint32_t seed = 1; seed <= 8; ++seed) {
        Draw draw(seed, mesh);
        auto rules = draw.rules(step);
        mark = std::ref(draw);
        INFO(model << " " << mesh << " seed " << seed);
        Run run;
        try {
          options.channelsLast = seed % 2 == 0;
          run = distributedStep(model, mesh, "1f1b", microbatches, rows, before, rules, options);
        } catch (const std::exception &error) {
          FAIL(error.what() << ": " << draw.text);
        }
        mark = [](Tensor x) { return x; };
        INFO(draw.text);
        compare(expected, run, 2e-5);
      }
  }
}

TEST_CASE("every function of the DSL, whatever the user pins and marks") {
  constexpr int64_t rows = 6, microbatches = 2;
  for (const auto &[model, unused] : functionModels) {
    passes::CompileOptions options = oneDevice(rows, microbatches);
    GraphModule step = passes::step(trace(model, rows), options);
    Slots before = beginning(step, microbatches), expected = wholeStep(step, before, microbatches);
    for (std::string mesh : {"dp=2,tp=2", "dp=2,tp=3"})
      for (uint32_t seed = 1; seed <= 6; ++seed) {
        Draw draw(seed, mesh);
        auto rules = draw.rules(step);
        test::functionMark = std::ref(draw);
        INFO(model << " " << mesh << " seed " << seed);
        Run run;
        try {
          options.channelsLast = seed % 2 == 0;
          run = distributedStep(model, mesh, "1f1b", microbatches, rows, before, rules, options);
        } catch (const std::exception &error) {
          FAIL(error.what() << ": " << draw.text);
        }
        test::functionMark = [](Tensor x) { return x; };
        INFO(draw.text);
        compare(expected, run, 5e-5);
      }
  }
}
