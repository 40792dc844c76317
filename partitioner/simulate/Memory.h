// What a rank's memory holds, and whether it fits its device.
#pragma once
#include "partitioner/cluster/Cluster.h"
#include "runtime/plan/PlanTypes.h"

#include <cstdint>
#include <optional>
#include <string>

namespace cleave::partitioner {

/// Bytes of one rank of a program. All but `scores` are exactly what the runtime allocates; their sum is
/// Program.peak_bytes.
struct MemoryParts {
  uint64_t parameters = 0; ///< and their copies in half types
  uint64_t gradients = 0;
  uint64_t states = 0;      ///< of the optimizer
  uint64_t others = 0;      ///< buffers, scalars, metrics
  uint64_t activations = 0; ///< everything that lives for a part of the iteration, as the arena places it
  uint64_t inputs = 0;      ///< both input buffers
  uint64_t workspace = 0;   ///< of library steps
  uint64_t scores = 0;      ///< of attention, on devices where it is not fused: keptScoreBytes
  uint64_t all() const { return parameters + gradients + states + others + activations + inputs + workspace + scores; }
};
MemoryParts memoryParts(const plan::Plan &plan, const plan::Program &program, const DeviceKind &kind);

/// The most bytes that attention keeps of its scores at one time of an iteration on devices where it is not fused: each
/// from its forward step to the backward step of the same microbatch, or for the forward step alone where a recomputed
/// one takes its place.
uint64_t keptScoreBytes(const plan::Program &program, const DeviceKind &kind);

/// What a rank of the program needs on such a device: Program.peak_bytes and the most that its scores take, as if both
/// peaks were at the same time. They nearly are: both follow the microbatches in flight.
uint64_t neededBytes(const plan::Program &program, const DeviceKind &kind);

/// Bytes of the arena that a slot takes: every slot begins at a multiple of 64.
uint64_t arenaBytes(const plan::Slot &slot);

/// Bytes of a device that no plan can have: the driver's context, code of libraries, communicators' buffers.
uint64_t reservedBytes(const DeviceKind &kind);

/// None if every rank fits its device. Otherwise the rank that lacks most: what it needs and has, in GiB, what it
/// holds, and what would lower it. `plan` has passed the checks of its structure; throws as Cluster::places does.
std::optional<std::string> memoryProblem(const plan::Plan &plan, const Cluster &cluster);

} // namespace cleave::partitioner
