// Plan export end to end: a hand-written distributed step becomes a plan that passes the checker and computes the right
// numbers on every rank.
#include "ir/GraphModule.h"
#include "passes/export/Tables.h"
#include "passes/pipeline/Phases.h"
#include "runtime/comm/LocalWorld.h"
#include "runtime/executor/Executor.h"
#include "runtime/plan/DTypes.h"
#include "runtime/plan/Inputs.h"
#include "runtime/plan/check/Check.h"
#include "runtime/plan/plan_generated.h"

#include "mlir/IR/BuiltinOps.h"

#include <catch2/catch.hpp>

#include <cmath>
#include <cstring>

using namespace cleave;

namespace {

/// y = (x w0) w1, loss = y . y of the last microbatch, gradients as if loss were half of that; the update replaces the
/// parameters by their gradients. dp = 2, pp = 2, two microbatches of 4 rows.
const char *const twoStages = R"(
// ---- stage 0
func.func @stage0.class0.begin() -> (tensor<3x4xf32> {cleave.kind = "gradient", cleave.name = "w0"},
                                     tensor<f32> {cleave.kind = "metric", cleave.name = "loss"}) {
  %0 = cleave.constant dense<0.0> : tensor<3x4xf32> : tensor<3x4xf32>
  %1 = cleave.constant dense<0.0> : tensor<f32> : tensor<f32>
  return %0, %1 : tensor<3x4xf32>, tensor<f32>
}
func.func @stage0.class0.forward(
    %x: tensor<2x3xf32> {cleave.kind = "input", cleave.name = "x", dist.sharding = #dist.sharding<"dp, _">, dist.global = tensor<4x3xf32>},
    %w: tensor<3x4xf32> {cleave.kind = "parameter", cleave.name = "w0", cleave.init = #cleave.init<"constant", 0.5, 0.0>, cleave.trainable = true}) {
  %h = cleave.matmul %x, %w {cleave.path = "first", dist.shardings = [#dist.sharding<"dp, _">], dist.globals = [tensor<4x4xf32>]} : (tensor<2x3xf32>, tensor<3x4xf32>) -> tensor<2x4xf32>
  "dist.send"(%h) {stage = 1 : i64, tag = 1 : i64} : (tensor<2x4xf32>) -> ()
  return
}
func.func @stage0.class0.weight_gradient(
    %x: tensor<2x3xf32> {cleave.kind = "input", cleave.name = "x", dist.sharding = #dist.sharding<"dp, _">, dist.global = tensor<4x3xf32>},
    %g: tensor<3x4xf32> {cleave.kind = "gradient", cleave.name = "w0", dist.sharding = #dist.sharding<"_, _ | sum dp">, dist.global = tensor<3x4xf32>})
    -> (tensor<3x4xf32> {cleave.kind = "gradient", cleave.name = "w0"}) {
  %dh = "dist.recv"() {stage = 1 : i64, tag = 2 : i64} : () -> tensor<2x4xf32>
  %d = cleave.matmul %x, %dh {transA} : (tensor<2x3xf32>, tensor<2x4xf32>) -> tensor<3x4xf32>
  %s = cleave.add %g, %d : tensor<3x4xf32>
  return %s : tensor<3x4xf32>
}
func.func @stage0.class0.reduce(
    %g: tensor<3x4xf32> {cleave.kind = "gradient", cleave.name = "w0", dist.sharding = #dist.sharding<"_, _ | sum dp">, dist.global = tensor<3x4xf32>},
    %l: tensor<f32> {cleave.kind = "metric", cleave.name = "loss"})
    -> (tensor<3x4xf32> {cleave.kind = "gradient", cleave.name = "w0"}, tensor<f32> {cleave.kind = "metric", cleave.name = "loss"}) {
  %s = "dist.all_reduce"(%g) {axes = ["dp"], kind = "sum"} : (tensor<3x4xf32>) -> tensor<3x4xf32>
  %t = "dist.all_reduce"(%l) {axes = ["dp", "pp"], kind = "sum"} : (tensor<f32>) -> tensor<f32>
  return %s, %t : tensor<3x4xf32>, tensor<f32>
}
func.func @stage0.class0.update(
    %g: tensor<3x4xf32> {cleave.kind = "gradient", cleave.name = "w0"},
    %w: tensor<3x4xf32> {cleave.kind = "parameter", cleave.name = "w0"})
    -> (tensor<3x4xf32> {cleave.kind = "parameter", cleave.name = "w0"}) {
  return %g : tensor<3x4xf32>
}
// ---- stage 1
func.func @stage1.class0.begin() -> (tensor<4x2xf32> {cleave.kind = "gradient", cleave.name = "w1"},
                                     tensor<f32> {cleave.kind = "metric", cleave.name = "loss"}) {
  %0 = cleave.constant dense<0.0> : tensor<4x2xf32> : tensor<4x2xf32>
  %1 = cleave.constant dense<0.0> : tensor<f32> : tensor<f32>
  return %0, %1 : tensor<4x2xf32>, tensor<f32>
}
func.func @stage1.class0.forward(
    %w: tensor<4x2xf32> {cleave.kind = "parameter", cleave.name = "w1", cleave.init = #cleave.init<"constant", 0.25, 0.0>, cleave.trainable = true},
    %before: tensor<f32> {cleave.kind = "metric", cleave.name = "loss"})
    -> (tensor<2x4xf32> {cleave.kind = "stash", cleave.name = "h"}, tensor<2x2xf32> {cleave.kind = "stash", cleave.name = "y"},
        tensor<f32> {cleave.kind = "metric", cleave.name = "loss"}) {
  %h = "dist.recv"() {stage = 0 : i64, tag = 1 : i64} : () -> tensor<2x4xf32>
  %y = cleave.matmul %h, %w {cleave.path = "second"} : (tensor<2x4xf32>, tensor<4x2xf32>) -> tensor<2x2xf32>
  %a = cleave.reshape %y : tensor<2x2xf32> -> tensor<1x4xf32>
  %b = cleave.reshape %y : tensor<2x2xf32> -> tensor<4x1xf32>
  %c = cleave.matmul %a, %b : (tensor<1x4xf32>, tensor<4x1xf32>) -> tensor<1x1xf32>
  %l = cleave.reshape %c : tensor<1x1xf32> -> tensor<f32>
  %sum = cleave.add %before, %l : tensor<f32>
  return %h, %y, %sum : tensor<2x4xf32>, tensor<2x2xf32>, tensor<f32>
}
func.func @stage1.class0.input_gradient(
    %y: tensor<2x2xf32> {cleave.kind = "stash", cleave.name = "y"},
    %w: tensor<4x2xf32> {cleave.kind = "parameter", cleave.name = "w1"}) {
  %dh = cleave.matmul %y, %w {transB} : (tensor<2x2xf32>, tensor<4x2xf32>) -> tensor<2x4xf32>
  "dist.send"(%dh) {stage = 0 : i64, tag = 2 : i64} : (tensor<2x4xf32>) -> ()
  return
}
func.func @stage1.class0.weight_gradient(
    %h: tensor<2x4xf32> {cleave.kind = "stash", cleave.name = "h"}, %y: tensor<2x2xf32> {cleave.kind = "stash", cleave.name = "y"},
    %g: tensor<4x2xf32> {cleave.kind = "gradient", cleave.name = "w1", dist.sharding = #dist.sharding<"_, _ | sum dp">, dist.global = tensor<4x2xf32>})
    -> (tensor<4x2xf32> {cleave.kind = "gradient", cleave.name = "w1"}) {
  %d = cleave.matmul %h, %y {transA} : (tensor<2x4xf32>, tensor<2x2xf32>) -> tensor<4x2xf32>
  %s = cleave.add %g, %d : tensor<4x2xf32>
  return %s : tensor<4x2xf32>
}
func.func @stage1.class0.reduce(
    %g: tensor<4x2xf32> {cleave.kind = "gradient", cleave.name = "w1", dist.sharding = #dist.sharding<"_, _ | sum dp">, dist.global = tensor<4x2xf32>},
    %l: tensor<f32> {cleave.kind = "metric", cleave.name = "loss"})
    -> (tensor<4x2xf32> {cleave.kind = "gradient", cleave.name = "w1"}, tensor<f32> {cleave.kind = "metric", cleave.name = "loss"}) {
  %s = "dist.all_reduce"(%g) {axes = ["dp"], kind = "sum"} : (tensor<4x2xf32>) -> tensor<4x2xf32>
  %t = "dist.all_reduce"(%l) {axes = ["dp", "pp"], kind = "sum"} : (tensor<f32>) -> tensor<f32>
  return %s, %t : tensor<4x2xf32>, tensor<f32>
}
func.func @stage1.class0.update(
    %g: tensor<4x2xf32> {cleave.kind = "gradient", cleave.name = "w1"},
    %w: tensor<4x2xf32> {cleave.kind = "parameter", cleave.name = "w1"})
    -> (tensor<4x2xf32> {cleave.kind = "parameter", cleave.name = "w1"}) {
  return %g : tensor<4x2xf32>
}
)";

using partitioner::SegmentKind;

constexpr int64_t batch = 8, microbatches = 2;

partitioner::RankClass rankClass(int64_t stage, std::vector<int64_t> ranks, const std::vector<SegmentKind> &segments) {
  partitioner::RankClass made;
  made.position = stage;
  made.ranks = std::move(ranks);
  for (const SegmentKind kind : segments)
    made.functions[{kind}] = "stage" + std::to_string(stage) + ".class0." + partitioner::SegmentId{kind}.str();
  return made;
}

partitioner::LocalPrograms applied(GraphModule &graph) {
  partitioner::LocalPrograms made;
  made.module = mlir::OwningOpRef<mlir::ModuleOp>(llvm::cast<mlir::ModuleOp>(graph.module()->clone()));
  made.decisions.mesh.axes = {{"dp", 2}, {"tp", 1}, {"pp", 2}};
  made.decisions.microbatches = microbatches;
  made.classes = {rankClass(0, {0, 1}, {SegmentKind::Begin, SegmentKind::Forward, SegmentKind::WeightGradient, SegmentKind::Reduce, SegmentKind::Update}),
                  rankClass(1, {2, 3}, {SegmentKind::Begin, SegmentKind::Forward, SegmentKind::InputGradient, SegmentKind::WeightGradient, SegmentKind::Reduce, SegmentKind::Update})};
  made.stages = {{{"first"}, {0, 1}, 12, 0}, {{"second"}, {2, 3}, 8, 0}};
  made.train = {{{{SegmentKind::Begin}, 0},
                 {{SegmentKind::Forward}, 0},
                 {{SegmentKind::Forward}, 1},
                 {{SegmentKind::InputGradient}, 0},
                 {{SegmentKind::WeightGradient}, 0},
                 {{SegmentKind::InputGradient}, 1},
                 {{SegmentKind::WeightGradient}, 1},
                 {{SegmentKind::Reduce}, 0},
                 {{SegmentKind::Update}, 0}},
                {{{SegmentKind::Begin}, 0},
                 {{SegmentKind::Forward}, 0},
                 {{SegmentKind::InputGradient}, 0},
                 {{SegmentKind::WeightGradient}, 0},
                 {{SegmentKind::Forward}, 1},
                 {{SegmentKind::InputGradient}, 1},
                 {{SegmentKind::WeightGradient}, 1},
                 {{SegmentKind::Reduce}, 0},
                 {{SegmentKind::Update}, 0}}};
  made.eval = {{}, {}};
  made.messages = {{1, 0, 1, {SegmentKind::Forward}, {SegmentKind::Forward}},
                   {2, 1, 0, {SegmentKind::InputGradient}, {SegmentKind::WeightGradient}}};
  return made;
}

std::shared_ptr<const PlanFile> exported() {
  GraphModule graph = GraphModule::parse(twoStages, "two stages");
  partitioner::LocalPrograms step = applied(graph);
  passes::CompileOptions options;
  options.batch = batch;
  options.model = "two";
  options.target = Target::X86_64_v3;
  return PlanFile::fromBytes(passes::lowerToPlan(step, options), "two stages");
}

float inputAt(int64_t row, int64_t column) { return static_cast<float>(row * 3 + column % 3 - 4); }

/// The expected results of the step above, computed on the whole batch.
struct Expected {
  std::vector<float> w0 = std::vector<float>(12), w1 = std::vector<float>(8);
  float loss = 0;
  Expected() {
    for (int64_t row = 0; row < batch; ++row) {
      float h = 0; // all columns of h and of y are equal, as the parameters are constant
      for (int64_t i = 0; i < 3; ++i)
        h += inputAt(row, i) * 0.5f;
      float y = 4 * h * 0.25f, dh = 2 * y * 0.25f;
      for (float &g : w1)
        g += h * y;
      for (int64_t i = 0; i < 3; ++i)
        for (int64_t j = 0; j < 4; ++j)
          w0[static_cast<size_t>(i * 4 + j)] += inputAt(row, i) * dh;
      loss += 2 * y * y;
    }
  }
};

void fillInputs(const plan::Plan &plan, unsigned rank, std::byte *buffer) {
  for (const InputPart &part : inputParts(plan, rank, false)) {
    REQUIRE(part.boxes.size() == 1);
    const Box &box = part.boxes[0];
    for (int64_t r = 0; r < box.size[0]; ++r)
      for (int64_t c = 0; c < box.size[1]; ++c) {
        float value = inputAt(part.microbatch * part.global[0] + box.globalStart[0] + r, box.globalStart[1] + c);
        std::memcpy(buffer + part.offset + static_cast<size_t>((box.localStart[0] + r) * part.shape[1] + c) * 4, &value,
                    4);
      }
  }
}

std::vector<float> parameter(Executor &executor, const plan::Plan &plan, const std::string &name) {
  for (unsigned i = 0; i < executor.program.slots()->size(); ++i) {
    const plan::Slot *slot = executor.program.slots()->Get(i);
    if (slot->tensor() < 0 || slot->space() != plan::Space::Persistent)
      continue;
    const plan::Tensor *tensor = plan.tensors()->Get(static_cast<unsigned>(slot->tensor()));
    if (tensor->kind() != plan::TensorKind::Parameter || tensor->name()->str() != name)
      continue;
    auto bytes = executor.persistent(i);
    std::vector<float> values(bytes.size() / 4);
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }
  return {};
}

} // namespace

TEST_CASE("a plan of two stages passes the checker", "[export]") {
  auto file = exported();
  const plan::Plan &plan = file->plan();
  for (const std::string &error : checkPlan(plan))
    FAIL_CHECK(error);
  REQUIRE(plan.programs()->size() == 2);
  REQUIRE(plan.ranks()->size() == 4);
  CHECK(plan.ranks()->Get(1)->program() == 0);
  CHECK(plan.ranks()->Get(2)->program() == 1);
  CHECK(plan.ranks()->Get(1)->peers()->Get(0) == 3);
  CHECK(plan.groups()->size() == 3); // two groups of dp, one of all ranks
  const plan::Program &first = *plan.programs()->Get(0);
  CHECK(first.input_bytes() == 2 * 64); // 2 x 3 floats of each microbatch, padded to 64 bytes
  CHECK(first.peak_bytes() >= first.lower_bound_bytes());
  CHECK(first.peak_bytes() == first.arena_bytes() + 2 * first.input_bytes());
}

TEST_CASE("gradients accumulate in place, and nothing is copied but what must be", "[export]") {
  auto file = exported();
  const plan::Program &program = *file->plan().programs()->Get(1);
  for (const plan::Segment *segment : *program.segments()) {
    INFO(segment->name()->str());
    bool update = segment->kind() == plan::SegmentKind::Update;
    for (unsigned i = 0; segment->steps() && i < segment->steps()->size(); ++i) {
      const plan::Step *step = segment->steps()->Get(i);
      CHECK((step->op_type() == plan::StepOp::Copy) == update); // the copy w1 := gradient
      if (segment->kind() == plan::SegmentKind::WeightGradient)
        CHECK(step->op_as_Matmul()->accumulate());
      if (step->op_type() == plan::StepOp::Collective)
        CHECK(step->op_as_Collective()->buffers()->Get(0)->in() == step->op_as_Collective()->buffers()->Get(0)->out());
    }
  }
}

TEST_CASE("an exported plan computes the step", "[export]") {
  auto file = exported();
  LocalWorld world(4);
  Expected expected;
  std::vector<std::vector<float>> w0(4), w1(4);
  std::vector<float> losses(4);
  runRanks(world, [&](unsigned rank) {
    const auto executor = makeExecutor(file, rank, world[rank], {.device = "reference", .timeoutSeconds = 30});
    executor->initialise();
    fillInputs(file->plan(), rank, executor->inputBuffer(0));
    executor->train(1, 0);
    w0[rank] = parameter(*executor, file->plan(), "w0");
    w1[rank] = parameter(*executor, file->plan(), "w1");
    losses[rank] = executor->metric("loss").value_or(-1);
  });
  for (unsigned rank = 0; rank < 4; ++rank) {
    INFO("rank " << rank);
    CHECK(w0[rank] == (rank < 2 ? expected.w0 : std::vector<float>()));
    CHECK(w1[rank] == (rank < 2 ? std::vector<float>() : expected.w1));
    CHECK(losses[rank] == expected.loss);
  }
}

TEST_CASE("named tensors may trade places, and one constant may fill several", "[export]") {
  GraphModule graph = GraphModule::parse(R"(
func.func @stage0.class0.begin() -> (tensor<4xf32> {cleave.kind = "gradient", cleave.name = "a"},
                                     tensor<4xf32> {cleave.kind = "gradient", cleave.name = "b"}) {
  %0 = cleave.constant dense<0.0> : tensor<4xf32> : tensor<4xf32>
  return %0, %0 : tensor<4xf32>, tensor<4xf32>
}
func.func @stage0.class0.update(
    %a: tensor<4xf32> {cleave.kind = "parameter", cleave.name = "a", cleave.init = #cleave.init<"constant", 1.0, 0.0>},
    %b: tensor<4xf32> {cleave.kind = "parameter", cleave.name = "b", cleave.init = #cleave.init<"constant", 2.0, 0.0>},
    %g: tensor<4xf32> {cleave.kind = "gradient", cleave.name = "b"},
    %c: tensor<4xf32> {cleave.kind = "parameter", cleave.name = "c", cleave.init = #cleave.init<"constant", 3.0, 0.0>})
    -> (tensor<4xf32> {cleave.kind = "parameter", cleave.name = "a"}, tensor<4xf32> {cleave.kind = "parameter", cleave.name = "b"},
        tensor<4xf32> {cleave.kind = "parameter", cleave.name = "c"}) {
  return %b, %a, %g : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
}
)",
                                         "swap");
  partitioner::LocalPrograms step;
  step.module = mlir::OwningOpRef<mlir::ModuleOp>(llvm::cast<mlir::ModuleOp>(graph.module()->clone()));
  step.decisions.mesh.axes = {{"dp", 1}, {"tp", 1}, {"pp", 1}};
  step.classes = {rankClass(0, {0}, {SegmentKind::Begin, SegmentKind::Update})};
  step.stages = {{{}, {0}, 12, 0}};
  step.train = {{{{SegmentKind::Begin}, 0}, {{SegmentKind::Update}, 0}}};
  step.eval = {{}};
  passes::CompileOptions options;
  options.batch = 1;
  auto file = PlanFile::fromBytes(passes::lowerToPlan(step, options), "swap");
  for (const std::string &error : checkPlan(file->plan()))
    FAIL_CHECK(error);
  LocalWorld world(1);
  const auto executor = makeExecutor(file, 0, world[0], {.device = "reference"});
  executor->initialise();
  executor->train(1, 0);
  CHECK(parameter(*executor, file->plan(), "a") == std::vector<float>(4, 2));
  CHECK(parameter(*executor, file->plan(), "b") == std::vector<float>(4, 1));
  CHECK(parameter(*executor, file->plan(), "c") == std::vector<float>(4, 0));
}

TEST_CASE("export is deterministic", "[export]") { CHECK(exported()->hash() == exported()->hash()); }

TEST_CASE("-0 keeps its sign in a plan", "[export]") { // FlatBuffers leaves out a field that equals its default, 0
  for (double number : {-0.0, 0.0, -1.5}) {
    plan::InitT init;
    init.a = passes::storedNumber(number);
    flatbuffers::FlatBufferBuilder builder;
    builder.Finish(plan::Init::Pack(builder, &init));
    const double read = flatbuffers::GetRoot<plan::Init>(builder.GetBufferPointer())->a();
    for (plan::DType type : {plan::DType::F32, plan::DType::F16, plan::DType::BF16}) {
      std::byte memory[4];
      storeElement(memory, 0, type, read);
      const double value = loadElement(memory, 0, type);
      CHECK(value == number);
      CHECK(std::signbit(value) == std::signbit(number));
    }
  }
}
