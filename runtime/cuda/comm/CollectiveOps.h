// Collectives and messages as NCCL Ops.
#pragma once
#include "runtime/cuda/comm/Nccl.h"
#include "runtime/cuda/kernels/OwnKernels.h"
#include "runtime/device/Device.h"

#include <memory>
#include <string>
#include <vector>

namespace cleave::plan {
struct Collective;
}

namespace cleave::cuda {

/// An NCCL communicator and its ranks, in member order.
class NcclGroup {
public:
  /// Collective: all members pass the same id at the same time.
  NcclGroup(const ncclUniqueId &id, std::vector<uint32_t> ranks, unsigned member);
  NcclGroup(const NcclGroup &) = delete;
  ~NcclGroup();
  ncclComm_t get() const { return comm; }
  unsigned size() const { return static_cast<unsigned>(ranks.size()); }
  unsigned member() const { return me; }
  void registerMemory(void *memory, size_t bytes);
  /// Errors that NCCL has reported asynchronously since the last call, "" if none.
  std::string problem() const;
  /// Ends all operations of this communicator on this rank.
  void abort() noexcept;

private:
  std::vector<uint32_t> ranks;
  unsigned me;
  ncclComm_t comm = nullptr;
  void *registration = nullptr;
};

/// Scratch memory for packing and unpacking around a collective; used by one at a time.
struct CommunicationScratch {
  size_t bytes = 0;
  std::byte *memory = nullptr;
};

/// Where an operation stores its number when it starts, so that the host can tell which operation never ended.
struct Mark {
  std::byte *at;               ///< pinned
  const DeviceMemory *numbers; ///< on the device: 0, 1, 2, ... as u32, written before the first run
  uint32_t number;
  std::string name; ///< for error messages
  void enqueue(CUstream stream) const;
};

/// `group`: null if the rank is its only member; the collective is then a copy.
std::unique_ptr<Op> makeCollectiveOp(const plan::Collective &collective, SlotScope &scope, NcclGroup *group,
                                     const Queue &queue, OwnKernels &kernels, CommunicationScratch &scratch, Mark mark);
/// A Send or a Recv; `group`: {sender, receiver}.
std::unique_ptr<Op> makeMessageOp(const plan::Step &step, SlotScope &scope, NcclGroup &group, const Queue &queue,
                                  Mark mark);

} // namespace cleave::cuda
