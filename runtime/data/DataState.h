// What is known of a data set, to tell it from another one. Ranks compare it before the first step, and a training that
// resumes compares it with what its checkpoint was trained on.
#pragma once
#include "runtime/data/DataSource.h"

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace cleave {

struct DataState {
  /// Of a split that is read.
  struct Part {
    int64_t samples = 0;
    std::string fingerprint;                 ///< Dataset::fingerprint; empty: not known
    std::map<std::string, std::string> some; ///< by field: a checksum of some samples
  };
  std::string fields; ///< names, types and shapes
  std::optional<Part> train, eval;

  static DataState of(const DataSource &data, uint64_t seed, DataNeeds needs);
  /// Names and values for messages: all that ranks must have in common.
  std::vector<std::pair<std::string, std::string>> values() const;

  /// What a checkpoint keeps, as a JSON object: of some samples only what is needed where there is no fingerprint.
  std::string json() const;
  /// Throws environmentError if the text is not such an object. Nothing is known of an empty one.
  static DataState parse(const std::string &json);
  /// How a split differs from the one that is `known`, with both values; empty if it does not, or if that is not known.
  /// Fingerprints are compared if there are both, else fields and some samples.
  std::string difference(const DataState &known, Split split) const;
};

} // namespace cleave
