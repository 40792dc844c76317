// Translates IR to kernel graphs.
#include "passes/codegen/nest/FromFusion.h"
#include "ir/graph/Graph.h"

#include "mlir/IR/BuiltinTypes.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/TypeSwitch.h"

namespace cleave::passes::kernel {

namespace {

void setType(Node &n, mlir::Type tensor) {
  auto type = mlir::cast<mlir::RankedTensorType>(tensor);
  n.type = ir::dtypeOf(type);
  n.shape = type.getShape().vec();
}

std::optional<NodeKind> kindOf(mlir::Operation *op) {
  using namespace ir;
  using K = NodeKind;
  using R = std::optional<NodeKind>;
  return llvm::TypeSwitch<mlir::Operation *, R>(op)
      .Case<ConstantOp>([](auto) { return K::Constant; })
      .Case<IotaOp>([](auto) { return K::Iota; })
#define CLEAVE_ELEMENTWISE(Name, mnemonic, cycles, exact) .Case<Name##Op>([](auto) { return K::Name; })
#include "ir/graph/GraphElementwise.inc"
      .Case<BroadcastOp>([](auto) { return K::Broadcast; })
      .Case<ReduceOp>([](auto) { return K::Reduce; })
      .Case<ReshapeOp>([](auto) { return K::Reshape; })
      .Case<TransposeOp>([](auto) { return K::Transpose; })
      .Case<SliceOp>([](auto) { return K::Slice; })
      .Case<PadOp>([](auto) { return K::Pad; })
      .Case<ConcatOp>([](auto) { return K::Concat; })
      .Default([](mlir::Operation *) -> R { return std::nullopt; });
}

double asDouble(const llvm::APFloat &value) {
  llvm::APFloat copy = value;
  bool lossy;
  copy.convert(llvm::APFloat::IEEEdouble(), llvm::APFloat::rmNearestTiesToEven, &lossy);
  return copy.convertToDouble();
}

void setConstant(Node &n, ir::ConstantOp op, Tables tables) {
  auto elements = mlir::cast<mlir::DenseElementsAttr>(op.getValue());
  std::vector<double> values;
  bool splat = elements.isSplat();
  if (!splat && tables == Tables::Omit) {
    n.table = {0};
    return;
  }
  if (mlir::isa<mlir::FloatType>(elements.getElementType())) {
    if (splat)
      values.push_back(asDouble(elements.getSplatValue<llvm::APFloat>()));
    else if (elements.getElementType().isF32())
      values.assign(elements.value_begin<float>(), elements.value_end<float>());
    else
      for (const llvm::APFloat &v : elements.getValues<llvm::APFloat>())
        values.push_back(asDouble(v));
  } else {
    auto number = [&](const llvm::APInt &v) {
      return n.type == DType::I1 || n.type == DType::U8 ? static_cast<double>(v.getZExtValue())
                                                        : static_cast<double>(v.getSExtValue());
    };
    if (splat)
      values.push_back(number(elements.getSplatValue<llvm::APInt>()));
    else
      for (const llvm::APInt &v : elements.getValues<llvm::APInt>())
        values.push_back(number(v));
  }
  n.value = values[0];
  if (!splat)
    n.table = std::move(values);
}

} // namespace

bool isFusible(mlir::Operation *op) {
  std::optional<NodeKind> kind = kindOf(op);
  if (!kind)
    return false;
  if (auto constant = mlir::dyn_cast<ir::ConstantOp>(op))
    return mlir::isa<mlir::DenseElementsAttr>(constant.getValue());
  return true;
}

Node nodeOf(mlir::Operation *op, Tables tables) {
  Node n;
  n.kind = *kindOf(op);
  setType(n, op->getResult(0).getType());
  llvm::TypeSwitch<mlir::Operation *>(op)
      .Case<ir::ConstantOp>([&](auto o) { setConstant(n, o, tables); })
      .Case<ir::IotaOp>([&](auto o) { n.dim = o.getDim(); })
      .Case<ir::GeluOp>([&](auto o) { n.tanh = o.getTanh(); })
      .Case<ir::GeluGradOp>([&](auto o) { n.tanh = o.getTanh(); })
      .Case<ir::CompareOp>([&](auto o) { n.relation = o.getPredicate(); })
      .Case<ir::BroadcastOp>([&](auto o) { n.dims = o.getDims().vec(); })
      .Case<ir::ReduceOp>([&](auto o) {
        n.dims = o.getDims().vec();
        n.combine = o.getKind();
      })
      .Case<ir::TransposeOp>([&](auto o) { n.dims = o.getPermutation().vec(); })
      .Case<ir::SliceOp>([&](auto o) { n.dims = o.getStarts().vec(); })
      .Case<ir::PadOp>([&](auto o) { n.dims = o.getLow().vec(); })
      .Case<ir::ConcatOp>([&](auto o) { n.dim = o.getDim(); })
      .Default([](mlir::Operation *) {});
  return n;
}

Node inputOf(mlir::Type type) {
  Node n;
  setType(n, type);
  return n;
}

KernelGraph graphOf(llvm::ArrayRef<mlir::Value> inputs, llvm::ArrayRef<mlir::Operation *> ops,
                    llvm::ArrayRef<mlir::Value> outputs, llvm::ArrayRef<bool> scalar, Tables tables) {
  KernelGraph graph;
  graph.nodes.reserve(inputs.size() + ops.size());
  llvm::DenseMap<mlir::Value, int> numbers;
  for (size_t i = 0; i < inputs.size(); ++i) {
    Node n = inputOf(inputs[i].getType());
    n.scalar = scalar[i];
    numbers[inputs[i]] = static_cast<int>(graph.nodes.size());
    graph.nodes.push_back(std::move(n));
  }
  for (mlir::Operation *op : ops) {
    Node n = nodeOf(op, tables);
    for (mlir::Value operand : op->getOperands())
      n.operands.push_back(numbers.lookup(operand));
    numbers[op->getResult(0)] = static_cast<int>(graph.nodes.size());
    graph.nodes.push_back(std::move(n));
  }
  for (mlir::Value output : outputs)
    graph.outputs.push_back(numbers.lookup(output));
  return graph;
}

bool isShardOffset(mlir::Value value) {
  mlir::Operation *op = value.getDefiningOp();
  return op && op->getName().getStringRef() == "dist.shard_offset";
}

KernelGraph graphOfFusion(mlir::Operation *fusion) {
  mlir::Block &body = fusion->getRegion(0).front();
  llvm::SmallVector<mlir::Value> inputs(body.getArguments().begin(), body.getArguments().end());
  llvm::SmallVector<mlir::Operation *> ops;
  for (mlir::Operation &op : body.without_terminator())
    ops.push_back(&op);
  llvm::SmallVector<bool> scalar;
  for (mlir::Value operand : fusion->getOperands())
    scalar.push_back(isShardOffset(operand));
  llvm::SmallVector<mlir::Value> outputs(body.getTerminator()->getOperands());
  return graphOf(inputs, ops, outputs, scalar, Tables::Read);
}

} // namespace cleave::passes::kernel
