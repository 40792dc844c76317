// Converts groups to `cleave.fusion` ops.
#include "ir/dist/Dist.h"
#include "ir/graph/Graph.h"
#include "passes/codegen/nest/FromFusion.h"
#include "passes/fuse/Rewrites.h"
#include "passes/rewrite/Values.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/IRMapping.h"

#include <algorithm>
#include <set>

namespace cleave::passes {

std::optional<kernel::LoopNest> nestOf(const Groups &groups, const std::vector<mlir::Operation *> &ops, int width) {
  const auto [inputs, outputs] = groups.border(ops);
  llvm::SmallVector<bool> scalar;
  for (mlir::Value input : inputs)
    scalar.push_back(kernel::isShardOffset(input));
  return kernel::loopNestOf(kernel::graphOf(inputs, ops, outputs, scalar, kernel::Tables::Omit), nullptr, width);
}

bool isKernel(const Groups &groups, const std::vector<mlir::Operation *> &ops) {
  return nestOf(groups, ops).has_value();
}

namespace {

/// A reshape at the border of a group, with its side.
struct Border {
  mlir::Operation *op = nullptr;
  bool after = false;
};

Border borderReshape(const Groups &groups, const std::vector<mlir::Operation *> &ops) {
  auto inside = [&](mlir::Operation *op) { return op && std::find(ops.begin(), ops.end(), op) != ops.end(); };
  for (mlir::Operation *op : ops) {
    if (!mlir::isa<ir::ReshapeOp>(op))
      continue;
    if (!inside(op->getOperand(0).getDefiningOp()))
      return {op, false};
    if (llvm::none_of(op->getUsers(), inside))
      return {op, true};
  }
  return {};
}

void peelReshapes(Groups &groups, int id) {
  while (true) {
    std::vector<mlir::Operation *> ops = groups[id].ops;
    Border border = borderReshape(groups, ops);
    if (!border.op)
      return;
    std::erase(ops, border.op);
    if (!ops.empty() && !isKernel(groups, ops))
      return;
    groups.insert(border.op, id, border.after);
    groups.setOps(id, ops);
    if (ops.empty()) {
      groups.erase(id);
      return;
    }
  }
}

/// Puts zeros in the place of inputs that no loop reads, such as the part of a concatenation that a slice leaves out,
/// so that nothing needs to compute them.
void dropUnreadInputs(Groups &groups, int id) {
  std::vector<mlir::Operation *> ops = groups[id].ops;
  if (llvm::none_of(ops, llvm::IsaPred<ir::SliceOp>))
    return;
  std::set<int> read;
  const auto nest = nestOf(groups, ops);
  for (const kernel::LoopValue &value : nest->values)
    if (value.kind == kernel::ValueKind::Load)
      read.insert(value.buffer);
  std::vector<mlir::Operation *> zeros;
  for (int buffer = 0; mlir::Value input : groups.inputs(ops)) {
    if (kernel::isShardOffset(input) || read.contains(buffer++))
      continue;
    mlir::OpBuilder b(ops.front());
    const mlir::Value zero =
        ir::splatConstant(b, ops.front()->getLoc(), mlir::cast<mlir::RankedTensorType>(input.getType()), 0);
    zeros.push_back(zero.getDefiningOp());
    input.replaceUsesWithIf(zero, [&](mlir::OpOperand &use) { return llvm::is_contained(ops, use.getOwner()); });
  }
  ops.insert(ops.begin(), zeros.begin(), zeros.end());
  groups.setOps(id, ops);
}

/// Splat constants used only by ops outside fusions stay outside, as fills. A constant table becomes a kernel.
bool staysOutside(const std::vector<mlir::Operation *> &ops) {
  auto constant = mlir::dyn_cast<ir::ConstantOp>(ops[0]);
  return ops.size() == 1 && constant && mlir::isa<mlir::SplatElementsAttr>(constant.getValue());
}

mlir::StringAttr joinPaths(mlir::MLIRContext *context, const std::vector<mlir::Operation *> &ops) {
  std::vector<llvm::StringRef> paths;
  for (mlir::Operation *op : ops)
    if (auto path = op->getAttrOfType<mlir::StringAttr>(ir::attr::path))
      if (std::find(paths.begin(), paths.end(), path.getValue()) == paths.end())
        paths.push_back(path.getValue());
  std::string text;
  for (size_t i = 0; i < paths.size() && i < 3; ++i)
    text += (i ? " + " : "") + paths[i].str();
  if (paths.size() > 3)
    text += " + ...";
  return paths.empty() ? nullptr : mlir::StringAttr::get(context, text);
}

/// The first and the last layer of the ops but for constants, which layers share. A kernel computes gradients of
/// weights if all of its ops do that: an op of another role is waited for.
void mergeOrigins(const std::vector<mlir::Operation *> &ops, ir::FusionOp fusion) {
  const auto hasLayer = [](mlir::Operation *op) {
    return op->hasAttr(ir::attr::layer) && !mlir::isa<ir::ConstantOp>(op);
  };
  if (const auto first = llvm::find_if(ops, hasLayer); first != ops.end()) {
    const mlir::Attribute layer = (*first)->getAttr(ir::attr::layer),
                          last = (*llvm::find_if(llvm::reverse(ops), hasLayer))->getAttr(ir::attr::layer);
    fusion->setAttr(ir::attr::layer, layer);
    if (last != layer)
      fusion->setAttr(ir::attr::lastLayer, last);
  }
  const auto weights = mlir::StringAttr::get(fusion.getContext(), ir::role::weightGradient),
             sums = mlir::StringAttr::get(fusion.getContext(), ir::role::gradients);
  llvm::SmallSetVector<mlir::Attribute, 2> roles;
  for (mlir::Operation *op : ops)
    if (!mlir::isa<ir::ConstantOp>(op))
      roles.insert(op->getAttr(ir::attr::role));
  if (roles.size() == 1 && roles[0])
    fusion->setAttr(ir::attr::role, roles[0]);
  else if (roles.size() == 2 && roles.contains(weights) && roles.contains(sums))
    fusion->setAttr(ir::attr::role, weights);
}

ir::FusionOp makeFusion(Groups &groups, const std::vector<mlir::Operation *> &ops) {
  mlir::MLIRContext *context = ops[0]->getContext();
  auto [inputs, outputs] = groups.border(ops);
  mlir::Operation *last = ops.back();
  mlir::OpBuilder b(last->getBlock()->getTerminator());
  llvm::SmallVector<mlir::Type> types;
  for (mlir::Value output : outputs)
    types.push_back(output.getType());
  mlir::OperationState state(last->getLoc(), ir::FusionOp::getOperationName());
  state.addOperands(inputs);
  state.addTypes(types);
  state.addRegion();
  auto fusion = mlir::cast<ir::FusionOp>(b.create(state));
  mlir::Block &body = fusion.getBody().emplaceBlock();
  mlir::IRMapping map;
  for (mlir::Value input : inputs)
    map.map(input, body.addArgument(input.getType(), input.getLoc()));
  b.setInsertionPointToEnd(&body);
  for (mlir::Operation *op : ops) {
    mlir::Operation *copy = b.clone(*op, map);
    mlir::NamedAttrList attributes(copy->getDiscardableAttrDictionary());
    for (llvm::StringRef name : {dist::attr::shardings, dist::attr::globals})
      attributes.erase(name);
    copy->setDiscardableAttrs(attributes.getDictionary(context));
  }
  llvm::SmallVector<mlir::Value> yielded;
  for (mlir::Value output : outputs)
    yielded.push_back(map.lookup(output));
  ir::YieldOp::create(b, last->getLoc(), yielded);

  if (mlir::StringAttr path = joinPaths(context, ops))
    fusion->setAttr(ir::attr::path, path);
  mergeOrigins(ops, fusion);
  for (llvm::StringRef name : {llvm::StringRef(ir::attr::phase), llvm::StringRef(ir::attr::stage)})
    if (mlir::Attribute value = last->getAttr(name))
      fusion->setAttr(name, value);
  carryShardings(outputs, fusion);
  for (auto [output, result] : llvm::zip(outputs, fusion.getResults()))
    output.replaceUsesWithIf(
        result, [&](mlir::OpOperand &use) { return std::find(ops.begin(), ops.end(), use.getOwner()) == ops.end(); });
  return fusion;
}

} // namespace

void materialize(mlir::Block &block, Groups &groups, int width) {
  peelSharedSlices(groups, width);
  for (int id : groups.order())
    if (groups[id].fusible)
      peelReshapes(groups, id);
  for (int id : groups.order())
    if (groups[id].fusible && !staysOutside(groups[id].ops))
      dropUnreadInputs(groups, id);
  std::vector<mlir::Operation *> order, replaced;
  for (int id : groups.order()) {
    const std::vector<mlir::Operation *> &ops = groups[id].ops;
    if (!groups[id].fusible || staysOutside(ops)) {
      order.insert(order.end(), ops.begin(), ops.end());
      continue;
    }
    order.push_back(makeFusion(groups, ops));
    replaced.insert(replaced.end(), ops.begin(), ops.end());
  }
  for (mlir::Operation *op : order)
    op->moveBefore(block.getTerminator());
  for (size_t i = replaced.size(); i-- > 0;)
    replaced[i]->erase();
}

} // namespace cleave::passes
