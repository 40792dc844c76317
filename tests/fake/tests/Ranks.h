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

/// A rank: its device (number `rank`), a stream and the communicator. The destructor does not wait if `abort` is set.
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
  std::string failed; ///< the first failed expectation; empty: none
  void expect(bool good, const std::string &what) {
    if (!good && failed.empty())
      failed = what;
  }
};

std::string newId();
ncclUniqueId idOf(const std::string &text);

/// Runs `body` for every rank, one thread each, and checks that no expectation failed.
void runThreads(int ranks, const std::function<void(Rank &)> &body);

/// Tests every operation of a communicator; for ranks as threads or as processes.
void exercise(Rank &rank);

} // namespace cleave::fake
