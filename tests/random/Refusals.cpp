// The reasons and their checks.
#include "tests/random/Refusals.h"
#include "partitioner/strategy/Decisions.h"
#include "tests/random/Instance.h"
#include "tests/random/Run.h"

#include <algorithm>
#include <functional>

namespace cleave::random_models {

namespace {

int64_t axis(const Recipe &recipe, const char *name) { return partitioner::parseMesh(recipe.mesh).size(name); }

int64_t stagesOf(const Recipe &recipe) { return axis(recipe, "pp") * recipe.virtualStages; }

/// Whether the stage(k) marks of the root leave a stage without ops.
bool emptyMarkedStage(const Recipe &recipe) {
  const std::set<int64_t> marked = stagesOfMarks(recipe);
  for (int64_t stage = 0, count = stagesOf(recipe); stage < count; ++stage)
    if (!marked.count(stage))
      return true;
  return false;
}

/// Whether the stage(k) marks of the root define a stage that reads no parameter.
bool markedStageWithoutParameters(const Recipe &recipe) {
  const std::set<int64_t> marked = stagesOfMarks(recipe), reading = stagesThatReadParameters(recipe);
  return !std::includes(reading.begin(), reading.end(), marked.begin(), marked.end());
}

/// Whether a stage that the strategy file lists runs no layer with parameters. A layer that runs again after its stage
/// counts for the current stage.
bool listedStageWithoutParameters(const Recipe &recipe) {
  const auto stages = partitioner::Decisions::parse(recipe.strategy(), "strategy.toml").stages;
  std::vector<bool> reads(stages.size(), false);
  size_t current = 0;
  for (const ModelLayer &layer : layersOfModel(recipe)) {
    size_t longest = 0; // length of the longest name that contains the layer
    for (size_t s = current; s < stages.size(); ++s)
      for (const std::string &name : stages[s])
        if ((layer.path == name || layer.path.starts_with(name + ".")) && name.size() > longest) {
          longest = name.size();
          current = s;
        }
    reads[current] = reads[current] || layer.parameters;
  }
  return std::find(reads.begin(), reads.end(), false) != reads.end();
}

bool hasBuffers(const Recipe &recipe) { return !Instance(recipe, 0, true).buffers().empty(); }

/// Whether a mark or a rule splits a tensor over tp.
bool tensorAxisAsked(const Recipe &recipe) {
  if (recipe.stagesAndShards.find("tp") != std::string::npos)
    return true;
  return marksThatMatterSplit(recipe, "tp");
}

/// Whether a class other than the root has a mark: its modules may be called with several shapes.
bool marksInModules(const Recipe &recipe, const std::string &) {
  return std::any_of(recipe.classes.begin() + 1, recipe.classes.end(), [](const Class &cls) {
    return std::any_of(cls.body.nodes.begin(), cls.body.nodes.end(),
                       [](const Node &node) { return node.op == "withSharding"; });
  });
}

struct Reason {
  const char *name, *words; ///< words: the message contains all parts between stars, in this order
  std::function<bool(const Recipe &, const std::string &)> holds;
};

const std::vector<Reason> &reasons() {
  static const std::vector<Reason> list{
      {"fewer rows than dp", "a microbatch has *rows, fewer than dp",
       [](const Recipe &r, const std::string &) { return r.rows() < axis(r, "dp"); }},
      {"fewer rows of evaluation than dp", "a microbatch of evaluation has *rows, fewer than dp",
       [](const Recipe &r, const std::string &) { return r.evalBatch / r.microbatches < axis(r, "dp"); }},
      {"more stages than layers", "asks for more stages than the model's * layers",
       [](const Recipe &r, const std::string &) {
         const std::vector<ModelLayer> layers = layersOfModel(r, true);
         return stagesOf(r) >
                std::count_if(layers.begin(), layers.end(), [](const ModelLayer &layer) { return layer.parameters; });
       }},
      {"more stages than layers without a common buffer", "asks for more stages than the model's * use of buffer ",
       [](const Recipe &r, const std::string &) { return stagesOf(r) > 1 && hasBuffers(r); }},
      {"a stage without parameters", "stages: stage * has no parameters",
       [](const Recipe &r, const std::string &) {
         return r.stagesAndShards.find("stages") == std::string::npos ? markedStageWithoutParameters(r)
                                                                      : listedStageWithoutParameters(r);
       }},
      {"a stage without work", "the model's stage(k) calls define * stages",
       [](const Recipe &r, const std::string &) { return emptyMarkedStage(r); }},
      {"a stage without work between two", "stage(*) on * follows stage *: stage * would be empty",
       [](const Recipe &r, const std::string &) { return emptyMarkedStage(r); }},
      {"a buffer in two stages", "buffer * which changes, is used in stages",
       [](const Recipe &r, const std::string &) { // never if the compiler cuts the stages
         const bool cut = r.stagesAndShards.find("stages") != std::string::npos || stagesOfMarks(r).size() > 1;
         return cut && stagesOf(r) > 1 && hasBuffers(r);
       }},
      {"a mark in a module that is called with another rank", "withSharding: * entries for rank *", marksInModules},
      {"a mark in a module that is called with other sizes", "withSharding: * elements cannot be split *",
       [](const Recipe &r, const std::string &message) { return marksInModules(r, message) || r.evalBatch != r.batch; }},
      {"heads of an attention that does not matter",
       "sharding of * (rule *no dimension of this tensor becomes the heads",
       [](const Recipe &r, const std::string &message) {
         const size_t from = message.find("sharding of ") + 12;
         return !parametersThatMatter(r).count(message.substr(from, message.find(' ', from) - from));
       }},
      {"tp that splits nothing", "tp = * splits no tensor of the model",
       [](const Recipe &r, const std::string &) { return !tensorAxisAsked(r); }},
      {"factors of an embedding's rows", "the rows of an embedding are split as a whole",
       [](const Recipe &r, const std::string &) { return r.stagesAndShards.find(":") != std::string::npos; }},
  };
  return list;
}

bool matches(const std::string &text, const std::string &words) {
  size_t at = 0;
  for (size_t from = 0; from <= words.size();) {
    const size_t star = std::min(words.find('*', from), words.size());
    const size_t found = text.find(words.substr(from, star - from), at);
    if (found == std::string::npos)
      return false;
    at = found + (star - from);
    from = star + 1;
  }
  return true;
}

} // namespace

std::string trueReason(const Recipe &recipe, const std::string &message) {
  for (const Reason &reason : reasons())
    if (matches(message, reason.words) && reason.holds(recipe, message))
      return reason.name;
  return {};
}

} // namespace cleave::random_models
