// A training on data in which one value is no index that the model may read.
#include "tests/random/InvalidIndex.h"
#include "runtime/base/Error.h"
#include "runtime/comm/LocalWorld.h"
#include "runtime/plan/Inputs.h"
#include "runtime/plan/plan_generated.h"
#include "runtime/session/RankJob.h"
#include "tests/random/Numbers.h"

#include <fmt/format.h>
#include <set>

namespace cleave::random_models {

std::string trainOnInvalidIndex(const std::shared_ptr<const PlanFile> &file, const Recipe &recipe) {
  const DataSpec spec = DataSpec::of(file->plan());
  std::set<std::string> read;
  for (unsigned rank = 0; rank < file->plan().ranks()->size(); ++rank)
    for (const InputPart &part : inputParts(file->plan(), rank, false))
      read.insert(part.field);
  std::vector<std::pair<size_t, IndexRule>> found;
  for (size_t field = 0; field < spec.fields.size(); ++field)
    if (const auto rules = spec.indices.find(spec.fields[field].name);
        rules != spec.indices.end() && read.count(rules->first))
      for (const IndexRule &rule : rules->second)
        found.emplace_back(field, rule);
  if (found.empty())
    return {};
  const auto &[field, rule] = found[recipe.seed % found.size()];
  const int64_t largest = rule.below + (rule.below == rule.ignored);
  const auto value = static_cast<double>(rule.least == 0 && recipe.seed % 2 ? -1 : largest);
  int64_t element = 0;
  for (size_t d = 0; d < rule.start.size(); ++d)
    element = element * spec.fields[field].shape[d] + rule.start[d] + rule.size[d] - 1;
  HashedData data(recipe);
  data.replace(field, element, value);
  const std::string name = spec.fields[field].name;
  LocalWorld world(file->plan().ranks()->size());
  SampleOrder order(data.samples(Split::Train), runSeed);
  try {
    runRanks(world, [&](unsigned rank) {
      RankJob job(file, rank, world[rank], data, order, {.threads = 1, .timeoutSeconds = 20});
      job.metrics(job.train(1, static_cast<float>(recipe.lr), {}, std::nullopt));
    });
  } catch (const Error &error) {
    const std::string text = error.what();
    return text.find("data field " + name) != std::string::npos ? "" : text;
  }
  return fmt::format("{} at element {} of field {} counts, which {} reads", value, element, name, rule.reader);
}

} // namespace cleave::random_models
