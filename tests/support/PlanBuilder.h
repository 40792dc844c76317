// Builds small plans by hand, for tests of the runtime without the compiler.
#pragma once
#include "runtime/plan/Kernels.h"
#include "runtime/plan/PlanFile.h"
#include "runtime/plan/check/Check.h"
#include "runtime/plan/check/Defects.h"
#include "runtime/plan/plan_generated.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace cleave::test {

using namespace cleave::plan;

inline int64_t elementBytes(plan::DType type) {
  static constexpr int64_t bytes[] = {4, 2, 2, 4, 8, 1, 1};
  return bytes[static_cast<size_t>(type)];
}

/// Row-major strides.
inline std::vector<int64_t> denseStrides(const std::vector<int64_t> &shape) {
  std::vector<int64_t> strides(shape.size(), 1);
  for (size_t d = shape.size(); d-- > 1;)
    strides[d - 1] = strides[d] * shape[d];
  return strides;
}

/// A program under construction: slots are placed one after another in the arena.
struct ProgramWriter {
  ProgramT program;
  uint64_t arena = 0, input = 0;
  std::vector<uint64_t> offsets; ///< of every slot, persistent or placed

  ProgramWriter();
  ProgramWriter(ProgramWriter &&);
  ~ProgramWriter();

  uint32_t slot(const std::string &name, plan::DType dtype, std::vector<int64_t> shape, Space space = Space::Placed,
                int tensor = -1);

  void shard(uint32_t slot, std::vector<std::vector<std::pair<int64_t, std::vector<uint8_t>>>> dims,
             std::vector<uint8_t> partial = {});

  /// A new segment; its slot list is filled by finish().
  uint32_t segment(const std::string &name = "forward", SegmentKind kind = SegmentKind::Forward);

  template <typename OpT> StepT &step(uint32_t segment, OpT op) {
    auto step = std::make_unique<StepT>();
    step->op.Set(std::move(op));
    program.segments[segment]->steps.push_back(std::move(step));
    return *program.segments[segment]->steps.back();
  }

  static std::unique_ptr<ViewT> view(uint32_t slot, std::vector<int64_t> strides, uint64_t offset = 0);
  void matmul(uint32_t segment, uint32_t a, uint32_t b, uint32_t c, int64_t m, int64_t n, int64_t k);
  void copy(uint32_t segment, uint32_t src, uint32_t dst, int64_t count);
  void fill(uint32_t segment, uint32_t dst, double value);
  void allReduce(uint32_t segment, uint32_t in, uint32_t out, int64_t count, uint32_t group = 0);
  void send(uint32_t segment, uint32_t slot, uint32_t peer, uint32_t tag);
  void recv(uint32_t segment, uint32_t slot, uint32_t peer, uint32_t tag);
  ActionT &action(uint32_t segment, int microbatch = 0, bool eval = false);
  void named(std::vector<std::unique_ptr<NamedSlotT>> &list, const std::string &name, uint32_t slot);

  /// Fills in each segment's list of accessed slots and its layout, in which no slots overlap, and returns the program.
  std::unique_ptr<ProgramT> finish();
};

/// Gives a training action its own inputs: a copy of its layout with the input slots `shift` bytes later.
void moveInputs(ProgramT &program, size_t action, uint64_t shift);

/// A plan with a mesh ["dp", "tp", "pp"] and the ranks' coordinates. The test adds programs, groups and tables.
PlanT makePlan(uint32_t dp, uint32_t tp = 1, uint32_t pp = 1);
int addTensor(PlanT &plan, const std::string &name, TensorKind kind, std::vector<int64_t> shape,
              plan::DType dtype = plan::DType::F32);
void addGroup(PlanT &plan, std::vector<uint32_t> ranks, const std::string &axis = "dp");

/// Calls fn(program, call) for every kernel call of a plan.
template <typename Fn> void forEachCall(PlanT &plan, Fn fn) {
  for (auto &program : plan.programs)
    for (auto &segment : program->segments)
      for (auto &step : segment->steps) {
        if (KernelT *call = step->op.AsKernel())
          fn(*program, *call);
        if (KernelBatchT *batch = step->op.AsKernelBatch())
          for (auto &call : batch->calls)
            fn(*program, *call);
      }
}

/// Declares a kernel's arguments from one call. The kernel accesses one element per unit of the extent of slots with
/// `extent` elements, and all elements of other slots.
void declareKernel(KernelInfoT &kernel, const ProgramT &program, const KernelT &call);

/// Fills in what the test left out of kernels: declarations, signatures in the calls, and the hash of the code.
void bindKernels(PlanT &plan);

/// Numbers the values of segments for which the test did not: every step reads the values of the steps before it.
void numberValues(PlanT &plan);

/// Removes all numbers of values.
void forgetValues(PlanT &plan);

std::vector<uint8_t> pack(const PlanT &plan);

/// Fills in the axes of collectives for which the test did not, from the names of their groups.
void nameAxes(PlanT &plan);

/// Fills in what the compiler would: kernels, axes and, if the plan's structure is valid, values. Returns the bytes.
std::vector<uint8_t> flatbuffer(const PlanT &given);

std::shared_ptr<const PlanFile> seal(const PlanT &plan);

} // namespace cleave::test
