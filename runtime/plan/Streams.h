// Steps in several streams of a GPU: who must wait for whom. The compiler asks which waits are missing and adds them;
// the checker asks again and finds none.
//
// Within a stream steps run in the order of the list. Two steps in different streams that touch the same bytes, one of
// them writing, are ordered when a chain of waits and streams leads from one to the other (vector clocks: Mattern,
// Virtual time and global states of distributed systems, 1989).
#pragma once
#include "runtime/plan/PlanTypes.h"

#include <cstdint>
#include <functional>

namespace cleave {

/// The stream in which a step of this kind belongs; see plan.fbs.
uint32_t streamOf(const plan::Step &step);

/// A step of a list of actions.
struct StepPlace {
  uint32_t action = 0, step = 0;
};

/// Told of each pair of steps that nothing orders; from then on they count as ordered.
using Unordered = std::function<void(const StepPlace &earlier, const StepPlace &later, uint32_t slot)>;

/// Follows the train list, or the eval list, with the waits that it has. `program` has passed the structure checks,
/// waits among them.
void findUnordered(const plan::Program &program, bool eval, const Unordered &unordered);

/// Scratch memory outside the arena that a step needs on a GPU, for sure or at most; 0 for most kinds. What libraries
/// may take at most is a rule of ours: the measured choice stays within it.
uint64_t gpuWorkspace(const plan::Step &step);
/// The largest of a program's steps.
uint64_t gpuWorkspace(const plan::Program &program);

/// Elements of 4 bytes that the gradient of an embedding sorts its ids in: zeroed ones first, then the others.
struct LookupScratch {
  uint64_t zeroed, rest;
  uint64_t bytes() const { return 4 * (zeroed + rest); }
};
LookupScratch lookupScratch(int64_t rows, int64_t count);

} // namespace cleave
