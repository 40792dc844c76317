// Describes data sets and compares descriptions.
#include "runtime/data/DataState.h"
#include "runtime/base/Error.h"
#include "runtime/base/JsonText.h"
#include "runtime/base/Sha256.h"
#include "runtime/data/DataFunction.h"
#include "runtime/plan/DTypes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace cleave {
namespace {

using Json = nlohmann::ordered_json;

DataState::Part partOf(const DataSource &data, Split split, uint64_t seed, size_t fields) {
  DataState::Part part{data.samples(split), data.fingerprint(split), {}};
  std::vector<Sha256> hashes(fields);
  for (const SampleId &sample : someSamples(data, split)) {
    const std::vector<int64_t> sums = checksums(data, sample, seed, fields);
    for (size_t field = 0; field < fields; ++field)
      hashes[field].update({reinterpret_cast<const uint8_t *>(&sums[field]), sizeof sums[field]});
  }
  for (size_t field = 0; field < fields; ++field)
    part.some[data.fields()[field].name] = "sha256:" + toHex(hashes[field].finish()).substr(0, 12);
  return part;
}

const std::optional<DataState::Part> &partOf(const DataState &state, Split split) {
  return split == Split::Train ? state.train : state.eval;
}

Json jsonOf(const DataState::Part &part) {
  Json json{{"samples", part.samples}};
  if (!part.fingerprint.empty())
    json["fingerprint"] = part.fingerprint;
  else
    json["some"] = part.some;
  return json;
}

std::optional<DataState::Part> partIn(const Json &json, const char *key) {
  if (!json.contains(key))
    return std::nullopt;
  const Json &from = json.at(key);
  return DataState::Part{from.at("samples").get<int64_t>(), from.value("fingerprint", ""),
                         from.value("some", std::map<std::string, std::string>())};
}

std::string differs(const std::string &what, const std::string &now, const std::string &known) {
  return fmt::format("{}: {} now, {} before", what, now, known);
}

} // namespace

DataState DataState::of(const DataSource &data, uint64_t seed, DataNeeds needs) {
  DataState state;
  for (const DataField &field : data.fields())
    state.fields += fmt::format("{}{} {} [{}]", state.fields.empty() ? "" : ", ", field.name,
                                dtypeName(planned(field.dtype)), fmt::join(field.shape, ", "));
  const size_t compared = data.fields().size() - (needs.labels || data.fields().empty() ? 0 : 1);
  if (needs.train)
    state.train = partOf(data, Split::Train, seed, compared);
  if (needs.eval)
    state.eval = partOf(data, Split::Eval, seed, compared);
  return state;
}

std::vector<std::pair<std::string, std::string>> DataState::values() const {
  std::vector<std::pair<std::string, std::string>> values{{"--data (its fields)", fields}};
  for (const Split split : {Split::Train, Split::Eval})
    if (const std::optional<Part> &part = partOf(*this, split)) {
      const char *name = splitName(split);
      values.emplace_back(fmt::format("--data (its {} samples)", name), fmt::format("{}", part->samples));
      values.emplace_back(fmt::format("--data (fingerprint of its {} samples)", name), part->fingerprint);
      for (const auto &[field, sum] : part->some)
        values.emplace_back(fmt::format("--data (field {} of some {} samples)", field, name), sum);
    }
  return values;
}

std::string DataState::json() const {
  Json json{{"fields", fields}};
  if (train)
    json["train"] = jsonOf(*train);
  if (eval)
    json["eval"] = jsonOf(*eval);
  return jsonText(json);
}

DataState DataState::parse(const std::string &text) {
  if (text.empty())
    return {};
  try {
    const auto json = parseJson<Json>(text, "checkpoint data_state");
    return {json.value("fields", ""), partIn(json, "train"), partIn(json, "eval")};
  } catch (const nlohmann::json::exception &e) {
    throw environmentError(fmt::format("checkpoint data_state: not the JSON object expected: {}", e.what()));
  }
}

std::string DataState::difference(const DataState &known, Split split) const {
  const std::optional<Part> &before = partOf(known, split), &now = partOf(*this, split);
  const char *name = splitName(split);
  if (!before || !now)
    return "";
  if (now->samples != before->samples)
    return differs(fmt::format("{} samples", name), std::to_string(now->samples), std::to_string(before->samples));
  if (!now->fingerprint.empty() && !before->fingerprint.empty()) {
    constexpr size_t shown = 19; // "sha256:" and twelve digits
    return now->fingerprint == before->fingerprint
               ? ""
               : differs(fmt::format("fingerprint of the {} samples", name), now->fingerprint.substr(0, shown),
                         before->fingerprint.substr(0, shown));
  }
  if (fields != known.fields)
    return differs("fields", fields, known.fields);
  for (const auto &[field, sum] : now->some)
    if (const auto found = before->some.find(field); found != before->some.end() && found->second != sum)
      return differs(fmt::format("field {} of some {} samples", field, name), sum, found->second);
  return "";
}

} // namespace cleave
