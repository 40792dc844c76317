// The distributed interpreter: collectives, messages, slots, schedules, and the errors it detects.
#include "ir/interpreter/Distributed.h"
#include "runtime/base/Error.h"
#include "tests/unit/ir/Ir.h"

using namespace cleave;
using namespace cleave::ir;

namespace {

/// Every rank of stage s runs the functions "s<S>.<segment>" of the text, in the order of the given schedule.
struct Setup {
  GraphModule module;
  DistributedProgram program;

  Setup(const std::string &text, Mesh mesh, std::vector<std::string> segments,
        std::vector<std::vector<ScheduledSegment>> schedules)
      : module(GraphModule::parse(text, "test")) {
    program.module = module.operation();
    program.mesh = mesh;
    for (int64_t rank = 0; rank < mesh.ranks(); ++rank) {
      int64_t stage = mesh.linear({"pp"}, mesh.coords(rank));
      std::map<std::string, std::string> functions;
      for (const std::string &segment : segments)
        if (module.function("s" + std::to_string(stage) + "." + segment))
          functions[segment] = "s" + std::to_string(stage) + "." + segment;
      program.functions.push_back(functions);
      program.schedules.push_back(schedules[schedules.size() == 1 ? 0 : stage]);
    }
  }
};

Mesh meshOf(int64_t dp, int64_t tp, int64_t pp) { return {{{"dp", dp}, {"tp", tp}, {"pp", pp}}}; }

const std::string collectives = R"(
func.func @s0.forward(%x: tensor<2xf32> {cleave.kind = "state", cleave.name = "x"})
    -> (tensor<2xf32> {cleave.kind = "metric", cleave.name = "sum"}, tensor<2xf32> {cleave.kind = "metric", cleave.name = "max"},
        tensor<6xf32> {cleave.kind = "metric", cleave.name = "all"}, tensor<2xf32> {cleave.kind = "metric", cleave.name = "scattered"}) {
  %0 = dist.all_reduce %x {axes = ["dp"], kind = "sum"} : (tensor<2xf32>) -> tensor<2xf32>
  %1 = dist.all_reduce %x {axes = ["dp", "tp"], kind = "max"} : (tensor<2xf32>) -> tensor<2xf32>
  %2 = dist.all_gather %x {axes = ["tp"], dim = 0 : i64, sizes = array<i64: 2, 2, 2>} : (tensor<2xf32>) -> tensor<6xf32>
  %3 = dist.reduce_scatter %2 {axes = ["tp"], dim = 0 : i64, sizes = array<i64: 2, 2, 2>, kind = "sum"} : (tensor<6xf32>) -> tensor<2xf32>
  return %0, %1, %2, %3 : tensor<2xf32>, tensor<2xf32>, tensor<6xf32>, tensor<2xf32>
})";

} // namespace

TEST_CASE("collectives over one and two axes") {
  Setup setup(collectives, meshOf(2, 3, 1), {"forward"}, {{{"forward", 0}}});
  std::vector<Slots> slots(6);
  for (int rank = 0; rank < 6; ++rank)
    slots[rank][{ir::SlotKind::State, "x"}] = f32({2}, {double(rank), double(10 * rank)});
  auto after = runDistributed(setup.program, slots);
  for (int rank = 0; rank < 6; ++rank) {
    int tp = rank % 3, base = rank - tp;
    Slots &mine = after[rank];
    CHECK(mine[{ir::SlotKind::Metric, "sum"}] == f32({2}, {tp + tp + 3.0, 10 * (tp + tp + 3.0)}));
    CHECK(mine[{ir::SlotKind::Metric, "max"}] == f32({2}, {5, 50}));
    CHECK(mine[{ir::SlotKind::Metric, "all"}] ==
          f32({6}, {base + 0.0, base * 10.0, base + 1.0, (base + 1) * 10.0, base + 2.0, (base + 2) * 10.0}));
    CHECK(mine[{ir::SlotKind::Metric, "scattered"}] == f32({2}, {3.0 * rank, 30.0 * rank}));
  }
}

TEST_CASE("uneven shares: slice, offset, gather") {
  Setup setup(R"(
func.func @s0.forward(%x: tensor<2x3xf32> {cleave.kind = "state", cleave.name = "x"})
    -> (tensor<2x2xf32> {cleave.kind = "stash", cleave.name = "share"}, tensor<i32> {cleave.kind = "stash", cleave.name = "offset"},
        tensor<2x3xf32> {cleave.kind = "metric", cleave.name = "whole"}) {
  %0 = dist.shard_slice %x {axes = ["tp"], dim = 1 : i64, outer = 1 : i64, size = 3 : i64, inner = 1 : i64} : (tensor<2x3xf32>) -> tensor<2x2xf32>
  %1 = dist.shard_offset {axes = ["tp"], size = 3 : i64} : () -> tensor<i32>
  %2 = dist.all_gather %0 {axes = ["tp"], dim = 1 : i64, sizes = array<i64: 2, 1>} : (tensor<2x2xf32>) -> tensor<2x3xf32>
  return %0, %1, %2 : tensor<2x2xf32>, tensor<i32>, tensor<2x3xf32>
}
func.func @other(%x: tensor<2x3xf32> {cleave.kind = "state", cleave.name = "x"})
    -> (tensor<2x1xf32> {cleave.kind = "stash", cleave.name = "share"}, tensor<i32> {cleave.kind = "stash", cleave.name = "offset"},
        tensor<2x3xf32> {cleave.kind = "metric", cleave.name = "whole"}) {
  %0 = dist.shard_slice %x {axes = ["tp"], dim = 1 : i64, outer = 1 : i64, size = 3 : i64, inner = 1 : i64} : (tensor<2x3xf32>) -> tensor<2x1xf32>
  %1 = dist.shard_offset {axes = ["tp"], size = 3 : i64} : () -> tensor<i32>
  %2 = dist.all_gather %0 {axes = ["tp"], dim = 1 : i64, sizes = array<i64: 2, 1>} : (tensor<2x1xf32>) -> tensor<2x3xf32>
  return %0, %1, %2 : tensor<2x1xf32>, tensor<i32>, tensor<2x3xf32>
})",
              meshOf(1, 2, 1), {"forward"}, {{{"forward", 1}}});
  setup.program.functions[1]["forward"] = "other"; // the second class
  HostTensor x = f32({2, 3}, {1, 2, 3, 4, 5, 6});
  Slots both{{{ir::SlotKind::State, "x"}, x}};
  auto after = runDistributed(setup.program, {both, both});
  CHECK(after[0][{ir::SlotKind::Stash, "share", 1}] == f32({2, 2}, {1, 2, 4, 5}));
  CHECK(after[1][{ir::SlotKind::Stash, "share", 1}] == f32({2, 1}, {3, 6}));
  CHECK(after[1][{ir::SlotKind::Stash, "offset", 1}] == i32({}, {2}));
  CHECK(after[0][{ir::SlotKind::Metric, "whole"}] == x);
  CHECK(after[1][{ir::SlotKind::Metric, "whole"}] == x);
}

TEST_CASE("a pipeline: messages by microbatch, stashes by microbatch, sums over microbatches") {
  std::string text = R"(
func.func @s0.forward(%x: tensor<1xf32> {cleave.kind = "input", cleave.name = "x"}) -> (tensor<1xf32> {cleave.kind = "stash", cleave.name = "h"}) {
  %0 = cleave.add %x, %x : tensor<1xf32>
  dist.send %0 {stage = 1 : i64, tag = 0 : i64} : (tensor<1xf32>) -> ()
  return %x : tensor<1xf32>
}
func.func @s1.forward() -> (tensor<1xf32> {cleave.kind = "stash", cleave.name = "h"}) {
  %0 = dist.recv {stage = 0 : i64, tag = 0 : i64} : () -> tensor<1xf32>
  return %0 : tensor<1xf32>
}
func.func @s1.input_gradient(%h: tensor<1xf32> {cleave.kind = "stash", cleave.name = "h"}) {
  %0 = cleave.mul %h, %h : tensor<1xf32>
  dist.send %0 {stage = 0 : i64, tag = 1 : i64} : (tensor<1xf32>) -> ()
  return
}
func.func @s0.begin() -> (tensor<1xf32> {cleave.kind = "gradient", cleave.name = "w"}) {
  %0 = cleave.constant dense<0.0> : tensor<1xf32> : tensor<1xf32>
  return %0 : tensor<1xf32>
}
func.func @s0.input_gradient(%g: tensor<1xf32> {cleave.kind = "gradient", cleave.name = "w"}, %h: tensor<1xf32> {cleave.kind = "stash", cleave.name = "h"})
    -> (tensor<1xf32> {cleave.kind = "gradient", cleave.name = "w"}) {
  %0 = dist.recv {stage = 1 : i64, tag = 1 : i64} : () -> tensor<1xf32>
  %1 = cleave.mul %0, %h : tensor<1xf32>
  %2 = cleave.add %g, %1 : tensor<1xf32>
  return %2 : tensor<1xf32>
})";
  std::vector<ScheduledSegment> gpipe{{"begin", 0},         {"forward", 0},        {"forward", 1},
                                      {"forward", 2},       {"input_gradient", 0}, {"input_gradient", 1},
                                      {"input_gradient", 2}};
  std::vector<ScheduledSegment> oneByOne{{"forward", 0},        {"input_gradient", 0}, {"forward", 1},
                                         {"input_gradient", 1}, {"forward", 2},        {"input_gradient", 2}};
  Setup setup(text, meshOf(2, 1, 2), {"begin", "forward", "input_gradient"}, {gpipe, oneByOne});
  std::vector<Slots> slots(4);
  for (int dp = 0; dp < 2; ++dp)
    for (int m = 0; m < 3; ++m)
      slots[dp][{ir::SlotKind::Input, "x", m}] = f32({1}, {double(m + 1 + 10 * dp)});
  auto after = runDistributed(setup.program, slots);
  auto expected = [](double a, double b, double c) { return f32({1}, {4 * (a * a * a + b * b * b + c * c * c)}); };
  CHECK(after[0][{ir::SlotKind::Gradient, "w"}] == expected(1, 2, 3));
  CHECK(after[1][{ir::SlotKind::Gradient, "w"}] == expected(11, 12, 13));
  CHECK(after[2][{ir::SlotKind::Stash, "h", 2}] == f32({1}, {6}));
}

TEST_CASE("waiting in a circle is found") {
  Setup setup(R"(
func.func @s0.forward() -> (tensor<1xf32> {cleave.kind = "stash", cleave.name = "h"}) {
  %0 = dist.recv {stage = 1 : i64, tag = 3 : i64} : () -> tensor<1xf32>
  dist.send %0 {stage = 1 : i64, tag = 4 : i64} : (tensor<1xf32>) -> ()
  return %0 : tensor<1xf32>
}
func.func @s1.forward() -> (tensor<1xf32> {cleave.kind = "stash", cleave.name = "h"}) {
  %0 = dist.recv {stage = 0 : i64, tag = 4 : i64} : () -> tensor<1xf32>
  dist.send %0 {stage = 0 : i64, tag = 3 : i64} : (tensor<1xf32>) -> ()
  return %0 : tensor<1xf32>
})",
              meshOf(1, 1, 2), {"forward"}, {{{"forward", 0}}});
  CHECK_THROWS_WITH(runDistributed(setup.program, std::vector<Slots>(2)),
                    Catch::Contains("everybody waits") && Catch::Contains("rank 0 for rank 1, tag 3"));
}

TEST_CASE("ranks that disagree about a collective, or never come, are found") {
  std::string text = R"(
func.func @s0.forward(%x: tensor<1xf32> {cleave.kind = "state", cleave.name = "x"}) -> (tensor<1xf32> {cleave.kind = "state", cleave.name = "x"}) {
  %0 = dist.all_reduce %x {axes = ["pp"], kind = "sum"} : (tensor<1xf32>) -> tensor<1xf32>
  return %0 : tensor<1xf32>
}
func.func @s1.forward(%x: tensor<1xf32> {cleave.kind = "state", cleave.name = "x"}) -> (tensor<1xf32> {cleave.kind = "state", cleave.name = "x"}) {
  %0 = dist.all_reduce %x {axes = ["pp"], kind = "max"} : (tensor<1xf32>) -> tensor<1xf32>
  return %0 : tensor<1xf32>
})";
  Slots one{{{ir::SlotKind::State, "x"}, f32({1}, {1})}};
  Setup setup(text, meshOf(1, 1, 2), {"forward"}, {{{"forward", 0}}});
  CHECK_THROWS_WITH(runDistributed(setup.program, {one, one}), Catch::Contains("disagree"));
  setup.program.schedules[1].clear();
  CHECK_THROWS_WITH(runDistributed(setup.program, {one, one}), Catch::Contains("everybody waits"));
}

TEST_CASE("a slot read before it is written, and a message nobody receives, are found") {
  Setup setup(collectives, meshOf(2, 3, 1), {"forward"}, {{{"forward", 0}}});
  CHECK_THROWS_WITH(runDistributed(setup.program, std::vector<Slots>(6)),
                    Catch::Contains("state x is read before it is written"));
  Setup lost(R"(
func.func @s0.forward(%x: tensor<1xf32> {cleave.kind = "state", cleave.name = "x"}) {
  dist.send %x {stage = 1 : i64, tag = 0 : i64} : (tensor<1xf32>) -> ()
  return
})",
             meshOf(1, 1, 2), {"forward"}, {{{"forward", 0}}});
  Slots one{{{ir::SlotKind::State, "x"}, f32({1}, {1})}};
  CHECK_THROWS_WITH(runDistributed(lost.program, {one, one}), Catch::Contains("never received"));
}

TEST_CASE("only the given stages reduce a tied parameter") {
  Setup setup(R"(
func.func @s0.reduce(%x: tensor<1xf32> {cleave.kind = "gradient", cleave.name = "x"}) -> (tensor<1xf32> {cleave.kind = "gradient", cleave.name = "x"}) {
  %0 = dist.all_reduce %x {axes = ["pp"], kind = "sum", stages = array<i64: 0, 2>} : (tensor<1xf32>) -> tensor<1xf32>
  return %0 : tensor<1xf32>
}
func.func @s2.reduce(%x: tensor<1xf32> {cleave.kind = "gradient", cleave.name = "x"}) -> (tensor<1xf32> {cleave.kind = "gradient", cleave.name = "x"}) {
  %0 = dist.all_reduce %x {axes = ["pp"], kind = "sum", stages = array<i64: 0, 2>} : (tensor<1xf32>) -> tensor<1xf32>
  return %0 : tensor<1xf32>
})",
              meshOf(1, 1, 3), {"reduce"}, {{{"reduce", 0}}});
  std::vector<Slots> slots(3);
  for (int rank = 0; rank < 3; ++rank)
    slots[rank][{ir::SlotKind::Gradient, "x"}] = f32({1}, {double(rank + 1)});
  auto after = runDistributed(setup.program, slots);
  CHECK(after[0][{ir::SlotKind::Gradient, "x"}].values[0] == 4);
  CHECK(after[1][{ir::SlotKind::Gradient, "x"}].values[0] == 2);
  CHECK(after[2][{ir::SlotKind::Gradient, "x"}].values[0] == 4);
}

TEST_CASE("pieces of random numbers, parameters and results are those of the whole") {
  std::string whole = R"(func.func @f(%w: tensor<4x6xf32>) -> tensor<4x6xf32> {
    %0 = cleave.random_uniform {name = "drop"} : () -> tensor<4x6xf32>
    %1 = cleave.add %0, %w : tensor<4x6xf32>
    return %1 : tensor<4x6xf32> })";
  Setup setup(R"ir(
func.func @s0.forward(%w: tensor<2x2xf32> {cleave.kind = "parameter", cleave.name = "w", dist.sharding = #dist.sharding<"dp, (2 x 3:tp)">, dist.global = tensor<4x6xf32>})
    -> (tensor<2x2xf32> {cleave.kind = "parameter", cleave.name = "w"}) {
  %0 = cleave.random_uniform {name = "drop", dist.shardings = [#dist.sharding<"dp, (2 x 3:tp)">], dist.globals = [tensor<4x6xf32>]} : () -> tensor<2x2xf32>
  %1 = cleave.add %0, %w : tensor<2x2xf32>
  return %1 : tensor<2x2xf32>
})ir",
              meshOf(2, 3, 1), {"forward"}, {{{"forward", 5}}});
  HostTensor w = randomF32({4, 6}, 3);
  Context context{7, 2, 5};
  auto after =
      runDistributed(setup.program, scatterSlots(setup.program, {{{ir::SlotKind::Parameter, "w"}, w}}), context);
  CHECK(gatherSlots(setup.program, after)[{ir::SlotKind::Parameter, "w"}] == run(whole, {w}, context)[0]);
}

TEST_CASE("replicas that differ are found when slots are gathered") {
  Setup setup(R"(
func.func @s0.forward(%w: tensor<2xf32> {cleave.kind = "parameter", cleave.name = "w", dist.sharding = #dist.sharding<"_">, dist.global = tensor<2xf32>}) { return })",
              meshOf(2, 1, 1), {"forward"}, {{{"forward", 0}}});
  std::vector<Slots> slots(2);
  slots[0][{ir::SlotKind::Parameter, "w"}] = f32({2}, {1, 2});
  slots[1][{ir::SlotKind::Parameter, "w"}] = f32({2}, {1, 3});
  CHECK_THROWS_WITH(gatherSlots(setup.program, slots),
                    Catch::Contains("parameter w: element 1 is 3") && Catch::Contains("rank 0"));
}
