// A compiled prediction that stays loaded: ranks, parameters of a checkpoint and buffers are set up once, then any
// number of samples can be computed. Shared by `PROGRAM predict` and Predictor.
#pragma once
#include "cleave/RunOptions.h"
#include "runtime/data/DataSource.h"
#include "runtime/plan/PlanFile.h"

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace cleave {

/// One of a model's results, f32. It has a row for each sample, or it is a scalar. A scalar belongs to a whole batch:
/// there is one for each full batch, and none for a last batch that is not full, whose rows are not samples alone.
struct PredictedOutput {
  std::string name;           ///< "output", "output.1", ...
  std::vector<int64_t> shape; ///< of one sample, or of the scalar
  bool ofBatch = false;       ///< a scalar of each full batch
  int64_t elements() const;   ///< of `shape`
  /// The number of rows or scalars for `samples` samples.
  int64_t count(int64_t samples, int64_t batch) const { return ofBatch ? samples / batch : samples; }
};

/// If ranks are threads, they exist as long as this object, which any thread may call: calls at the same time wait for
/// each other. If ranks are processes, every process must create one and make the same calls in the same order (so from
/// one thread), and all get the outputs.
class Prediction {
public:
  /// `plan`: of a prediction, with outputs in Program.metrics. Throws userError for a plan without outputs, and if the
  /// checkpoint lacks a tensor that the plan reads. The checkpoint may have others.
  Prediction(std::shared_ptr<const PlanFile> plan, const RunOptions &options);
  ~Prediction();
  Prediction(const Prediction &) = delete;

  const std::vector<PredictedOutput> &outputs() const;
  /// The data set's fields that the model reads.
  const std::vector<DataField> &inputs() const;
  int64_t batch() const;
  const plan::Plan &plan() const;

  /// Receives what one batch adds to output `output`: rows in the order of the samples; batches arrive in order too.
  /// Called by one thread at a time.
  using Take = std::function<void(size_t output, std::span<const float> values)>;
  /// Computes the outputs for samples [first, first + count) of a split. Throws userError if `source` lacks an input or
  /// has another shape for it. Random numbers depend on the plan's seed, on how many calls were made before, and on the
  /// number of the sample (RandomRows.h). Throws userError if the model computes indices that no element has. After any
  /// other error, also of a sample that cannot be read, this object is unusable: further calls throw the same error.
  void run(const DataSource &source, Split split, int64_t first, int64_t count, const Take &take);

private:
  struct Impl;
  std::unique_ptr<Impl> impl;
};

} // namespace cleave
