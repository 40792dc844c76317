// Local functions, with slots by kind and name.
#include "ir/dist/Dist.h"
#include "ir/graph/Graph.h"
#include "partitioner/annotate/Annotate.h"
#include "partitioner/apply/Emit.h"

#include <fmt/format.h>

using namespace mlir;

namespace cleave::partitioner {

static func::FuncOp makeFunction(ModuleOp module, const RankClass &rankClass, SegmentId segment) {
  OpBuilder builder(module.getContext());
  builder.setInsertionPointToEnd(module.getBody());
  auto func = func::FuncOp::create(
      builder, module.getLoc(), fmt::format("stage{}.class{}.{}", rankClass.position, rankClass.index, segment.str()),
      builder.getFunctionType({}, {}));
  func->setAttr(dist::attr::stage, builder.getI64IntegerAttr(rankClass.position));
  func->setAttr(dist::attr::rankClass, builder.getI64IntegerAttr(rankClass.index));
  func->setAttr(dist::attr::segment, builder.getStringAttr(segment.str()));
  func.addEntryBlock();
  return func;
}

LocalFunction::LocalFunction(ModuleOp module, const RankClass &rankClass, SegmentId segment, const Mesh &mesh,
                             const std::vector<int64_t> &coords)
    : builder(module.getContext()), localiser(builder, mesh, coords), func(makeFunction(module, rankClass, segment)),
      segment(segment) {
  builder.setInsertionPointToEnd(&func.getBody().front());
}

Value LocalFunction::slot(ir::SlotKind kind, const std::string &name, RankedTensorType type) {
  auto [entry, added] = arguments.try_emplace({kind, name});
  if (added) {
    NamedAttrList &attributes = argumentAttributes.emplace_back();
    attributes.set(ir::attr::kind, ir::kindAttr(builder, kind));
    attributes.set(ir::attr::name, builder.getStringAttr(name));
    entry->second = func.getBody().front().addArgument(type, func.getLoc());
  }
  return entry->second;
}

Value LocalFunction::slot(ir::SlotKind kind, const std::string &name, Value global) {
  bool known = arguments.count({kind, name});
  Value value = slot(kind, name, localiser.localType(global));
  if (known)
    return value;
  NamedAttrList &attributes = argumentAttributes[cast<BlockArgument>(value).getArgNumber()];
  attributes.set(dist::attr::sharding, shardingAttrOf(global));
  attributes.set(dist::attr::global, TypeAttr::get(global.getType()));
  // Copies the parameter's attributes (initialiser, trainable).
  if (auto argument = dyn_cast<BlockArgument>(global))
    if (auto source = dyn_cast<func::FuncOp>(argument.getOwner()->getParentOp()))
      if (DictionaryAttr known = source.getArgAttrDict(argument.getArgNumber()))
        for (NamedAttribute attribute : known)
          if (!attributes.get(attribute.getName()))
            attributes.set(attribute.getName(), attribute.getValue());
  return value;
}

Value LocalFunction::slot(BlockArgument global) {
  return slot(ir::argumentKind(global), ir::argumentText(global, ir::attr::name).str(), global);
}

void LocalFunction::returns(ir::SlotKind kind, const std::string &name, Value value) {
  results.emplace_back(kind, name, value);
}

bool LocalFunction::finish(RankClass &rankClass) {
  SmallVector<Value> values;
  SmallVector<Type> types;
  for (auto &[kind, name, value] : results) {
    values.push_back(value);
    types.push_back(value.getType());
  }
  func::ReturnOp::create(builder, func.getLoc(), values);
  func.setFunctionType(builder.getFunctionType(func.getBody().front().getArgumentTypes(), types));
  SmallVector<DictionaryAttr> ofArguments, ofResults;
  for (NamedAttrList &attributes : argumentAttributes)
    ofArguments.push_back(attributes.getDictionary(func.getContext()));
  for (auto &[kind, name, value] : results)
    ofResults.push_back(builder.getDictionaryAttr({builder.getNamedAttr(ir::attr::kind, ir::kindAttr(builder, kind)),
                                                   builder.getNamedAttr(ir::attr::name, builder.getStringAttr(name))}));
  func.setAllArgAttrs(ofArguments);
  func.setAllResultAttrs(ofResults);
  if (func.getBody().front().without_terminator().empty() && results.empty()) {
    func.erase();
    return false;
  }
  rankClass.functions[segment] = func.getSymName().str();
  return true;
}

} // namespace cleave::partitioner
