// Structure: the requirements for following a plan's indices safely.
#include "runtime/base/Error.h"
#include "runtime/plan/Backend.h"
#include "runtime/plan/CheckParts.h"
#include "runtime/plan/DTypes.h"
#include "runtime/plan/Slices.h"

#include <algorithm>
#include <optional>
#include <set>

namespace cleave::check {

namespace {

constexpr int64_t mostWindow = 1 << 20; // elements of a pooling window, which no slot size limits

/// Checks one program, for its first rank.
class ProgramCheck {
public:
  ProgramCheck(const plan::Plan &plan, uint32_t index, std::optional<uint32_t> rankIndex, Report &report)
      : plan(plan), index(index), program(*plan.programs()->Get(index)), rankIndex(rankIndex.value_or(0)),
        rank(rankIndex ? plan.ranks()->Get(*rankIndex) : nullptr), report(report) {}

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
    Rule rule(report, "S1");
    for (uint32_t i = 0; i < length(program.slots()); ++i)
      slotSize(i, *program.slots()->Get(i));
  }

  void slotSize(uint32_t i, const plan::Slot &slot) {
    if (slot.bytes() < valueBytes(slot))
      report.add("program {}, slot {}: its shape takes {} bytes, it has {}", index, i, valueBytes(slot), slot.bytes());
    if (slot.space() == plan::Space::Persistent) {
      if (slot.offset() % 64)
        report.add("program {}, slot {}: offset {} is not a multiple of 64", index, i, slot.offset());
      if (slot.offset() > program.arena_bytes() || slot.bytes() > program.arena_bytes() - slot.offset())
        report.add("program {}, slot {}: bytes {} to {} of an arena of {}", index, i, slot.offset(),
                   slot.offset() + slot.bytes(), program.arena_bytes());
    }
    if (slot.space() == plan::Space::Input && slot.tensor() < 0)
      report.add("program {}, slot {}: an input slot without a tensor", index, i);
    sharding(i, slot);
  }

  static std::string nameOf(const plan::Tensor &tensor) { return tensor.name() ? tensor.name()->str() : ""; }

  /// A slot that is initialised from its tensor's shape must have exactly that shape.
  void whole(uint32_t i, const plan::Slot &slot) {
    if (slot.tensor() < 0 || slot.space() == plan::Space::Placed)
      return;
    const plan::Tensor *tensor = plan.tensors()->Get(static_cast<uint32_t>(slot.tensor()));
    bool same = length(tensor->shape()) == length(slot.shape());
    for (uint32_t d = 0; same && d < length(slot.shape()); ++d)
      same = tensor->shape()->Get(d) == slot.shape()->Get(d);
    if (!same)
      report.add("program {}, slot {}: it is not split, and its shape is not that of {}", index, i, nameOf(*tensor));
  }

  void sharding(uint32_t i, const plan::Slot &slot) {
    Rule rule(report, "S2");
    const plan::Sharding *sharding = slot.sharding();
    if (!sharding)
      return whole(i, slot);
    uint32_t split = 0; // mesh axes
    for (uint32_t d = 0; d < length(sharding->dims()); ++d) {
      const auto *factors = sharding->dims()->Get(d)->factors();
      int64_t all = 1;
      for (uint32_t f = 0; f < length(factors); ++f) {
        int64_t size = factors->Get(f)->size();
        if (!sane({all, size}))
          return report.add("program {}, slot {}: a factor of {}", index, i, size);
        all *= std::max<int64_t>(1, size);
        for (uint32_t a = 0; a < length(factors->Get(f)->axes()); ++a) {
          uint32_t axis = factors->Get(f)->axes()->Get(a);
          if (split >> axis & 1)
            return report.add("program {}, slot {}: mesh axis {} splits it twice", index, i, axis);
          split |= 1u << axis;
        }
      }
    }
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
        report.add("program {}, slot {}: its sharding of {} gives [{}], its shape is [{}]", index, i, nameOf(*tensor),
                   fmt::join(expected, ", "), fmt::join(local, ", "));
    } catch (const Error &error) {
      report.add("program {}, slot {}: {}", index, i, error.what());
    }
  }

  void persistentApart() {
    Rule rule(report, "S3");
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
    Rule rule(report, "S4");
    const plan::Segment &segment = *program.segments()->Get(s);
    std::set<uint32_t> listed;
    for (uint32_t i = 0; i < length(segment.slots()); ++i) {
      uint32_t slot = segment.slots()->Get(i);
      if (slotAt(slot)->space() == plan::Space::Persistent)
        report.add("program {}, segment {}: its slot list names slot {}, which is persistent", index, s, slot);
      else if (!listed.insert(slot).second)
        report.add("program {}, segment {}: slot {} is listed twice", index, s, slot);
    }
    for (uint32_t i = 0; i < length(segment.steps()) && !report.full(); ++i) {
      const plan::Step &step = *segment.steps()->Get(i);
      std::string problem = stepProblem(step, listed);
      Rule found(report, stepRule);
      if (!problem.empty())
        report.add("{}: {}", placeOf(index, program, s, i), problem);
    }
  }

  /// A step's elements must be in slots of its type, indices in slots of i32.
  std::string typeProblem(plan::DType type, std::initializer_list<int64_t> values,
                          std::initializer_list<int64_t> indices = {}) const {
    for (int64_t slot : values)
      if (slotAt(slot)->dtype() != type)
        return fmt::format("slot {} must be {}, found {}", slot, dtypeName(type), dtypeName(slotAt(slot)->dtype()));
    for (int64_t slot : indices)
      if (slotAt(slot) && slotAt(slot)->dtype() != plan::DType::I32)
        return fmt::format("slot {} must be i32, found {}", slot, dtypeName(slotAt(slot)->dtype()));
    return "";
  }

  /// A view must have as many strides as its step needs.
  static std::string viewProblem(const plan::View *view, uint32_t strides) {
    if (!view)
      return "a view is missing";
    return length(view->strides()) == strides
               ? ""
               : fmt::format("a view has {} strides, needs {}", length(view->strides()), strides);
  }

  /// Operands must have one float type; the result has that type or f32.
  std::string productTypeProblem(uint32_t a, uint32_t b, uint32_t result, plan::DType type) const {
    const plan::DType operands = slotAt(a)->dtype();
    if (type > plan::DType::BF16 || operands > plan::DType::BF16)
      return fmt::format("a product of {} in {}", dtypeName(operands), dtypeName(type));
    if (type != operands && type != plan::DType::F32)
      return fmt::format("a result of {} from operands of {}", dtypeName(type), dtypeName(operands));
    if (std::string problem = typeProblem(operands, {b}); !problem.empty())
      return problem;
    return typeProblem(type, {result});
  }

  std::string matmulProblem(const plan::Matmul &op) {
    int64_t batches = 1;
    for (uint32_t i = 0; i < length(op.batch()); ++i)
      batches *= op.batch()->Get(i);
    if (!sane({batches, op.m(), op.n()}) || !sane({batches, op.m(), op.k()}) || !sane({batches, op.k(), op.n()}))
      return fmt::format("sizes {} x {} x {}", op.m(), op.n(), op.k());
    for (const plan::View *view : {op.a(), op.b(), op.c()}) {
      uint32_t rank = length(op.batch());
      std::string problem = viewProblem(view, rank + 2);
      if (!problem.empty())
        return problem;
    }
    if (std::string problem = productTypeProblem(op.a()->slot(), op.b()->slot(), op.c()->slot(), op.dtype());
        !problem.empty())
      return problem;
    uint32_t last = length(op.batch());
    auto unit = [&](const plan::View *view, int64_t rows, int64_t columns) {
      return rows <= 1 || columns <= 1 || view->strides()->Get(last) == 1 || view->strides()->Get(last + 1) == 1;
    };
    if (!unit(op.a(), op.m(), op.k()) || !unit(op.b(), op.k(), op.n()) || !unit(op.c(), op.m(), op.n()))
      return "one of the last two strides of each view must be 1";
    // stride 0 is allowed only in batch dimensions
    auto walks = [&](const plan::View *view, int64_t rows, int64_t columns) {
      return (rows <= 1 || view->strides()->Get(last) > 0) && (columns <= 1 || view->strides()->Get(last + 1) > 0);
    };
    if (!walks(op.a(), op.m(), op.k()) || !walks(op.b(), op.k(), op.n()))
      return "a stride of 0 in a matrix dimension";
    if (std::string problem = epilogueProblem(op); !problem.empty() || op.row_sums() < 0)
      return problem;
    if (length(op.batch()) > 0 || op.bias() >= 0 || op.epilogue() != plan::Epilogue::None)
      return fmt::format("row sums with {}", length(op.batch()) > 0 ? "batch dimensions"
                                             : op.bias() >= 0       ? "a bias"
                                                                    : "an epilogue");
    return typeProblem(slotAt(op.c()->slot())->dtype(), {op.row_sums()});
  }

  /// Requires valid views of a, b and c.
  std::string epilogueProblem(const plan::Matmul &op) {
    const plan::Epilogue epilogue = op.epilogue();
    const bool gradient = epilogue == plan::Epilogue::GeluGradient;
    const char *name = EnumNameEpilogue(epilogue);
    if (op.aux() && epilogue != plan::Epilogue::Gelu && !gradient)
      return fmt::format("epilogue {} takes no auxiliary matrix", name);
    if (epilogue == plan::Epilogue::None)
      return "";
    if (gradient && !op.aux())
      return fmt::format("epilogue {} needs an auxiliary matrix", name);
    if (length(op.batch()) > 0 || op.accumulate() || (gradient && op.bias() >= 0))
      return fmt::format("epilogue {} with {}", name,
                         length(op.batch()) > 0 ? "batch dimensions"
                         : op.accumulate()      ? "accumulation"
                                                : "a bias");
    for (const plan::View *view : {op.c(), op.aux()}) {
      if (!view)
        continue;
      if (std::string problem = viewProblem(view, 2); !problem.empty())
        return problem;
      if ((op.n() > 1 && view->strides()->Get(1) != 1) || (op.m() > 1 && view->strides()->Get(0) < op.n()))
        return fmt::format("epilogue {} on rows of {} with strides {} and {}", name, op.n(), view->strides()->Get(0),
                           view->strides()->Get(1));
    }
    return op.aux() ? typeProblem(slotAt(op.c()->slot())->dtype(), {op.aux()->slot()}) : "";
  }

  std::string attentionProblem(const plan::Attention &op) {
    if (!sane({op.batch(), op.heads(), op.rows(), op.width()}) ||
        !sane({op.batch(), op.heads(), op.keys(), op.width()}))
      return "a size is out of range";
    if (op.causal() && op.keys() < op.rows())
      return fmt::format("causal attention of {} rows to {} keys", op.rows(), op.keys());
    const bool backward = op.kind() == plan::AttentionKind::Backward;
    if (backward && op.lse() < 0)
      return "the gradient of attention needs the logarithms of its denominators";
    std::vector<const plan::View *> views{op.q(), op.k(), op.v(), op.out()};
    if (backward)
      views.insert(views.end(), {op.dout(), op.dq(), op.dk(), op.dv()});
    for (const plan::View *view : views) {
      std::string problem = viewProblem(view, 4);
      if (problem.empty() && view->strides()->Get(3) != 1)
        problem = fmt::format("the last stride of a view must be 1, found {}", view->strides()->Get(3));
      if (problem.empty())
        problem = typeProblem(op.dtype(), {view->slot()});
      if (!problem.empty())
        return problem;
    }
    return op.lse() < 0 ? "" : typeProblem(plan::DType::F32, {op.lse()});
  }

  /// Whether there are exactly `count` windows of `window` elements at distance `stride` on a padded line of `size`
  /// elements.
  static bool reaches(int64_t size, int64_t low, int64_t high, int64_t window, int64_t stride, int64_t count) {
    const __int128 all = static_cast<__int128>(size) + low + high - window;
    return all >= 0 && all / stride + 1 == count;
  }

  std::string convProblem(const plan::Conv &op) {
    if (op.ic() % op.groups() || op.oc() % op.groups())
      return fmt::format("{} groups for {} to {} channels", op.groups(), op.ic(), op.oc());
    if (!sane({op.n(), op.ic(), op.ih(), op.iw()}) || !sane({op.n(), op.oc(), op.oh(), op.ow()}) ||
        !sane({op.oc(), op.ic(), op.kh(), op.kw()}) || !sane({op.stride_h(), op.oh()}) ||
        !sane({op.stride_w(), op.ow()}) || !sane({op.dilation_h(), op.kh()}) || !sane({op.dilation_w(), op.kw()}))
      return "a size, stride or dilation is out of range";
    if (!reaches(op.ih(), op.pad_top(), op.pad_bottom(), (op.kh() - 1) * op.dilation_h() + 1, op.stride_h(), op.oh()) ||
        !reaches(op.iw(), op.pad_left(), op.pad_right(), (op.kw() - 1) * op.dilation_w() + 1, op.stride_w(), op.ow()))
      return fmt::format("{} x {} windows of {} x {}", op.oh(), op.ow(), op.ih(), op.iw());
    const bool forward = op.kind() == plan::ConvKind::Forward, data = op.kind() == plan::ConvKind::BackwardData;
    const uint32_t result = forward ? op.dst() : data ? op.src() : op.weights();
    if (std::string problem = productTypeProblem(data ? op.dst() : op.src(), forward || data ? op.weights() : op.dst(),
                                                 result, op.dtype());
        !problem.empty())
      return problem;
    if (op.bias() >= 0 && !forward)
      return fmt::format("{} with a bias", EnumNameConvKind(op.kind()));
    const plan::Epilogue epilogue = op.epilogue();
    if (epilogue == plan::Epilogue::None)
      return "";
    if (epilogue != plan::Epilogue::Relu)
      return fmt::format("epilogue {} of a convolution", static_cast<int>(epilogue));
    if (op.bias() < 0)
      return "epilogue Relu of a convolution without a bias";
    return op.accumulate() ? "epilogue Relu of a convolution with accumulation" : "";
  }

  std::string poolProblem(const plan::Pool &op) {
    if (!sane({op.n(), op.c(), op.ih(), op.iw()}) || !sane({op.n(), op.c(), op.oh(), op.ow()}) ||
        !sane({op.stride_h(), op.oh()}) || !sane({op.stride_w(), op.ow()}) || op.kh() * op.kw() > mostWindow)
      return "a size or stride is out of range";
    if (!reaches(op.ih(), op.pad_top(), op.pad_bottom(), op.kh(), op.stride_h(), op.oh()) ||
        !reaches(op.iw(), op.pad_left(), op.pad_right(), op.kw(), op.stride_w(), op.ow()))
      return fmt::format("{} x {} windows of {} x {}", op.oh(), op.ow(), op.ih(), op.iw());
    bool max = op.kind() == plan::PoolKind::MaxForward || op.kind() == plan::PoolKind::MaxBackward;
    if (max != (op.workspace() >= 0))
      return max ? "max pooling needs a workspace slot" : "average pooling has no workspace slot";
    if (op.dtype() > plan::DType::BF16)
      return "pooling requires a float element type";
    const std::string problem = typeProblem(op.dtype(), {op.src(), op.dst()});
    return problem.empty() && max ? typeProblem(plan::DType::I32, {op.workspace()}) : problem;
  }

  std::string kernelProblem(const plan::Kernel &op, bool batch = false) {
    if (plan.kernels()->Get(op.kernel())->batch() != batch)
      return fmt::format("kernel {} must {}be in batch form here", op.kernel(), batch ? "" : "not ");
    if (op.outputs() > length(op.args()))
      return fmt::format("{} outputs of {} arguments", op.outputs(), length(op.args()));
    return callProblem(plan, program, op);
  }

  bool gpu() const { return backendOf(plan) == Target::Kind::Cuda; }

  /// The calls must have the same kernel and differ only in buffers and extents. That they do not overlap is checked in
  /// CheckMemory.cpp.
  std::string kernelBatchProblem(const plan::KernelBatch &op) {
    constexpr uint64_t mostBlocks = (uint64_t{1} << 31) - 1; // maximum grid size of a GPU
    if (length(op.calls()) == 0)
      return "a batch of no calls";
    const plan::Kernel &first = *op.calls()->Get(0);
    uint64_t blocks = 0;
    for (uint32_t i = 0; i < length(op.calls()); ++i) {
      const plan::Kernel &call = *op.calls()->Get(i);
      std::string problem = kernelProblem(call, gpu());
      if (problem.empty() && call.outputs() == 0)
        problem = "it does not say what it writes";
      if (problem.empty() && call.kernel() != first.kernel())
        problem = fmt::format("it is of kernel {}, the first of kernel {}", call.kernel(), first.kernel());
      if (problem.empty() && (length(call.args()) != length(first.args()) || call.outputs() != first.outputs() ||
                              length(call.scalars()) != length(first.scalars())))
        problem = fmt::format("{} arguments, {} outputs and {} scalars, the first has {}, {} and {}",
                              length(call.args()), call.outputs(), length(call.scalars()), length(first.args()),
                              first.outputs(), length(first.scalars()));
      if (!problem.empty())
        return fmt::format("call {}: {}", i, problem);
      blocks += std::max(1u, call.blocks());
    }
    return blocks > mostBlocks ? fmt::format("{} blocks, at most {}", blocks, mostBlocks) : "";
  }

  std::string collectiveProblem(const plan::Collective &op) {
    if (std::string problem = axesProblem(plan, rank, op); !problem.empty())
      return problem;
    uint32_t members = rank ? length(plan.groups()->Get(rank->groups()->Get(op.group()))->ranks()) : 0;
    bool shares = op.kind() == plan::CollectiveKind::AllGather || op.kind() == plan::CollectiveKind::ReduceScatter;
    for (uint32_t i = 0; i < length(op.buffers()); ++i) {
      const plan::CollectiveBuffer &b = *op.buffers()->Get(i);
      if (!sane({b.outer(), b.inner()}))
        return fmt::format("outer {}, inner {}", b.outer(), b.inner());
      if (shares && rank && length(b.sizes()) != members)
        return fmt::format("{} shares for {} members", length(b.sizes()), members);
      int64_t total = 0;
      for (uint32_t m = 0; m < length(b.sizes()); ++m) {
        if (!sane({b.sizes()->Get(m), b.outer(), b.inner()}))
          return fmt::format("a share of {}", b.sizes()->Get(m));
        total += b.sizes()->Get(m);
        if (!sane({total, b.outer(), b.inner()}))
          return fmt::format("shares of {} in all", total);
      }
      if (std::string problem = typeProblem(op.dtype(), {b.in(), b.out()}); !problem.empty())
        return problem;
      if (op.kind() == plan::CollectiveKind::AllToAll && members && b.count() % members)
        return fmt::format("{} elements in {} equal blocks", b.count(), members);
    }
    return "";
  }

  uint64_t elementsOf(uint32_t slot) const { return check::elementsOf(*slotAt(slot)); }

  /// A collective must use all elements of its slots.
  std::string wholeProblem(const plan::Collective &op) {
    stepRule = "S7";
    if (length(op.buffers()) == 0)
      return "a collective of no buffers";
    const bool gather = op.kind() == plan::CollectiveKind::AllGather,
               scatter = op.kind() == plan::CollectiveKind::ReduceScatter;
    for (uint32_t i = 0; i < length(op.buffers()); ++i) {
      const plan::CollectiveBuffer &b = *op.buffers()->Get(i);
      uint64_t whole = 0;
      for (uint32_t m = 0; m < length(b.sizes()); ++m)
        whole += static_cast<uint64_t>(b.sizes()->Get(m) * b.outer() * b.inner());
      const auto moved = gather || scatter ? whole : static_cast<uint64_t>(b.count());
      if (!scatter && elementsOf(b.out()) != moved)
        return fmt::format("gives {} elements to slot {} of {}", moved, b.out(), elementsOf(b.out()));
      if (!gather && elementsOf(b.in()) != moved)
        return fmt::format("takes {} elements of slot {} of {}", moved, b.in(), elementsOf(b.in()));
    }
    return "";
  }

  /// A member's own share of a gather or scatter must fit its slot.
  std::string shareProblem(const plan::Collective &op) {
    bool gather = op.kind() == plan::CollectiveKind::AllGather;
    if (std::string problem = wholeProblem(op); !problem.empty())
      return problem;
    if (!rank || (!gather && op.kind() != plan::CollectiveKind::ReduceScatter))
      return "";
    const auto *ranks = plan.groups()->Get(rank->groups()->Get(op.group()))->ranks();
    auto me = static_cast<uint32_t>(std::find(ranks->begin(), ranks->end(), rankIndex) - ranks->begin());
    for (uint32_t i = 0; me < ranks->size() && i < length(op.buffers()); ++i) {
      const plan::CollectiveBuffer &b = *op.buffers()->Get(i);
      uint64_t bytes = static_cast<uint64_t>(b.sizes()->Get(me) * b.outer() * b.inner()) * dtypeSize(op.dtype());
      uint32_t slot = gather ? b.in() : b.out();
      if (bytes != elementsOf(slot) * dtypeSize(op.dtype()))
        return fmt::format("a share of {} bytes in slot {} of {}", bytes, slot, slotAt(slot)->bytes());
    }
    return "";
  }

  /// A copy with a start from the rank's table must stay inside its slot on every rank. Requires a valid slot and view
  /// offset.
  std::string copyStartProblem(const plan::Copy &op) {
    if (op.src_offset_scalar() == -1)
      return "";
    unsigned __int128 last = 0;
    for (uint32_t d = 0; d < length(op.shape()); ++d) {
      if (op.shape()->Get(d) == 0)
        return "";
      last += static_cast<unsigned __int128>(op.shape()->Get(d) - 1) *
              static_cast<unsigned __int128>(op.src()->strides()->Get(d));
    }
    const plan::Slot &source = *slotAt(op.src()->slot());
    if (op.src()->offset() > source.bytes())
      return fmt::format("a source that begins at byte {} of {}", op.src()->offset(), source.bytes());
    uint64_t elements = (source.bytes() - op.src()->offset()) / dtypeSize(op.dtype());
    auto scalar = static_cast<uint32_t>(op.src_offset_scalar());
    for (const plan::Rank *each : *plan.ranks()) {
      if (each->program() != index)
        continue;
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
    if (const auto *op = step.op_as_Attention())
      return attentionProblem(*op);
    if (const auto *op = step.op_as_Kernel())
      return kernelProblem(*op);
    if (const auto *op = step.op_as_KernelBatch())
      return kernelBatchProblem(*op);
    if (const auto *op = step.op_as_Collective())
      return collectiveProblem(*op);
    if (const auto *op = step.op_as_Copy()) {
      std::string problem = viewProblem(op->src(), length(op->shape()));
      if (problem.empty())
        problem = viewProblem(op->dst(), length(op->shape()));
      return problem;
    }
    std::string range = "sizes out of range";
    if (const auto *op = step.op_as_Embedding())
      return sane({op->rows(), op->width()}) && sane({op->count(), op->width()})
                 ? typeProblem(op->dtype(), {op->table(), op->out()}, {op->ids()})
                 : range;
    if (const auto *op = step.op_as_EmbeddingGrad())
      return sane({op->rows(), op->width()}) && sane({op->count(), op->width()})
                 ? typeProblem(op->dtype(), {op->grad(), op->dtable()}, {op->ids()})
                 : range;
    if (const auto *op = step.op_as_Gather())
      return sane({op->outer(), op->extent(), op->inner()}) && sane({op->outer(), op->count(), op->inner()})
                 ? typeProblem(op->dtype(), {op->src(), op->out()}, {op->index()})
                 : range;
    if (const auto *op = step.op_as_ScatterAdd())
      return sane({op->outer(), op->extent(), op->inner()}) && sane({op->outer(), op->count(), op->inner()})
                 ? typeProblem(op->dtype(), {op->src(), op->out()}, {op->index()})
                 : range;
    if (const auto *op = step.op_as_Fill())
      return typeProblem(op->dtype(), {op->dst()});
    if (const auto *op = step.op_as_Random())
      return randomProblem(*op);
    const plan::StepOp kind = step.op_type();
    return kind == plan::StepOp::Send || kind == plan::StepOp::Recv ? "" : "a step of unknown kind";
  }

  std::string randomProblem(const plan::Random &op) {
    const plan::Slot *slot = slotAt(op.out());
    if (std::string problem = typeProblem(op.dtype(), {op.out()}); !rank || !problem.empty())
      return problem;
    std::vector<int64_t> global;
    if (op.shape())
      global.assign(op.shape()->begin(), op.shape()->end());
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

  /// The FLOPs that a product states (0: none) must follow from its sizes.
  std::string flopsProblem(const plan::Step &step) const {
    double flops = 2;
    if (const auto *op = step.op_as_Matmul()) {
      for (int64_t size : {op->m(), op->n(), op->k()})
        flops *= static_cast<double>(size);
      for (uint32_t i = 0; i < length(op->batch()); ++i)
        flops *= static_cast<double>(op->batch()->Get(i));
    } else if (const auto *conv = step.op_as_Conv()) {
      for (int64_t size :
           {conv->n(), conv->oc(), conv->oh(), conv->ow(), conv->ic() / conv->groups(), conv->kh(), conv->kw()})
        flops *= static_cast<double>(size);
    } else {
      return "";
    }
    return step.flops() == flops || step.flops() == 0
               ? ""
               : fmt::format("{} operations, its sizes take {}", step.flops(), flops);
  }

  std::string stepProblem(const plan::Step &step, const std::set<uint32_t> &listed) {
    stepRule = "S5";
    if (!step.op())
      return "an empty step";
    if (step.op_type() == plan::StepOp::Kernel || step.op_type() == plan::StepOp::KernelBatch)
      stepRule = "S6";
    std::string problem = operandProblem(step);
    if (problem.empty()) {
      stepRule = "S13";
      problem = flopsProblem(step);
    }
    if (!problem.empty())
      return problem;
    stepRule = "S8";
    forEachAccess(
        step, program,
        [&](const Access &access) {
          const plan::Slot *slot = slotAt(access.slot);
          if (!problem.empty())
            return;
          if (slot->space() != plan::Space::Persistent && !listed.count(access.slot))
            problem = fmt::format("slot {} is not in the segment's list", access.slot);
          else if (access.begin > slot->bytes() || access.bytes > slot->bytes() - access.begin)
            problem = fmt::format("bytes {} to {} of slot {}, which has {}", access.begin, access.begin + access.bytes,
                                  access.slot, slot->bytes());
          else if (slot->space() == plan::Space::Input && access.kind == Access::Write)
            problem = fmt::format("writes input slot {}", access.slot);
          else if (access.kind == Access::Write && access.twice)
            problem = fmt::format("a view that writes elements of slot {} twice", access.slot);
        },
        &plan);
    if (problem.empty() && step.op_type() == plan::StepOp::Copy)
      problem = copyStartProblem(*step.op_as_Copy());
    if (problem.empty() && step.op_type() == plan::StepOp::Collective)
      problem = shareProblem(*step.op_as_Collective());
    return problem;
  }

  void actions(const flatbuffers::Vector<flatbuffers::Offset<plan::Action>> *list, const char *entry) {
    Rule rule(report, "S9");
    std::set<std::pair<uint32_t, uint32_t>> seen; // each (segment, layout) pair is checked once
    for (uint32_t i = 0; i < length(list) && !report.full(); ++i) {
      const plan::Action &action = *list->Get(i);
      if (action.microbatch() < 0 && readsInputs(*program.segments()->Get(action.segment())))
        report.add("program {}, {} action {}: it reads inputs of no microbatch", index, entry, i);
      if (seen.insert({action.segment(), action.layout()}).second)
        layout(action, fmt::format("program {}, {} action {}", index, entry, i));
    }
  }

  bool readsInputs(const plan::Segment &segment) const {
    for (uint32_t i = 0; i < length(segment.slots()); ++i)
      if (slotAt(segment.slots()->Get(i))->space() == plan::Space::Input)
        return true;
    return false;
  }

  void layout(const plan::Action &action, const std::string &place) {
    Rule rule(report, "S10");
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

  const plan::Tensor *tensorOf(const plan::Slot &slot) const {
    return slot.tensor() < 0 ? nullptr : plan.tensors()->Get(static_cast<uint32_t>(slot.tensor()));
  }

  /// Every slot of a kind of tensor must be in the list by which the host finds it.
  void listed(plan::TensorKind kind, const flatbuffers::Vector<flatbuffers::Offset<plan::NamedSlot>> *list,
              const char *what) {
    std::set<uint32_t> slots;
    for (uint32_t i = 0; i < length(list); ++i)
      slots.insert(list->Get(i)->slot());
    for (uint32_t i = 0; i < length(program.slots()); ++i)
      if (const plan::Tensor *tensor = tensorOf(*slotAt(i)); tensor && tensor->kind() == kind && !slots.count(i))
        report.add("program {}: slot {} ({}) is a {}, and is not listed as one", index, i, nameOf(*tensor), what);
  }

  void names() {
    Rule rule(report, "S11");
    auto scalar = [&](const flatbuffers::Vector<flatbuffers::Offset<plan::NamedSlot>> *list, const char *what) {
      for (uint32_t i = 0; i < length(list); ++i) {
        const plan::Slot *slot = slotAt(list->Get(i)->slot());
        if (!list->Get(i)->name())
          report.add("program {}: {} {} has no name", index, what, i);
        if (slot->space() != plan::Space::Persistent || slot->dtype() != plan::DType::F32 || slot->bytes() < 4)
          report.add("program {}: {} {} must be a persistent f32 slot, found slot {}", index, what, i,
                     list->Get(i)->slot());
        else if (const plan::Tensor *tensor = tensorOf(*slot);
                 tensor && list->Get(i)->name() && nameOf(*tensor) != list->Get(i)->name()->str())
          report.add("program {}: {} '{}' is slot {}, which is {}", index, what, list->Get(i)->name()->str(),
                     list->Get(i)->slot(), nameOf(*tensor));
      }
    };
    scalar(program.scalars(), "scalar");
    scalar(program.metrics(), "metric");
    listed(plan::TensorKind::Scalar, program.scalars(), "scalar, which the host writes");
    listed(plan::TensorKind::Metric, program.metrics(), "metric, which the host reads");
    checkFields(plan, index, report);
  }

  const plan::Plan &plan;
  uint32_t index;
  const plan::Program &program;
  uint32_t rankIndex;
  const char *stepRule = "S5"; ///< violated by the last step
  const plan::Rank *rank;      ///< the first that runs the program; null if none does
  Report &report;
};

} // namespace

void checkStructure(const plan::Plan &plan, Report &report) {
  std::vector<std::optional<uint32_t>> first(length(plan.programs())); // first rank that runs the program
  for (uint32_t r = length(plan.ranks()); r-- > 0;)
    first[plan.ranks()->Get(r)->program()] = r;
  for (uint32_t p = 0; p < first.size() && !report.full(); ++p)
    ProgramCheck(plan, p, first[p], report).run();
}

} // namespace cleave::check
