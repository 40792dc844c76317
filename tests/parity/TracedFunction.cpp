// Traces a function without a model.
#include "tests/parity/TracedFunction.h"
#include "frontend/trace/Trace.h"
#include "ir/graph/Graph.h"

namespace cleave::testing {

GraphModule traced(const nlohmann::json &example, const Function &function, bool parameters) {
  GraphModule graph;
  mlir::Builder b(graph.module().getContext());
  auto forward = mlir::func::FuncOp::create(b.getUnknownLoc(), "forward", b.getFunctionType({}, {}));
  graph.module().push_back(forward);
  mlir::Block *body = new mlir::Block;
  forward.getBody().push_back(body);
  Trace trace(body, Trace::Mode::Train);
  TraceScope scope(trace);
  std::vector<mlir::NamedAttrList> attributes;
  std::map<std::string, Tensor> values;
  const auto argument = [&](const std::string &name, const nlohmann::json &value, mlir::Type element, bool trains) {
    mlir::NamedAttrList &own = attributes.emplace_back();
    own.set(ir::attr::kind, b.getStringAttr(trains ? "parameter" : "input"));
    own.set(ir::attr::name, b.getStringAttr(name));
    if (trains)
      own.set(ir::attr::trainable, b.getBoolAttr(true));
    const std::vector<int64_t> shape = value["shape"];
    values[name] = tensorOf(body->addArgument(mlir::RankedTensorType::get(shape, element), b.getUnknownLoc()));
  };
  for (const auto &[name, value] : example["floats"].items())
    argument(name, value, b.getF32Type(), parameters && name != "c");
  for (const auto &[name, value] : example["ints"].items())
    argument(name, value, b.getI32Type(), false);

  const Tensor result = function(
      {values["x"], values["y"], values["z"], values["w"], values["b"], values["t"], values["ids"], values["labels"]});
  const Tensor loss = sum(result * values["c"]);
  mlir::func::ReturnOp::create(trace.builder, b.getUnknownLoc(), mlir::ValueRange{valueOf(loss), valueOf(result)});
  forward.setType(b.getFunctionType(body->getArgumentTypes(), {valueOf(loss).getType(), valueOf(result).getType()}));
  for (size_t i = 0; i < attributes.size(); ++i)
    forward.setArgAttrs(static_cast<unsigned>(i), attributes[i]);
  forward.setResultAttr(0, ir::attr::kind, b.getStringAttr("loss"));
  forward.setResultAttr(1, ir::attr::kind, b.getStringAttr("buffer"));
  forward.setResultAttr(1, ir::attr::name, b.getStringAttr("result"));
  forward->setAttr("cleave.static_weight", b.getI64IntegerAttr(1));
  return graph;
}

} // namespace cleave::testing
