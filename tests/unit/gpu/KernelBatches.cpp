// Updating all parameters in one launch gives the same bits as separate launches.
#include "passes/pipeline/Pipeline.h"
#include "runtime/comm/LocalWorld.h"
#include "runtime/executor/Executor.h"
#include "runtime/plan/DTypes.h"
#include "runtime/plan/Inputs.h"
#include "runtime/plan/check/Check.h"
#include "runtime/plan/plan_generated.h"

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include <cstring>
#include <map>

using namespace cleave;

namespace {

constexpr int64_t batch = 8, microbatches = 2;
const std::vector<int64_t> widths{20, 24, 24, 24, 10};

/// Linear layers with ReLU between them, and cross entropy. One parameter has no weight decay, so updates need two
/// programs.
std::string module(const std::string &optimizer) {
  const int64_t rows = batch / microbatches;
  std::string arguments, body, x = "%x";
  for (size_t i = 0; i + 1 < widths.size(); ++i) {
    const int64_t in = widths[i], out = widths[i + 1];
    const std::string t = fmt::format("tensor<{}x{}xf32>", rows, out);
    arguments += fmt::format(
        "%w{0}: tensor<{2}x{1}xf32> {{cleave.kind = \"parameter\", cleave.name = \"fc{0}.weight\", cleave.trainable = "
        "true, "
        "cleave.init = #cleave.init<\"normal\", 0.0, 0.3>}}, %b{0}: tensor<{2}xf32> {{cleave.kind = \"parameter\", "
        "cleave.name = \"fc{0}.bias\", cleave.trainable = true, cleave.init = #cleave.init<\"constant\", 0.0, "
        "0.0>{3}}}, ",
        i, in, out, i == 1 ? ", cleave.weight_decay = 0.0 : f64" : "");
    body +=
        fmt::format("  %m{0} = cleave.matmul {1}, %w{0} {{transB, cleave.path = \"fc{0}\"}} : (tensor<{2}x{3}xf32>, "
                    "tensor<{4}x{3}xf32>) -> {5}\n"
                    "  %s{0} = cleave.broadcast %b{0} dims [1] {{cleave.path = \"fc{0}\"}} : tensor<{4}xf32> -> {5}\n"
                    "  %y{0} = cleave.add %m{0}, %s{0} {{cleave.path = \"fc{0}\"}} : {5}\n",
                    i, x, rows, in, out, t);
    x = fmt::format("%y{}", i);
    if (i + 2 < widths.size()) {
      body += fmt::format("  %r{0} = cleave.relu %y{0} {{cleave.path = \"fc{0}\"}} : {1}\n", i, t);
      x = fmt::format("%r{}", i);
    }
  }
  const std::string logits = fmt::format("tensor<{}x{}xf32>", rows, widths.back());
  body += fmt::format("  %loss, %weight, %lse = cleave.cross_entropy {0}, %label {{cleave.path = \"loss\"}} : ({1}, "
                      "tensor<{2}xi32>) -> (tensor<f32>, tensor<f32>, tensor<{2}xf32>)\n"
                      "  %correct = cleave.top_correct {0}, %label {{cleave.path = \"loss\"}} : ({1}, "
                      "tensor<{2}xi32>) -> tensor<f32>\n",
                      x, logits, rows);
  std::string text = fmt::format("module attributes {{cleave.optimizer = {{{}}}}} {{\n", optimizer);
  for (const char *name : {"forward", "eval"})
    text += fmt::format(
        "func.func @{}({}%x: tensor<{}x{}xf32> {{cleave.kind = \"input\", cleave.name = \"x\"}}, %label: "
        "tensor<{}xi32> "
        "{{cleave.kind = \"input\", cleave.name = \"label\"}}) -> (tensor<f32> {{cleave.kind = \"loss\"}}, tensor<f32> "
        "{{cleave.kind = \"weight\"}}, tensor<f32> {{cleave.kind = \"correct\"}}) attributes {{cleave.static_weight = "
        "{} : i64}} {{\n{}  return %loss, %weight, %correct : tensor<f32>, tensor<f32>, tensor<f32>\n}}\n",
        name, arguments, rows, widths[0], rows, rows, body);
  return text + "}\n";
}

std::shared_ptr<const PlanFile> compiled(const std::string &optimizer, const std::string &mesh, int64_t level,
                                         Precision::Type half, bool batches) {
  passes::CompileOptions options;
  options.backend = Target::Kind::Cuda;
  options.target = Target::Emulated;
  options.strategy.mesh = partitioner::parseMesh(mesh);
  options.strategy.microbatches = microbatches;
  options.strategy.schedule = "1f1b";
  options.batch = batch;
  options.seed = 3;
  options.precision = {.type = half, .level = level};
  if (half == Precision::Type::Fp16)
    options.precision.lossScale = LossScale{};
  options.batchKernels = batches;
  return PlanFile::fromBytes(passes::compile(GraphModule::parse(module(optimizer), "mlp"), options), mesh);
}

struct Count {
  size_t batches = 0, calls = 0, kernels = 0; ///< in segments that run once per training step
};

Count countOf(const plan::Plan &plan) {
  Count count;
  for (const plan::Program *program : *plan.programs())
    for (const plan::Segment *segment : *program->segments())
      for (const plan::Step *step : *segment->steps()) {
        if (segment->kind() != plan::SegmentKind::Update && segment->kind() != plan::SegmentKind::Begin) {
          CHECK(step->op_type() != plan::StepOp::KernelBatch);
          continue;
        }
        count.kernels += step->op_type() == plan::StepOp::Kernel;
        if (const auto *batched = step->op_as_KernelBatch()) {
          ++count.batches;
          count.calls += batched->calls()->size();
        }
      }
  return count;
}

/// Every persistent tensor after a few steps, by rank and name.
using State = std::map<std::string, std::vector<std::byte>>;

State train(const std::shared_ptr<const PlanFile> &file) {
  const plan::Plan &plan = file->plan();
  LocalWorld world(plan.ranks()->size());
  std::vector<State> states(world.size());
  runRanks(world, [&](unsigned rank) {
    const auto executor =
        makeExecutor(file, rank, world[rank], {.threads = 1, .device = "cuda", .timeoutSeconds = 60, .tuning = "off"});
    executor->initialise();
    for (int step = 1; step <= 4; ++step) {
      for (const InputPart &part : inputParts(plan, rank, false))
        for (int64_t i = 0; i < static_cast<int64_t>(part.bytes) / 4; ++i) {
          std::byte *at = executor->inputBuffer(step % 2) + part.offset + 4 * i;
          const float number = static_cast<float>((i * 7 + step * 3 + part.microbatch) % 11 - 5) / 4;
          const auto label = static_cast<int32_t>((i * 3 + step) % widths.back());
          part.field == "x" ? std::memcpy(at, &number, 4) : std::memcpy(at, &label, 4);
        }
      executor->setScalar("lr", 0.01f);
      executor->train(step, step % 2);
    }
    const plan::Program &program = *plan.programs()->Get(plan.ranks()->Get(rank)->program());
    for (uint32_t s = 0; s < program.slots()->size(); ++s) {
      const plan::Slot &slot = *program.slots()->Get(s);
      if (slot.space() != plan::Space::Persistent)
        continue;
      const auto memory = executor->persistent(s);
      states[rank][fmt::format("{} slot {} {}", rank, s, slot.name()->str())].assign(memory.begin(), memory.end());
    }
  });
  State all;
  for (State &state : states)
    all.merge(state);
  return all;
}

/// Trains with and without batches of kernel calls and compares the bits.
void compare(const std::string &optimizer, const std::string &mesh = "dp=1", int64_t level = 0,
             Precision::Type half = Precision::Type::Bf16) {
  INFO(optimizer << " on " << mesh << ", O" << level << " " << text(half));
  const auto batched = compiled(optimizer, mesh, level, half, true),
             single = compiled(optimizer, mesh, level, half, false);
  for (const auto &file : {batched, single})
    for (const std::string &error : checkPlan(file->plan()))
      FAIL_CHECK(error);
  const Count with = countOf(batched->plan()), without = countOf(single->plan());
  CHECK(with.batches > 0);
  CHECK(with.calls >= 2 * with.batches);
  CHECK(without.batches == 0);
  CHECK(with.calls + with.kernels == without.kernels);
  const State a = train(batched), b = train(single);
  REQUIRE(a.size() == b.size());
  for (const auto &[name, bytes] : a) {
    INFO(name);
    CHECK(bytes == b.at(name));
  }
}

} // namespace

TEST_CASE("kernel batches: the same bits as call by call", "[gpu]") {
  const std::string sgd = "name = \"sgd\", lr = 0.1 : f64, momentum = 0.9 : f64, weight_decay = 0.01 : f64";
  const std::string adamw = "name = \"adamw\", lr = 0.01 : f64, weight_decay = 0.01 : f64";
  compare(sgd);
  compare(adamw);
  compare("name = \"adam\", lr = 0.01 : f64, clip_norm = 0.5 : f64");
  // working copies of the parameters, clipping
  compare(adamw + ", clip_norm = 0.5 : f64", "dp=1", 2);
  compare(sgd + ", clip_norm = 0.5 : f64", "dp=1", 2, Precision::Type::Fp16); // loss scale
  compare(adamw + ", clip_norm = 0.5 : f64", "dp=2,tp=2", 2, Precision::Type::Fp16);
  compare(adamw + ", clip_norm = 0.5 : f64", "pp=2");
}

TEST_CASE("kernel batches: one launch for each program of updates", "[gpu]") {
  const std::string text = "name = \"sgd\", lr = 0.1 : f64, momentum = 0.9 : f64, weight_decay = 0.01 : f64";
  const auto file = compiled(text, "dp=1", 0, Precision::Type::Bf16, true);
  std::vector<size_t> calls;
  for (const plan::Segment *segment : *file->plan().programs()->Get(0)->segments())
    for (const plan::Step *step : *segment->steps())
      if (const auto *batched = step->op_as_KernelBatch()) {
        calls.push_back(batched->calls()->size());
        CHECK(segment->kind() == plan::SegmentKind::Update);
      }
  CHECK(calls == std::vector<size_t>{7}); // all parameters except the bias without decay, whose program differs
  size_t batchForms = 0;
  for (const plan::KernelInfo *kernel : *file->plan().kernels())
    batchForms += kernel->batch();
  CHECK(batchForms == 1);
}
