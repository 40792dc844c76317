// Runs the local functions of a distributed module with one thread per rank, so that collectives, messages and
// schedules are tested without devices. It knows the distribution dialect and meshes but not the partitioner: the
// caller passes what each rank runs, and in which order. No MLIR in this header.
#pragma once
#include "ir/dist/Sharding.h"
#include "ir/graph/SlotKind.h"
#include "ir/interpreter/Interpreter.h"

#include <compare>
#include <map>

namespace cleave::ir {

/// Key of a slot: slots with equal kind and name are the same memory. Slots of kind Input and Stash exist once per
/// microbatch; for other kinds `microbatch` is 0.
struct SlotKey {
  SlotKind kind = SlotKind::None;
  std::string name;
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
  /// Per rank: segment name -> function symbol for its stage and class. Segments without work are absent.
  std::vector<std::map<std::string, std::string>> functions;
  /// Per rank: its stage's schedule. Segments for which the rank has no function are skipped.
  std::vector<std::vector<ScheduledSegment>> schedules;
};

/// Runs every rank's schedule once on the given slots and returns the final slots. The schedule sets
/// `context.microbatch`. Throws cleave::Error (internal) if a slot is read before it is written, a slot's type
/// differs from the argument's, ranks disagree about a collective, or ranks deadlock.
std::vector<Slots> runDistributed(const DistributedProgram &program, std::vector<Slots> slots,
                                  const Context &context = {});

/// The slots of each rank's functions, cut from the whole tensors by the `dist.sharding` of the argument or result.
/// Their kinds are Parameter, Buffer, State, Scalar, Input (per microbatch), and any other in `whole`. Slots
/// that `whole` lacks are skipped.
std::vector<Slots> scatterSlots(const DistributedProgram &program, const Slots &whole);

/// Assembles the whole tensor of every slot that has a sharding and a global type. Throws an internal error if ranks
/// that hold the same element differ ("parameter w: rank 3 differs from ..."). Skips partial slots and slots without
/// a sharding.
Slots gatherSlots(const DistributedProgram &program, const std::vector<Slots> &slots);

} // namespace cleave::ir
