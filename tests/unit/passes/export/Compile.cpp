// From a traced model to a running plan on several meshes: every plan passes the checker, trains like the one-rank
// plan, and stays close to the memory bound.
#include "passes/export/Record.h"
#include "passes/pipeline/Pipeline.h"
#include "runtime/comm/LocalWorld.h"
#include "runtime/executor/Executor.h"
#include "runtime/plan/DTypes.h"
#include "runtime/plan/Inputs.h"
#include "runtime/plan/Streams.h"
#include "runtime/plan/check/Check.h"
#include "runtime/plan/plan_generated.h"
#include "runtime/plan/steps/Steps.h"

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include <cstring>
#include <functional>
#include <map>
#include <set>

using namespace cleave;

namespace {

/// Writes a small GPT as text: embedding, one block of attention and MLP per layer, tied head, cross entropy.
class GptText {
public:
  GptText(int64_t rows, int layers) : rows(rows) {
    argument("wte", "vocab x width", {vocab, width});
    argument("wpe", "", {time, width});
    std::string x = embed();
    for (int layer = 0; layer < layers; ++layer)
      x = block(fmt::format("blocks.{}", layer), x);
    loss(x);
  }

  std::string module() const {
    std::string results = "tensor<f32> {cleave.kind = \"loss\"}, tensor<f32> {cleave.kind = \"weight\"}, tensor<f32> "
                          "{cleave.kind = \"correct\"}";
    std::string signature =
        arguments + fmt::format("%tokens: tensor<{0}x{1}xi32> {{cleave.kind = \"input\", cleave.name = \"tokens\"}}, "
                                "%targets: tensor<{0}x{1}xi32> {{cleave.kind = \"input\", cleave.name = \"targets\"}}",
                                rows, time);
    std::string text = "module attributes {cleave.optimizer = {name = \"adamw\", lr = 0.01 : f64, weight_decay = 0.01 "
                       ": f64, clip_norm = 1.0 : f64}} {\n";
    for (const char *name : {"forward", "eval"})
      text += fmt::format("func.func @{}({}) -> ({}) attributes {{cleave.static_weight = {} : i64}} {{\n{}\n"
                          "  return %loss, %weight, %correct : tensor<f32>, tensor<f32>, tensor<f32>\n}}\n",
                          name, signature, results, rows * time, body);
    return text + "}\n";
  }

  static constexpr int64_t vocab = 24, width = 16, heads = 4, time = 8;

private:
  int64_t rows;
  std::string arguments, body;
  int count = 0;

  static std::string type(const std::vector<int64_t> &shape, const char *element = "f32") {
    std::string text = "tensor<";
    for (int64_t size : shape)
      text += std::to_string(size) + "x";
    return text + element + ">";
  }
  static std::string mangled(std::string name) {
    std::replace(name.begin(), name.end(), '.', '_');
    return "%" + name;
  }
  std::string argument(const std::string &name, const std::string &, const std::vector<int64_t> &shape) {
    const char *init = shape.size() == 1
                           ? (name.ends_with("weight") ? "\"constant\", 1.0, 0.0" : "\"constant\", 0.0, 0.0")
                           : "\"normal\", 0.0, 0.2";
    arguments += fmt::format("{}: {} {{cleave.kind = \"parameter\", cleave.name = \"{}\", cleave.trainable = true, "
                             "cleave.init = #cleave.init<{}>}}, ",
                             mangled(name), type(shape), name, init);
    return mangled(name);
  }
  std::string op(const std::string &path, const std::string &text) {
    std::string result = fmt::format("%v{}", count++);
    std::string line = text;
    if (auto at = line.find("@PATH"); at != std::string::npos)
      line.replace(at, 5, "cleave.path = \"" + path + "\"");
    body += "  " + result + " = " + line + "\n";
    return result;
  }
  std::string binary(const std::string &path, const char *name, const std::string &a, const std::string &b,
                     const std::string &t) {
    return op(path, fmt::format("cleave.{} {}, {} {{@PATH}} : {}", name, a, b, t));
  }
  std::string linear(const std::string &path, const std::string &x, int64_t in, int64_t out) {
    std::string w = argument(path + ".weight", "", {out, in}), b = argument(path + ".bias", "", {out});
    std::string t = type({rows, time, out});
    std::string y = op(path, fmt::format("cleave.matmul {}, {} {{transB, @PATH}} : ({}, {}) -> {}", x, w,
                                         type({rows, time, in}), type({out, in}), t));
    std::string spread = op(path, fmt::format("cleave.broadcast {} dims [2] {{@PATH}} : {} -> {}", b, type({out}), t));
    return binary(path, "add", y, spread, t);
  }
  std::string norm(const std::string &path, const std::string &x) {
    std::string w = argument(path + ".weight", "", {width}), b = argument(path + ".bias", "", {width}),
                t = type({rows, time, width}), s = type({rows, time});
    std::string result = fmt::format("%v{}", count++);
    body += fmt::format("  {0}, {0}m, {0}r = cleave.layer_norm {1}, {2}, {3} {{eps = 1.0e-5 : f64, cleave.path = "
                        "\"{4}\"}} : ({5}, {6}, {6}) -> ({5}, {7}, {7})\n",
                        result, x, w, b, path, t, type({width}), s);
    return result;
  }
  std::string embed() {
    std::string t = type({rows, time, width});
    std::string e = op("embed", fmt::format("cleave.embedding %wte, %tokens {{@PATH}} : ({}, {}) -> {}",
                                            type({vocab, width}), type({rows, time}, "i32"), t));
    std::string p =
        op("embed", fmt::format("cleave.broadcast %wpe dims [1, 2] {{@PATH}} : {} -> {}", type({time, width}), t));
    return binary("embed", "add", e, p, t);
  }
  std::string head(const std::string &path, const std::string &qkv, int part) {
    int64_t d = width / heads;
    std::string cut =
        op(path,
           fmt::format("cleave.slice {} starts [0, 0, {}, 0, 0] sizes [{}, {}, 1, {}, {}] {{@PATH}} : {} -> {}", qkv,
                       part, rows, time, heads, d, type({rows, time, 3, heads, d}), type({rows, time, 1, heads, d})));
    std::string flat = op(path, fmt::format("cleave.reshape {} {{@PATH}} : {} -> {}", cut,
                                            type({rows, time, 1, heads, d}), type({rows, time, heads, d})));
    return op(path, fmt::format("cleave.transpose {} permutation [0, 2, 1, 3] {{@PATH}} : {} -> {}", flat,
                                type({rows, time, heads, d}), type({rows, heads, time, d})));
  }
  std::string attention(const std::string &path, const std::string &x) {
    int64_t d = width / heads;
    std::string qkv = linear(path + ".qkv", x, width, 3 * width);
    qkv = op(path, fmt::format("cleave.reshape {} {{@PATH}} : {} -> {}", qkv, type({rows, time, 3 * width}),
                               type({rows, time, 3, heads, d})));
    std::string q = head(path, qkv, 0), k = head(path, qkv, 1), v = head(path, qkv, 2),
                t = type({rows, heads, time, d});
    std::string result = fmt::format("%v{}", count++);
    body += fmt::format("  {0}, {0}l = cleave.attention {1}, {2}, {3} {{scale = 0.5 : f64, causal, cleave.path = "
                        "\"{4}\"}} : ({5}, {5}, {5}) -> ({5}, {6})\n",
                        result, q, k, v, path, t, type({rows, heads, time}));
    std::string turned = op(path, fmt::format("cleave.transpose {} permutation [0, 2, 1, 3] {{@PATH}} : {} -> {}",
                                              result, t, type({rows, time, heads, d})));
    std::string flat = op(path, fmt::format("cleave.reshape {} {{@PATH}} : {} -> {}", turned,
                                            type({rows, time, heads, d}), type({rows, time, width})));
    return linear(path + ".proj", flat, width, width);
  }
  std::string block(const std::string &path, const std::string &x) {
    std::string t = type({rows, time, width});
    std::string y = binary(path, "add", x, attention(path + ".attention", norm(path + ".norm1", x)), t);
    std::string h = linear(path + ".mlp.fc", norm(path + ".norm2", y), width, 4 * width);
    h = op(path + ".mlp", fmt::format("cleave.gelu {} {{tanh, @PATH}} : {}", h, type({rows, time, 4 * width})));
    return binary(path, "add", y, linear(path + ".mlp.proj", h, 4 * width, width), t);
  }
  void loss(const std::string &x) {
    std::string n = norm("norm", x), l = type({rows, time, vocab});
    std::string logits = op("head", fmt::format("cleave.matmul {}, %wte {{transB, @PATH}} : ({}, {}) -> {}", n,
                                                type({rows, time, width}), type({vocab, width}), l));
    body += fmt::format("  %loss, %weight, %lse = cleave.cross_entropy {}, %targets {{cleave.path = \"head\"}} : ({}, "
                        "{}) -> (tensor<f32>, tensor<f32>, {})\n",
                        logits, l, type({rows, time}, "i32"), type({rows, time}));
    body += fmt::format(
        "  %correct = cleave.top_correct {}, %targets {{cleave.path = \"head\"}} : ({}, {}) -> tensor<f32>\n", logits,
        l, type({rows, time}, "i32"));
  }
};

constexpr int64_t batch = 8;

std::shared_ptr<const PlanFile> compileGpt(const std::string &mesh, int64_t microbatches,
                                           const std::string &schedule = "1f1b", int64_t rows = batch,
                                           Target::Kind backend = Target::Kind::Cpu, bool replicasApart = false) {
  passes::CompileOptions options;
  options.backend = backend;
  if (backend == Target::Kind::Cuda)
    options.target = Target::Emulated;
  options.strategy.mesh = partitioner::parseMesh(mesh);
  options.strategy.microbatches = microbatches;
  options.strategy.schedule = schedule;
  options.batch = rows;
  options.seed = 7;
  return PlanFile::fromBytes(passes::compile(GraphModule::parse(GptText(rows / microbatches, 2).module(), "gpt"),
                                             options, {.replicasApart = replicasApart}),
                             mesh);
}

/// Tokens depend only on their place in the global batch; the target is the next token. Some targets are ignored (-1).
int32_t inputAt(const std::string &field, int64_t step, int64_t row, int64_t column) {
  auto token = [&](int64_t c) { return static_cast<int32_t>((row * 7 + c * c * 3 + step * 5) % GptText::vocab); };
  if (field == "tokens")
    return token(column);
  return (row + column) % 11 == 0 ? -1 : token(column + 1);
}

void fill(const plan::Plan &plan, unsigned rank, bool eval, int64_t step, std::byte *buffer) {
  for (const InputPart &part : inputParts(plan, rank, eval))
    for (const Box &box : part.boxes)
      for (int64_t r = 0; r < box.size[0]; ++r)
        for (int64_t c = 0; c < box.size[1]; ++c) {
          int32_t value = inputAt(part.field, step, part.microbatch * part.global[0] + box.globalStart[0] + r,
                                  box.globalStart[1] + c);
          std::memcpy(buffer + part.offset +
                          static_cast<size_t>((box.localStart[0] + r) * part.shape[1] + box.localStart[1] + c) * 4,
                      &value, 4);
        }
}

struct Trained {
  std::vector<float> losses, correct; // per step, of the last rank
  std::vector<float> evaluated;       // loss, weight
};

Trained train(const std::shared_ptr<const PlanFile> &file, int steps, const std::string &device = "cpu") {
  LocalWorld world(file->plan().ranks()->size());
  std::vector<Trained> all(world.size());
  runRanks(world, [&](unsigned rank) {
    const auto executor = makeExecutor(file, rank, world[rank], {.threads = 1, .device = device, .timeoutSeconds = 60});
    executor->initialise();
    for (int step = 1; step <= steps; ++step) {
      fill(file->plan(), rank, false, step, executor->inputBuffer(0));
      executor->setScalar("lr", 0.01f);
      executor->train(step, 0);
      all[rank].losses.push_back(executor->metric("loss").value() / executor->metric("weight").value());
      all[rank].correct.push_back(executor->metric("correct").value());
    }
    fill(file->plan(), rank, true, 99, executor->inputBuffer(1));
    executor->eval(1, {});
    all[rank].evaluated = {executor->metric("loss").value(), executor->metric("weight").value()};
  });
  for (const Trained &one : all) {
    CHECK(one.losses == all[0].losses);
    CHECK(one.evaluated == all[0].evaluated);
  }
  return all[0];
}

void checkFile(const std::shared_ptr<const PlanFile> &file) {
  for (const std::string &error : checkPlan(file->plan()))
    FAIL_CHECK(error);
  for (const plan::Program *program : *file->plan().programs()) {
    CHECK(static_cast<double>(program->peak_bytes()) <= 1.1 * static_cast<double>(program->lower_bound_bytes()));
    CHECK(program->peak_bytes() >= program->lower_bound_bytes());
  }
}

} // namespace

TEST_CASE("a small GPT trains alike on every mesh", "[export][compile]") {
  Trained one = train(compileGpt("dp=1", 2), 4);
  CHECK(one.losses.back() < one.losses.front());
  for (auto [mesh, schedule] : {std::pair("dp=1", "gpipe"),
                                {"dp=2", "1f1b"},
                                {"tp=2", "1f1b"},
                                {"pp=2", "1f1b"},
                                {"pp=2", "gpipe"},
                                {"dp=2,tp=2,pp=2", "1f1b"},
                                {"dp=3", "1f1b"},
                                {"tp=4", "1f1b"},
                                {"tp=3", "1f1b"}}) {
    INFO(mesh << " " << schedule);
    auto file = compileGpt(mesh, 2, schedule);
    checkFile(file);
    Trained other = train(file, 4);
    for (size_t i = 0; i < one.losses.size(); ++i) {
      CHECK(other.losses[i] == Approx(one.losses[i]).epsilon(1e-4));
      CHECK(other.correct[i] == one.correct[i]);
    }
    CHECK(other.evaluated[0] == Approx(one.evaluated[0]).epsilon(1e-3));
    CHECK(other.evaluated[1] == one.evaluated[1]);
  }
}

TEST_CASE("a record that is added later makes the plan that is compiled with it", "[export][compile]") {
  passes::CompileOptions options;
  options.strategy.mesh = partitioner::parseMesh("dp=2,pp=2");
  options.strategy.microbatches = 2;
  options.batch = batch;
  options.code = false;
  const auto compiled = [&] {
    return passes::compile(GraphModule::parse(GptText(batch / 2, 2).module(), "gpt"), options);
  };
  const auto without = PlanFile::fromBytes(compiled(), "without a record");
  auto record = std::make_shared<plan::SearchT>();
  record->step = 0.25, record->total = 12;
  options.search = record;
  CHECK(passes::withRecord(without->plan(), options.clusterToml(), record.get(), {}) == compiled());
}

TEST_CASE("layouts and programs do not grow with microbatches", "[export][compile]") {
  auto few = compileGpt("pp=2", 4, "1f1b", 8), many = compileGpt("pp=2", 16, "1f1b", 32);
  for (unsigned p = 0; p < 2; ++p) {
    const plan::Program &a = *few->plan().programs()->Get(p), &b = *many->plan().programs()->Get(p);
    CHECK(b.segments()->size() == a.segments()->size());
    CHECK(b.slots()->size() == a.slots()->size());
    // The same number of microbatches in flight; a short schedule may be placed with every action apart.
    CHECK(b.arena_bytes() <= a.arena_bytes() + a.arena_bytes() / 40);
  }
}

TEST_CASE("plans for GPUs: every wait between streams is needed, and the checker misses each", "[export][compile]") {
  for (const char *mesh : {"dp=2", "tp=2", "dp=2,tp=2,pp=2"}) {
    const auto file = compileGpt(mesh, 2, "1f1b", batch, Target::Kind::Cuda);
    CHECK(checkPlan(file->plan()).empty());
    const std::unique_ptr<plan::PlanT> whole(file->plan().UnPack());
    size_t waits = 0;
    for (size_t p = 0; p < whole->programs.size(); ++p)
      for (size_t a = 0; a < whole->programs[p]->train.size(); ++a)
        for (size_t w = 0; w < whole->programs[p]->train[a]->waits.size(); ++w, ++waits) {
          if (waits > 8 && waits % 7 != 0) // a sample, since each check covers a whole plan
            continue;
          plan::PlanT cut(*whole);
          auto &list = cut.programs[p]->train[a]->waits;
          const plan::Wait gone = list[w];
          list.erase(list.begin() + static_cast<std::ptrdiff_t>(w));
          flatbuffers::FlatBufferBuilder buffer;
          plan::FinishPlanBuffer(buffer, plan::Plan::Pack(buffer, &cut));
          const auto errors = checkPlan(*plan::GetPlan(buffer.GetBufferPointer()));
          INFO(mesh << " program " << p << " action " << a << " step " << gone.step() << " on " << gone.on_action()
                    << "." << gone.on_step());
          REQUIRE_FALSE(errors.empty());
          CHECK(errors[0].find("it does not wait for") != std::string::npos);
        }
    CHECK(waits >= 2);
  }
}

TEST_CASE("plans for GPUs: passes wait for what a beginning gathers only to read it", "[export][compile]") {
  passes::CompileOptions options;
  options.backend = Target::Kind::Cuda;
  options.target = Target::Emulated;
  options.strategy.mesh = partitioner::parseMesh("dp=2,pp=2");
  options.strategy.microbatches = 4, options.strategy.schedule = "zb-v", options.strategy.chunks = 2;
  options.strategy.zero = 1;
  options.precision = Precision::parse({.type = "bf16"}, Target::Kind::Cuda);
  options.batch = batch;
  const auto file = PlanFile::fromBytes(
      passes::compile(GraphModule::parse(GptText(batch / 4, 4).module(), "gpt"), options), "gathers");
  CHECK(checkPlan(file->plan()).empty());
  const std::unique_ptr<plan::PlanT> whole(file->plan().UnPack());
  size_t gathers = 0;
  for (uint32_t p = 0; p < whole->programs.size(); ++p) {
    const auto &program = whole->programs[p];
    const plan::SegmentT &begin = *program->segments[program->train[0]->segment];
    REQUIRE(begin.kind == plan::SegmentKind::Begin);
    // Other steps of the beginning that need not come before a collective come after all of them.
    const auto collective = [](const auto &step) { return step->op.type == plan::StepOp::Collective; };
    const auto last = std::find_if(begin.steps.rbegin(), begin.steps.rend(), collective).base();
    CHECK(
        std::none_of(begin.steps.begin(), last, [](const auto &step) { return step->op.type == plan::StepOp::Fill; }));
    for (size_t a = 1; a < program->train.size(); ++a) {
      const plan::ActionT &action = *program->train[a];
      for (const plan::Wait &wait : action.waits) {
        const plan::CollectiveT *gather = begin.steps[wait.on_step()]->op.AsCollective();
        if (wait.on_action() != 0 || !gather)
          continue;
        ++gathers;
        std::vector<uint32_t> results;
        for (const auto &buffer : gather->buffers)
          results.push_back(buffer->out);
        bool reads = false;
        const auto &packed = *file->plan().programs()->Get(p);
        check::forEachAccess(
            *packed.segments()->Get(action.segment)->steps()->Get(wait.step()), packed,
            [&](const check::Access &access) { reads |= std::ranges::find(results, access.slot) != results.end(); });
        INFO("action " << a << " step " << wait.step() << " waits for gather " << wait.on_step());
        CHECK(reads);
      }
    }
  }
  CHECK(gathers > 4);
}

TEST_CASE("plans for GPUs: sums of gradients wait for what makes them alone", "[export][compile]") {
  passes::CompileOptions options;
  options.backend = Target::Kind::Cuda;
  options.target = Target::Emulated;
  options.strategy.mesh = partitioner::parseMesh("dp=4");
  options.strategy.zero = 1;
  options.batch = batch;
  const auto file =
      PlanFile::fromBytes(passes::compile(GraphModule::parse(GptText(batch, 4).module(), "gpt"), options), "sums");
  CHECK(checkPlan(file->plan()).empty());
  const std::unique_ptr<plan::PlanT> whole(file->plan().UnPack());
  const auto &program = whole->programs[0];
  const plan::Program &packed = *file->plan().programs()->Get(0);
  size_t sums = 0;
  for (const auto &action : program->train) {
    if (program->segments[action->segment]->kind != plan::SegmentKind::Reduce)
      continue;
    for (const plan::Wait &wait : action->waits) {
      const plan::CollectiveT *sum = program->segments[action->segment]->steps[wait.step()]->op.AsCollective();
      const plan::ActionT &earlier = *program->train[wait.on_action()];
      if (!sum || program->segments[earlier.segment]->kind != plan::SegmentKind::Backward)
        continue;
      ++sums;
      bool makes = false;
      check::forEachAccess(*packed.segments()->Get(earlier.segment)->steps()->Get(wait.on_step()), packed,
                           [&](const check::Access &access) {
                             makes |= access.kind != check::Access::Read &&
                                      std::ranges::any_of(
                                          sum->buffers, [&](const auto &buffer) { return buffer->in == access.slot; });
                           });
      INFO("sum " << wait.step() << " waits for step " << wait.on_step() << " of the backward pass");
      CHECK(makes);
    }
  }
  CHECK(sums > 4);
}

TEST_CASE("plans for GPUs: collectives over axis dp run beside those over axis tp", "[export][compile]") {
  const auto file = compileGpt("dp=2,tp=2", 2, "1f1b", batch, Target::Kind::Cuda, true);
  const plan::Program &program = *file->plan().programs()->Get(0);
  CHECK(replicaStream(file->plan(), 0) == 2);
  std::map<std::string, std::set<uint32_t>> streams; // by the axes of the collective
  for (const plan::Segment *segment : *program.segments())
    for (const plan::Step *step : *segment->steps())
      if (const plan::Collective *collective = step->op_as_Collective()) {
        std::string axes;
        for (const uint8_t axis : *collective->axes())
          axes += file->plan().mesh()->Get(axis)->name()->str();
        streams[axes].insert(step->stream());
      }
  CHECK(streams["dp"] == std::set<uint32_t>{2});
  CHECK(streams["tp"] == std::set<uint32_t>{1});
}

TEST_CASE("plans for GPUs: streams, waits and workspaces that are wrong are named", "[export][compile]") {
  const auto file = compileGpt("dp=2", 2, "1f1b", batch, Target::Kind::Cuda, true);
  const auto errorOf = [&](const std::function<void(plan::PlanT &)> &change) {
    const std::unique_ptr<plan::PlanT> changed(file->plan().UnPack());
    change(*changed);
    flatbuffers::FlatBufferBuilder buffer;
    plan::FinishPlanBuffer(buffer, plan::Plan::Pack(buffer, changed.get()));
    const auto errors = checkPlan(*plan::GetPlan(buffer.GetBufferPointer()));
    return errors.empty() ? std::string() : errors[0];
  };
  const auto firstWait = [](plan::PlanT &plan) -> plan::ActionT & {
    for (auto &action : plan.programs[0]->train)
      if (!action->waits.empty())
        return *action;
    throw std::logic_error("no waits");
  };
  CHECK(errorOf([](plan::PlanT &) {}).empty());
  CHECK(errorOf([](plan::PlanT &plan) {
          plan.programs[0]->segments[1]->steps[0]->stream = 1;
        }).find("belongs in stream 0, found 1") != std::string::npos);
  // Where axes share links, all collectives are in stream 1.
  const auto moveToOne = [](plan::PlanT &plan, size_t most) {
    for (auto &segment : plan.programs[0]->segments)
      for (auto &step : segment->steps)
        if (step->op.type == plan::StepOp::Collective && most-- > 0)
          step->stream = 1;
  };
  CHECK(errorOf([&](plan::PlanT &plan) { moveToOne(plan, 1000); }).empty());
  CHECK(errorOf([&](plan::PlanT &plan) {
          moveToOne(plan, 1);
        }).find("it is in stream 2, an earlier collective of its group in stream 1") != std::string::npos);
  CHECK(errorOf([&](plan::PlanT &plan) {
          firstWait(plan).waits[0] = plan::Wait(0, 1000, 0);
        }).find("on_action is 1000, must be") != std::string::npos);
  CHECK(errorOf([&](plan::PlanT &plan) {
          firstWait(plan).waits[0] = plan::Wait(1u << 30, 0, 0);
        }).find("step is 1073741824, must be") != std::string::npos);
  CHECK(errorOf([](plan::PlanT &plan) {
          plan.programs[0]->peak_bytes -= plan.programs[0]->workspace_bytes;
          plan.programs[0]->lower_bound_bytes -= plan.programs[0]->workspace_bytes;
          plan.programs[0]->workspace_bytes = 0;
        }).find("bytes of workspace, it has 0") != std::string::npos);
}
