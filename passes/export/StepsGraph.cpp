// Steps of generated kernels, fills and lookups; dispatches all other ops.
#include "ir/dist/Dist.h"
#include "ir/graph/Graph.h"
#include "passes/export/Segment.h"
#include "runtime/base/Error.h"

#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;

namespace cleave::passes {

namespace {

using ir::shapeOf;
using ir::tensorType;

/// Sizes before, at and after a dimension.
struct Split {
  int64_t outer = 1, extent = 1, inner = 1;
};

Split splitAt(Value value, int64_t dim) {
  Split split;
  for (auto [d, size] : llvm::enumerate(shapeOf(value)))
    (static_cast<int64_t>(d) < dim ? split.outer : static_cast<int64_t>(d) > dim ? split.inner : split.extent) *= size;
  return split;
}

void emitKernel(SegmentBuilder &s, ir::FusionOp fusion) {
  const KernelCall &call = s.slots.kernelOf(fusion);
  plan::KernelT kernel;
  kernel.blocks = static_cast<uint32_t>(call.blocks);
  kernel.kernel = call.kernel;
  kernel.extent = call.extent;
  kernel.grain = call.grain;
  kernel.outputs = fusion->getNumResults();
  for (unsigned index : call.scalarOperands)
    kernel.scalars.push_back(static_cast<uint32_t>(scalarOf(s, fusion->getOperand(index))));
  for (auto [i, operand] : llvm::enumerate(fusion->getOperands()))
    if (!llvm::is_contained(call.scalarOperands, static_cast<unsigned>(i)))
      kernel.args.push_back(s.slot(operand));
  if (llvm::any_of(call.offsets, [](int64_t offset) { return offset != 0; }))
    kernel.offsets.assign(call.offsets.begin(), call.offsets.end());
  for (Value result : fusion->getResults())
    kernel.args.push_back(s.slot(result));
  if (!kernel.offsets.empty())
    kernel.offsets.resize(kernel.args.size());
  s.step(fusion, std::move(kernel));
}

void emitEmbedding(SegmentBuilder &s, ir::EmbeddingOp op) {
  plan::EmbeddingT step;
  step.table = s.slot(op.getTable());
  step.ids = s.slot(op.getIds());
  step.out = s.slot(op.getResult());
  step.rows = shapeOf(op.getTable())[0];
  step.width = shapeOf(op.getTable())[1];
  step.count = tensorType(op.getIds()).getNumElements();
  step.start = scalarOf(s, op.getStart());
  step.dtype = plannedType(op.getType());
  s.step(op, std::move(step));
}

/// The step of a gather or of its gradient: `whole` is the tensor that is indexed along the op's dimension.
template <class Step, typename Op> void emitAlong(SegmentBuilder &s, Op op, Value source, Value whole) {
  const Split split = splitAt(whole, static_cast<int64_t>(op.getDim()));
  Step step;
  step.src = s.slot(source);
  step.index = s.slot(op.getIndex());
  step.out = s.slot(op.getResult());
  step.outer = split.outer, step.extent = split.extent, step.inner = split.inner;
  step.count = shapeOf(op.getIndex())[op.getDim()];
  step.dtype = plannedType(op.getType());
  s.step(op, std::move(step));
}

/// Random numbers depend on the global index: the slot must tell which part of the global tensor this rank holds.
void emitRandom(SegmentBuilder &s, ir::RandomUniformOp op) {
  uint32_t slot = s.slot(op.getResult());
  const Label &label = s.program.labels[slot];
  if (!label.known)
    throw Error(Status::Internal, "plan export: random numbers \"" + op.getName().str() + "\" without a sharding");
  plan::RandomT step;
  step.out = slot;
  step.key = hashName(op.getName());
  step.at_least = op.getAtLeast() ? op.getAtLeast()->convertToDouble() : 0;
  step.shared = op.getShared();
  step.shape = label.global;
  step.dtype = plannedType(op.getType());
  s.step(op, std::move(step));
}

double splatValue(ElementsAttr value, Operation *op) {
  auto splat = dyn_cast<SplatElementsAttr>(value);
  if (!splat)
    throw userError(locationOf(op->getLoc()) +
                    ": a constant tensor of different elements has no step yet (only splats)");
  if (isa<FloatType>(splat.getElementType()))
    return splat.getSplatValue<APFloat>().convertToDouble();
  APInt integer = splat.getSplatValue<APInt>();
  return integer.getBitWidth() == 1 ? static_cast<double>(integer.getZExtValue())
                                    : static_cast<double>(integer.getSExtValue());
}

} // namespace

void emitFill(SegmentBuilder &s, Operation *constant, uint32_t slot) {
  auto op = cast<ir::ConstantOp>(constant);
  plan::FillT step;
  step.dst = slot;
  auto value = op.getValue();
  if (auto f = dyn_cast<SplatElementsAttr>(value); f && isa<Float16Type, BFloat16Type>(f.getElementType())) {
    APFloat number = f.getSplatValue<APFloat>();
    bool loses = false;
    number.convert(APFloat::IEEEdouble(), APFloat::rmNearestTiesToEven, &loses);
    step.value = number.convertToDouble();
  } else {
    step.value = splatValue(value, constant);
  }
  step.value = storedNumber(step.value);
  step.dtype = s.program.slot(slot).dtype;
  s.step(constant, std::move(step));
}

/// Emits a slice that fusion left outside its groups.
void emitSlice(SegmentBuilder &s, ir::SliceOp op) {
  const Strided whole = Strided::contiguous(shapeOf(op.getInput()).vec());
  const Strided part = whole.sliced(op.getStarts(), op.getSizes());
  plan::CopyT step;
  step.shape = op.getSizes().vec();
  step.src = s.view(op.getInput(), part.offset, part.strides);
  step.dst = s.view(op.getResult());
  step.dtype = plannedType(op.getInput().getType());
  s.step(op, std::move(step));
}

int32_t scalarOf(SegmentBuilder &s, Value offset) {
  if (!offset)
    return -1;
  auto source = offset.getDefiningOp<dist::ShardOffsetOp>();
  if (!source)
    throw Error(Status::Internal, "plan export: an offset that is no dist.shard_offset");
  return static_cast<int32_t>(
      s.program.scalarIndex({static_cast<int64_t>(source.getSize()), 1, axesOf(source.getAxes())}));
}

bool emitLookup(SegmentBuilder &s, Operation *op) {
  return llvm::TypeSwitch<Operation *, bool>(op)
      .Case([&](ir::EmbeddingOp e) { return emitEmbedding(s, e), true; })
      .Case([&](ir::GatherOp g) { return emitAlong<plan::GatherT>(s, g, g.getInput(), g.getInput()), true; })
      .Case([&](ir::ScatterAddOp g) { return emitAlong<plan::ScatterAddT>(s, g, g.getGrad(), g.getResult()), true; })
      .Case([&](ir::RandomUniformOp r) { return emitRandom(s, r), true; })
      .Case([&](ir::ConstantOp c) { return emitFill(s, c, s.slot(c.getResult())), true; })
      .Case([&](ir::SliceOp o) { return emitSlice(s, o), true; })
      .Case([&](ir::FusionOp f) { return emitKernel(s, f), true; })
      .Default(false);
}

void emitOp(SegmentBuilder &s, Operation *op) {
  if (emitLibraryCall(s, op) || emitLookup(s, op) || emitMessage(s, op))
    return;
  std::string where = locationOf(op->getLoc());
  throw userError((where.empty() ? "" : where + ": ") + "plan: op \"" + op->getName().getStringRef().str() +
                  "\" has neither a library step nor a kernel");
}

} // namespace cleave::passes
