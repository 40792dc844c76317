// Finds where indices come from and what values they may have.
#include "frontend/trace/Indices.h"
#include "frontend/trace/Diagnose.h"

#include "llvm/ADT/TypeSwitch.h"

#include <algorithm>
#include <filesystem>
#include <fmt/format.h>
#include <numeric>

namespace cleave {

using namespace ir;
using mlir::Value;

namespace {

constexpr Interval anyIndex{INT32_MIN, INT32_MAX};

Interval both(const Interval &a, const Interval &b) { return {std::min(a.least, b.least), std::max(a.most, b.most)}; }

/// Limited to i32, whose arithmetic wraps around.
Interval wrapped(int64_t least, int64_t most) {
  return least < INT32_MIN || most > INT32_MAX ? anyIndex : Interval{least, most};
}

Interval rangeOf(ConstantOp constant) {
  auto elements = llvm::dyn_cast<mlir::DenseIntElementsAttr>(constant.getValue());
  if (!elements || elements.empty() || Ops::type(constant.getResult()).getElementType().isUnsignedInteger())
    return anyIndex;
  if (elements.isSplat()) {
    const int64_t value = elements.getSplatValue<mlir::APInt>().getSExtValue();
    return {value, value};
  }
  Interval range{INT32_MAX, INT32_MIN};
  for (const mlir::APInt &value : elements.getValues<mlir::APInt>())
    range = both(range, {value.getSExtValue(), value.getSExtValue()});
  return range;
}

/// Those of the values for which `condition` compares `value` with a number and holds.
Interval limited(Interval values, Value condition, Value value) {
  auto compare = condition.getDefiningOp<CompareOp>();
  const std::optional<double> number = compare && compare.getLhs() == value ? splatOf(compare.getRhs()) : std::nullopt;
  if (!number)
    return values;
  const auto limit = static_cast<int64_t>(*number);
  const Predicate holds = compare.getPredicate();
  if (holds == Predicate::Lt || holds == Predicate::Le)
    values.most = std::min(values.most, holds == Predicate::Lt ? limit - 1 : limit);
  if (holds == Predicate::Gt || holds == Predicate::Ge)
    values.least = std::max(values.least, holds == Predicate::Gt ? limit + 1 : limit);
  return values;
}

/// The values that the elements of an i32 tensor may have.
Interval rangeOf(const Trace &trace, Value value, int depth = 0) {
  if (const auto known = trace.ranges.find(value.getAsOpaquePointer()); known != trace.ranges.end())
    return known->second;
  constexpr int deepest = 32;
  mlir::Operation *op = value.getDefiningOp();
  if (!op || depth == deepest)
    return anyIndex;
  const auto of = [&](Value operand) { return rangeOf(trace, operand, depth + 1); };
  return llvm::TypeSwitch<mlir::Operation *, Interval>(op)
      .Case<ReshapeOp, TransposeOp, BroadcastOp, SliceOp, DetachOp, ShardHintOp>(
          [&](mlir::Operation *view) { return of(view->getOperand(0)); })
      .Case([](ConstantOp constant) { return rangeOf(constant); })
      .Case(
          [](IotaOp iota) { return Interval{0, iota.getType().getDimSize(static_cast<unsigned>(iota.getDim())) - 1}; })
      .Case([&](ConcatOp concat) {
        Interval range = of(concat->getOperand(0));
        for (Value operand : concat->getOperands().drop_front())
          range = both(range, of(operand));
        return range;
      })
      .Case([&](SelectOp select) {
        const Value yes = select.getOnTrue();
        return both(limited(of(yes), select.getCondition(), yes), of(select.getOnFalse()));
      })
      .Case([&](CastOp cast) {
        const mlir::Type from = Ops::type(cast->getOperand(0)).getElementType();
        return from.isInteger(1)            ? Interval{0, 1}
               : from.isUnsignedInteger(8)  ? Interval{0, UINT8_MAX}
               : from.isSignlessInteger(32) ? of(cast->getOperand(0))
                                            : anyIndex;
      })
      .Case([&](MaxOp max) {
        const Interval a = of(max->getOperand(0)), b = of(max->getOperand(1));
        return Interval{std::max(a.least, b.least), std::max(a.most, b.most)};
      })
      .Case([&](MinOp min) {
        const Interval a = of(min->getOperand(0)), b = of(min->getOperand(1));
        return Interval{std::min(a.least, b.least), std::min(a.most, b.most)};
      })
      .Case([&](AddOp add) {
        const Interval a = of(add->getOperand(0)), b = of(add->getOperand(1));
        return wrapped(a.least + b.least, a.most + b.most);
      })
      .Case([&](SubOp sub) {
        const Interval a = of(sub->getOperand(0)), b = of(sub->getOperand(1));
        return wrapped(a.least - b.most, a.most - b.least);
      })
      .Case([&](ReduceOp reduce) { return reduce.getKind() == ReduceKind::Sum ? anyIndex : of(reduce.getInput()); })
      .Case([&](GatherOp gather) { return both(of(gather->getOperand(0)), {0, 0}); })
      .Default([](mlir::Operation *) { return anyIndex; });
}

bool within(const Interval &values, const IndexRange &range) {
  const auto inside = [&](int64_t value) { return range.least <= value && value < range.below; };
  int64_t most = values.most;
  if (most == range.ignored && most > values.least)
    --most;
  return (inside(values.least) || values.least == range.ignored) && (inside(most) || most == range.ignored);
}

/// The elements of each sample of an input that a value consists of.
struct PartOfInput {
  const TracedInput *input;
  Shape start, size;
};

/// Nothing if the value is computed, or is a part of other rows than those of the whole batch.
std::optional<PartOfInput> partOfInput(const Trace &trace, Value value) {
  std::vector<SliceOp> slices;
  bool reshaped = false; // between the input and the slices
  for (mlir::Operation *op = value.getDefiningOp(); op; op = value.getDefiningOp()) {
    if (auto slice = llvm::dyn_cast<SliceOp>(op)) {
      reshaped = false;
      slices.push_back(slice);
    } else if (llvm::isa<ReshapeOp, TransposeOp, BroadcastOp>(op)) {
      reshaped = true;
    } else if (auto cast = llvm::dyn_cast<CastOp>(op)) {
      if (!Ops::type(cast->getOperand(0)).getElementType().isUnsignedInteger(8))
        return std::nullopt;
    } else if (!llvm::isa<DetachOp, ShardHintOp>(op)) {
      return std::nullopt;
    }
    if (reshaped && !slices.empty())
      return std::nullopt;
    value = op->getOperand(0);
  }
  const auto found = trace.inputs.find(value.getAsOpaquePointer());
  if (found == trace.inputs.end())
    return std::nullopt;
  PartOfInput part{&found->second, Shape(found->second.shape.size(), 0), found->second.shape};
  for (auto slice = slices.rbegin(); slice != slices.rend(); ++slice) { // from the input on
    if (Ops::size(slice->getInput(), 0) != Ops::size(slice->getResult(), 0))
      return std::nullopt;
    for (size_t dim = 0; dim < part.start.size(); ++dim) {
      part.start[dim] += slice->getStarts()[dim + 1];
      part.size[dim] = slice->getSizes()[dim + 1];
    }
  }
  return part;
}

/// Whether these are the elements of a constant.
bool isConstant(Value value) {
  mlir::Operation *op = value.getDefiningOp();
  while (op && llvm::isa<ReshapeOp, TransposeOp, BroadcastOp, SliceOp>(op))
    op = op->getOperand(0).getDefiningOp();
  return op && llvm::isa<ConstantOp, IotaOp>(op);
}

/// "embedding at model.cpp:12".
std::string readerText(const char *name, Where where) {
  where = userPlace(where);
  return fmt::format("{} at {}:{}", name, std::filesystem::path(where.file_name()).filename().string(), where.line());
}

/// The values that the data set declares must be indices; negative ones are labels that are left out.
void checkDeclared(const char *name, const PartOfInput &part, const IndexRange &range, Where where) {
  const std::optional<Interval> &declared = part.input->declared;
  if (declared && !within({std::max<int64_t>(declared->least, 0), declared->most}, range))
    failAt(fmt::format("{}: field {} of the data has values from 0 to {}, but an index must be less than {} here", name,
                       part.input->name, declared->most, range.below),
           {}, where);
}

} // namespace

void readIndices(Ops &ops, const char *name, Value indices, const IndexRange &range) {
  Trace &trace = ops.trace;
  const std::string reader = readerText(name, ops.where);
  if (const std::optional<PartOfInput> part = partOfInput(trace, indices)) {
    checkDeclared(name, *part, range, ops.where);
    mlir::Builder b(trace.builder.getContext());
    trace.indicesOf[part->input->name].push_back(IndicesAttr::get(b.getContext(), b.getStringAttr(reader), range.least,
                                                                  range.below, range.ignored, part->start, part->size));
    return;
  }
  const Interval values = rangeOf(trace, indices);
  if (within(values, range))
    return;
  if (isConstant(indices))
    failAt(fmt::format("{}: the constant indices lie in [{}, {}], but an index must lie in [{}, {}) here", name,
                       values.least, values.most, std::max<int64_t>(range.least, 0), range.below),
           {}, ops.where);
  Value invalid = ops.compare(Predicate::Ge, indices, static_cast<double>(std::min<int64_t>(range.below, INT32_MAX)));
  if (range.least > INT32_MIN)
    invalid = ops.max(invalid, ops.compare(Predicate::Lt, indices, static_cast<double>(range.least)));
  if (range.ignored >= range.below)
    invalid = ops.min(invalid, ops.compare(Predicate::Ne, indices, static_cast<double>(range.ignored)));
  std::vector<int64_t> dims(Ops::shape(indices).size());
  std::iota(dims.begin(), dims.end(), 0);
  Value &count =
      trace.invalid[fmt::format("{}: must lie in [{}, {})", reader, std::max<int64_t>(range.least, 0), range.below)];
  const Value sum = ops.sum(ops.toF32(invalid), dims);
  count = count ? ops.add(count, sum) : sum;
}

} // namespace cleave
