// The plan checker on batches of kernel calls.
#include "tests/unit/runtime/plan/Defects.h"
#include "tests/unit/runtime/plan/KernelCalls.h"

using namespace cleave;
using namespace cleave::test;

TEST_CASE("checker: batches of kernel calls") {
  SECTION("good ones") {
    CHECK(defects(KernelCalls().plan).empty());
    CHECK(defects(KernelCalls("cpu").plan).empty());
  }
  SECTION("of nothing") {
    KernelCalls u;
    bindKernels(u.plan);
    u.batch().calls.clear();
    CHECK_FOUND(u.plan, "(KernelBatch)", "a batch of no calls");
  }
  SECTION("of two kernels") {
    KernelCalls u;
    u.plan.kernels.push_back(std::make_unique<KernelInfoT>(*u.plan.kernels[0]));
    u.plan.kernels[1]->symbol = "other";
    u.batch().calls[1]->kernel = 1;
    CHECK_FOUND(u.plan, "call 1: it is of kernel 1, the first of kernel 0");
  }
  SECTION("of a kernel that is not there") {
    KernelCalls u;
    u.batch().calls[1]->kernel = 5;
    CHECK_FOUND(u.plan, "calls[1].kernel is 5");
  }
  SECTION("of a kernel in the other form") {
    KernelCalls gpu, cpu("cpu"), single;
    gpu.plan.kernels[0]->batch = false;
    CHECK_FOUND(gpu.plan, "call 0: kernel 0 must be in batch form here");
    cpu.plan.kernels[0]->batch = true;
    CHECK_FOUND(cpu.plan, "call 0: kernel 0 must not be in batch form here");
    KernelT call(*single.batch().calls[0]);
    single.plan.programs[0]->segments[0]->steps[0]->op.Set(std::move(call));
    CHECK_FOUND(single.plan, "(Kernel)", "kernel 0 must not be in batch form here");
  }
  SECTION("that differ in more than places") {
    KernelCalls arguments, outputs, scalars, unknown;
    arguments.batch().calls[1]->args.erase(arguments.batch().calls[1]->args.begin());
    CHECK_FOUND(arguments.plan, "call 1: 3 arguments, 1 outputs and 0 scalars, kernel update takes 4, 1 and 0");
    outputs.batch().calls[1]->outputs = 2;
    CHECK_FOUND(outputs.plan, "call 1: 4 arguments, 2 outputs");
    scalars.batch().calls[1]->scalars.push_back(0);
    scalars.plan.ranks[0]->scalars.push_back(0);
    CHECK_FOUND(scalars.plan, "call 1: 4 arguments, 1 outputs and 1 scalars");
    unknown.batch().calls[0]->outputs = 0;
    CHECK_FOUND(unknown.plan, "kernel 0: it does not declare what it writes");
  }
  SECTION("with a call that is wrong by itself") {
    KernelCalls scalar, extent;
    for (auto &call : scalar.batch().calls)
      call->scalars.push_back(3);
    CHECK_FOUND(scalar.plan, "calls[0].scalars[0] is 3");
    extent.batch().calls[0]->extent = -1;
    CHECK_FOUND(extent.plan, "calls[0].extent is -1");
  }
  SECTION("with more blocks than a grid has") {
    KernelCalls u;
    u.batch().calls[0]->blocks = 0x7fffffff;
    CHECK_FOUND(u.plan, "2147483649 blocks, at most 2147483647");
  }
  SECTION("outside their slots") {
    KernelCalls u;
    u.batch().calls[1]->args[3] = 77;
    CHECK_FOUND(u.plan, "calls[1].args[3] is 77");
  }
  SECTION("that do not begin at the start of their slots") {
    const auto beginning = [](const std::string &backend, std::vector<uint64_t> offsets) {
      KernelCalls u(backend);
      bindKernels(u.plan);
      u.plan.programs[0]->slots[u.g[1]]->shape = {160};
      u.plan.programs[0]->slots[u.g[1]]->bytes = 640;
      u.batch().calls[1]->offsets = std::move(offsets);
      return std::move(u.plan);
    };
    CHECK(defects(beginning("cuda", {0, 32, 0, 0})).empty());
    CHECK(defects(beginning("cpu", {0, 36, 0, 0})).empty());
    CHECK_FOUND(beginning("cuda", {0, 36, 0, 0}), "argument 1 begins at byte 36 of slot 4, not at a multiple of 16");
    CHECK_FOUND(beginning("cpu", {0, 34, 0, 0}), "argument 1 begins at byte 34 of slot 4, not at a multiple of 4");
    CHECK_FOUND(beginning("cpu", {0, 44, 0, 0}), "slot 4");
    CHECK_FOUND(beginning("cpu", {0, 36}), "2 offsets of 4 arguments");
    CHECK_FOUND(beginning("cpu", {0, 0, 0, 4}), "writes from byte 4 of slot 3");
  }
  SECTION("one of which reads what another writes") {
    KernelCalls u;
    u.batch().calls[0]->args[1] = u.p[1];
    CHECK_FOUND(u.plan, "call 1 writes slot 3 (p)", "which call 0 reads as slot 3");
  }
  SECTION("one of which writes what all read") {
    KernelCalls u;
    u.batch().calls[0]->args[1] = u.batch().calls[1]->args[3] = u.g[1];
    CHECK_FOUND(u.plan, "call 1 writes slot 4 (g)", "which call 0 reads as slot 4");
  }
  SECTION("two of which write the same") {
    KernelCalls u;
    u.batch().calls[0]->args[3] = u.p[1];
    CHECK_FOUND(u.plan, "writes slot 3 (p)", "writes as slot 3");
  }
  SECTION("over placed slots that share bytes") {
    for (bool apart : {true, false}) {
      KernelCalls u;
      ProgramT &program = *u.plan.programs[0];
      for (uint32_t i = 0; i < 2; ++i) {
        auto slot = std::make_unique<SlotT>(*program.slots[u.p[i]]);
        slot->space = Space::Placed;
        slot->offset = 0;
        if (apart)
          slot->name.clear(); // a slot that no step reads may have no name
        u.batch().calls[i]->args[3] = static_cast<uint32_t>(program.slots.size());
        program.segments[0]->slots.push_back(static_cast<uint32_t>(program.slots.size()));
        program.layouts[0]->offsets.push_back(program.arena_bytes + (apart && i ? 1024 : 0));
        program.slots.push_back(std::move(slot));
      }
      program.arena_bytes += 4096;
      program.peak_bytes = program.lower_bound_bytes = program.arena_bytes;
      if (apart)
        CHECK(defects(u.plan).empty());
      else
        CHECK_FOUND(u.plan, "(p) at byte", "which call", "writes as slot");
    }
  }
}

TEST_CASE("checker: partial values in batches of kernel calls") {
  KernelCalls u;
  u.plan.mesh[0]->size = 2;
  u.plan.ranks.push_back(std::make_unique<RankT>());
  u.plan.ranks[1]->coords = {1, 0, 0};
  ProgramT &program = *u.plan.programs[0];
  for (uint32_t slot : {u.p[0], u.g[0], u.p[1], u.g[1]})
    program.slots[slot]->sharding = std::make_unique<ShardingT>();
  CHECK(defects(u.plan).empty());
  program.slots[u.p[0]]->sharding->partial_axes = {0}; // p[0] and g[1] belong to different calls
  program.slots[u.g[1]]->sharding->partial_axes = {0};
  CHECK_FOUND(u.plan, "(KernelBatch)", "reads slot 4, still partial over dp, and writes slot 3 as if it were whole");
}
