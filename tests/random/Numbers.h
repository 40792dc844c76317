// The numbers of a case: data and initial values by hash, the interpreter's results on the unsplit graph with several
// roundings, and how much rounding alone can change each of them.
#pragma once
#include "ir/GraphModule.h"
#include "ir/interpreter/Distributed.h"
#include "runtime/data/DataSource.h"
#include "tests/random/Recipe.h"

#include <optional>

namespace cleave::random_models {

/// What the model trains on: values that depend on seed, field, sample and element alone.
class HashedData final : public DataSource {
public:
  explicit HashedData(const Recipe &recipe);
  const std::vector<DataField> &fields() const override { return list; }
  int64_t samples(Split split) const override { return split == Split::Train ? 2 * batch + 1 : batch; }
  void read(Split split, int64_t index, size_t field, std::byte *dst) const override;
  double value(Split split, int64_t index, size_t field, int64_t element) const;

private:
  std::vector<DataField> list;
  size_t inputs; ///< fields that the model is given
  uint64_t seed;
  int64_t batch;
  bool wholeNumbers;
};

/// An argument or result of a function of the step.
struct NamedSlot {
  std::string kind, name;
  ir::HostTensor type;
  std::string distribution; ///< of its beginning; empty: none
  double a = 0, b = 0;
};
std::vector<NamedSlot> argumentsOf(mlir::Operation *function);
std::vector<NamedSlot> resultsOf(mlir::Operation *function);

constexpr int64_t trainingSteps = 2;
constexpr uint64_t runSeed = 3;

/// What is there after a training step: parameters, buffers, states, gradients, metrics.
using Steps = std::vector<ir::Slots>;

/// The undivided step and what it is run on.
class Whole {
public:
  Whole(const Recipe &recipe, GraphModule step, const HashedData &data);

  /// Parameters, buffers and states as they begin.
  ir::Slots beginning() const;
  /// Adds the inputs of every microbatch, and the scalars, of a training step to slots.
  void addStep(ir::Slots &slots, int64_t step) const;
  /// Adds the inputs of every microbatch of the evaluation.
  void addEvaluation(ir::Slots &slots) const;
  /// Both training steps, and an evaluation after the last (kind "eval"), under the rounding in force.
  Steps run() const;
  /// Data in the order of the first epoch.
  const std::vector<uint32_t> &order() const { return rows; }
  const GraphModule &graph() const { return step; }
  /// The type in which gradients are added up.
  DType sums() const;

private:
  double begin(const NamedSlot &slot, int64_t element) const;
  template <class F> void addInputs(ir::Slots &slots, mlir::Operation *function, F sampleOf) const;
  void evaluate(ir::Slots &slots, ir::Slots &sums) const;

  const Recipe &recipe;
  GraphModule step;
  const HashedData &data;
  std::vector<uint32_t> rows;
};

/// Exact results, and for each element how far results under noise lie from it.
struct Reference {
  Steps exact;
  Steps spread; ///< NaN or infinite where noise knows no bound
  double largest = 0; ///< magnitude of anything computed on the way: beside it, what is 1 / 2^digits of it is lost
  /// Adds `samples` more runs under noise of a few units of the types (or of a double).
  void widen(const Whole &whole, int samples, bool ofDouble, uint64_t seed);
};
Reference referenceOf(const Whole &whole, bool ofDouble, int samples);

/// Whether results do not depend on the order of additions: 20 to 23 bits are as good as 53. By training step, from the first.
std::vector<bool> exactSteps(const Whole &whole, const Steps &exact);

/// The first difference beyond the bound, empty: none. `equal`: bit for bit.
std::string difference(const ir::SlotKey &key, const ir::HostTensor &expected, const ir::HostTensor *spread,
                       const std::vector<int64_t> &indices, const std::vector<double> &values, bool equal);

/// The interpreter's gradients against central differences of the loss in double, within the bounds of rounding that the
/// reference knows. Empty: they agree.
std::string compareWithDifferences(const Recipe &recipe, const GraphModule &traced, const Whole &whole,
                                   const Reference &reference);

} // namespace cleave::random_models
