// Ranks of a communicator, as threads or as processes.
#pragma once
#include "tests/fake/nccl/Fake.h"
#include "tests/fake/tests/Support.h"

#include <functional>
#include <nccl.h>
#include <string>

namespace cleave::fake {

#define CHECK_NCCL(call) CHECK((call) == ncclSuccess)
#define REQUIRE_NCCL(call) REQUIRE((call) == ncclSuccess)

/// What a rank has: its device (number `rank`), a stream and the communicator. Destroyed without waiting if `abort`.
struct Rank {
  Rank(const std::string &id, int ranks, int rank);
  ~Rank();
  ncclResult_t asyncError() const;
  cudaStream_t onStream() const { return reinterpret_cast<cudaStream_t>(stream); }
  void wait() const;
  int ranks, rank;
  CUcontext context = nullptr;
  CUstream stream = nullptr;
  ncclComm_t comm = nullptr;
  std::string failed; ///< the first wrong thing, empty: none
  void expect(bool good, const std::string &what) {
    if (!good && failed.empty())
      failed = what;
  }
};

std::string newId();
ncclUniqueId idOf(const std::string &text);

/// Runs `body` for every rank, one thread each. What the ranks expected is checked in the end.
void runThreads(int ranks, const std::function<void(Rank &)> &body);

/// Everything a communicator does, for ranks of any kind.
void exercise(Rank &rank);

} // namespace cleave::fake
