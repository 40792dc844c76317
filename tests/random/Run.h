// Runs a case in two ways: through the whole product (strategy, plan, executor), and with the interpreter on the
// unsplit graph.
#pragma once
#include "tests/random/Recipe.h"

#include "cleave/cleave.h"
#include "passes/pipeline/Pipeline.h"

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace cleave::ir {
struct DistributedProgram;
}
namespace cleave::partitioner {
struct LocalPrograms;
}

namespace cleave::random_models {

class Instance;
Model modelOf(Instance &root);
/// The local programs and the schedule for the interpreter.
ir::DistributedProgram programOf(const partitioner::LocalPrograms &applied, bool evaluation = false);

/// Shapes of the root's values; empty for nodes without a value and for values that are not floats.
std::vector<Shape> shapesOfRoot(const Recipe &recipe);
/// Whether the model accepts evaluation's number of rows; shapes in its code may be those of training.
bool takesEvalBatch(const Recipe &recipe);
/// A layer of the model as stages are cut from it (partitioner/stages/Layers.h).
struct ModelLayer {
  std::string path;
  bool parameters;
};
/// The layers in execution order; a module that runs twice is two layers. `marks`: the model calls stage() and
/// withSharding(); the mark of a parameter joins the layer that runs next.
std::vector<ModelLayer> layersOfModel(const Recipe &recipe, bool marks = false);
/// Paths of the parameters on which the model's results depend.
std::set<std::string> parametersThatMatter(const Recipe &recipe);
/// Whether a withSharding mark splits a value on which the model's results depend over the axis.
bool marksThatMatterSplit(const Recipe &recipe, const std::string &axis);
/// The same for a traced model or prediction, which is simplified. `trains`: new values of buffers are results, too.
bool marksThatMatterSplit(const GraphModule &graph, const std::string &axis, bool trains);
/// The stages that stage(k) marks assign to ops. Calls such as transpose(x, 0, 0) create no op.
std::set<int64_t> stagesOfMarks(const Recipe &recipe);
/// Those of them that have an op with a parameter as operand.
std::set<int64_t> stagesThatReadParameters(const Recipe &recipe);

/// Inserts a withSharding node after the node that defines `value`; later nodes read the new value instead.
void insertMark(Body &body, int value, const std::vector<std::string> &words);
/// Adds stage(k) before node `place`.
void insertStage(Body &body, int64_t place, int64_t k);

enum class Verdict : uint8_t { Agrees, Refused, Failed };

struct Result {
  Verdict verdict = Verdict::Agrees;
  std::string kind;       ///< short name of the refusal or failure; the same for similar ones
  std::string text;       ///< the whole message
  bool exact = false;     ///< was compared bit for bit
  bool executed = false;  ///< ran with generated code, not only in the interpreter
  bool unbounded = false; ///< numbers too large to compare
  std::string covered;    ///< words: ops, layers and features of the case
};

struct RunSettings {
  bool execute = true;      ///< generate code and run the plan
  bool differences = false; ///< compare the interpreter's gradients with central differences
};
Result run(const Recipe &recipe, const RunSettings &settings);
/// The job of a case, resolved as on the command line.
TrainConfig configOf(const Recipe &recipe);
RunOptions optionsFor(const Recipe &recipe);
/// The bytes of the case's plan with code; empty if the case is refused.
std::vector<uint8_t> planOf(const Recipe &recipe);

/// A case before it is compiled.
struct TracedCase {
  GraphModule model;
  passes::CompileOptions options; ///< without code
};
/// Throws the error if the case is refused before compilation.
TracedCase traceCase(const Recipe &recipe);
/// Empty if the case is refused before compilation.
std::optional<TracedCase> tracedCase(const Recipe &recipe);

} // namespace cleave::random_models
