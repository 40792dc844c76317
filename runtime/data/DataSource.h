// Data sets by name: the plan's description of its data, and opening the built-in data set.
#pragma once
#include "cleave/Dataset.h"
#include "cleave/Transforms.h"
#include "runtime/plan/PlanTypes.h"

#include <map>
#include <memory>

namespace cleave {

/// The runtime's name for the class that users derive from.
using DataSource = Dataset;

/// A split's samples are numbered by 32 bits (Shuffle.h).
constexpr int64_t mostSamples = (int64_t(1) << 32) - 1;

/// "training" or "evaluation".
const char *splitName(Split split);
/// "training sample 17".
std::string sampleName(const SampleId &sample);

/// Dataset::read with the sample's random numbers.
void readSample(const DataSource &source, const SampleId &sample, uint64_t seed, std::span<std::byte *const> to);
/// The same for one field.
void readField(const DataSource &source, const SampleId &sample, uint64_t seed, size_t field, std::byte *to);

/// Which values a function of the model may read as indices (plan.fbs): of each sample, the elements of a field from
/// `start`, `size` of them in each dimension, have values in [least, below), or `ignored`.
struct IndexRule {
  std::string reader; ///< the function and its place, for messages
  std::vector<int64_t> start, size;
  int64_t least, below, ignored;
};

/// A plan's description of its data (Plan.data): the kind and the fields that the model expects.
struct DataSpec {
  plan::DataKind kind;
  std::vector<DataField> fields;
  int64_t context = 0;                                        ///< text: characters per window
  int64_t vocab = 0;                                          ///< text: character codes lie in [0, vocab)
  Transforms train = {}, eval = {};                           ///< pictures: what is done to those of each split
  std::vector<std::string> classNames = {};                   ///< pictures: by label; empty: not known
  std::map<std::string, std::vector<IndexRule>> indices = {}; ///< by field

  /// The field of this name; null if there is none.
  const DataField *find(const std::string &name) const;
  /// Number of classes of the field; 0 if it holds no labels.
  int64_t classes(const std::string &name) const;

  static DataSpec of(const plan::DataT &data);
  /// The description in a plan; without one, a custom data set without fields.
  static DataSpec of(const plan::Plan &plan);
};

/// Number of samples of a synthetic data set.
struct SyntheticSize {
  int64_t train = 1024, eval = 256;
};

/// The parts of a data set that a job reads. Files that are not needed may be missing, and splits that are not needed
/// may be empty.
struct DataNeeds {
  bool train = true, eval = true; ///< splits
  bool labels = true;             ///< the loss's target
  bool fastDecode = false;        ///< pictures of training: DecodeMode::Fast
  bool skipBadFiles = false;      ///< pictures: another sample takes the place of one whose file is damaged
};

/// Opens the data set that a plan expects. `where`: a folder or file, or "synthetic". Throws userError that names the
/// file and the violated rule. A plan with a user-defined ("custom") data set can only use synthetic data here.
std::unique_ptr<DataSource> openData(const DataSpec &spec, const std::string &where, uint64_t seed,
                                     SyntheticSize size = {}, DataNeeds needs = {});

/// The files that a data set of this kind has at `where`, readable or not. A program's own data set names none.
std::vector<std::string> dataFiles(plan::DataKind kind, const std::string &where);

/// The index in `source` of the field for a model input; type and number of elements must match. Throws userError that
/// names both shapes.
/// The element type in plans of a field, and the reverse: f32 for any float.
plan::DType planned(FieldType type);
FieldType fieldTypeOf(plan::DType type);

size_t findField(const DataSource &source, const std::string &name, FieldType dtype, const std::vector<int64_t> &shape);

} // namespace cleave
