// Local functions: slots by kind and name.
#include "ir/dist/Dist.h"
#include "ir/graph/Graph.h"
#include "partitioner/apply/Emit.h"
#include "partitioner/sharding/Assign.h"

#include <fmt/format.h>

using namespace mlir;

namespace cleave::partitioner {

static func::FuncOp makeFunction(ModuleOp module, const RankClass &rankClass, const std::string &segment) {
  OpBuilder builder(module.getContext());
  builder.setInsertionPointToEnd(module.getBody());
  auto func = func::FuncOp::create(builder, module.getLoc(),
                                   fmt::format("stage{}.class{}.{}", rankClass.stage, rankClass.index, segment),
                                   builder.getFunctionType({}, {}));
  func->setAttr(dist::attr::stage, builder.getI64IntegerAttr(rankClass.stage));
  func->setAttr(dist::attr::rankClass, builder.getI64IntegerAttr(rankClass.index));
  func->setAttr(dist::attr::segment, builder.getStringAttr(segment));
  func.addEntryBlock();
  return func;
}

LocalFunction::LocalFunction(ModuleOp module, const RankClass &rankClass, const std::string &segment, const Mesh &mesh,
                             const std::vector<int64_t> &coords)
    : builder(module.getContext()), localiser(builder, mesh, coords), func(makeFunction(module, rankClass, segment)),
      segment(segment) {
  builder.setInsertionPointToEnd(&func.getBody().front());
}

Value LocalFunction::slot(const std::string &kind, const std::string &name, RankedTensorType type) {
  auto [entry, added] = arguments.try_emplace({kind, name});
  if (added) {
    unsigned index = func.getNumArguments();
    auto attributes = builder.getDictionaryAttr({builder.getNamedAttr(ir::attr::kind, builder.getStringAttr(kind)),
                                                 builder.getNamedAttr(ir::attr::name, builder.getStringAttr(name))});
    (void)func.insertArgument(index, type, attributes, func.getLoc());
    entry->second = func.getArgument(index);
  }
  return entry->second;
}

Value LocalFunction::slot(const std::string &kind, const std::string &name, Value global) {
  bool known = arguments.count({kind, name});
  Value value = slot(kind, name, localiser.localType(global));
  if (known)
    return value;
  unsigned index = cast<BlockArgument>(value).getArgNumber();
  func.setArgAttr(index, dist::attr::sharding, dist::ShardingAttr::get(func.getContext(), shardingOf(global).str()));
  func.setArgAttr(index, dist::attr::global, TypeAttr::get(global.getType()));
  // What a parameter is (its initialiser, whether it trains) goes along.
  if (auto argument = dyn_cast<BlockArgument>(global))
    if (auto source = dyn_cast<func::FuncOp>(argument.getOwner()->getParentOp()))
      if (DictionaryAttr attributes = source.getArgAttrDict(argument.getArgNumber()))
        for (NamedAttribute attribute : attributes)
          if (!func.getArgAttr(index, attribute.getName()))
            func.setArgAttr(index, attribute.getName(), attribute.getValue());
  return value;
}

void LocalFunction::returns(const std::string &kind, const std::string &name, Value value) {
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
  func.setFunctionType(builder.getFunctionType(func.getArgumentTypes(), types));
  for (auto [i, result] : llvm::enumerate(results)) {
    func.setResultAttr(i, ir::attr::kind, builder.getStringAttr(std::get<0>(result)));
    func.setResultAttr(i, ir::attr::name, builder.getStringAttr(std::get<1>(result)));
  }
  if (func.getBody().front().without_terminator().empty() && results.empty()) {
    func.erase();
    return false;
  }
  rankClass.functions[segment] = func.getSymName().str();
  return true;
}

} // namespace cleave::partitioner
