// Reads the spec of a pipeline and makes its schedule.
#include "partitioner/pipeline/Spec.h"

#include "partitioner/pipeline/Search.h"
#include "partitioner/schedule/Named.h"
#include "runtime/base/Error.h"
#include "runtime/base/JsonText.h"
#include "runtime/base/Nearest.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <limits>

namespace cleave::partitioner {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t mostWorks = 10'000'000;
constexpr double mostValue = 1e15; // sums stay finite

struct Field {
  const char *name;
  bool required;
};

const Field fields[] = {
    {"schedule", true},         {"stages", true},         {"virtual", false},           {"microbatches", true},
    {"forward_ms", true},       {"input_grad_ms", true},  {"weight_grad_ms", true},     {"send_ms", true},
    {"activation_bytes", true}, {"gradient_bytes", true}, {"memory_limit_bytes", false}};

/// A value as text, shortened if it is long.
std::string shown(const Json &value) {
  const std::string text = jsonText(value);
  return text.size() <= 60 ? text : text.substr(0, 57) + "...";
}

/// Reads the fields of one spec.
class Reader {
public:
  Reader(const Json &json, const std::string &name) : json(json), name(name) {}

  Error mistake(const std::string &text) const { return userError(name + ": " + text); }

  void checkFields() const {
    if (!json.is_object())
      throw mistake("a pipeline spec must be a JSON object, found " + shown(json));
    std::vector<std::string> names;
    for (const Field &field : fields)
      names.push_back(field.name);
    for (const auto &[key, value] : json.items())
      if (std::find(names.begin(), names.end(), key) == names.end())
        throw mistake(fmt::format("unknown field {}{}; there are {}", shown(key), suggestion(key, names),
                                  fmt::join(names, ", ")));
    for (const Field &field : fields)
      if (field.required && !json.contains(field.name))
        throw mistake(fmt::format("the field \"{}\" is missing", field.name));
  }

  std::string schedule() const {
    const std::vector<std::string> &names = scheduleNames();
    const Json &value = json.at("schedule");
    if (!value.is_string() || std::find(names.begin(), names.end(), value.get<std::string>()) == names.end())
      throw mistake(fmt::format("\"schedule\" must be one of {}, found {}{}", fmt::join(names, ", "), shown(value),
                                value.is_string() ? suggestion(value.get<std::string>(), names) : ""));
    return value.get<std::string>();
  }

  int64_t count(const char *field) const {
    const Json &value = json.at(field);
    if (!value.is_number() || !(value.get<double>() >= 1 && value.get<double>() <= double(mostWorks)) ||
        value.get<double>() != std::floor(value.get<double>()))
      throw mistake(
          fmt::format("\"{}\" must be a whole number from 1 to {}, found {}", field, mostWorks, shown(value)));
    return int64_t(value.get<double>());
  }

  /// Reads one number for all, or a list whose length is one of `lengths`.
  std::vector<double> numbers(const char *field, const std::vector<int64_t> &lengths) const {
    const Json &value = json.at(field);
    if (!value.is_array())
      return std::vector<double>(size_t(lengths.front()), number(field, value, ""));
    if (std::find(lengths.begin(), lengths.end(), int64_t(value.size())) == lengths.end())
      throw mistake(fmt::format("\"{}\" must be a number or a list of {} numbers, found a list of {}", field,
                                fmt::join(lengths, " or "), value.size()));
    std::vector<double> list;
    for (const Json &entry : value)
      list.push_back(number(field, entry, fmt::format(" at place {} of the list", list.size())));
    return list;
  }

private:
  double number(const char *field, const Json &value, const std::string &where) const {
    if (!value.is_number() || !(value.get<double>() >= 0 && value.get<double>() <= mostValue))
      throw mistake(fmt::format("\"{}\" must be a number from 0 to 1e15, or a list of them, found {}{}", field,
                                shown(value), where));
    return value.get<double>();
  }

  const Json &json;
  const std::string &name;
};

Json parsed(const std::string &text, const std::string &name) {
  try {
    return parseJson<Json>(text, name);
  } catch (const Error &error) { // a mistake in a file that the user wrote
    throw userError(error.what());
  }
}

/// The entry of a stage in a list for stages or for ranks. A rank's entry is shared by its stages if `shared`.
double entryOf(const std::vector<double> &list, const Schedule &shape, int64_t stage, bool shared) {
  if (int64_t(list.size()) == shape.stages())
    return list[size_t(stage)];
  return list[size_t(shape.rankOf(stage))] / (shared ? double(shape.chunks) : 1);
}

std::vector<StageCosts> costsOf(const PipelineSpec &spec, const Schedule &shape) {
  std::vector<StageCosts> stages;
  for (int64_t stage = 0; stage < shape.stages(); ++stage) {
    const auto entry = [&](const std::vector<double> &list, bool shared = true) {
      return entryOf(list, shape, stage, shared);
    };
    stages.push_back({entry(spec.forward), entry(spec.inputGradient), entry(spec.weightGradient),
                      entry(spec.send, false), entry(spec.activationBytes), entry(spec.gradientBytes)});
  }
  return stages;
}

/// Throws environmentError if a rank holds more than its limit.
void checkMemory(const PlannedPipeline &planned, const std::vector<double> &limits) {
  const std::vector<double> peaks = peakBytes(planned.schedule, planned.stages);
  if (const auto rank = rankOverLimit(peaks, limits))
    throw environmentError(fmt::format("schedule {}: rank {} must hold at most its memory limit of {:.0f} bytes, but "
                                       "holds {:.0f}; \"auto\" searches a "
                                       "schedule that keeps the limit, and a microbatch needs at least {:.0f}",
                                       planned.schedule.name, *rank, limits[*rank], peaks[*rank],
                                       leastBytes(planned.schedule, planned.stages)[*rank]));
}

PlannedPipeline searched(const PipelineSpec &spec) {
  std::vector<Schedule> shapes = openShapes(spec.ranks, spec.microbatches);
  if (spec.chunks)
    std::erase_if(shapes, [&](const Schedule &shape) { return shape.chunks != *spec.chunks; });
  if (shapes.empty())
    shapes.push_back({searchedSchedule, spec.ranks, *spec.chunks, spec.microbatches});
  std::optional<PlannedPipeline> best;
  std::pair<double, double> bestCost; // step, peak
  for (const Schedule &shape : shapes) {
    PlannedPipeline planned{shape, costsOf(spec, shape)};
    auto schedule = searchSchedule(shape, planned.stages, spec.memoryLimit);
    if (!schedule)
      continue;
    planned.schedule = std::move(*schedule);
    std::pair<double, double> cost{simulate(planned.schedule, planned.stages).step, 0};
    for (double peak : peakBytes(planned.schedule, planned.stages))
      cost.second = std::max(cost.second, peak);
    if (!best || cost < bestCost)
      best = std::move(planned), bestCost = cost;
  }
  if (best)
    return std::move(*best);
  const std::vector<double> least = leastBytes(shapes.front(), costsOf(spec, shapes.front()));
  const size_t rank = *rankOverLimit(least, spec.memoryLimit);
  throw environmentError(
      fmt::format("no schedule keeps the memory limit: one microbatch on rank {} must fit into {:.0f} bytes, "
                  "but takes {:.0f}",
                  rank, spec.memoryLimit[rank], least[rank]));
}

} // namespace

PipelineSpec parsePipelineSpec(const std::string &text, const std::string &name) {
  const Json json = parsed(text, name);
  const Reader reader(json, name);
  reader.checkFields();
  PipelineSpec spec;
  spec.schedule = reader.schedule();
  spec.ranks = reader.count("stages");
  spec.microbatches = reader.count("microbatches");
  if (json.contains("virtual"))
    spec.chunks = reader.count("virtual");
  else if (spec.schedule != searchedSchedule && chunksOf(spec.schedule) > 0)
    spec.chunks = chunksOf(spec.schedule);
  else if (spec.schedule != searchedSchedule)
    throw reader.mistake(
        fmt::format("schedule {} needs the field \"virtual\", the stages on each rank", spec.schedule));
  const double works = 3.0 * double(spec.ranks) * double(spec.microbatches) * double(spec.chunks.value_or(2));
  if (works > double(mostWorks))
    throw reader.mistake(
        fmt::format("3 x stages x virtual x microbatches must be at most {}, found {:.0f}", mostWorks, works));
  const int64_t stages = spec.ranks * spec.chunks.value_or(1);
  const std::vector<int64_t> lengths = stages == spec.ranks ? std::vector{spec.ranks} : std::vector{spec.ranks, stages};
  spec.forward = reader.numbers("forward_ms", lengths);
  spec.inputGradient = reader.numbers("input_grad_ms", lengths);
  spec.weightGradient = reader.numbers("weight_grad_ms", lengths);
  spec.send = reader.numbers("send_ms", lengths);
  spec.activationBytes = reader.numbers("activation_bytes", lengths);
  spec.gradientBytes = reader.numbers("gradient_bytes", lengths);
  spec.memoryLimit = json.contains("memory_limit_bytes")
                         ? reader.numbers("memory_limit_bytes", {spec.ranks})
                         : std::vector<double>(size_t(spec.ranks), std::numeric_limits<double>::infinity());
  return spec;
}

PlannedPipeline planPipeline(const PipelineSpec &spec) {
  if (spec.schedule == searchedSchedule)
    return searched(spec);
  PlannedPipeline planned;
  planned.schedule = namedSchedule(spec.schedule, spec.ranks, *spec.chunks, spec.microbatches);
  planned.stages = costsOf(spec, planned.schedule);
  checkMemory(planned, spec.memoryLimit);
  return planned;
}

} // namespace cleave::partitioner
