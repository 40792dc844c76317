// Communicators and what is put into streams for them.
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
  int peer; ///< or root
};

/// Outlives its handle: work in streams and graphs holds it.
struct Communicator {
  std::string name;
  uint32_t ranks = 1, rank = 0;
  int device = 0;
  CUcontext context = nullptr;
  std::unique_ptr<Shared> shared;
  std::thread starter; ///< of a communicator that is not blocking
  std::atomic<bool> aborted{false}, closed{false}, finalized{false};
  std::atomic<ncclResult_t> error{ncclSuccess};
  std::atomic<int> pending{0};  ///< pieces of work in streams
  std::atomic<int> captured{0}; ///< and in graphs
  std::mutex running;           ///< one at a time
  std::mutex textLock;
  std::string text;
  uint32_t splits = 0;
  // The stream used last, so that work in another comes after it.
  CUstream stream = nullptr;
  CUevent event = nullptr;
  unsigned long long capture = 0;
  bool used = false;

  RankPart &mine() const { return shared->part(rank); }
  /// Waits for the others; false when aborted. Sees when one of them is gone.
  bool wait(const std::function<bool()> &done);
  /// All ranks have come here.
  bool barrier();
  bool hostBarrier();
  /// Never returns true: an operation that does not end.
  bool hang(const char *why);
  void fail(ncclResult_t result, const std::string &why);
  void checkPeers();
  ncclResult_t attach();
};

/// Says why, for ncclGetLastError, and returns the result.
ncclResult_t refuse(ncclResult_t result, const std::string &why);
const std::string &lastRefusal();

/// Elements: bytes of one, and out = out combined with in.
size_t elementBytes(ncclDataType_t type);
void combine(void *out, const void *in, size_t count, ncclDataType_t type, ncclRedOp_t reduce);
void divide(void *out, size_t count, ncclDataType_t type, uint32_t by);

/// Runs one collective in a stream; false when it was aborted.
bool runCollective(Communicator &c, const CommOperation &op);
/// Runs sends and receives, which wait for one another.
bool runPointToPoint(Communicator &c, const std::vector<CommOperation> &ops);

/// Puts an operation into a stream, at the end of the group if there is one.
ncclResult_t enqueue(ncclComm_t comm, CommOperation op, cudaStream_t stream);
bool inGroup();
/// Runs when the group ends, beside the group's other jobs.
void addJob(std::function<ncclResult_t()> job);

/// CLEAVE_FAKE_NCCL. What shall happen to this execution of an operation.
struct Fate {
  bool hang = false;
  ncclResult_t error = ncclSuccess;
};
Fate fateOf(Kind kind);
bool memberOrder();
/// What a call shall return at once, or success.
ncclResult_t countCall(const char *function);

} // namespace cleave::fake

struct ncclComm {
  std::shared_ptr<cleave::fake::Communicator> c;
};
