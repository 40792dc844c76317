// Communicators, and their work in streams.
#pragma once
#pragma GCC visibility push(default)
#include <cuda.h>
#include <nccl.h>
#pragma GCC visibility pop

#include "tests/fake/nccl/Shared.h"

#include <map>
#include <mutex>
#include <thread>
#include <vector>

namespace cleave::fake {

enum class Kind : int32_t { AllReduce, AllGather, ReduceScatter, Broadcast, Reduce, Send, Recv };
const char *nameOf(Kind kind);

struct CommOperation {
  Kind kind;
  const void *in;
  void *out;
  size_t count;
  ncclDataType_t type;
  ncclRedOp_t reduce;
  int peer; ///< peer of a message, or root
};

/// Outlives its handle, because work in streams and graphs refers to it.
struct Communicator {
  std::string name;
  uint32_t ranks = 1, rank = 0;
  int device = 0;
  CUcontext context = nullptr;
  std::unique_ptr<Shared> shared;
  std::thread starter; ///< only of a nonblocking communicator
  std::atomic<bool> aborted{false}, closed{false}, finalized{false};
  std::atomic<ncclResult_t> error{ncclSuccess};
  std::atomic<int> pending{0};  ///< number of batches of operations in streams
  std::atomic<int> captured{0}; ///< number of batches in graphs
  std::mutex running;           ///< held while a batch runs: one at a time
  std::mutex textLock;
  std::string text;
  uint32_t splits = 0;
  // The stream used last. Work in another stream must wait for it.
  CUstream stream = nullptr;
  CUevent event = nullptr;
  unsigned long long capture = 0;
  bool used = false;

  RankPart &mine() const { return shared->part(rank); }
  /// Waits until `done`; returns false after an abort. Detects peers whose process has ended.
  bool wait(const std::function<bool()> &done);
  /// Waits until all ranks have called it; false after an abort.
  bool barrier();
  bool hostBarrier();
  /// An operation that never ends: returns only after an abort, with false.
  bool hang(const char *why);
  void fail(ncclResult_t result, const std::string &why);
  void checkPeers();
  ncclResult_t attach();
};

/// Stores the reason for ncclGetLastError, and returns the result.
ncclResult_t refuse(ncclResult_t result, const std::string &why);
const std::string &lastRefusal();

/// Elements: the size of one in bytes; out = out combined with in; division.
size_t elementBytes(ncclDataType_t type);
void combine(void *out, const void *in, size_t count, ncclDataType_t type, ncclRedOp_t reduce);
void divide(void *out, size_t count, ncclDataType_t type, uint32_t by);

/// Runs one collective in a stream; returns false if it was aborted.
bool runCollective(Communicator &c, const CommOperation &op);
/// Runs sends and receives concurrently, as they may wait for one another.
bool runPointToPoint(Communicator &c, const std::vector<CommOperation> &ops);

/// Puts an operation into a stream, or at the end of the current group.
ncclResult_t enqueue(ncclComm_t comm, CommOperation op, cudaStream_t stream);
bool inGroup();
/// Adds a job that runs when the group ends, concurrently with the group's other jobs.
void addJob(std::function<ncclResult_t()> job);

/// The failure that CLEAVE_FAKE_NCCL prescribes for this execution of an operation.
struct Fate {
  bool hang = false;
  ncclResult_t error = ncclSuccess;
};
Fate fateOf(Kind kind);
bool memberOrder();
/// Counts a call. Returns the result that it must return immediately, or success.
ncclResult_t countCall(const char *function);

} // namespace cleave::fake

struct ncclComm {
  std::shared_ptr<cleave::fake::Communicator> c;
};
