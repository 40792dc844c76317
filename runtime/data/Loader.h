// Fills a rank's input buffer with its rows of a batch on a helper thread, while the executor uses the other buffer.
// One per rank; ranks without inputs start no thread. Nothing is allocated after the first batches.
#pragma once
#include "runtime/data/DataSource.h"
#include "runtime/data/Shuffle.h"
#include "runtime/plan/Inputs.h"

#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>

namespace cleave {

/// A batch of a split: samples [first, first + count) in the epoch's order (training) or in the split's order
/// (evaluation). If a batch has fewer samples than rows, it repeats them: row r is sample first + r mod count.
struct BatchRef {
  Split split = Split::Train;
  int64_t epoch = 1;
  int64_t first = 0, count = 0;
};

class Loader {
public:
  /// `source` and `order` must outlive the loader. Throws userError if the data set lacks a field of the plan's inputs
  /// or has another shape for it. wait() throws if a label is not below its field's number of classes in the plan or
  /// the data set. Negative labels are allowed: losses ignore them.
  Loader(const plan::Plan &plan, unsigned rank, const DataSource &source, SampleOrder &order);
  ~Loader();
  Loader(const Loader &) = delete;

  /// Starts filling `buffer`; at most one batch at a time.
  void start(const BatchRef &batch, std::byte *buffer);
  /// Waits for the current batch; rethrows errors from reading it.
  void wait();

private:
  /// An input part with its field of the data set.
  struct Bound {
    InputPart part;
    size_t field;
    int64_t classes; ///< labels must be below this; 0: no labels
  };
  static std::vector<Bound> bind(const plan::Plan &plan, unsigned rank, bool eval, const DataSource &source);
  void work();
  void fill(const BatchRef &batch, std::byte *buffer);
  void checkLabels(Split split, int64_t index, const Bound &bound, const std::byte *labels) const;
  void fillBox(const BatchRef &batch, const Bound &bound, const Box &box, const std::vector<uint32_t> *order,
               std::byte *buffer);

  const DataSource &source;
  SampleOrder &order;
  std::vector<Bound> train, eval;
  std::vector<std::byte> sample; ///< scratch for one sample of the largest field

  std::mutex mutex;
  std::condition_variable changed;
  bool busy = false, stop = false;
  BatchRef job;
  std::byte *target = nullptr;
  std::exception_ptr failure;
  std::thread helper;
};

} // namespace cleave
