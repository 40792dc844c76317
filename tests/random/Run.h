// Runs a case in two ways: by the product, through strategy, plan and executor, and by the interpreter on the unsplit
// graph.
#pragma once
#include "tests/random/Recipe.h"

#include "cleave/cleave.h"
#include "passes/pipeline/Pipeline.h"

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace cleave::random_models {

/// Shapes of the root's values, empty where there is none or it is no float.
std::vector<Shape> shapesOfRoot(const Recipe &recipe);
/// What stages are cut from, in the order in which it runs; a module that runs again is there again.
struct ModelLayer {
  std::string path;
  bool parameters;
};
/// `marks`: with what stage() and withSharding() mark: a mark of a parameter joins the layer that runs next.
std::vector<ModelLayer> layersOfModel(const Recipe &recipe, bool marks = false);
/// What the model's results come from, by path.
std::set<std::string> parametersThatMatter(const Recipe &recipe);
/// Whether a mark on something that they come from splits over the axis.
bool marksThatMatterSplit(const Recipe &recipe, const std::string &axis);
/// The stages that marks in the code give to ops; a call such as transpose(x, 0, 0) makes none.
std::set<int64_t> stagesOfMarks(const Recipe &recipe);

/// Adds a node behind the one that makes `value`, and lets it take the value's place for later ones.
void insertMark(Body &body, int value, const std::vector<std::string> &words);
/// Adds stage(k) before node `place`.
void insertStage(Body &body, int64_t place, int64_t k);

enum class Verdict : uint8_t { Agrees, Refused, Failed };

struct Result {
  Verdict verdict = Verdict::Agrees;
  std::string kind; ///< of the refusal or the failure, a few words: what equal ones have in common
  std::string text; ///< the whole message
  bool exact = false;     ///< was compared bit for bit
  bool executed = false;  ///< ran with generated code, not in the interpreter alone
  bool unbounded = false; ///< numbers too large to compare
  std::string covered;    ///< words: ops, layers and features of the case
};

struct RunSettings {
  bool execute = true;      ///< generate code and run the plan
  bool differences = false; ///< compare the interpreter's gradients with central differences
};
Result run(const Recipe &recipe, const RunSettings &settings);
/// The case's plan with its code, as bytes; empty where the case is refused.
std::vector<uint8_t> planOf(const Recipe &recipe);

/// A case before it is compiled.
struct TracedCase {
  GraphModule model;
  passes::CompileOptions options; ///< without code
};
/// Nothing where the case is refused so early.
std::optional<TracedCase> tracedCase(const Recipe &recipe);

} // namespace cleave::random_models
