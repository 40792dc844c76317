// Collectives and messages as Ops of NCCL.
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

/// A communicator of NCCL and the ranks in it, in member order.
class NcclGroup {
public:
  /// All members make theirs with the same id at the same time.
  NcclGroup(const ncclUniqueId &id, std::vector<uint32_t> ranks, unsigned member);
  NcclGroup(const NcclGroup &) = delete;
  ~NcclGroup();
  ncclComm_t get() const { return comm; }
  unsigned size() const { return static_cast<unsigned>(ranks.size()); }
  unsigned member() const { return me; }
  void registerMemory(void *memory, size_t bytes);
  /// What NCCL found wrong since the last call, "" where nothing is.
  std::string problem() const;
  /// Ends what is under way, here.
  void abort() noexcept;

private:
  std::vector<uint32_t> ranks;
  unsigned me;
  ncclComm_t comm = nullptr;
  void *registration = nullptr;
};

/// Memory for what must be packed or unpacked around a collective; one at a time uses it.
struct CommunicationScratch {
  size_t bytes = 0;
  std::byte *memory = nullptr;
};

/// Where an operation writes its number when it begins, so that the host can say which one never ended.
struct Mark {
  std::byte *at;               ///< pinned
  const DeviceMemory *numbers; ///< on the device: 0, 1, 2, ... as u32, filled before the first run
  uint32_t number;
  std::string name; ///< what errors call it
  void enqueue(CUstream stream) const;
};

/// `group`: null where the rank is alone in it, and the collective a copy.
std::unique_ptr<Op> makeCollectiveOp(const plan::Collective &collective, SlotScope &scope, NcclGroup *group,
                                     const Queue &queue, OwnKernels &kernels, CommunicationScratch &scratch, Mark mark);
/// A Send or a Recv; `group`: {sender, receiver}.
std::unique_ptr<Op> makeMessageOp(const plan::Step &step, SlotScope &scope, NcclGroup &group, const Queue &queue,
                                  Mark mark);

} // namespace cleave::cuda
