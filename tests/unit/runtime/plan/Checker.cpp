// The plan checker finds every kind of injected defect, and reports none in a valid plan.
#include "runtime/base/Error.h"
#include "tests/unit/runtime/plan/Defects.h"
#include "tests/unit/runtime/plan/Pipeline.h"

#include <catch2/catch.hpp>

#include <chrono>

using namespace cleave;
using namespace cleave::test;

TEST_CASE("checker: a good plan has no defects") {
  Pipeline p;
  INFO(text(defects(p.plan)));
  CHECK(defects(p.plan).empty());
  CHECK_NOTHROW(checkPlanOrThrow(seal(p.plan)->plan(), "good"));
}

TEST_CASE("checker: an input that is sent lies in a buffer of its own") {
  // x is sent unchanged, and the wait for the send is at the end. The offset of x in the input buffer equals that of w
  // in the arena.
  PlanT plan = makePlan(1, 1, 2);
  const int tensor = addTensor(plan, "x", TensorKind::Input, {4, 3});
  plan.ranks[0]->peers = {1};
  plan.ranks[1]->peers = {0};
  for (bool sender : {true, false}) {
    ProgramWriter writer;
    const uint32_t x = writer.slot("x", plan::DType::F32, {4, 3}, sender ? Space::Input : Space::Placed, tensor);
    writer.shard(x, {{{4, {}}}, {{3, {}}}});
    const uint32_t w = writer.slot("w", plan::DType::F32, {4, 3}, Space::Persistent);
    const uint32_t forward = writer.segment(), update = writer.segment("update", SegmentKind::Update);
    if (sender)
      writer.send(forward, x, 0, 7);
    else
      writer.recv(forward, x, 0, 7);
    if (sender)
      writer.fill(forward, w, 1);
    else
      writer.copy(update, x, w, 12);
    writer.action(forward, 0);
    ActionT &last = writer.action(update, -1);
    if (sender) {
      writer.copy(update, w, w, 0);
      last.wait_sends.push_back(SendId(7, 0));
    }
    plan.programs.push_back(writer.finish());
  }
  plan.ranks[1]->program = 1;
  INFO(text(defects(plan)));
  CHECK(defects(plan).empty());
}

TEST_CASE("checker: an environment error that lists what was found") {
  Pipeline p;
  p.step(0, 0, 0).op.AsMatmul()->a->slot = 77;
  try {
    checkPlanOrThrow(seal(p.plan)->plan(), "bad.plan");
    FAIL("passed");
  } catch (const Error &error) {
    CHECK(error.status == Status::Environment);
    CHECK(std::string(error.what()).find("bad.plan") != std::string::npos);
    CHECK(std::string(error.what()).find("Matmul.a.slot is 77") != std::string::npos);
  }
}

TEST_CASE("checker: structure") {
  SECTION("ranks against mesh") {
    Pipeline p;
    p.plan.mesh[0]->size = 3;
    CHECK_FOUND(p.plan, "the mesh has 6 ranks, the plan 4");
  }
  SECTION("coordinates of another rank") {
    Pipeline p;
    p.plan.ranks[1]->coords = {0, 0, 0};
    CHECK_FOUND(p.plan, "rank 1", "coordinates");
  }
  SECTION("a program that is not there") {
    Pipeline p;
    p.plan.ranks[1]->program = 9;
    CHECK_FOUND(p.plan, "ranks[1].program is 9, must be an index of Plan.programs, which has 2 (rule N1)");
  }
  SECTION("a group without the rank") {
    Pipeline p;
    p.plan.ranks[1]->groups = {1};
    CHECK_FOUND(p.plan, "rank 1: is not in its group 1");
  }
  SECTION("a peer that is oneself") {
    Pipeline p;
    p.plan.ranks[0]->peers = {0};
    CHECK_FOUND(p.plan, "rank 0: peer 0 is the rank itself");
  }
  SECTION("a view beyond its slot") {
    Pipeline p;
    p.step(0, 0, 0).op.AsMatmul()->b->offset = 4;
    CHECK_FOUND(p.plan, "step 0 (Matmul)", "bytes 4 to 52 of slot 1");
  }
  SECTION("a view with too few strides") {
    Pipeline p;
    p.step(0, 0, 0).op.AsMatmul()->b->strides = {1};
    CHECK_FOUND(p.plan, "has 1 strides, needs 2");
  }
  SECTION("a slot smaller than its shape") {
    Pipeline p;
    p.program(0).slots[p.h]->bytes = 40;
    CHECK_FOUND(p.plan, "slot 2: its shape takes 48 bytes, it has 40");
  }
  SECTION("a layout beyond its arena") {
    Pipeline p;
    p.program(0).layouts[0]->offsets[1] = 1 << 20;
    CHECK_FOUND(p.plan, "slot 2 of 48 bytes at offset 1048576");
  }
  SECTION("a layout that is not aligned") {
    Pipeline p;
    p.program(0).layouts[0]->offsets[1] += 4;
    CHECK_FOUND(p.plan, "slot 2 of 48 bytes at offset");
  }
  SECTION("a layout of another length") {
    Pipeline p;
    p.program(0).layouts[0]->offsets.pop_back();
    CHECK_FOUND(p.plan, "places 1 slots");
  }
  SECTION("an action of a segment that is not there") {
    Pipeline p;
    p.program(1).train[0]->segment = 8;
    CHECK_FOUND(p.plan, "train[0].segment is 8");
  }
  SECTION("a microbatch that is not there") {
    Pipeline p;
    p.program(1).train[0]->microbatch = 2;
    CHECK_FOUND(p.plan, "train[0].microbatch is 2");
  }
  SECTION("persistent slots that overlap") {
    Pipeline p;
    uint64_t at = p.program(1).slots[p.w1]->offset;
    p.program(1).slots[3]->offset = at;
    CHECK_FOUND(p.plan, "persistent slots 1 and 3 overlap");
  }
  SECTION("a shape that does not follow from the sharding") {
    Pipeline p;
    p.plan.tensors[1]->shape = {9, 3};
    p.program(0).slots[p.h]->sharding->dims[0]->factors[0]->size = 9;
    CHECK_FOUND(p.plan, "slot 2: its sharding of h gives [5, 3], its shape is [4, 3]");
  }
  SECTION("a metric that is not persistent") {
    Pipeline p;
    p.program(1).metrics[0]->slot = p.y;
    CHECK_FOUND(p.plan, "metric 0 must be a persistent f32 slot");
  }
  SECTION("a write to an input") {
    Pipeline p;
    p.step(0, 0, 0).op.AsMatmul()->c->slot = p.x;
    CHECK_FOUND(p.plan, "writes input slot 0");
  }
  SECTION("a kernel that is not there") {
    Pipeline p;
    KernelT kernel;
    kernel.kernel = 3;
    p.step(0, 1, 0).op.Set(std::move(kernel));
    CHECK_FOUND(p.plan, "Kernel.kernel is 3");
  }
  SECTION("a copy that begins beyond its source on some rank") {
    Pipeline p;
    auto *copy = p.step(0, 1, 0).op.AsCopy(); // reads 12 elements of 12
    copy->src_offset_scalar = 0;
    CHECK_FOUND(p.plan, "src_offset_scalar is 0");
    p.plan.ranks[0]->scalars = {0};
    CHECK_FOUND(p.plan, "src_offset_scalar is 0"); // rank 1, which has the same program
    p.plan.ranks[1]->scalars = {0};
    CHECK_FOUND(p.plan, "rank 0: 1 scalars, but its program describes 0");
    auto start = std::make_unique<ShardStartT>(); // for two elements, one per rank
    start->size = 2;
    start->axes = {0};
    p.program(0).starts.push_back(std::move(start));
    CHECK_FOUND(p.plan, "rank 1: scalar 0 is 0, but its coordinates give 1");
    p.program(0).starts[0]->axes = {};
    CHECK(defects(p.plan).empty());
    p.plan.ranks[1]->scalars = {1};
    CHECK_FOUND(p.plan, "a source that begins at element 1 of 12");
    p.plan.ranks[1]->scalars = {-1};
    CHECK_FOUND(p.plan, "a source that begins at element -1 of 12");
    copy->src_offset_scalar = -7;
    CHECK_FOUND(p.plan, "src_offset_scalar is -7");
    copy->src_offset_scalar = 0;
    copy->src->slot = 77;
    CHECK_FOUND(p.plan, "Copy.src.slot is 77");
  }
  SECTION("no mesh, no coordinates") {
    PlanT plan = makePlan(1);
    plan.programs.push_back(ProgramWriter().finish());
    CHECK(defects(plan).empty());
    plan.mesh.clear();
    plan.ranks[0]->coords.clear();
    CHECK_FOUND(plan, "a mesh has 1 to 16 axes, found 0");
  }
  SECTION("no coordinates") {
    Pipeline p;
    p.plan.ranks[2]->coords.clear();
    CHECK_FOUND(p.plan, "rank 2: coordinates []");
  }
  SECTION("names that are missing") {
    Pipeline p;
    p.plan.mesh[1]->name.clear();
    CHECK_FOUND(p.plan, "mesh axis 1 has no name");
    p.plan.mesh[1]->name = "tp";
    p.plan.tensors[0]->name.clear();
    CHECK_FOUND(p.plan, "tensor 0 has no name");
    p.plan.tensors[0]->name = "x";
    p.plan.tensors[1]->name.clear(); // an activation needs no name
    CHECK(defects(p.plan).empty());
    p.program(1).metrics[0]->name.clear();
    CHECK_FOUND(p.plan, "program 1: metric 0 has no name");
  }
  SECTION("a batch of nothing") {
    Pipeline p;
    p.plan.batch = 0;
    CHECK_FOUND(p.plan, "batch is 0");
  }
  SECTION("more threads than any processor has") {
    Pipeline p;
    p.plan.threads = 1u << 31;
    CHECK_FOUND(p.plan, "threads is 2147483648");
  }
  SECTION("a tensor of impossible size") {
    Pipeline p;
    p.plan.tensors[1]->shape = {int64_t{1} << 40, int64_t{1} << 40};
    CHECK_FOUND(p.plan, "tensors[1].shape has more than");
  }
  SECTION("strides whose products wrap around") {
    Pipeline p;
    auto *matmul = p.step(0, 0, 0).op.AsMatmul();
    matmul->m = int64_t{1} << 20;
    matmul->a->strides = {int64_t{1} << 44, 1}; // 2^64 elements
    matmul->n = 1;
    CHECK_FOUND(p.plan, "(Matmul)", "of slot 0, which has");
    Pipeline q;
    auto *copy = q.step(0, 1, 0).op.AsCopy();
    copy->src_offset_scalar = 0;
    q.plan.ranks[0]->scalars = q.plan.ranks[1]->scalars = {0};
    copy->shape = {5, 2};
    copy->src->strides = {int64_t{1} << 46, 1};
    copy->dst->strides = {2, 1};
    CHECK(defects(q.plan).size() == 1); // reaches 2^48 elements further
    CHECK_FOUND(q.plan, "a source that begins at element 0 of 12");
  }
  SECTION("slots that an empty step names") {
    Pipeline p;
    auto *matmul = p.step(0, 0, 0).op.AsMatmul();
    matmul->k = 0;
    CHECK_FOUND(p.plan, "Matmul.k is 0", "(rule N1)");
    matmul->k = 4, matmul->m = 0;
    matmul->a->slot = 99;
    CHECK_FOUND(p.plan, "Matmul.a.slot is 99");
    Pipeline q;
    PoolT pool;
    pool.kind = PoolKind::AverageForward;
    pool.src = q.w, pool.dst = q.g, pool.workspace = static_cast<int>(q.g);
    pool.n = pool.c = pool.kh = pool.kw = pool.stride_h = pool.stride_w = 1;
    pool.ih = pool.iw = pool.oh = pool.ow = 1;
    q.step(0, 1, 0).op.Set(pool);
    CHECK_FOUND(q.plan, "average pooling has no workspace slot");
  }
  SECTION("a product that never ends") {
    Pipeline p;
    auto *matmul = p.step(0, 0, 0).op.AsMatmul();
    matmul->m = matmul->n = 1;
    matmul->k = int64_t{1} << 40;
    matmul->a->strides = matmul->b->strides = {0, 0};
    CHECK_FOUND(p.plan, "a stride of 0 in a matrix dimension");
  }
  SECTION("a copy that writes elements twice") {
    Pipeline p;
    p.step(0, 1, 0).op.AsCopy()->dst->strides = {0};
    CHECK_FOUND(p.plan, "writes elements of slot 3 twice");
  }
  SECTION("another element type than the slot's") {
    Pipeline p;
    p.step(0, 1, 1).op.AsCollective()->dtype = plan::DType::I64; // i64 has twice the bytes
    CHECK_FOUND(p.plan, "slot 3 must be i64, found f32");
    Pipeline q;
    GatherT gather;
    gather.src = q.w, gather.index = q.g, gather.out = q.gSum;
    gather.extent = gather.count = 12, gather.outer = gather.inner = 1;
    q.step(0, 1, 1).op.Set(gather);
    CHECK_FOUND(q.plan, "slot 3 must be i32, found f32");
  }
  SECTION("an input of another shape than its tensor") {
    Pipeline p;
    p.program(0).slots[p.x]->sharding.reset();
    CHECK_FOUND(p.plan, "slot 0: it is not split, and its shape is not that of x");
  }
  SECTION("an input of no microbatch") {
    Pipeline p;
    p.program(0).train[0]->microbatch = -1;
    CHECK_FOUND(p.plan, "train action 0: it reads inputs of no microbatch");
  }
  SECTION("an axis that splits a slot twice") {
    Pipeline p;
    p.program(0).slots[p.h]->sharding->dims[1]->factors[0]->axes = {0};
    CHECK_FOUND(p.plan, "slot 2: mesh axis 0 splits it twice");
  }
  SECTION("shares that do not match the group") {
    Pipeline p;
    auto *collective = p.step(0, 1, 1).op.AsCollective();
    collective->kind = CollectiveKind::AllGather;
    collective->buffers[0]->sizes = {1, 2, 3};
    CHECK_FOUND(p.plan, "3 shares for 2 members");
  }
}

namespace {

/// One program for many data-parallel ranks: an all-gather of as many rows as there are ranks, and an all-reduce.
struct Wide {
  static constexpr uint32_t ranks = 65;
  PlanT plan = makePlan(ranks, 2);
  uint32_t mine, all;

  Wide() {
    int rows = addTensor(plan, "rows", TensorKind::Activation, {ranks, 3});
    for (uint32_t tp = 0; tp < 2; ++tp) {
      std::vector<uint32_t> members;
      for (uint32_t dp = 0; dp < ranks; ++dp)
        members.push_back(2 * dp + tp);
      addGroup(plan, members);
    }
    ProgramWriter w;
    uint32_t s = w.segment();
    mine = w.slot("mine", plan::DType::F32, {1, 3}, Space::Placed, rows);
    w.shard(mine, {{{ranks, {0}}}, {{3, {}}}});
    all = w.slot("all", plan::DType::F32, {ranks, 3});
    w.fill(s, mine, 1);
    CollectiveT op;
    op.kind = CollectiveKind::AllGather;
    op.buffers.push_back(std::make_unique<CollectiveBufferT>());
    op.buffers[0]->in = mine, op.buffers[0]->out = all, op.buffers[0]->inner = 3;
    op.buffers[0]->sizes.assign(ranks, 1);
    w.step(s, std::move(op));
    w.action(s);
    plan.programs.push_back(w.finish());
  }
  CollectiveT &gather() { return *plan.programs[0]->segments[0]->steps[1]->op.AsCollective(); }
};

} // namespace

TEST_CASE("checker: every rank of a program, however many") {
  SECTION("a good plan") {
    Wide w;
    INFO(text(defects(w.plan)));
    CHECK(defects(w.plan).empty());
  }
  SECTION("no groups") {
    Wide w;
    const uint32_t group = w.plan.ranks[80]->groups[0];
    w.plan.ranks[80]->groups.clear();
    CHECK_FOUND(w.plan, "Collective.group is 0, must be an index of Rank.groups, which has 0 (rule N1)");
    w.plan.ranks[80]->groups = {group, group};
    CHECK_FOUND(w.plan, "rank 80: it has [2, 0, 0] groups, peers and scalars, rank 0", "has [1, 0, 0]");
  }
  SECTION("a group along another axis, or of another size") {
    Wide w;
    w.plan.ranks[80]->groups.clear();
    addGroup(w.plan, {80, 81}, "tp");
    w.plan.ranks[81]->groups.pop_back();
    CHECK_FOUND(w.plan, "rank 80: its group 0 (2 members)");
  }
  SECTION("a share that does not fit") {
    Wide w;
    w.gather().buffers[0]->sizes[40] = 2;
    w.gather().buffers[0]->sizes[41] = 0;
    CHECK_FOUND(w.plan, "rank 80: a share of 24 bytes in slot 0 of 12");
  }
  SECTION("a shape that its coordinates do not give") {
    Wide w;
    w.plan.tensors[0]->shape = {Wide::ranks - 1, 3}; // no row remains for the last rank
    w.plan.programs[0]->slots[w.mine]->sharding->dims[0]->factors[0]->size = Wide::ranks - 1;
    CHECK_FOUND(w.plan, "rank 128: slot 0 of its program is [1, 3], but its coordinates give [0, 3]");
  }
}

TEST_CASE("checker: memory") {
  SECTION("a part that nobody wrote") {
    Pipeline p;
    auto *copy = p.step(0, 1, 0).op.AsCopy(); // writes two of three columns of g
    copy->shape = {4, 2};
    copy->src->strides = copy->dst->strides = {3, 1};
    CHECK_FOUND(p.plan, "(Collective)", "reads byte 8 of slot 3 (g)", "no step wrote");
    auto rest = std::make_unique<StepT>(*p.program(0).segments[1]->steps[0]);
    rest->op.AsCopy()->shape = {4, 1};
    rest->op.AsCopy()->dst->offset = 8;
    auto &steps = p.program(0).segments[1]->steps;
    steps.insert(steps.begin() + 1, std::move(rest));
    INFO(text(defects(p.plan)));
    CHECK(defects(p.plan).empty());
  }
  SECTION("a column is read where another was written") {
    Pipeline p;
    auto *copy = p.step(0, 1, 0).op.AsCopy();
    copy->shape = {4, 1};
    copy->src->strides = copy->dst->strides = {3, 1};
    p.program(0).slots[p.g]->sharding.reset();
    CopyT read = *copy;
    read.src->slot = p.g;
    read.dst->slot = p.gSum;
    p.step(0, 1, 1).op.Set(read);
    p.step(0, 1, 2).op.AsCopy()->src->strides = {0}; // copies one element to all
    CHECK(defects(p.plan).empty());
    p.step(0, 1, 1).op.AsCopy()->src->offset = 4;
    CHECK_FOUND(p.plan, "(Copy)", "reads byte 4 of slot 3 (g)");
  }
  SECTION("what is left of another microbatch") {
    Pipeline p;
    auto *matmul = p.step(0, 0, 0).op.AsMatmul(); // the last row of h is written only for the first microbatch
    matmul->m = 3;
    FillT fill;
    fill.dst = p.h;
    auto step = std::make_unique<StepT>();
    step->op.Set(fill);
    auto first = std::make_unique<SegmentT>();
    first->slots = {p.h};
    first->steps.push_back(std::move(step));
    auto &program = p.program(0);
    program.segments.push_back(std::move(first));
    auto layout = std::make_unique<LayoutT>();
    layout->offsets = {program.layouts[0]->offsets[1]};
    program.layouts.push_back(std::move(layout));
    auto action = std::make_unique<ActionT>();
    action->segment = 2, action->layout = static_cast<uint32_t>(program.layouts.size() - 1);
    program.train.insert(program.train.begin(), std::move(action));
    CHECK_FOUND(p.plan, "microbatch 1 reads byte 36 of slot 2 (h)");
  }
  SECTION("a gather over its own input") {
    Wide w;
    w.plan.programs[0]->layouts[0]->offsets = {64, 0}; // slot `mine` is inside slot `all`
    CHECK_FOUND(w.plan,
                "(Collective): it writes slot 1 (all) at byte 0, over what it reads in slot 0 (mine) at byte 64");
  }
  SECTION("a product over its own operand") {
    Pipeline p;
    auto *matmul = p.step(1, 0, 1).op.AsMatmul();
    matmul->c->slot = p.h1;
    CHECK_FOUND(p.plan, "(Matmul): it writes slot 0 (h) at byte 0, over what it reads");
    matmul->a->slot = p.w1; // the accumulator is operand and result
    matmul->m = 3;
    matmul->accumulate = true;
    p.step(1, 0, 2).op.AsCopy()->src->slot = p.h1;
    INFO(text(defects(p.plan)));
    CHECK(defects(p.plan).empty());
  }
  SECTION("one buffer of an all-reduce over another") {
    Pipeline p;
    auto *collective = p.step(0, 1, 1).op.AsCollective();
    collective->buffers.push_back(std::make_unique<CollectiveBufferT>(*collective->buffers[0]));
    collective->buffers[1]->in = p.w;
    collective->buffers[1]->out = p.g;
    CHECK_FOUND(p.plan, "(Collective): it writes slot 3 (g)", "over what it reads in slot 3 (g)");
  }
  SECTION("a value nobody wrote") {
    Pipeline p;
    auto &steps = p.program(0).segments[0]->steps;
    steps.erase(steps.begin());
    CHECK_FOUND(p.plan, "reads slot 2 (h)", "no step wrote");
  }
  SECTION("a live value overwritten") {
    Pipeline p;
    // gSum over g: valid, since g is not read again
    p.program(0).layouts[1]->offsets[1] = p.program(0).layouts[1]->offsets[0];
    CHECK(defects(p.plan).empty());
    CopyT op; // reads g again after gSum took its place
    op.src = ProgramWriter::view(p.g, {1});
    op.dst = ProgramWriter::view(p.gSum, {1});
    op.shape = {12};
    auto step = std::make_unique<StepT>();
    step->op.Set(std::move(op));
    auto &steps = p.program(0).segments[1]->steps;
    steps.insert(steps.begin() + 2, std::move(step));
    CHECK_FOUND(p.plan, "reads slot 3 (g)", "slot 4 (gSum) has overwritten");
  }
  SECTION("a placed slot on a persistent one") {
    Pipeline p;
    p.program(1).layouts[0]->offsets[1] = p.program(1).slots[p.w1]->offset;
    CHECK_FOUND(p.plan, "overlaps persistent slot 1");
  }
  SECTION("another microbatch's activation") {
    Pipeline p;
    p.program(1).segments[0]->steps.erase(p.program(1).segments[0]->steps.begin()); // no receive in this segment
    auto begin = std::make_unique<SegmentT>(*p.program(1).segments[0]);
    p.program(1).segments.push_back(std::make_unique<SegmentT>());
    auto &segment = *p.program(1).segments.back();
    segment.slots = p.program(1).segments[0]->slots;
    RecvT recv;
    recv.slot = p.h1, recv.bytes = 48, recv.tag = 11;
    segment.steps.push_back(std::make_unique<StepT>());
    segment.steps.back()->op.Set(recv);
    // The receives of both microbatches come first, into one buffer.
    auto action = [&](int microbatch) {
      auto a = std::make_unique<ActionT>();
      a->segment = 2, a->microbatch = microbatch;
      return a;
    };
    auto &train = p.program(1).train;
    train.insert(train.begin(), action(1));
    train.insert(train.begin(), action(0));
    CHECK_FOUND(p.plan, "microbatch 0 reads slot 0 (h), which holds microbatch 1");
  }
  SECTION("a slot that changes while it is sent") {
    Pipeline p;
    p.program(0).train[1]->wait_sends.clear();
    CHECK_FOUND(p.plan, "writes slot 2 (h) while message 11 of microbatch 0 is sent");
  }
  SECTION("a wrong peak") {
    Pipeline p;
    p.program(0).peak_bytes -= 64;
    CHECK_FOUND(p.plan, "program 0: its peak must be");
  }
  SECTION("more than the rank has") {
    Pipeline p;
    CHECK(found(defects(p.plan, {.memoryBytes = 100}), {"a rank has 100"}));
  }
}

TEST_CASE("checker: partial values") {
  SECTION("read as a whole by a library step") {
    Pipeline p;
    p.program(1).slots[p.y]->sharding = std::make_unique<ShardingT>();
    p.program(1).slots[p.h1]->sharding->partial_axes = {0};
    CHECK_FOUND(p.plan, "(Matmul)", "reads slot 0, still partial over dp");
  }
  SECTION("copied to a whole one") {
    Pipeline p;
    p.step(0, 1, 2).op.AsCopy()->src->slot = p.g;
    p.program(0).slots[p.w]->sharding = std::make_unique<ShardingT>();
    CHECK_FOUND(p.plan, "(Copy)", "reads slot 3, still partial over dp");
  }
  SECTION("reduced over another axis") {
    Pipeline p;
    p.program(0).slots[p.g]->sharding->partial_axes = {0, 2};
    CHECK_FOUND(p.plan, "slot 3 is partial over dp+pp, the group reduces dp, but slot 4 is declared whole");
  }
  SECTION("reduced by another operation") {
    Pipeline p;
    p.program(0).slots[p.g]->sharding->partial_kind = ReduceKind::Max;
    CHECK_FOUND(p.plan, "reduces slot 3 by Sum, which is partial by Max");
  }
  SECTION("reduced in place it is whole until it is written again") {
    Pipeline p;
    auto *collective = p.step(0, 1, 1).op.AsCollective();
    collective->buffers[0]->out = p.g;
    p.step(0, 1, 2).op.AsCopy()->src->slot = p.g;
    p.program(0).slots[p.w]->sharding = std::make_unique<ShardingT>();
    INFO(text(defects(p.plan)));
    CHECK(defects(p.plan).empty());
    // written again after its reduction
    std::swap(p.program(0).segments[1]->steps[0], p.program(0).segments[1]->steps[1]);
    CHECK_FOUND(p.plan, "(Copy)", "reads slot 3, still partial over dp");
  }
  SECTION("over an axis of one rank it is whole") {
    Pipeline p;
    p.program(0).slots[p.g]->sharding->partial_axes = {0, 1};
    CHECK(defects(p.plan).empty());
  }
  SECTION("through a kernel that says what it writes") {
    Pipeline p;
    p.plan.kernels.push_back(std::make_unique<KernelInfoT>());
    p.plan.kernels[0]->symbol = "f";
    KernelT kernel;
    kernel.args.push_back(p.g);
    kernel.args.push_back(p.gSum);
    kernel.outputs = 1;
    kernel.extent = 12;
    p.step(0, 1, 1).op.Set(std::move(kernel));
    CHECK_FOUND(p.plan, "(Kernel)", "writes slot 4 as if it were whole");
  }
  SECTION("through a kernel of two sums over different axes") {
    Pipeline p;
    auto &slots = p.program(0).slots;
    const auto other = static_cast<uint32_t>(slots.size());
    slots.push_back(std::make_unique<SlotT>(*slots[p.w]));
    slots[other]->sharding = std::make_unique<ShardingT>(*slots[p.g]->sharding);
    slots[other]->sharding->partial_axes = {2};
    slots[other]->offset = p.program(0).arena_bytes;
    p.program(0).arena_bytes += 64;
    p.plan.kernels.push_back(std::make_unique<KernelInfoT>());
    p.plan.kernels[0]->symbol = "f";
    KernelT kernel;
    for (const uint32_t slot : {p.g, other, p.g, other})
      kernel.args.push_back(slot);
    kernel.outputs = 2;
    kernel.extent = 12;
    p.step(0, 1, 1).op.Set(KernelT(kernel));
    INFO(text(defects(p.plan)));
    CHECK(text(defects(p.plan)).find("as if it were whole") == std::string::npos);
    kernel.args[3] = p.gSum;
    p.step(0, 1, 1).op.Set(std::move(kernel));
    CHECK_FOUND(p.plan, "(Kernel)", fmt::format("reads slot {}, still partial over pp", other));
  }
}

TEST_CASE("checker: communication") {
  SECTION("other counts") {
    Pipeline p;
    auto copy = std::make_unique<ProgramT>(p.program(0));
    copy->segments[1]->steps[1]->op.AsCollective()->buffers[0]->count = 11;
    p.plan.programs.push_back(std::move(copy));
    p.plan.ranks[1]->program = 2;
    CHECK_FOUND(p.plan, "program 2", "gives 11 elements to slot 4 of 12", "(rule S7)");
  }
  SECTION("another kind") {
    Pipeline p;
    auto copy = std::make_unique<ProgramT>(p.program(0));
    copy->segments[1]->steps[1]->op.AsCollective()->reduce = ReduceKind::Max;
    p.plan.programs.push_back(std::move(copy));
    p.plan.ranks[1]->program = 2;
    CHECK_FOUND(p.plan, "AllReduce Max", "AllReduce Sum");
  }
  SECTION("a member that never comes") {
    Pipeline p;
    auto copy = std::make_unique<ProgramT>(p.program(0));
    copy->train.pop_back();
    p.plan.programs.push_back(std::move(copy));
    p.plan.ranks[1]->program = 2;
    CHECK_FOUND(p.plan, "rank 0 waits forever", "for ranks 1 to join");
  }
  SECTION("a message nobody sends") {
    Pipeline p;
    p.step(1, 0, 0).op.AsRecv()->tag = 12;
    CHECK_FOUND(p.plan, "rank 2 waits forever", "for message 12 from rank 0");
  }
  SECTION("a message nobody receives") {
    Pipeline p;
    p.program(0).segments[1]->steps.push_back(std::make_unique<StepT>());
    SendT send;
    send.slot = p.w, send.bytes = 48, send.tag = 50;
    p.program(0).segments[1]->steps.back()->op.Set(send);
    CHECK_FOUND(p.plan, "sends message 50", "never receives");
  }
  SECTION("other bytes") {
    Pipeline p;
    p.step(1, 0, 0).op.AsRecv()->bytes = 44;
    CHECK_FOUND(p.plan, "receives 44 bytes of message 11 from rank 0, which sends 48");
  }
  SECTION("a wait for a message not started") {
    Pipeline p;
    Pipeline::addWait(*p.program(0).train[0], 11, 0);
    CHECK_FOUND(p.plan, "waits for message 11 of microbatch 0, which it has not started");
  }
  SECTION("a circle of waits") {
    PlanT plan = makePlan(1, 1, 2);
    for (uint32_t r = 0; r < 2; ++r) { // each rank receives before it sends
      ProgramWriter w;
      uint32_t in = w.slot("in", plan::DType::F32, {4}), s = w.segment();
      w.recv(s, in, 0, 1);
      w.send(s, in, 0, 1);
      w.action(s);
      plan.programs.push_back(w.finish());
      plan.ranks[r]->program = r;
      plan.ranks[r]->peers = {1 - r};
    }
    auto errors = defects(plan);
    CHECK(found(errors, {"rank 0 waits forever", "from rank 1"}));
    CHECK(found(errors, {"rank 1 waits forever", "from rank 0"}));
  }
  SECTION("two groups in opposite order") {
    PlanT plan = makePlan(2, 2);
    addGroup(plan, {0, 2});
    addGroup(plan, {1, 3});
    addGroup(plan, {0, 1}, "tp");
    addGroup(plan, {2, 3}, "tp");
    for (uint32_t r = 0; r < 4; ++r) { // each rank waits for the next: 0 for 2, 2 for 3, 3 for 1, 1 for 0
      const uint32_t along = r == 0 || r == 3 ? 0 : 1;
      ProgramWriter w;
      uint32_t x = w.slot("x", plan::DType::F32, {4}, Space::Persistent), s = w.segment();
      w.allReduce(s, x, x, 4, along);
      w.allReduce(s, x, x, 4, 1 - along);
      w.action(s);
      plan.programs.push_back(w.finish());
      plan.ranks[r]->program = r;
    }
    CHECK_FOUND(plan, "waits forever");
  }
}

TEST_CASE("checker: 64 ranks and many microbatches take little time") {
  PlanT plan = makePlan(64);
  plan.microbatches = 200;
  std::vector<uint32_t> all;
  for (uint32_t r = 0; r < 64; ++r)
    all.push_back(r);
  addGroup(plan, all);
  ProgramWriter w;
  uint32_t x = w.slot("x", plan::DType::F32, {64}, Space::Persistent), h = w.slot("h", plan::DType::F32, {64}), s = w.segment();
  for (int i = 0; i < 25; ++i) {
    w.copy(s, x, h, 64);
    w.copy(s, h, x, 64);
  }
  w.copy(s, x, h, 64);
  w.allReduce(s, h, x, 64);
  for (int m = 0; m < 200; ++m)
    w.action(s, m);
  plan.programs.push_back(w.finish());
  auto file = seal(plan);
  auto begin = std::chrono::steady_clock::now();
  CHECK(checkPlan(file->plan()).empty());
  CHECK(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() < 2);
}
