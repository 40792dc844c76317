// The numbers of a case: data by hash or by a sample's generator, initial values by hash, the interpreter's results on
// the unsplit graph under several roundings, and how much rounding alone can change each result.
#pragma once
#include "ir/GraphModule.h"
#include "ir/interpreter/Bounds.h"
#include "runtime/data/DataSource.h"
#include "tests/random/Recipe.h"

#include <functional>
#include <optional>

namespace cleave::random_models {

/// The data set of a case. Each value depends only on seed, field, split, sample and element; if the case draws its
/// data, on the sample's generator.
class HashedData final : public DataSource {
public:
  explicit HashedData(const Recipe &recipe);
  const std::vector<DataField> &fields() const override { return list; }
  int64_t samples(Split split) const override { return split == Split::Eval ? evalSamples : (drawn ? 1 : 2) * batch + 1; }
  void read(const SampleId &sample, Random &random, std::span<std::byte *const> to) const override;
  void read(Split split, int64_t index, size_t field, std::byte *dst) const override;
  /// The values of a field, with the generator that a run with runSeed must give to `read`.
  std::vector<double> values(const SampleId &sample, size_t field) const;

  /// Every sample that is read has `value` at an element of a field from now on.
  void replace(size_t field, int64_t element, double value);

private:
  struct Replaced {
    size_t field;
    int64_t element;
    double value;
  };
  double hashed(Split split, int64_t index, size_t field, int64_t element) const;
  std::vector<double> draw(Random random, size_t field) const;
  int bytesEnd() const { return wholeNumbers ? 4 : 256; } ///< bytes are smaller
  void store(const std::vector<double> &values, size_t field, std::byte *to) const;

  std::vector<DataField> list;
  std::vector<int64_t> classes; ///< by field
  std::optional<Replaced> replaced;
  size_t inputs; ///< number of fields that are inputs, not targets
  uint64_t seed;
  int64_t batch, evalSamples;
  bool wholeNumbers, drawn;
};

/// Metrics of an evaluation are kept under "group/name" beside those of training: of the first batch, and of every
/// sample alone.
inline constexpr const char *firstBatch = "first batch", *everySample = "every sample";
ir::SlotKey groupKey(const std::string &group, const std::string &name);
bool ofGroup(const ir::SlotKey &key, const std::string &group);
std::string nameInGroup(const ir::SlotKey &key); ///< without the group

/// An argument or result of a function of the step.
struct NamedSlot {
  ir::SlotKind kind;
  std::string name;
  ir::HostTensor type;
  std::string distribution; ///< of the initial values; empty: none
  double a = 0, b = 0;
  bool trains = false; ///< a parameter
};
std::vector<NamedSlot> argumentsOf(mlir::Operation *function);
std::vector<NamedSlot> resultsOf(mlir::Operation *function);

constexpr int64_t trainingSteps = 2;
constexpr uint64_t runSeed = 3;

/// The random numbers of an evaluation after the last step, and of a prediction's batch of these samples.
ir::Context evaluationContext(const Recipe &recipe);
ir::Context predictionContext(const Recipe &recipe, int64_t first, int64_t count);

/// State after each training step: parameters, buffers, optimizer states, gradients, metrics.
using Steps = std::vector<ir::Slots>;

/// Puts averages of parameters in their place, as evaluations and predictions read them.
void readAverages(ir::Slots &slots);

/// The outputs for `samples` evaluation samples, in batches of recipe.rows(). `ofBatch` computes those
/// of a batch that repeats the `count` samples from `first`. An output has a row for each sample, or is a scalar of
/// each full batch.
ir::Slots predictedOutputs(const Recipe &recipe, int64_t samples,
                           const std::function<ir::Slots(int64_t first, int64_t count)> &ofBatch);

/// The step before partitioning, with its data and initial values.
class Whole {
public:
  /// `prediction`: the step of the model's prediction.
  Whole(const Recipe &recipe, GraphModule step, GraphModule prediction, const HashedData &data);

  /// Initial parameters, buffers and states.
  ir::Slots beginning() const;
  /// Adds the inputs of every microbatch and the scalars of a training step to `slots`.
  void addStep(ir::Slots &slots, int64_t step) const;
  /// Adds the inputs of every microbatch of the evaluation.
  void addEvaluation(ir::Slots &slots) const;
  /// Adds the inputs of a batch of the prediction that repeats the `count` samples from `first`.
  void addPrediction(ir::Slots &slots, int64_t first, int64_t count) const;
  /// Runs both training steps, and after the last an evaluation of the first batch, one of all samples if
  /// evaluation does not combine them, and a prediction, under the current rounding.
  Steps run() const;
  /// Whether the sums of the first batch of evaluation are those of its samples, each evaluated alone; nullopt if
  /// evaluation draws random numbers, or if the sums are not finite. `values`: of parameters and buffers.
  std::optional<bool> addsUp(const ir::Slots &values) const;
  bool drawsInEvaluation() const; ///< random numbers
  bool combinesSamples() const { return mixes; } ///< in evaluation
  /// How many evaluation samples the case predicts, in batches of recipe.rows(). The last batch is often not full, but
  /// where the prediction combines the samples of a batch there are whole batches only, or none.
  int64_t predictedSamples() const { return predicted; }
  const GraphModule &graph() const { return step; }
  /// The type in which gradients are summed.
  DType sums() const;

private:
  double begin(const NamedSlot &slot, int64_t element) const;
  template <class F>
  void addInputs(ir::Slots &slots, mlir::Operation *function, int64_t microbatches, F sampleOf) const;
  /// Runs @eval on rows that repeat the `count` samples from `first`, and adds factor * its sums to `sums` as metrics
  /// of `group`.
  void evaluate(ir::Slots &slots, ir::Slots &sums, const char *group, int64_t microbatches, double factor,
                int64_t first, int64_t count) const;
  void predict(ir::Slots slots, ir::Slots &outputs) const;

  const Recipe &recipe;
  GraphModule step, prediction;
  const HashedData &data;
  int64_t predicted;
  bool mixes;
};

/// For each training step, whether its results are independent of the order of additions: they are the same with 20,
/// 21, 22, 23 and 53 significant bits. After a step that depends on the order, all later steps count as dependent.
std::vector<bool> exactSteps(const Whole &whole, const Steps &exact);

/// Describes the first difference beyond its bound (ir::firstOutside); empty if there is none. `equal`: values must
/// agree bit for bit.
std::string difference(const ir::SlotKey &key, const ir::HostTensor &expected, const ir::HostTensor *spread,
                       const std::vector<int64_t> &indices, const std::vector<double> &values, bool equal);

/// Compares the interpreter's gradients with central differences of the loss in double, within the bounds of rounding.
/// Returns a description of the first mismatch, or empty.
std::string compareWithDifferences(const Recipe &recipe, const GraphModule &traced, const Whole &whole,
                                   const ir::Bounds &bounds);

} // namespace cleave::random_models
