// Communication of a rank on a GPU: an NCCL communicator for each group, and for each pair of ranks and direction, and
// waiting for work that involves other ranks. The RankEndpoint is used for set-up and for failures.
//
// Messages of a direction are received in the order in which they are sent (the checker verifies this). Each direction
// has its own stream, so a rank that sends and receives never deadlocks with itself.
#pragma once
#include "runtime/comm/Communicator.h"
#include "runtime/cuda/kernels/OwnKernels.h"
#include "runtime/device/Device.h"

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace cleave::cuda {

class Communication {
public:
  /// Collective over all ranks. With one rank no library is opened. Throws an environment error if NCCL is missing or
  /// does not start. If it has not started after `seconds`, the process ends with that status, because the blocked
  /// calls cannot be interrupted.
  Communication(const plan::Plan &plan, const plan::Rank &rank, RankEndpoint &world,
                const std::vector<std::vector<uint32_t>> &groups, double seconds);
  /// During stack unwinding this does not wait for other ranks.
  ~Communication();

  /// Creates the Op of a Collective, Send or Recv step; null for other steps.
  std::unique_ptr<Op> make(const plan::Step &step, SlotScope &scope, const Queue &queue, OwnKernels &kernels);
  /// Call after the last make(): allocates scratch memory and registers the arena, so that NCCL copies without staging.
  void registerMemory(std::byte *arena, size_t bytes);

  /// Waits until the recorded work has completed. After `seconds`, or if another rank or NCCL has failed, throws an
  /// environment error that names rank, collective and module as far as known.
  void wait(const Event &event, const char *what, double seconds);
  /// After a failure: aborts all communicators of this rank, which ends device work that waits for other ranks, and
  /// destroys the captured iterations meanwhile. Ends the process with status 3 if that takes more than 10 s.
  void abandon(const std::function<void()> &destroyGraphs) noexcept;
  /// Throws the same error as wait() if a failure is known; cheap.
  void lookForFailure();

private:
  struct Impl;
  std::unique_ptr<Impl> impl;
};

} // namespace cleave::cuda
