// What a rank on a GPU says to the others: NCCL communicators, one for each group and for each pair of ranks and
// direction, and the waiting for work in which other ranks take part. The World carries what is said at set-up, and who
// has failed.
//
// Messages of a direction are received in the order in which they are sent (the checker sees to that), each direction
// in a stream of its own, so that a rank which sends and receives never waits for itself.
#pragma once
#include "runtime/comm/Communicator.h"
#include "runtime/cuda/kernels/OwnKernels.h"
#include "runtime/device/Device.h"

#include <memory>
#include <string>
#include <vector>

namespace cleave::cuda {

class Communication {
public:
  /// All ranks make theirs at the same time. With one rank no library is opened. Environment error where NCCL is
  /// missing or does not start; where it has not started after `seconds`, the process ends with that status, as the
  /// calls that wait cannot be interrupted.
  Communication(const plan::Plan &plan, const plan::Rank &rank, World &world,
                const std::vector<std::vector<uint32_t>> &groups, double seconds);
  /// While an exception unwinds, other ranks are not waited for.
  ~Communication();

  /// For steps of kind Collective, Send and Recv; null for others.
  std::unique_ptr<Op> make(const plan::Step &step, SlotScope &scope, const Queue &queue, OwnKernels &kernels);
  /// After the last make(): scratch memory, and the arena's registration, by which NCCL copies without staging.
  void registerMemory(std::byte *arena, size_t bytes);

  /// Waits until what was recorded has run. After `seconds`, or when another rank or NCCL has failed, throws an
  /// environment error that names rank, collective and module as far as they are known.
  void wait(const Event &event, const char *what, double seconds);
  /// After a failure, and with no captured iteration left: ends all communicators here, so that what waits on the
  /// device for other ranks goes on.
  void abandon() noexcept;
  /// Throws that error where something has failed; costs little.
  void lookForFailure();

private:
  struct Impl;
  std::unique_ptr<Impl> impl;
};

} // namespace cleave::cuda
