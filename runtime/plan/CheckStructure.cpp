// Structure: what must hold before anything in a plan may be followed.
#include "runtime/base/Error.h"
#include "runtime/plan/CheckParts.h"
#include "runtime/plan/DTypes.h"
#include "runtime/plan/Slices.h"

#include <algorithm>
#include <map>
#include <set>

namespace cleave::check {

namespace {

constexpr uint64_t largest = uint64_t{1} << 46; // bytes or elements; products of what passes stay in 64 bits
constexpr uint32_t mostDims = 12;

/// One program and its ranks.
class ProgramCheck {
public:
  ProgramCheck(const plan::Plan &plan, uint32_t index, const plan::Rank *rank, Report &report)
      : plan(plan), index(index), program(*plan.programs()->Get(index)), rank(rank), report(report) {}

  void run() {
    size_t before = report.count();
    slots();
    if (report.count() != before)
      return;
    persistentApart();
    for (uint32_t s = 0; s < length(program.segments()); ++s)
      segment(s);
    if (report.count() != before)
      return;
    actions(program.train(), "train");
    actions(program.eval(), "eval");
    names();
  }

private:
  const plan::Slot *slotAt(int64_t slot) const {
    return slot >= 0 && slot < length(program.slots()) ? program.slots()->Get(static_cast<uint32_t>(slot)) : nullptr;
  }

  void slots() {
    if (program.arena_bytes() > largest || program.input_bytes() > largest)
      report.add("program {}: arena of {} bytes", index, program.arena_bytes());
    for (uint32_t i = 0; i < length(program.slots()); ++i) {
      const plan::Slot &slot = *program.slots()->Get(i);
      if (slot.dtype() > plan::DType::MAX || slot.space() > plan::Space::MAX)
        report.add("program {}, slot {}: unknown element type or space", index, i);
      else
        slotSize(i, slot);
    }
  }

  void slotSize(uint32_t i, const plan::Slot &slot) {
    uint64_t elements = 1;
    if (length(slot.shape()) > mostDims)
      return report.add("program {}, slot {}: {} dimensions, at most {}", index, i, length(slot.shape()), mostDims);
    for (uint32_t d = 0; d < length(slot.shape()); ++d) {
      int64_t size = slot.shape()->Get(d);
      if (size < 0 || static_cast<uint64_t>(size) > largest ||
          (size && elements > largest / static_cast<uint64_t>(size)))
        return report.add("program {}, slot {}: dimension {} is {}", index, i, d, size);
      elements *= static_cast<uint64_t>(size);
    }
    if (slot.bytes() < elements * dtypeSize(slot.dtype()) || slot.bytes() > largest)
      report.add("program {}, slot {}: its shape takes {} bytes, it has {}", index, i,
                 elements * dtypeSize(slot.dtype()), slot.bytes());
    if (slot.space() == plan::Space::Persistent) {
      if (slot.offset() % 64)
        report.add("program {}, slot {}: offset {} is not a multiple of 64", index, i, slot.offset());
      if (slot.offset() > program.arena_bytes() || slot.bytes() > program.arena_bytes() - slot.offset())
        report.add("program {}, slot {}: bytes {} to {} of an arena of {}", index, i, slot.offset(),
                   slot.offset() + slot.bytes(), program.arena_bytes());
    }
    if (slot.tensor() < -1 || slot.tensor() >= static_cast<int64_t>(length(plan.tensors())))
      return report.add("program {}, slot {}: tensor {} of {}", index, i, slot.tensor(), length(plan.tensors()));
    if (slot.space() == plan::Space::Input && slot.tensor() < 0)
      report.add("program {}, slot {}: an input slot without a tensor", index, i);
    sharding(i, slot);
  }

  void sharding(uint32_t i, const plan::Slot &slot) {
    const plan::Sharding *sharding = slot.sharding();
    if (!sharding)
      return;
    for (uint32_t a = 0; a < length(sharding->partial_axes()); ++a)
      if (sharding->partial_axes()->Get(a) >= length(plan.mesh()))
        report.add("program {}, slot {}: partial over mesh axis {} of {}", index, i, sharding->partial_axes()->Get(a),
                   length(plan.mesh()));
    for (uint32_t d = 0; d < length(sharding->dims()); ++d)
      for (uint32_t f = 0; f < length(sharding->dims()->Get(d)->factors()); ++f)
        if (int64_t size = sharding->dims()->Get(d)->factors()->Get(f)->size(); size < 0 || size > int64_t{1} << 46)
          return report.add("program {}, slot {}: a factor of {}", index, i, size);
    if (!rank || slot.tensor() < 0)
      return;
    const plan::Tensor *tensor = plan.tensors()->Get(static_cast<uint32_t>(slot.tensor()));
    std::vector<int64_t> global, local;
    if (tensor->shape())
      global.assign(tensor->shape()->begin(), tensor->shape()->end());
    if (slot.shape())
      local.assign(slot.shape()->begin(), slot.shape()->end());
    std::vector<uint32_t> coords(rank->coords()->begin(), rank->coords()->end());
    try {
      auto expected = localShape(sharding, global, meshSizes(plan), coords);
      if (expected != local)
        report.add("program {}, slot {}: its sharding of {} gives [{}], its shape is [{}]", index, i,
                   tensor->name() ? tensor->name()->str() : "", fmt::join(expected, ", "), fmt::join(local, ", "));
    } catch (const Error &error) {
      report.add("program {}, slot {}: {}", index, i, error.what());
    }
  }

  void persistentApart() {
    std::vector<std::pair<uint64_t, uint32_t>> order;
    for (uint32_t i = 0; i < length(program.slots()); ++i)
      if (slotAt(i)->space() == plan::Space::Persistent && slotAt(i)->bytes())
        order.push_back({slotAt(i)->offset(), i});
    std::sort(order.begin(), order.end());
    for (size_t i = 1; i < order.size(); ++i)
      if (order[i - 1].first + slotAt(order[i - 1].second)->bytes() > order[i].first)
        report.add("program {}: persistent slots {} and {} overlap at byte {}", index, order[i - 1].second,
                   order[i].second, order[i].first);
  }

  void segment(uint32_t s) {
    const plan::Segment &segment = *program.segments()->Get(s);
    std::set<uint32_t> listed;
    for (uint32_t i = 0; i < length(segment.slots()); ++i) {
      uint32_t slot = segment.slots()->Get(i);
      if (!slotAt(slot) || slotAt(slot)->space() == plan::Space::Persistent)
        report.add("program {}, segment {}: its slot list names slot {}, which is {}", index, s, slot,
                   slotAt(slot) ? "persistent" : "not there");
      else if (!listed.insert(slot).second)
        report.add("program {}, segment {}: slot {} is listed twice", index, s, slot);
    }
    for (uint32_t i = 0; i < length(segment.steps()) && !report.full(); ++i) {
      std::string problem = stepProblem(*segment.steps()->Get(i), listed);
      if (!problem.empty())
        report.add("{}: {}", placeOf(index, program, s, i), problem);
    }
  }

  /// A view must have as many strides as its step needs, none negative.
  static std::string viewProblem(const plan::View *view, uint32_t strides) {
    if (!view)
      return "a view is missing";
    if (length(view->strides()) != strides)
      return fmt::format("a view has {} strides, needs {}", length(view->strides()), strides);
    for (uint32_t i = 0; i < strides; ++i)
      if (view->strides()->Get(i) < 0 || view->strides()->Get(i) > int64_t{1} << 46)
        return fmt::format("a stride of {}", view->strides()->Get(i));
    return "";
  }

  static bool sane(std::initializer_list<int64_t> sizes) {
    uint64_t all = 1;
    for (int64_t size : sizes) {
      if (size < 0 || static_cast<uint64_t>(size) > largest || (size && all > largest / static_cast<uint64_t>(size)))
        return false;
      all *= static_cast<uint64_t>(std::max<int64_t>(1, size));
    }
    return true;
  }

  std::string matmulProblem(const plan::Matmul &op) {
    if (length(op.batch()) > mostDims)
      return "too many batch dimensions";
    int64_t batches = 1;
    for (uint32_t i = 0; i < length(op.batch()); ++i) {
      if (!sane({batches, op.batch()->Get(i)}))
        return fmt::format("batch dimension {}", op.batch()->Get(i));
      batches *= op.batch()->Get(i);
    }
    if (!sane({batches, op.m(), op.n()}) || !sane({batches, op.m(), op.k()}) || !sane({batches, op.k(), op.n()}))
      return fmt::format("sizes {} x {} x {}", op.m(), op.n(), op.k());
    for (const plan::View *view : {op.a(), op.b(), op.c()}) {
      uint32_t rank = length(op.batch());
      std::string problem = viewProblem(view, rank + 2);
      if (!problem.empty())
        return problem;
    }
    uint32_t last = length(op.batch());
    auto unit = [&](const plan::View *view, int64_t rows, int64_t columns) {
      return rows <= 1 || columns <= 1 || view->strides()->Get(last) == 1 || view->strides()->Get(last + 1) == 1;
    };
    if (!unit(op.a(), op.m(), op.k()) || !unit(op.b(), op.k(), op.n()) || !unit(op.c(), op.m(), op.n()))
      return "one of the last two strides of each view must be 1";
    return "";
  }

  std::string convProblem(const plan::Conv &op) {
    if (op.kind() > plan::ConvKind::MAX || op.groups() < 1 || op.ic() % op.groups() || op.oc() % op.groups())
      return fmt::format("{} groups for {} to {} channels", op.groups(), op.ic(), op.oc());
    if (!sane({op.n(), op.ic(), op.ih(), op.iw()}) || !sane({op.n(), op.oc(), op.oh(), op.ow()}) ||
        !sane({op.oc(), op.ic(), op.kh(), op.kw()}) || op.stride_h() < 1 || op.stride_w() < 1 || op.dilation_h() < 1 ||
        op.dilation_w() < 1 || op.kh() < 1 || op.kw() < 1 || op.pad_top() < 0 || op.pad_left() < 0 ||
        !sane({op.stride_h(), op.oh()}) || !sane({op.stride_w(), op.ow()}))
      return "a size, stride, dilation or padding is out of range";
    return "";
  }

  std::string poolProblem(const plan::Pool &op) {
    if (op.kind() > plan::PoolKind::MAX || !sane({op.n(), op.c(), op.ih(), op.iw()}) ||
        !sane({op.n(), op.c(), op.oh(), op.ow()}) || op.kh() < 1 || op.kw() < 1 || op.stride_h() < 1 ||
        op.stride_w() < 1 || op.pad_top() < 0 || op.pad_left() < 0)
      return "a size, stride or padding is out of range";
    bool max = op.kind() == plan::PoolKind::MaxForward || op.kind() == plan::PoolKind::MaxBackward;
    return max && op.workspace() < 0 ? "max pooling needs a workspace slot" : "";
  }

  std::string kernelProblem(const plan::Kernel &op) {
    if (op.kernel() >= length(plan.kernels()))
      return fmt::format("kernel {} of {}", op.kernel(), length(plan.kernels()));
    if (op.extent() < 0 || op.grain() < 1 || op.outputs() > length(op.args()))
      return fmt::format("extent {}, grain {}, {} outputs of {} arguments", op.extent(), op.grain(), op.outputs(),
                         length(op.args()));
    for (uint32_t i = 0; i < length(op.scalars()); ++i)
      if (!scalarFits(op.scalars()->Get(i)->rank_scalar()))
        return fmt::format("rank scalar {}", op.scalars()->Get(i)->rank_scalar());
    return "";
  }

  bool scalarFits(int32_t scalar) const {
    return scalar >= -1 && (!rank || scalar < static_cast<int64_t>(length(rank->scalars())));
  }

  std::string collectiveProblem(const plan::Collective &op) {
    if (op.kind() > plan::CollectiveKind::MAX || op.reduce() > plan::ReduceKind::MAX || op.dtype() > plan::DType::MAX)
      return "unknown kind, reduction or element type";
    if (rank && op.group() >= length(rank->groups()))
      return fmt::format("group {} of the rank's {}", op.group(), length(rank->groups()));
    uint32_t members = rank ? length(plan.groups()->Get(rank->groups()->Get(op.group()))->ranks()) : 0;
    bool shares = op.kind() == plan::CollectiveKind::AllGather || op.kind() == plan::CollectiveKind::ReduceScatter;
    for (uint32_t i = 0; i < length(op.buffers()); ++i) {
      const plan::CollectiveBuffer &b = *op.buffers()->Get(i);
      if (!sane({b.count()}) || !sane({b.outer(), b.inner()}))
        return fmt::format("count {}, outer {}, inner {}", b.count(), b.outer(), b.inner());
      if (shares && rank && length(b.sizes()) != members)
        return fmt::format("{} shares for {} members", length(b.sizes()), members);
      int64_t total = 0;
      for (uint32_t m = 0; m < length(b.sizes()); ++m) {
        if (!sane({b.sizes()->Get(m), b.outer(), b.inner()}))
          return fmt::format("a share of {}", b.sizes()->Get(m));
        total += b.sizes()->Get(m);
      }
      if (!sane({total, b.outer(), b.inner()}))
        return fmt::format("shares of {} in all", total);
      if (op.kind() == plan::CollectiveKind::AllToAll && members && b.count() % members)
        return fmt::format("{} elements in {} equal blocks", b.count(), members);
    }
    return "";
  }

  /// A member's own share of a gather or scatter must fit its slot.
  std::string shareProblem(const plan::Collective &op) {
    bool gather = op.kind() == plan::CollectiveKind::AllGather;
    if (!rank || (!gather && op.kind() != plan::CollectiveKind::ReduceScatter))
      return "";
    uint32_t rankIndex = 0;
    while (plan.ranks()->Get(rankIndex) != rank)
      ++rankIndex;
    const auto *ranks = plan.groups()->Get(rank->groups()->Get(op.group()))->ranks();
    auto me = static_cast<uint32_t>(std::find(ranks->begin(), ranks->end(), rankIndex) - ranks->begin());
    for (uint32_t i = 0; me < ranks->size() && i < length(op.buffers()); ++i) {
      const plan::CollectiveBuffer &b = *op.buffers()->Get(i);
      uint64_t bytes = static_cast<uint64_t>(b.sizes()->Get(me) * b.outer() * b.inner()) * dtypeSize(op.dtype());
      uint32_t slot = gather ? b.in() : b.out();
      if (bytes > slotAt(slot)->bytes())
        return fmt::format("a share of {} bytes in slot {} of {}", bytes, slot, slotAt(slot)->bytes());
    }
    return "";
  }

  /// A copy whose source begins at a value of the rank's table stays inside its slot on every rank.
  /// Called when the slot and the view's offset are known to be good.
  std::string copyStartProblem(const plan::Copy &op) {
    if (op.src_offset_scalar() == -1)
      return "";
    if (op.src_offset_scalar() < 0)
      return fmt::format("rank scalar {}", op.src_offset_scalar());
    uint64_t last = 0;
    for (uint32_t d = 0; d < length(op.shape()); ++d) {
      if (op.shape()->Get(d) == 0)
        return "";
      last += static_cast<uint64_t>(op.shape()->Get(d) - 1) * static_cast<uint64_t>(op.src()->strides()->Get(d));
    }
    const plan::Slot &source = *slotAt(op.src()->slot());
    if (op.src()->offset() > source.bytes())
      return fmt::format("a source that begins at byte {} of {}", op.src()->offset(), source.bytes());
    uint64_t elements = (source.bytes() - op.src()->offset()) / dtypeSize(op.dtype());
    auto scalar = static_cast<uint32_t>(op.src_offset_scalar());
    for (const plan::Rank *each : *plan.ranks()) {
      if (each->program() != index)
        continue;
      if (scalar >= length(each->scalars())) // tables of ranks that share a program may differ in length
        return fmt::format("rank scalar {} of {}", scalar, length(each->scalars()));
      int64_t start = each->scalars()->Get(scalar);
      if (start < 0 || static_cast<uint64_t>(start) >= elements || last >= elements - static_cast<uint64_t>(start))
        return fmt::format("a source that begins at element {} of {}", start, elements);
    }
    return "";
  }

  std::string operandProblem(const plan::Step &step) {
    if (const auto *op = step.op_as_Matmul())
      return matmulProblem(*op);
    if (const auto *op = step.op_as_Conv())
      return convProblem(*op);
    if (const auto *op = step.op_as_Pool())
      return poolProblem(*op);
    if (const auto *op = step.op_as_Kernel())
      return kernelProblem(*op);
    if (const auto *op = step.op_as_Collective())
      return collectiveProblem(*op);
    if (const auto *op = step.op_as_Copy()) {
      if (length(op->shape()) > mostDims || op->dtype() > plan::DType::MAX)
        return "too many dimensions or unknown element type";
      int64_t all = 1;
      for (uint32_t i = 0; i < length(op->shape()); ++i) {
        if (!sane({all, op->shape()->Get(i)}))
          return fmt::format("a dimension of {}", op->shape()->Get(i));
        all *= op->shape()->Get(i);
      }
      std::string problem = viewProblem(op->src(), length(op->shape()));
      if (problem.empty())
        problem = viewProblem(op->dst(), length(op->shape()));
      return problem;
    }
    if (const auto *op = step.op_as_Embedding())
      return sane({op->rows(), op->width()}) && sane({op->count(), op->width()}) && scalarFits(op->start())
                 ? ""
                 : "sizes out of range";
    if (const auto *op = step.op_as_EmbeddingGrad())
      return sane({op->rows(), op->width()}) && sane({op->count(), op->width()}) && scalarFits(op->start())
                 ? ""
                 : "sizes out of range";
    if (const auto *op = step.op_as_Gather())
      return sane({op->outer(), op->extent(), op->inner()}) && sane({op->outer(), op->count(), op->inner()})
                 ? ""
                 : "sizes out of range";
    if (const auto *op = step.op_as_ScatterAdd())
      return sane({op->outer(), op->extent(), op->inner()}) && sane({op->outer(), op->count(), op->inner()})
                 ? ""
                 : "sizes out of range";
    if (const auto *op = step.op_as_Random())
      return randomProblem(*op);
    if (const auto *op = step.op_as_Send())
      return peerProblem(op->peer());
    if (const auto *op = step.op_as_Recv())
      return peerProblem(op->peer());
    return step.op_type() == plan::StepOp::Fill ? "" : "a step of unknown kind";
  }

  std::string peerProblem(uint32_t peer) const {
    return rank && peer >= length(rank->peers()) ? fmt::format("peer {} of the rank's {}", peer, length(rank->peers()))
                                                 : "";
  }

  std::string randomProblem(const plan::Random &op) {
    const plan::Slot *slot = slotAt(op.out());
    if (!slot || length(op.shape()) > mostDims || !rank)
      return "";
    std::vector<int64_t> global, coordsShape;
    if (op.shape())
      global.assign(op.shape()->begin(), op.shape()->end());
    int64_t all = 1;
    for (int64_t size : global) {
      if (!sane({all, size}))
        return fmt::format("a dimension of {}", size);
      all *= size;
    }
    std::vector<uint32_t> coords(rank->coords()->begin(), rank->coords()->end());
    try {
      uint64_t bytes = dtypeSize(op.dtype());
      for (int64_t size : localShape(slot->sharding(), global, meshSizes(plan), coords))
        bytes *= static_cast<uint64_t>(size);
      return bytes > slot->bytes() ? fmt::format("draws {} bytes into a slot of {}", bytes, slot->bytes()) : "";
    } catch (const Error &error) {
      return error.what();
    }
  }

  std::string stepProblem(const plan::Step &step, const std::set<uint32_t> &listed) {
    if (!step.op())
      return "an empty step";
    std::string problem = operandProblem(step);
    if (!problem.empty())
      return problem;
    forEachAccess(step, program, [&](const Access &access) {
      const plan::Slot *slot = slotAt(access.slot);
      if (!problem.empty())
        return;
      if (!slot)
        problem = fmt::format("slot {} of {}", access.slot, length(program.slots()));
      else if (slot->space() != plan::Space::Persistent && !listed.count(access.slot))
        problem = fmt::format("slot {} is not in the segment's list", access.slot);
      else if (access.begin > slot->bytes() || access.bytes > slot->bytes() - access.begin)
        problem = fmt::format("bytes {} to {} of slot {}, which has {}", access.begin, access.begin + access.bytes,
                              access.slot, slot->bytes());
      else if (slot->space() == plan::Space::Input && access.kind == Access::Write)
        problem = fmt::format("writes input slot {}", access.slot);
    });
    if (problem.empty() && step.op_type() == plan::StepOp::Copy)
      problem = copyStartProblem(*step.op_as_Copy());
    if (problem.empty() && step.op_type() == plan::StepOp::Collective)
      problem = shareProblem(*step.op_as_Collective());
    return problem;
  }

  void actions(const flatbuffers::Vector<flatbuffers::Offset<plan::Action>> *list, const char *entry) {
    std::set<std::pair<uint32_t, uint32_t>> seen; // a (segment, layout) pair is checked once
    for (uint32_t i = 0; i < length(list) && !report.full(); ++i) {
      const plan::Action &action = *list->Get(i);
      if (action.segment() >= length(program.segments()) || action.layout() >= length(program.layouts())) {
        report.add("program {}, {} action {}: segment {} of {}, layout {} of {}", index, entry, i, action.segment(),
                   length(program.segments()), action.layout(), length(program.layouts()));
        continue;
      }
      if (action.microbatch() < -1 || action.microbatch() >= static_cast<int64_t>(std::max(1u, plan.microbatches())))
        report.add("program {}, {} action {}: microbatch {} of {}", index, entry, i, action.microbatch(),
                   plan.microbatches());
      if (seen.insert({action.segment(), action.layout()}).second)
        layout(action, fmt::format("program {}, {} action {}", index, entry, i));
    }
  }

  void layout(const plan::Action &action, const std::string &place) {
    const plan::Segment &segment = *program.segments()->Get(action.segment());
    const plan::Layout &layout = *program.layouts()->Get(action.layout());
    if (length(layout.offsets()) != length(segment.slots()))
      return report.add("{}: layout {} places {} slots, segment {} has {}", place, action.layout(),
                        length(layout.offsets()), action.segment(), length(segment.slots()));
    for (uint32_t i = 0; i < length(segment.slots()); ++i) {
      const plan::Slot &slot = *slotAt(segment.slots()->Get(i));
      uint64_t offset = layout.offsets()->Get(i),
               room = slot.space() == plan::Space::Input ? program.input_bytes() : program.arena_bytes();
      if (offset % 64 || offset > room || slot.bytes() > room - offset)
        report.add("{}: slot {} of {} bytes at offset {} of {}", place, segment.slots()->Get(i), slot.bytes(), offset,
                   room);
    }
  }

  void names() {
    auto scalar = [&](const flatbuffers::Vector<flatbuffers::Offset<plan::NamedSlot>> *list, const char *what) {
      for (uint32_t i = 0; i < length(list); ++i) {
        const plan::Slot *slot = slotAt(list->Get(i)->slot());
        if (!slot || slot->space() != plan::Space::Persistent || slot->dtype() != plan::DType::F32 || slot->bytes() < 4)
          report.add("program {}: {} {} must be a persistent f32 slot, found slot {}", index, what, i,
                     list->Get(i)->slot());
      }
    };
    scalar(program.scalars(), "scalar");
    scalar(program.metrics(), "metric");
    for (uint32_t i = 0; i < length(program.inputs()); ++i) {
      const plan::Slot *slot = slotAt(program.inputs()->Get(i)->slot());
      if (!slot || slot->space() != plan::Space::Input)
        report.add("program {}: input {} must be an input slot, found slot {}", index, i,
                   program.inputs()->Get(i)->slot());
    }
  }

  const plan::Plan &plan;
  uint32_t index;
  const plan::Program &program;
  const plan::Rank *rank; ///< one of those that run the program; null: none does
  Report &report;
};

void checkMeshAndRanks(const plan::Plan &plan, Report &report) {
  uint64_t ranks = 1;
  if (length(plan.mesh()) > 16)
    return report.add("a mesh of {} axes, at most 16", length(plan.mesh()));
  for (uint32_t a = 0; a < length(plan.mesh()); ++a) {
    if (plan.mesh()->Get(a)->size() < 1 || ranks > (1u << 20))
      report.add("mesh axis {} has size {}", a, plan.mesh()->Get(a)->size());
    ranks *= plan.mesh()->Get(a)->size();
  }
  if (ranks != length(plan.ranks()) || ranks == 0)
    return report.add("the mesh has {} ranks, the plan {}", ranks, length(plan.ranks()));
  std::set<std::vector<uint32_t>> seen;
  for (uint32_t r = 0; r < length(plan.ranks()); ++r) {
    const plan::Rank &rank = *plan.ranks()->Get(r);
    if (rank.program() >= length(plan.programs()))
      report.add("rank {}: program {} of {}", r, rank.program(), length(plan.programs()));
    std::vector<uint32_t> coords;
    for (uint32_t a = 0; a < length(rank.coords()); ++a)
      coords.push_back(rank.coords()->Get(a));
    bool inside = coords.size() == length(plan.mesh());
    for (uint32_t a = 0; inside && a < coords.size(); ++a)
      inside = coords[a] < plan.mesh()->Get(a)->size();
    if (!inside || !seen.insert(coords).second)
      report.add("rank {}: coordinates [{}] are outside the mesh or taken", r, fmt::join(coords, ", "));
    for (uint32_t g = 0; g < length(rank.groups()); ++g) {
      uint32_t group = rank.groups()->Get(g);
      if (group >= length(plan.groups())) {
        report.add("rank {}: group {} of {}", r, group, length(plan.groups()));
        continue;
      }
      const auto *members = plan.groups()->Get(group)->ranks();
      if (!members || std::find(members->begin(), members->end(), r) == members->end())
        report.add("rank {}: is not in its group {}", r, group);
    }
    for (uint32_t p = 0; p < length(rank.peers()); ++p)
      if (rank.peers()->Get(p) >= length(plan.ranks()) || rank.peers()->Get(p) == r)
        report.add("rank {}: peer {} is rank {}", r, p, rank.peers()->Get(p));
  }
  for (uint32_t g = 0; g < length(plan.groups()); ++g) {
    const auto *members = plan.groups()->Get(g)->ranks();
    std::set<uint32_t> distinct;
    for (uint32_t i = 0; i < length(members); ++i)
      if (members->Get(i) >= length(plan.ranks()) || !distinct.insert(members->Get(i)).second)
        report.add("group {}: member {} is rank {}", g, i, members->Get(i));
    if (distinct.empty())
      report.add("group {}: it is empty", g);
  }
}

} // namespace

void checkStructure(const plan::Plan &plan, Report &report) {
  checkMeshAndRanks(plan, report);
  for (uint32_t k = 0; k < length(plan.kernels()); ++k)
    if (!plan.kernels()->Get(k)->symbol())
      report.add("kernel {}: it has no symbol", k);
  if (report.count())
    return;
  // Ranks that share a program have tables of the same shape; shapes that depend on coordinates are checked for each
  // distinct set of tables, which is one per program unless the plan is wrong or uneven.
  std::map<uint32_t, uint32_t> firstRank;
  std::vector<std::set<std::vector<int64_t>>> done(length(plan.programs()));
  for (uint32_t r = 0; r < length(plan.ranks()) && !report.full(); ++r) {
    const plan::Rank &rank = *plan.ranks()->Get(r);
    std::vector<int64_t> key{length(rank.scalars()), length(rank.peers())};
    for (uint32_t c : *rank.coords())
      key.push_back(c);
    bool fresh = done[rank.program()].empty();
    if (!done[rank.program()].insert(key).second)
      continue;
    if (fresh || length(plan.ranks()) <= 64)
      ProgramCheck(plan, rank.program(), &rank, report).run();
  }
  for (uint32_t p = 0; p < length(plan.programs()) && !report.full(); ++p)
    if (done[p].empty())
      ProgramCheck(plan, p, nullptr, report).run();
}

} // namespace cleave::check
