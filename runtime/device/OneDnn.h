// A wrapper of the part of oneDNN's API that the CPU device uses: primitives with slots or parts of the shared
// workspace as arguments. Only the files OneDnn* use oneDNN.
#pragma once
#include "runtime/device/Device.h"
#include "runtime/device/Gemm.h"
#include "runtime/device/Workspace.h"

#include <dnnl.hpp>

#include <functional>
#include <string>
#include <vector>

namespace cleave {

/// Memory in which methods are measured. It is kept from one step to the next, because the system clears new memory,
/// which takes longer than many methods.
class MeasuringMemory {
public:
  MeasuringMemory() = default;
  MeasuringMemory(const MeasuringMemory &) = delete;
  ~MeasuringMemory() { release(); }
  /// The memory, which may have moved with what was written to it. Throws if there is not enough.
  std::byte *atLeast(size_t needed);
  void release();

private:
  void *start = nullptr;
  size_t bytes = 0;
};

struct OneDnnContext {
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
  Workspace workspace;
  PackedMatrices packed;
  MeasuringMemory measuring;
  unsigned threads = 1;
  Tuning *tuning = nullptr; ///< null: choices are made by rule
};

/// A primitive with its arguments. Each run sets the addresses and allocates nothing of ours.
class BoundPrimitive {
public:
  BoundPrimitive(OneDnnContext &context, dnnl::primitive primitive)
      : context(&context), primitive(std::move(primitive)) {}
  /// Binds argument `arg` to a slot.
  void bindSlot(int arg, const dnnl::memory::desc &desc, StepOperand operand);
  /// Binds argument `arg` to the workspace at `offset`.
  void bindWorkspace(int arg, const dnnl::memory::desc &desc, size_t offset);
  void run(SlotTable slots);
  /// Adds `shift[i]` bytes to the i-th bound slot argument, and `workspaceShift` to the workspace arguments.
  void run(SlotTable slots, const int64_t *shift, size_t workspaceShift);

private:
  struct Argument {
    dnnl::memory memory;
    StepOperand operand;
    bool workspace;
    size_t offset;
  };
  void add(int arg, const dnnl::memory::desc &desc, Argument argument);
  OneDnnContext *context;
  dnnl::primitive primitive;
  std::vector<Argument> arguments;
  std::vector<dnnl_exec_arg_t> list;
};

/// oneDNN's element type; throws an environment error for a type that it does not support on CPUs.
dnnl::memory::data_type oneDnnType(plan::DType dtype);
/// Attributes for scratch memory that the caller provides.
dnnl::primitive_attr userScratchpad(bool accumulate = false);

/// A way to compute a step.
struct Method {
  std::string name;
  std::function<std::unique_ptr<Op>()> make;
};

/// Makes a step by one of several methods: the one in the tuning record, else the fastest, measured, else (no tuning,
/// or too little work) the first. `step` describes all that decides the speed, `slots`
/// are the slots of its operands, `operations` counts multiplications and additions.
std::unique_ptr<Op> makeFastest(const std::vector<Method> &methods, const std::string &step, double operations,
                                const std::vector<uint32_t> &slots, SlotScope &scope, OneDnnContext &context);

/// A convolution as a matrix product (`isProduct`). `fast`: whether oneDNN's fast primitive computes it.
struct ProductMethods {
  std::vector<Method> methods;
  bool fast = false;
};
ProductMethods productMethods(const plan::Conv &op, SlotScope &scope, OneDnnContext &context);

std::unique_ptr<Op> makeOneDnnMatmul(const plan::Step &step, SlotScope &scope, OneDnnContext &context);
std::unique_ptr<Op> makeOneDnnConv(const plan::Step &step, SlotScope &scope, OneDnnContext &context);

} // namespace cleave
