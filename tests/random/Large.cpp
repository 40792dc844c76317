// Multiplies rows, where they are known to be rows, and compiles.
#include "tests/random/Large.h"

#include "ir/graph/Graph.h"
#include "passes/pipeline/Pipeline.h"
#include "runtime/base/Error.h"
#include "runtime/plan/PlanFile.h"
#include "runtime/plan/check/Check.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace cleave::random_models {

namespace {

constexpr std::array powers{30, 31, 32, 40};

/// Elements of the largest tensor of a traced model.
int64_t largestTensor(const GraphModule &model) {
  int64_t most = 1;
  model.module()->walk([&](mlir::Operation *op) {
    for (mlir::Value result : op->getResults())
      if (auto type = llvm::dyn_cast<mlir::RankedTensorType>(result.getType()))
        most = std::max(most, type.getNumElements());
  });
  return most;
}

/// The case with `factor` times the rows, also where calls name them as the first size of a shape.
Recipe withMoreRows(Recipe recipe, int64_t factor) {
  const int64_t rows = recipe.rows();
  for (Class &cls : recipe.classes)
    for (Node &node : cls.body.nodes)
      if (node.ints.size() > 1 && node.ints[0] == rows)
        node.ints[0] *= factor;
  recipe.batch *= factor, recipe.evalBatch *= factor, recipe.evalSamples *= factor;
  return recipe;
}

std::string defectsFor(Target::Kind backend, const Recipe &recipe) {
  TracedCase traced = traceCase(recipe);
  traced.options.backend = backend;
  traced.options.target.reset();
  const auto file = PlanFile::fromBytes(passes::compile(std::move(traced.model), traced.options), "the large plan");
  return fmt::format("{}", fmt::join(checkPlan(file->plan()), "\n"));
}

Result result(Verdict verdict, const std::string &kind, const std::string &text) {
  Result made;
  made.verdict = verdict, made.kind = kind, made.text = text;
  return made;
}

} // namespace

Result planLarge(const Recipe &recipe) {
  const double wanted = std::ldexp(1.0, powers[recipe.seed % powers.size()]);
  constexpr int64_t mostRows = (int64_t{1} << 31) - 1;
  for (const Target::Kind backend : {Target::Kind::Cpu, Target::Kind::Cuda})
    try {
      const auto largest = static_cast<double>(largestTensor(traceCase(recipe).model));
      const auto factor = static_cast<int64_t>(wanted / largest);
      const int64_t most = mostRows / std::max(recipe.batch, recipe.evalBatch);
      if (std::string defects = defectsFor(backend, withMoreRows(recipe, std::clamp<int64_t>(factor, 1, most)));
          !defects.empty())
        return result(Verdict::Failed, "the checker refuses the large plan", defects);
    } catch (const Error &error) {
      if (error.status == Status::Internal)
        return result(Verdict::Failed, "internal error of a large plan", error.what());
      return result(Verdict::Refused, "with many rows", error.what());
    }
  return result(Verdict::Agrees, "", "");
}

} // namespace cleave::random_models
