// Valid IR comes from random models, in a phase drawn from the seed. After modification it runs through passes as in
// cleave-opt, or as a traced model through the whole compiler to a plan that must pass the checker.
#include "tests/fuzz_ir/Case.h"

#include "frontend/cleave/cleave.h"
#include "passes/pipeline/Register.h"
#include "runtime/base/Error.h"
#include "runtime/plan/PlanFile.h"
#include "runtime/plan/check/Check.h"
#include "tests/fuzz_ir/Alter.h"
#include "tests/random/Drawing.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/IR/Verifier.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Pass/PassRegistry.h"
#include "mlir/Transforms/Passes.h"
#include "llvm/Support/raw_ostream.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

using namespace mlir;

namespace cleave::fuzz_ir {

using random_models::Result;
using random_models::TracedCase;
using random_models::Verdict;

namespace {

constexpr uint64_t casesOfModel = 16; // consecutive seeds that alter the same model in different ways

Result verdict(Verdict verdict, const std::string &kind, const std::string &text = "") {
  Result result;
  result.verdict = verdict, result.kind = kind, result.text = text;
  return result;
}

/// Collects MLIR's diagnostics as text during the lifetime of this object.
class Diagnostics {
public:
  explicit Diagnostics(MLIRContext &context)
      : handler(&context, [this](Diagnostic &diagnostic) {
          llvm::raw_string_ostream stream(all);
          stream << diagnostic.getLocation() << ": " << diagnostic << '\n';
          errors += diagnostic.getSeverity() == DiagnosticSeverity::Error && !diagnostic.str().empty();
          return success();
        }) {}
  const std::string &text() const { return all; }
  bool any() const { return errors > 0; }

private:
  std::string all;
  int errors = 0;
  ScopedDiagnosticHandler handler;
};

void registerAllPasses() {
  static const bool once = [] {
    registerTransformsPasses();
    passes::registerPasses();
    return true;
  }();
  (void)once;
}

/// Runs a pass pipeline. Returns whether all passes succeed.
bool runPasses(ModuleOp module, const std::string &passes) {
  registerAllPasses();
  PassManager manager(module.getContext());
  if (failed(parsePassPipeline(passes, manager)))
    throw Error(Status::Internal, "no such pipeline: " + passes);
  return succeeded(manager.run(module));
}

// ---- the altered IR -------------------------------------------------------------------------------------------------

enum class Phase { Traced, Differentiated, Step, Annotated, Local };

/// Everything that is drawn for a case, except its text.
struct Drawn {
  Chance chance;
  Phase phase;
  std::optional<TracedCase> traced;
  std::string mesh;
  int64_t microbatches = 1;
};

std::string partition(const Drawn &drawn) {
  return fmt::format("{{mesh={} microbatches={}}}", drawn.mesh, drawn.microbatches);
}

/// The passes that lead from a traced model to a phase.
std::string passesTo(Phase phase, const Drawn &drawn) {
  std::string passes =
      fmt::format("assign-stages{},differentiate{{microbatches={}}},simplify", partition(drawn), drawn.microbatches);
  if (phase >= Phase::Step)
    passes += ",build-optimizer,decompose,simplify";
  if (phase >= Phase::Annotated)
    passes += (phase == Phase::Local ? ",apply" : ",annotate") + partition(drawn);
  return phase == Phase::Traced ? "" : passes;
}

/// Draws a phase, and takes the first model, from the seed's own model on, that can be traced and reaches the phase.
Drawn drawnOf(uint64_t seed) {
  Drawn drawn{Chance(seed * 7919 + 17), Phase::Traced, std::nullopt, "dp=1"};
  drawn.phase = static_cast<Phase>(drawn.chance.weighted({6, 1, 2, 1, 2}));
  for (uint64_t model = seed / casesOfModel;; ++model) {
    const random_models::Recipe recipe = random_models::generate(model);
    drawn.traced = random_models::tracedCase(recipe);
    drawn.mesh = recipe.mesh, drawn.microbatches = recipe.microbatches;
    if (!drawn.traced)
      continue;
    Diagnostics silent(drawn.traced->model.context());
    if (runPasses(drawn.traced->model.module(), passesTo(drawn.phase, drawn)))
      return drawn;
  }
}

std::string goodText(Drawn &drawn) {
  GraphModule &model = drawn.traced->model;
  std::string text;
  llvm::raw_string_ostream stream(text);
  OpPrintingFlags flags;
  flags.enableDebugInfo(drawn.chance.one(0.2));
  if (drawn.chance.one(0.15))
    flags.printGenericOpForm();
  model.module().print(stream, flags);
  stream << '\n';
  return text;
}

std::string alteredText(Drawn &drawn) {
  std::vector<std::string> ops{"return", "call", "func.func"};
  for (RegisteredOperationName name : drawn.traced->model.context().getRegisteredOperations())
    if (name.getDialectNamespace() == "cleave" || name.getDialectNamespace() == "dist")
      ops.push_back(name.getStringRef().str());
  return altered(goodText(drawn), ops, drawn.chance);
}

// ---- passes and compiler --------------------------------------------------------------------------------------------

/// The passes that normally follow the phase, or random passes in random order.
std::string passesAfter(Drawn &drawn) {
  Chance &chance = drawn.chance;
  if (chance.one(0.6)) {
    static const std::vector<std::vector<std::string>> next{
        {"precision", "assign-stages", "channels-last", "differentiate", "simplify", "build-optimizer", "decompose",
         "simplify", "apply"},
        {"simplify", "build-optimizer", "decompose", "simplify", "annotate"},
        {"simplify", "decompose", "apply"},
        {"simplify", "func.func(fuse)"},
        {"simplify", "func.func(fuse)"}};
    std::string passes;
    for (const std::string &pass : next[static_cast<size_t>(drawn.phase)]) {
      if ((pass == "precision" || pass == "channels-last") && chance.one(0.7))
        continue;
      passes += (passes.empty() ? "" : ",") + pass;
      if (pass == "assign-stages" || pass == "apply" || pass == "annotate")
        passes += partition(drawn);
      if (pass == "differentiate")
        passes += fmt::format("{{microbatches={}}}", drawn.microbatches);
    }
    return passes;
  }
  static const std::vector<std::string> all{"canonicalize",
                                            "cse",
                                            "symbol-dce",
                                            "simplify",
                                            "decompose",
                                            "precision",
                                            "precision{half=fp16 level=3}",
                                            "channels-last",
                                            "assign-stages",
                                            "differentiate",
                                            "build-optimizer",
                                            "annotate",
                                            "apply",
                                            "apply{mesh=dp=2}",
                                            "annotate{mesh=tp=2}",
                                            "func.func(fuse)",
                                            "func.func(fuse{gpu=true})",
                                            "decompose{attention=keep}",
                                            "strip-debuginfo"};
  std::string passes;
  for (int64_t left = chance.whole(1, 5); left > 0; --left)
    passes += (passes.empty() ? "" : ",") + chance.of(all);
  return passes;
}

Result asTool(GraphModule &model, Drawn &drawn, const std::string &passes) {
  Diagnostics diagnostics(model.context());
  const bool good = runPasses(model.module(), passes);
  if (!good && !diagnostics.any())
    return verdict(Verdict::Failed, "a pass fails without a diagnostic", passes);
  if (!good) {
    const bool invalid = diagnostics.text().find("invalid IR") != std::string::npos;
    return verdict(Verdict::Refused, invalid ? "by a pass: invalid IR" : "by a pass",
                   passes + "\n" + diagnostics.text());
  }
  // MLIR accepts a symbol without a name, but cannot read back what it prints for it.
  for (auto function : model.module().getOps<func::FuncOp>())
    if (function.getSymName().empty())
      return verdict(Verdict::Agrees, "passes succeed on a function without a name");
  const std::string printed = model.str();
  try {
    GraphModule::parse(printed, "printed.mlir");
  } catch (const Error &error) {
    return verdict(Verdict::Failed, "what cleave-opt prints does not read again", passes + "\n" + error.what());
  }
  return verdict(Verdict::Agrees, "passes succeed");
}

Result asProgram(GraphModule &model, Drawn &drawn) {
  passes::CompileOptions options = drawn.traced->options;
  options.code = drawn.chance.one(0.1);
  Diagnostics diagnostics(model.context());
  const std::vector<uint8_t> bytes = passes::compile(model.clone(), options);
  const auto file = PlanFile::fromBytes(bytes, "the plan");
  if (const std::vector<std::string> defects = checkPlan(file->plan()); !defects.empty())
    return verdict(Verdict::Failed, "the checker refuses the plan", fmt::format("{}", fmt::join(defects, "\n")));
  return verdict(Verdict::Agrees, "a good plan");
}

} // namespace

std::string textOf(uint64_t seed, bool good) {
  Drawn drawn = drawnOf(seed);
  return good ? goodText(drawn) : alteredText(drawn);
}

Result run(uint64_t seed) {
  Drawn drawn = drawnOf(seed);
  const std::string text = alteredText(drawn);
  std::optional<GraphModule> model;
  try {
    model.emplace(GraphModule::parse(text, "altered.mlir"));
  } catch (const Error &error) {
    return verdict(std::string(error.what()).empty() ? Verdict::Failed : Verdict::Refused, "by parser or verifier",
                   error.what());
  }
  try {
    return drawn.phase == Phase::Traced && drawn.chance.one(0.6) ? asProgram(*model, drawn)
                                                                 : asTool(*model, drawn, passesAfter(drawn));
  } catch (const Error &error) {
    const bool internal = error.status == Status::Internal;
    return verdict(Verdict::Refused, internal ? "internal error" : "by the compiler", error.what());
  } catch (const std::exception &error) {
    return verdict(Verdict::Failed, "an exception", error.what());
  }
}

} // namespace cleave::fuzz_ir
