// Data sets by name: what a plan says of its data, and opening the built-in set that it means.
#pragma once
#include "cleave/Dataset.h"

#include <memory>

namespace cleave {

/// The runtime's word for what users derive from.
using DataSource = Dataset;

/// What a plan says about its data (Plan.data, a JSON object): the kind and the fields that the model expects.
struct DataSpec {
  std::string kind; ///< "mnist", "text", "custom"
  std::vector<DataField> fields;
  int64_t context = 0; ///< text: characters of a window
  int64_t vocab = 0;   ///< text: character codes lie in [0, vocab)

  /// Of the field of this name; 0: it holds no labels.
  int64_t classes(const std::string &name) const;

  /// Throws environmentError naming the rule when the text is not such an object.
  static DataSpec parse(const std::string &json);
};

/// How many samples a synthetic data set has.
struct SyntheticSize {
  int64_t train = 1024, eval = 256;
};

/// What a job reads of a data set: files that hold nothing of it may be missing, and a split that is not needed may be
/// empty.
struct DataNeeds {
  bool train = true, eval = true; ///< splits
  bool labels = true;             ///< the field that the loss compares with
};

/// Opens the data set a plan expects. `where`: a folder or file, or "synthetic". Throws userError naming the file and
/// the rule that is broken; a plan with its own ("custom") data set can be run here on synthetic data only.
std::unique_ptr<DataSource> openData(const DataSpec &spec, const std::string &where, uint64_t seed,
                                     SyntheticSize size = {}, DataNeeds needs = {});

/// Index in `source` of the field a model's input needs, with the same type and number of elements. Throws userError
/// naming both shapes.
size_t findField(const DataSource &source, const std::string &name, FieldType dtype, const std::vector<int64_t> &shape);

} // namespace cleave
