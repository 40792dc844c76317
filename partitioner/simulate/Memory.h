// The memory of a rank, by use, and whether it fits the device.
#pragma once
#include "partitioner/cluster/Cluster.h"
#include "runtime/base/Target.h"
#include "runtime/plan/PlanTypes.h"

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

namespace cleave::partitioner {

/// Bytes of one rank of a program. All but `scores` are exactly what the runtime allocates; their sum is
/// Program.peak_bytes.
struct MemoryParts {
  uint64_t parameters = 0;  ///< and their copies for several microbatches: in half types, gathered, in another layout
  uint64_t gradients = 0;   ///< summed over microbatches
  uint64_t states = 0;      ///< of the optimizer
  uint64_t others = 0;      ///< buffers, scalars, metrics
  uint64_t activations = 0; ///< everything kept for a part of the iteration, as placed in the arena
  uint64_t inputs = 0;      ///< both input buffers
  uint64_t workspace = 0;   ///< of library steps
  uint64_t scores = 0;      ///< of attention, on devices where it is not fused: keptScoreBytes
  uint64_t all() const { return parameters + gradients + states + others + activations + inputs + workspace + scores; }
};
MemoryParts memoryParts(const plan::Plan &plan, const plan::Program &program, const DeviceKind &kind);

/// The most bytes of attention scores kept at one time of an iteration, on devices where attention is not fused. Scores
/// are kept from the forward step to the backward step of the same microbatch, or during the forward step only if
/// another forward step recomputes them.
uint64_t keptScoreBytes(const plan::Program &program, const DeviceKind &kind);

/// Bytes that a rank of the program needs on a device of this kind: Program.peak_bytes plus keptScoreBytes, as if both
/// peaks were at the same time. They nearly are, because both grow with the number of microbatches in flight.
uint64_t neededBytes(const plan::Program &program, const DeviceKind &kind);

/// Bytes of the arena that a slot takes: every slot begins at a multiple of 64.
uint64_t arenaBytes(const plan::Slot &slot);

/// Bytes of a device that no plan can use: the driver's context, code of libraries, communicators' buffers.
uint64_t reservedBytes(const DeviceKind &kind);
/// What is left of its memory for a plan; 0 if it has less than is reserved.
double usableBytes(const DeviceKind &kind);

/// Two amounts of memory as text, "0.35 GiB" and "0.31 GiB", with as many digits as show that they differ.
std::pair<std::string, std::string> gibibytes(double one, double other);

/// The rank that exceeds the memory of its device most, or comes closest to it. Bytes; `capacity` is what a plan may
/// use.
struct MemoryUse {
  uint32_t rank = 0;
  uint64_t needed = 0, capacity = 0;
};
/// `plan` has passed the checks of its structure and has ranks; throws as Cluster::places does.
MemoryUse tightest(const plan::Plan &plan, const Cluster &cluster);

struct MemoryLack {
  std::string what;   ///< "rank 0 needs 24.15 GiB of memory (...), its device v100-16g has 15.00 GiB for it"
  std::string advice; ///< "more microbatches or ranks per layer (tp) would lower it"
};

/// Nothing if every rank fits its device. Otherwise a description of the rank that exceeds its device most: bytes
/// needed and available in GiB, their uses, and options that would need less. `plan` has passed the checks of its
/// structure; throws as Cluster::places does.
std::optional<MemoryLack> memoryLack(const plan::Plan &plan, const Cluster &cluster);

/// The same as one message.
std::optional<std::string> memoryProblem(const plan::Plan &plan, const Cluster &cluster);

/// A device of the machine that is to run a plan, where no cluster describes it.
struct DeviceHere {
  std::string name; ///< for messages: "this machine", "NVIDIA H200"
  Target::Kind kind = Target::Kind::Cpu;
  double bytes = 0;  ///< of its memory
  int64_t ranks = 1; ///< of the plan that share it
  double bytesOfRank() const { return bytes / static_cast<double>(ranks); }
};
/// As above. Ranks that share a device may need more than its `bytesOfRank` if others need less.
std::optional<MemoryLack> memoryLack(const plan::Plan &plan, const DeviceHere &device);

} // namespace cleave::partitioner
