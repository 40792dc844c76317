// Phases by the functions of a module.
#include "ir/Phase.h"
#include "ir/dist/Dist.h"
#include "ir/graph/Graph.h"
#include "runtime/base/Error.h"

#include <fmt/format.h>

using namespace mlir;

namespace cleave::ir {

static bool hasShardings(ModuleOp module) {
  bool found = false;
  module.walk([&](Operation *op) { found |= op->hasAttr("dist.shardings"); });
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

/// What of a function's form is missing; empty: nothing.
static std::string formOf(func::FuncOp function) {
  if (function.isExternal() || !function.getBody().hasOneBlock())
    return "has no body of one block";
  for (unsigned i = 0; i < function.getNumArguments(); ++i)
    for (StringRef name : {attr::kind, attr::name})
      if (!function.getArgAttrOfType<StringAttr>(i, name))
        return fmt::format("has no {} at argument {}", name.str(), i);
  for (unsigned i = 0; i < function.getNumResults(); ++i)
    if (!function.getResultAttrOfType<StringAttr>(i, attr::kind))
      return fmt::format("has no {} at result {}", StringRef(attr::kind).str(), i);
  return "";
}

void requirePhase(ModuleOp module, const std::string &pass, Phase phase) {
  if (const Phase found = phaseOf(module); found != phase)
    throw userError(fmt::format("{}: needs {}, found {}", pass, describe(phase), describe(found)));
  for (func::FuncOp function : module.getOps<func::FuncOp>())
    for (const char *name : {"forward", "train", "update", "eval"})
      if (function.getSymName() == name)
        if (const std::string problem = formOf(function); !problem.empty())
          throw userError(fmt::format("{}: @{} {}", pass, name, problem));
}

} // namespace cleave::ir
