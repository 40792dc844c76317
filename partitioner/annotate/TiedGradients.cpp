// Splits the gradients of parameters used in several stages: they are sums whose terms are computed in different
// stages.
#include "ir/graph/Graph.h"
#include "partitioner/annotate/AnnotateStep.h"

#include <map>

using namespace mlir;

namespace cleave::partitioner {

static int64_t stageOfTerm(Value term) { return term.getDefiningOp() ? ir::stageOf(term.getDefiningOp()) : 0; }

// Collects the terms of a sum of gradients by stage. An addition whose terms are all in its own stage is one term. (The
// same sum may have other users, if two parameters have equal gradients.)
static void collectTerms(Value value, SmallVector<Value> &terms) {
  auto add = value.getDefiningOp<ir::AddOp>();
  if (!add || !add->hasAttr(ir::attr::phase)) {
    terms.push_back(value);
    return;
  }
  SmallVector<Value> parts;
  collectTerms(add.getLhs(), parts);
  collectTerms(add.getRhs(), parts);
  if (llvm::all_of(parts, [&](Value part) { return stageOfTerm(part) == ir::stageOf(add); }))
    parts = {value};
  terms.append(parts);
}

void splitTiedGradients(func::FuncOp train) {
  auto terminator = cast<func::ReturnOp>(train.getBody().front().getTerminator());
  OpBuilder builder(terminator);
  SmallVector<Value> results;
  SmallVector<DictionaryAttr> attributes;
  for (auto [i, value] : llvm::enumerate(terminator.getOperands())) {
    DictionaryAttr dict = train.getResultAttrDict(i);
    std::map<int64_t, Value> sums;
    if (ir::resultKind(train, i) == ir::SlotKind::Gradient) {
      SmallVector<Value> terms;
      collectTerms(value, terms);
      std::map<int64_t, SmallVector<Value>> byStage;
      for (Value term : terms)
        byStage[stageOfTerm(term)].push_back(term);
      if (byStage.size() > 1)
        for (auto &[stage, parts] : byStage) {
          Value sum = parts[0];
          for (Value part : ArrayRef(parts).drop_front()) {
            auto add = ir::AddOp::create(builder, part.getLoc(), part.getType(), sum, part);
            add->setDiscardableAttrs(part.getDefiningOp()->getDiscardableAttrDictionary());
            sum = add.getResult();
          }
          sums[stage] = sum;
        }
    }
    if (sums.empty())
      sums[stageOfTerm(value)] = value;
    for (auto &[stage, sum] : sums) {
      results.push_back(sum);
      NamedAttrList list(dict ? dict : DictionaryAttr::get(train.getContext()));
      list.set(ir::attr::stage, builder.getI64IntegerAttr(stage));
      attributes.push_back(list.getDictionary(train.getContext()));
    }
  }
  SmallVector<Type> types;
  for (Value result : results)
    types.push_back(result.getType());
  SmallVector<Value> old(terminator.getOperands());
  terminator->setOperands(results);
  train.setFunctionType(FunctionType::get(train.getContext(), train.getArgumentTypes(), types));
  train.setAllResultAttrs(attributes);
  // The sums across stages are dead now; erase them, last first.
  SmallVector<Operation *> adds;
  train.walk([&](ir::AddOp op) { adds.push_back(op); });
  for (Operation *op : llvm::reverse(adds))
    if (op->use_empty())
      op->erase();
}

} // namespace cleave::partitioner
