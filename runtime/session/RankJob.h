// One rank of a training or evaluation job: its executor, its loader, and where it stands in the data.
#pragma once
#include "runtime/data/Loader.h"
#include "runtime/executor/Executor.h"

#include <limits>
#include <memory>
#include <optional>

namespace cleave {

/// Sums over an iteration or a split, as the loss reports them.
struct LossSums {
  double loss = 0, weight = 0, correct = 0;
  double lossScale = std::numeric_limits<double>::quiet_NaN(), skippedSteps = 0; ///< NaN: the loss is not scaled
  double meanLoss() const { return loss / weight; }
  double accuracy() const { return correct / weight; } ///< NaN where the loss counts nothing correct (mseLoss)
};

/// Where training stands in its data. Training drops the last partial batch of an epoch.
struct DataPosition {
  int64_t epoch = 1;  ///< from 1
  int64_t sample = 0; ///< of the epoch's order: where the next batch begins

  /// Moves to the next epoch when no whole batch is left in this one.
  void settle(int64_t samples, int64_t batch) {
    if (sample + batch > samples)
      ++epoch, sample = 0;
  }
  bool operator==(const DataPosition &) const = default;
};

class RankJob {
public:
  /// `source` and `order` are shared by the ranks of this process.
  RankJob(std::shared_ptr<const PlanFile> plan, unsigned rank, World &world, const DataSource &source,
          SampleOrder &order, const ExecutorOptions &options);

  /// Starts step `step` on the batch at `position`. `next`: the batch after it, prepared meanwhile. Gives the
  /// iteration's number (Executor::started).
  uint64_t train(int64_t step, float lr, const DataPosition &position, const std::optional<DataPosition> &next);
  /// The sums of an iteration, on rank 0; other ranks take part and get what they have. Waits for the iteration.
  LossSums metrics(uint64_t iteration);
  /// Whether metrics() of rank 0 needs other ranks, who must then ask for the same iterations.
  bool metricsTravel() const { return travel; }
  /// Runs the whole evaluation split; sums on rank 0.
  LossSums evaluate();

  Executor &executor() { return runner; }

private:
  void prepare(const BatchRef &batch, int buffer);
  LossSums localSums(uint64_t iteration);
  LossSums collect(LossSums mine);

  std::shared_ptr<const PlanFile> file;
  const DataSource &source;
  int64_t batch;
  Executor runner;
  Communicator *toRankZero = nullptr; ///< {owner of the metrics, rank 0}; null on other ranks and when they are one
  bool owner = false, travel = false;
  Loader loader; ///< last: stops before the buffers it fills go
  int buffer = 0;
  std::optional<DataPosition> prepared;
};

/// Whether any rank of the plan can evaluate.
bool canEvaluate(const plan::Plan &plan);

} // namespace cleave
