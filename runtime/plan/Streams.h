// Ordering of steps in several streams of a GPU. findUnordered finds missing waits; the compiler adds them, and the
// checker verifies that none is missing.
//
// Within a stream, steps run in list order. Two steps in different streams that access the same bytes, at least one
// writing, are ordered if a chain of waits and streams leads from one to the other (vector clocks: Mattern, Virtual
// time and global states of distributed systems, 1989).
#pragma once
#include "runtime/plan/PlanTypes.h"

#include <cstdint>
#include <functional>
#include <string>

namespace cleave {

/// A step in a list of actions.
struct StepPlace {
  uint32_t action = 0, step = 0;
};

/// Called for each unordered pair of steps; from then on they count as ordered.
using Unordered = std::function<void(const StepPlace &earlier, const StepPlace &later, uint32_t slot)>;

/// Follows the train list, or the eval list, with its waits. `program` must have passed the structure checks, including
/// its waits.
void findUnordered(const plan::Program &program, bool eval, const Unordered &unordered);

/// The stream of the collectives among replicas (axis dp alone) in a program: the number after those of its messages.
/// Ranks that share a layer (axis tp) exchange activations while replicas gather parameters and sum gradients.
uint32_t replicaStream(const plan::Plan &plan, uint32_t program);

/// The stream of a step of a program with this replicaStream().
uint32_t streamOf(const plan::Plan &plan, const plan::Step &step, uint32_t replicas);

/// The purpose of a stream of a program: "computes", "collectives", "collectives of replicas", "sends to peer 0".
std::string streamName(const plan::Plan &plan, uint32_t program, uint32_t number);

/// Scratch memory outside the arena that a program's steps need on a GPU, exactly or at most: the most of one step. We
/// limit the workspace of libraries; the measured choice respects the limit.
uint64_t gpuWorkspace(const plan::Program &program);

/// Scratch of an embedding's gradient, in elements of 4 bytes: first the zeroed ones, then the others.
struct LookupScratch {
  uint64_t zeroed, rest;
  uint64_t bytes() const { return 4 * (zeroed + rest); }
};
LookupScratch lookupScratch(int64_t rows, int64_t count);

} // namespace cleave
