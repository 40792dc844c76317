// Fills a rank's input buffer with its rows of a batch on worker threads, while the executor uses the other buffer.
// One per rank; ranks without inputs start no thread. Nothing is allocated after the first batches. A sample is read
// once, with all fields that the rank needs. What is read does not depend on the number of workers.
#pragma once
#include "runtime/data/DataFunction.h"
#include "runtime/data/Shuffle.h"
#include "runtime/data/ValueCheck.h"
#include "runtime/plan/Inputs.h"

#include <atomic>
#include <condition_variable>
#include <deque>
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

/// The checksum of one field of a row of the batch, as this rank read it.
struct RowChecksum {
  int64_t row;
  size_t field; ///< of the data set
  int64_t sum;
};

class Loader {
public:
  /// `source` and `order` must outlive the loader. Throws userError if the data set lacks a field of the plan's inputs
  /// or has another shape for it. wait() throws if a value is none that its field declares, in the plan or the data
  /// set, or none that the model may read as an index (ValueCheck.h).
  Loader(const plan::Plan &plan, unsigned rank, const DataSource &source, SampleOrder &order, unsigned workers = 1);
  ~Loader();
  Loader(const Loader &) = delete;

  /// Starts filling `buffer`; at most one batch at a time. `sums`: receives the checksums of what is read, by row then
  /// field; null: none are computed.
  void start(const BatchRef &batch, std::byte *buffer, std::vector<RowChecksum> *sums = nullptr);
  /// Waits for the current batch; rethrows the error of the first row that could not be read.
  void wait();

private:
  /// An input part with its field of the data set.
  struct Bound {
    InputPart part;
    size_t field;
    ValueCheck check;
  };
  /// A box of a part, and where it lies in the input buffer.
  struct Place {
    const Bound *bound;
    const Box *box;
    int64_t first;             ///< row of the batch
    uint64_t offset, rowBytes; ///< of that row
    bool whole;                ///< a row is the field of the sample as it is read
  };
  /// Rows [first, end) of the batch and all their places, by field. A row is one sample.
  struct Rows {
    int64_t first, end;
    std::vector<Place> places;
  };
  /// What an iteration reads.
  struct Reads {
    std::vector<Bound> bound;
    std::vector<Rows> rows; ///< in order
  };
  static std::vector<Bound> bind(const plan::Plan &plan, unsigned rank, bool eval, const DataSource &source);
  Reads readsOf(const plan::Plan &plan, unsigned rank, bool eval);
  /// What a worker keeps.
  struct Worker {
    std::vector<std::vector<std::byte>> scratch; ///< per field: a sample, if only parts of it are in the buffer
    std::vector<std::byte *> wanted;             ///< per field: where the current sample is read to
    std::vector<RowChecksum> sums;
    int64_t jobs = 0; ///< done
  };
  void work(Worker &worker);
  void end();
  /// Reads rows of the current batch that no other worker reads, until there are none or one fails.
  void fill(Worker &worker);
  void fillRow(const SampleId &sample, int64_t row, const std::vector<Place> &places, Worker &worker);

  const DataSource &source;
  SampleOrder &order;
  uint64_t seed;
  std::vector<bool> partial; ///< per field: only parts of it are in the buffer
  Reads train, eval;
  std::deque<Worker> workers;

  std::mutex mutex;
  std::condition_variable changed;
  bool stop = false;
  int64_t jobs = 0;   ///< started
  size_t working = 0; ///< workers that have not ended the last one
  BatchRef job;
  std::byte *target = nullptr;
  std::vector<RowChecksum> *sums = nullptr;
  std::atomic<int64_t> nextRow = 0; ///< of those that the rank reads
  int64_t failedRow = 0;
  std::exception_ptr failure; ///< of `failedRow`
  std::vector<std::thread> helpers;
};

} // namespace cleave
