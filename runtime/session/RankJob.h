// One rank of a training or evaluation job: its executor, its loader, and its position in the data.
#pragma once
#include "runtime/data/Loader.h"
#include "runtime/executor/Executor.h"
#include "runtime/session/SampleAgreement.h"

#include <algorithm>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace cleave {

/// By k: the part of the samples whose label is among the k largest predictions.
using TopAccuracies = std::map<int64_t, double>;

/// Sums over an iteration or a split, as returned by the loss.
struct LossSums {
  struct Term {
    double sum = 0, weight = 0;
    bool empty() const { return sum == 0 && weight == 0; } ///< no element counts
  };
  std::vector<Term> terms; ///< at least one
  /// Other sums, by name: "correct", the rows whose label is the first by its prediction, "correct.5" among the first
  /// five; "invalid.READER", the computed indices that no element has.
  std::map<std::string, double> counts;
  double lossScale = std::numeric_limits<double>::quiet_NaN(), skippedSteps = 0; ///< NaN: no loss scaling

  /// Whether no element of any term counts; the loss is then NaN.
  bool empty() const {
    return std::all_of(terms.begin(), terms.end(), [](const Term &term) { return term.empty(); });
  }
  /// The sum of the terms' means. A term of which no element counts adds nothing.
  double meanLoss() const;
  /// NaN if the loss does not count correct predictions (mseLoss).
  double accuracy() const;
  TopAccuracies topAccuracies() const;
  /// Which computed indices are invalid, as a clause; empty: none are.
  std::string invalidIndices() const;
};

/// The names of the counts that a rank's program reports (LossSums::counts).
std::vector<std::string> countsOf(const plan::Plan &plan, unsigned rank);
/// If this is a count of invalid indices, and not 0, the function that reads them: "embedding at net.cpp:3: must lie in
/// [0, 4)"; otherwise empty.
std::string readerOfInvalid(const std::string &name, double count);

/// The names of the metrics of a term's sum and weight: "loss" and "weight", then "loss.1" and "weight.1", ...
std::pair<std::string, std::string> namesOfTerm(size_t term);

/// The position of training in its data. Training drops the last partial batch of an epoch.
struct DataPosition {
  int64_t epoch = 1;  ///< from 1
  int64_t sample = 0; ///< index in the epoch's order at which the next batch begins

  /// Moves to the next epoch if this one has no full batch left.
  void settle(int64_t samples, int64_t batch) {
    if (sample + batch > samples)
      ++epoch, sample = 0;
  }
  bool operator==(const DataPosition &) const = default;
};

class RankJob {
public:
  /// `source` and `order` are shared by the ranks of this process. `workers`: threads that read data.
  RankJob(std::shared_ptr<const PlanFile> plan, unsigned rank, RankEndpoint &world, const DataSource &source,
          SampleOrder &order, const ExecutorOptions &options, unsigned workers = 1);

  /// Starts step `step` on the batch at `position`. `next`: the following batch, loaded in the meantime. Returns the
  /// iteration's number (Executor::started). In some steps all ranks compare what they read (SampleAgreement.h).
  uint64_t train(int64_t step, float lr, const DataPosition &position, const std::optional<DataPosition> &next);
  /// The sums of an iteration, on rank 0. Other ranks take part and get the values that they hold. Waits for the
  /// iteration.
  LossSums metrics(uint64_t iteration);
  /// Seconds for which steps have waited for data, so far.
  double dataWait() const { return waited; }
  /// Whether metrics() on rank 0 communicates with other ranks, which must then call it for the same iterations.
  bool metricsTravel() const { return travel; }
  /// Evaluates the whole evaluation split; sums on rank 0. `step`: of the training, done so far; random numbers depend
  /// on it, so that an evaluation of the step's checkpoint repeats them.
  LossSums evaluate(int64_t step);

  Executor &executor() { return *rankExecutor; }

private:
  void prepare(const BatchRef &batch, int buffer);
  void prepareStep(int64_t step, const DataPosition &position, int buffer);
  LossSums localSums(uint64_t iteration);
  LossSums collect(LossSums mine);
  LossSums nothing() const; ///< of a rank that does not report

  std::shared_ptr<const PlanFile> file;
  const DataSource &source;
  int64_t batch;
  size_t terms;                    ///< of the loss
  std::vector<std::string> counts; ///< names of LossSums::counts
  std::unique_ptr<Executor> rankExecutor;
  Communicator *toRankZero = nullptr; ///< {owner of the metrics, rank 0}; null on other ranks, and if both are one
  bool owner = false, travel = false;
  SampleAgreement agreement;
  bool sums = false; ///< the loader computes checksums for `prepared`
  std::vector<RowChecksum> checksums;
  Loader loader; ///< declared last: must stop before its buffers are freed
  int buffer = 0;
  double waited = 0;
  std::optional<DataPosition> prepared;
};

/// Whether any rank of the plan can evaluate.
bool canEvaluate(const plan::Plan &plan);
/// Whether the plan has training steps.
bool canTrain(const plan::Plan &plan);
/// Whether evaluations read averages of the parameters.
bool evaluatesAverages(const plan::Plan &plan);

} // namespace cleave
