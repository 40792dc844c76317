// Finds the features of a case.
#include "tests/random/Coverage.h"
#include "partitioner/strategy/Decisions.h"
#include "tests/random/Tables.h"

#include <fmt/format.h>
#include <set>

namespace cleave::random_models {

namespace {

void coverModel(const Recipe &recipe, std::set<std::string> &words) {
  for (const Class &cls : recipe.classes) {
    std::map<int, int> uses;
    for (const Node &node : cls.body.nodes) {
      words.insert("op:" + node.op);
      if (node.member >= 0 && node.op != "setBuffer")
        ++uses[node.member];
    }
    for (size_t m = 0; m < cls.members.size(); ++m) {
      const Part &member = cls.members[m];
      words.insert((layerKind(member.kind) ? "layer:" : "member:") + member.kind);
      if (member.frozen)
        words.insert("model:frozen");
      if (!uses[static_cast<int>(m)])
        words.insert("model:unused-member");
      if (uses[static_cast<int>(m)] > 1)
        words.insert("model:" + std::string(member.kind == "Parameter" ? "parameter" : "module") + "-used-again");
    }
  }
  if (recipe.wholeNumbers)
    words.insert("model:whole-numbers");
  words.insert(recipe.drawnData ? "data:drawn" : "data:hashed");
  words.insert("loss:" + recipe.loss);
  words.insert(fmt::format("model:inputs={}", recipe.fields.size() - recipe.targets()));
  for (const Field &field : recipe.fields)
    if (field.dtype == FieldType::U8)
      words.insert("data:bytes");
  if (recipe.targets() > 1)
    words.insert("model:two-outputs");
  if (!recipe.classes[0].body.others.empty())
    words.insert("model:outputs-that-the-loss-ignores");
}

void coverSplit(const Recipe &recipe, std::set<std::string> &words) {
  const Mesh mesh = partitioner::parseMesh(recipe.mesh);
  words.insert("mesh:" + recipe.mesh);
  words.insert("schedule:" + recipe.schedule);
  words.insert(fmt::format("virtual:{}", recipe.virtualStages));
  words.insert("recompute:" + (recipe.recompute.empty() ? "none" : recipe.recompute));
  if (!recipe.searched.empty())
    words.insert("search:" + recipe.searched);
  if (recipe.sequence)
    words.insert("split:sequence");
  words.insert(fmt::format("zero:{}", recipe.zero));
  if (recipe.scatterGather)
    words.insert("messages:slices");
  words.insert(fmt::format("microbatches:{}", recipe.microbatches));
  if (recipe.evalBatch != recipe.batch)
    words.insert("evaluation:other-batch");
  if (recipe.evalSamples % recipe.evalBatch)
    words.insert("evaluation:not-whole-batches");
  words.insert("optimizer:" + recipe.optimizer);
  words.insert("precision:" + recipe.precision + (recipe.optLevel.empty() ? "" : "-" + recipe.optLevel));
  words.insert("layout:" + recipe.layout);
  if (recipe.suitsWinograd() && recipe.layout == "nhwc" && !recipe.wholeNumbers && recipe.precision != "fp16")
    words.insert("layout:winograd");
  if (recipe.clipNorm > 0)
    words.insert("optimizer:clipping");
  if (recipe.weightDecay > 0)
    words.insert("optimizer:decay");
  if (recipe.ema > 0)
    words.insert("optimizer:averages");
  if (!recipe.reduceDtype.empty())
    words.insert("precision:reduced-in-half");
  if (recipe.rows() % mesh.size("dp"))
    words.insert("split:uneven-rows");
  const std::string &text = recipe.stagesAndShards;
  if (text.find("stages") != std::string::npos)
    words.insert("split:stages-by-file");
  if (text.find("[shard]") != std::string::npos)
    words.insert("split:rules");
  if (text.find("dp") != std::string::npos)
    words.insert("split:rules-over-dp");
  if (text.find("+") != std::string::npos)
    words.insert("split:joined-axes");
  if (text.find(":") != std::string::npos)
    words.insert("split:factors");
  if (text.find("heads") != std::string::npos)
    words.insert("split:heads");
  for (size_t i = 1; i < recipe.classes.size(); ++i)
    for (const Node &node : recipe.classes[i].body.nodes)
      if (node.op == "withSharding")
        words.insert("split:marks-inside-modules");
}

} // namespace

std::string coveredBy(const Recipe &recipe, const Result &result) {
  std::set<std::string> words;
  coverModel(recipe, words);
  coverSplit(recipe, words);
  if (result.exact)
    words.insert("judged:bit-for-bit");
  if (result.executed)
    words.insert("judged:executed");
  std::string text;
  for (const std::string &word : words)
    text += (text.empty() ? "" : " ") + word;
  return text;
}

std::map<std::string, uint64_t> completed(std::map<std::string, uint64_t> counts) {
  for (const OpKind &kind : opKinds())
    if (kind.emit)
      counts.try_emplace("op:" + kind.name, 0);
  for (const LayerKind &kind : layerKinds())
    counts.try_emplace("layer:" + kind.name, 0);
  for (const LossKind &kind : lossKinds())
    counts.try_emplace("loss:" + kind.name, 0);
  for (const char *word : {"split:stages-by-file", "split:rules", "split:rules-over-dp", "split:joined-axes",
                           "split:factors", "split:heads", "split:marks-inside-modules", "split:uneven-rows", "model:frozen", "model:two-outputs", "model:outputs-that-the-loss-ignores", "model:unused-member", "model:parameter-used-again",
                           "model:module-used-again", "member:List", "member:Module", "data:drawn", "judged:bit-for-bit"})
    counts.try_emplace(word, 0);
  return counts;
}

} // namespace cleave::random_models
