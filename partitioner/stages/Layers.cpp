// Finds layers in program order.
#include "partitioner/stages/Layers.h"

#include "ir/graph/Graph.h"
#include "runtime/base/Flops.h"

#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;

namespace cleave::partitioner {

// Path of the loss function's ops, which belong to the model's last layer.
static constexpr const char *lossPath = "loss";

std::string pathOf(Operation *op) {
  auto path = op->getAttrOfType<StringAttr>(ir::attr::path);
  return path ? path.str() : "";
}

static double elements(Value value) { return ir::tensorType(value).getNumElements(); }

template <typename Op> static double flopsOfAttention(Op op, int products) {
  const ArrayRef<int64_t> q = ir::shapeOf(op.getQ()); // [batch, heads, rows, width]
  return attentionFlops(q[0], q[1], q[2], ir::shapeOf(op.getK())[2], q[3], products, op.getCausal());
}

double flopsOf(Operation *op) {
  return llvm::TypeSwitch<Operation *, double>(op)
      .Case([&](ir::MatmulOp o) {
        return 2 * elements(o.getResult()) *
               ir::shapeOf(
                   o.getA())[o.getTransA() ? ir::shapeOf(o.getA()).size() - 2 : ir::shapeOf(o.getA()).size() - 1];
      })
      .Case([&](ir::Conv2dOp o) { return ir::convFlops(o.getWeight(), o.getResult()); })
      .Case([&](ir::Conv2dInputGradOp o) { return ir::convFlops(o.getWeight(), o.getGrad()); })
      .Case([&](ir::Conv2dWeightGradOp o) { return ir::convFlops(o.getResult(), o.getGrad()); })
      .Case([&](ir::AttentionOp o) { return flopsOfAttention(o, 2); })
      .Case([&](ir::AttentionGradOp o) { return flopsOfAttention(o, 5); })
      .Default([](Operation *) { return 0.0; });
}

double costOf(Operation *op) {
  double cost = flopsOf(op);
  for (Value result : op->getResults())
    cost += elementCharge * elements(result);
  return cost;
}

LayerNames layerNames(func::FuncOp func, std::set<std::string> named) {
  std::vector<std::string> paths;
  for (Operation &op : func.getBody().front().without_terminator())
    if (std::string path = pathOf(&op); path != lossPath)
      paths.push_back(std::move(path));
  return LayerNames(paths, std::move(named));
}

static int64_t markOf(Operation *op) {
  auto mark = op->getAttrOfType<IntegerAttr>(ir::attr::stage);
  return mark ? mark.getInt() : -1;
}

bool isView(Operation *op) {
  return isa<ir::ReshapeOp, ir::TransposeOp, ir::SliceOp, ir::CastOp, ir::BroadcastOp, ir::ShardHintOp>(op);
}

/// Whether an op reads a parameter, directly or through views in any stage.
static bool readsParameter(Operation *op) {
  return llvm::any_of(op->getOperands(), [](Value operand) {
    while (Operation *def = operand.getDefiningOp()) {
      if (!isView(def))
        return false;
      operand = def->getOperand(0);
    }
    return ir::argumentKind(cast<BlockArgument>(operand)) == ir::SlotKind::Parameter;
  });
}

static void addOp(Layer &layer, Operation *op) {
  layer.ops.push_back(op);
  layer.cost += costOf(op);
  layer.parameters |= readsParameter(op);
}

std::vector<Layer> layersOf(func::FuncOp func, const LayerNames &names) {
  std::vector<Layer> layers;
  std::vector<Operation *> waiting; // ops outside any module, which join the next layer
  auto open = [&](const std::string &path, int64_t mark) {
    layers.push_back({path, mark, 0, false, {}});
    for (Operation *op : waiting)
      addOp(layers.back(), op);
    waiting.clear();
  };
  for (Operation &op : func.getBody().front().without_terminator()) {
    const std::string path = pathOf(&op), name = path == lossPath ? "" : names.of(path);
    const int64_t mark = markOf(&op);
    if (!waiting.empty() && markOf(waiting.back()) != mark) // a stage without any module
      open("", markOf(waiting.back()));
    const bool same = !layers.empty() && layers.back().mark == mark && waiting.empty();
    if (name.empty() && !same) {
      waiting.push_back(&op);
      continue;
    }
    if (!name.empty() && !(same && layers.back().path == name))
      open(name, mark);
    addOp(layers.back(), &op);
  }
  if (!waiting.empty() || layers.empty())
    open("", waiting.empty() ? -1 : markOf(waiting.back()));
  return layers;
}

} // namespace cleave::partitioner
