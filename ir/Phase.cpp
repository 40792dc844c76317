// Determines the phase from the functions of a module, and checks their form.
#include "ir/Phase.h"
#include "ir/dist/Dist.h"
#include "ir/graph/Graph.h"
#include "runtime/base/Error.h"

#include <fmt/format.h>
#include <map>
#include <set>

using namespace mlir;

namespace cleave::ir {

static bool hasShardings(ModuleOp module) {
  bool found = false;
  module.walk([&](Operation *op) { found |= op->hasAttr(dist::attr::shardings); });
  return found;
}

Phase phaseOf(ModuleOp module) {
  const auto has = [&](const char *name) { return module.lookupSymbol<func::FuncOp>(name) != nullptr; };
  if (!module.getOps<dist::MeshOp>().empty())
    return Phase::Local;
  if (has("train") && has("update"))
    return hasShardings(module) ? Phase::Annotated : Phase::Step;
  return has("train") ? Phase::Differentiated : has("forward") ? Phase::Traced : Phase::Other;
}

static const char *describe(Phase phase) {
  switch (phase) {
  case Phase::Traced:
    return "a traced model (@forward)";
  case Phase::Differentiated:
    return "a differentiated model (@train without @update)";
  case Phase::Step:
    return "a step (@train and @update on whole tensors)";
  case Phase::Annotated:
    return "an annotated step (values with shardings)";
  case Phase::Local:
    return "local programs (a mesh)";
  case Phase::Other:
    break;
  }
  return "a module without @forward and @train";
}

namespace {

/// The kinds allowed for arguments and results of a function.
struct Kinds {
  std::set<SlotKind> arguments, results;
};

const Kinds &kindsOf(const std::string &function) {
  using enum SlotKind;
  static const Kinds model{{Input, Parameter, Buffer, State, Scalar},
                           {Loss, Weight, Correct, Invalid, Buffer, Output, Gradient}};
  static const Kinds train{{Input, Parameter, Buffer, State, Scalar, Metric}, model.results};
  static const Kinds update{{Parameter, Gradient, State, Scalar, Metric}, {Parameter, State}};
  static const Kinds weights{{Input}, {Weight}};
  return function == "update" ? update : function == "train" ? train : function == "weights" ? weights : model;
}

std::string text(Attribute attribute) {
  auto string = dyn_cast_or_null<StringAttr>(attribute);
  return string ? string.str() : "";
}

bool isName(const std::string &name) {
  return !name.empty() && llvm::none_of(name, [](unsigned char c) { return c < 0x20 || c == 0x7f; });
}

/// Whether the ops of the graph dialect accept this type.
bool isTensor(Type type) {
  auto tensor = dyn_cast<RankedTensorType>(type);
  if (!tensor || !tensor.hasStaticShape())
    return false;
  Type element = tensor.getElementType();
  return element.isF32() || element.isF16() || element.isBF16() || element.isSignlessInteger(32) ||
         element.isSignlessInteger(64) || element.isSignlessInteger(1) || element.isUnsignedInteger(8);
}

/// Checks the form of one function. run() returns the problem, or an empty string.
class FormCheck {
public:
  explicit FormCheck(func::FuncOp function) : function(function), name(function.getSymName().str()) {}

  std::string run() {
    if (function.isExternal() || !function.getBody().hasOneBlock())
      return "has no body of one block";
    for (unsigned i = 0; i < function.getNumArguments(); ++i)
      if (const std::string problem = argument(i); !problem.empty())
        return problem;
    for (unsigned i = 0; i < function.getNumResults(); ++i)
      if (const std::string problem = result(i); !problem.empty())
        return problem;
    if (const std::string problem = paths(); !problem.empty())
      return problem;
    return name == "update" || results[SlotKind::Output] ? "" : terms();
  }

  /// Types of the arguments by kind and name; filled by run().
  std::map<std::pair<SlotKind, std::string>, Type> arguments;

private:
  /// Every term of the loss has a sum and a weight. The weights of @train may be its arguments (GraphBase.td).
  std::string terms() {
    std::set<std::string> sums = metrics[SlotKind::Loss], weights = metrics[SlotKind::Weight];
    for (const auto &[key, type] : arguments)
      if (key.first == SlotKind::Metric)
        weights.insert(key.second == "weight" ? "" : StringRef(key.second).substr(sizeof "weight").str());
    if (name == "weights")
      sums = weights;
    for (const auto &[kind, found] : {std::pair(SlotKind::Loss, &sums), {SlotKind::Weight, &weights}})
      if (found->empty())
        return fmt::format("has no result of kind \"{}\"", ir::text(kind));
    return sums == weights && sums.count("") ? "" : "has not one loss and one weight of each term";
  }

  /// Paths are copied into plans and strategies, so they must be printable.
  std::string paths() {
    std::string problem;
    function.walk([&](Operation *op) {
      if (const std::string path = text(op->getAttr(attr::path)); !path.empty() && !isName(path))
        problem = fmt::format("has a {} whose {} has control characters", op->getName().getStringRef().str(),
                              attr::path.str());
    });
    return problem;
  }

  std::string argument(unsigned i) {
    for (StringRef attribute : {attr::kind, attr::name})
      if (!function.getArgAttrOfType<StringAttr>(i, attribute))
        return fmt::format("has no {} at argument {}", attribute.str(), i);
    const SlotKind kind = argumentKind(function, i);
    const std::string is = text(function.getArgAttr(i, attr::name));
    if (!kindsOf(name).arguments.count(kind))
      return fmt::format("has an argument {} of kind \"{}\"", i, text(function.getArgAttr(i, attr::kind)));
    if (!isName(is))
      return fmt::format("has an argument {} whose name is empty or has control characters", i);
    if (!isTensor(function.getArgumentTypes()[i]))
      return fmt::format("has an argument {} that is no tensor of the graph", i);
    if (!arguments.try_emplace({kind, is}, function.getArgumentTypes()[i]).second)
      return fmt::format("has two arguments of kind \"{}\" with name \"{}\"", ir::text(kind), is);
    if (arguments.count({SlotKind::Parameter, is}) && arguments.count({SlotKind::Buffer, is}))
      return fmt::format("has a parameter and a buffer with name \"{}\"", is);
    return "";
  }

  std::string result(unsigned i) {
    if (!function.getResultAttrOfType<StringAttr>(i, attr::kind))
      return fmt::format("has no {} at result {}", attr::kind.str(), i);
    const SlotKind kind = resultKind(function, i);
    const std::string is = text(function.getResultAttr(i, attr::name));
    const Type type = function.getResultTypes()[i];
    if (!kindsOf(name).results.count(kind))
      return fmt::format("has a result {} of kind \"{}\"", i, text(function.getResultAttr(i, attr::kind)));
    ++results[kind];
    if (isMetric(kind) && !metrics[kind].insert(is).second)
      return fmt::format("has two results of kind \"{}\" with name \"{}\"", ir::text(kind), is);
    if (isMetric(kind) && !is.empty() && !isName(is))
      return fmt::format("has a {} whose name has control characters", ir::text(kind));
    if (isMetric(kind) && (!isTensor(type) || !cast<RankedTensorType>(type).getElementType().isF32() ||
                           cast<RankedTensorType>(type).getRank() != 0))
      return fmt::format("has a {} that is no tensor<f32>", ir::text(kind));
    return isMetric(kind) || kind == SlotKind::Output ? "" : ofArgument(i, kind, is);
  }

  /// A new value or a gradient must match an argument in name and shape.
  std::string ofArgument(unsigned i, SlotKind kind, const std::string &is) {
    const auto found = arguments.find({kind == SlotKind::Gradient ? SlotKind::Parameter : kind, is});
    if (found == arguments.end())
      return fmt::format("has a result {}, {} \"{}\", without such an argument", i, ir::text(kind), is);
    auto of = cast<RankedTensorType>(found->second);
    auto type = dyn_cast<RankedTensorType>(function.getResultTypes()[i]);
    if (!type || type.getShape() != of.getShape() || (kind != SlotKind::Gradient && type != of))
      return fmt::format("has a result {}, {} \"{}\", of another type than its argument", i, ir::text(kind), is);
    return "";
  }

  func::FuncOp function;
  const std::string name;
  std::map<SlotKind, int> results;
  std::map<SlotKind, std::set<std::string>> metrics; ///< names of results by kind
};

/// Evaluation may use only parameters and buffers of training.
std::string differenceOf(const FormCheck &eval, const FormCheck &train) {
  for (const auto &[key, type] : eval.arguments)
    if (key.first == SlotKind::Parameter || key.first == SlotKind::Buffer)
      if (auto found = train.arguments.find(key); found == train.arguments.end() || found->second != type)
        return fmt::format("has a {} \"{}\" that training lacks, or has of another type", ir::text(key.first),
                           key.second);
  return "";
}

} // namespace

void requirePhase(ModuleOp module, const std::string &pass, Phase phase) {
  if (const Phase found = phaseOf(module); found != phase)
    throw userError(fmt::format("{}: needs {}, found {}", pass, describe(phase), describe(found)));
  std::map<std::string, FormCheck> checks;
  for (func::FuncOp function : module.getOps<func::FuncOp>())
    if (const std::string name = function.getSymName().str();
        name == "forward" || name == "train" || name == "update" || name == "eval" || name == "weights")
      if (const std::string problem = checks.try_emplace(name, function).first->second.run(); !problem.empty())
        throw userError(fmt::format("{}: @{} {}", pass, name, problem));
  const auto eval = checks.find("eval"), train = checks.find(checks.count("train") ? "train" : "forward");
  if (eval != checks.end() && train != checks.end())
    if (const std::string problem = differenceOf(eval->second, train->second); !problem.empty())
      throw userError(fmt::format("{}: @eval {}", pass, problem));
}

} // namespace cleave::ir
