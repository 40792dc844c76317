// The distributed interpreter: runs the local functions of a distributed module with one thread per rank, so that
// collectives, messages and schedules are checked with no device. Knows the distribution dialect and meshes, not the
// partitioner: what a rank runs, and when, is given as plain values. No MLIR in this header.
#pragma once
#include "ir/dist/Sharding.h"
#include "ir/interpreter/Interpreter.h"

#include <compare>
#include <map>

namespace cleave::ir {

/// A slot: equal kind and name are the same memory. Of kinds "input" and "stash" there is one per microbatch; of the
/// others `microbatch` is 0.
struct SlotKey {
  std::string kind, name;
  int64_t microbatch = 0;
  auto operator<=>(const SlotKey &) const = default;
};
using Slots = std::map<SlotKey, HostTensor>;

struct ScheduledSegment {
  std::string segment;
  int64_t microbatch = 0;
};

struct DistributedProgram {
  mlir::Operation *module = nullptr; // local phase of the distribution dialect
  Mesh mesh;
  /// Per rank: segment name -> function symbol, those of its stage and class. A segment without work is absent.
  std::vector<std::map<std::string, std::string>> functions;
  /// Per rank: what it runs, in order (its stage's schedule). Segments the rank has no function for are passed over.
  std::vector<std::vector<ScheduledSegment>> schedules;
};

/// Runs every rank's schedule once, from the slots given per rank; returns the slots it ends with. `context.microbatch`
/// is set by the schedule. Throws cleave::Error (internal): a slot read before it is written or of another type than
/// the argument's; ranks that disagree about a collective; waiting in a circle.
std::vector<Slots> runDistributed(const DistributedProgram &program, std::vector<Slots> slots,
                                  const Context &context = {});

/// The slots each rank's functions read, filled from whole tensors: those of kinds "parameter", "buffer", "state",
/// "scalar", "input" (per microbatch) and any other that `whole` holds are cut by the `dist.sharding` of the argument.
/// What `whole` lacks is left out.
std::vector<Slots> scatterSlots(const DistributedProgram &program, const Slots &whole);

/// The whole tensor of every slot that some function names with its sharding and global type: each rank's piece put in
/// its place. Throws an internal error where ranks that hold the same element differ ("parameter w: rank 3 differs from
/// ..."). Slots that are partial (over any axis) are left out, as are those without a sharding.
Slots gatherSlots(const DistributedProgram &program, const std::vector<Slots> &slots);

} // namespace cleave::ir
