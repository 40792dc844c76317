// Arguments and errors of oneDNN primitives, and the CPU device.
#include "runtime/device/OneDnn.h"

#include "runtime/base/Error.h"
#include "runtime/device/Attention.h"
#include "runtime/device/CpuDevice.h"
#include "runtime/device/HostDevice.h"
#include "runtime/device/Parallel.h"
#include "runtime/device/Pool.h"
#include "runtime/plan/DTypes.h"
#include "runtime/plan/plan_generated.h"

#include <fmt/format.h>

namespace cleave {

void BoundPrimitive::add(int arg, const dnnl::memory::desc &desc, Argument argument) {
  argument.memory = dnnl::memory(desc, context->engine, DNNL_MEMORY_NONE);
  list.push_back({arg, argument.memory.get()});
  arguments.push_back(std::move(argument));
}

void BoundPrimitive::bindSlot(int arg, const dnnl::memory::desc &desc, StepOperand operand) {
  add(arg, desc, {{}, operand, false, 0});
}

void BoundPrimitive::bindWorkspace(int arg, const dnnl::memory::desc &desc, size_t offset) {
  add(arg, desc, {{}, {}, true, offset});
}

void BoundPrimitive::run(SlotTable slots) {
  static constexpr int64_t none[8] = {};
  run(slots, none, 0);
}

void BoundPrimitive::run(SlotTable slots, const int64_t *shift, size_t workspaceShift) {
  size_t slot = 0;
  for (Argument &argument : arguments) {
    std::byte *at = argument.workspace ? context->workspace.memory + argument.offset + workspaceShift
                                       : argument.operand.at(slots) + shift[slot++];
    dnnl_memory_set_data_handle(argument.memory.get(), at);
  }
  dnnl_status_t status =
      dnnl_primitive_execute(primitive.get(), context->stream.get(), static_cast<int>(list.size()), list.data());
  if (status != dnnl_success)
    throw environmentError(fmt::format("onednn: a primitive failed with status {}", static_cast<int>(status)));
}

dnnl::memory::data_type oneDnnType(plan::DType dtype) {
  switch (dtype) {
  case plan::DType::F32:
    return dnnl::memory::data_type::f32;
  case plan::DType::BF16:
    return dnnl::memory::data_type::bf16;
  default:
    throw environmentError(
        fmt::format("cpu: matrix products and convolutions are f32 or bf16, found {}", dtypeName(dtype)));
  }
}

dnnl::primitive_attr userScratchpad(bool accumulate) {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  dnnl::post_ops post;
  if (accumulate)
    post.append_sum();
  attributes.set_post_ops(post);
  return attributes;
}

namespace {

class CpuDevice final : public HostDevice {
public:
  CpuDevice(unsigned threads, Tuning *tuning) : HostDevice(threads) {
    setThreads(threads); // primitives are created for the current number of threads
    context.threads = threads;
    context.tuning = tuning;
  }
  size_t workspaceBytes() const override { return context.workspace.need; }
  void setWorkspace(std::byte *memory) override {
    context.measuring.release(); // all steps are made
    context.workspace.memory = memory;
  }

protected:
  std::unique_ptr<Op> prepareLibrary(const plan::Step &step, SlotScope &scope) override {
    if (const plan::Attention *attention = step.op_as_Attention()) {
      if (auto made = makeAttention(*attention, scope, context.workspace, threads))
        return made;
      throw environmentError(
          fmt::format("cpu: attention is f32 or bf16, for x86-64-v3 or more, found {}", dtypeName(attention->dtype())));
    }
    if (const plan::Pool *pool = step.op_as_Pool())
      return makePool(*pool, scope, threads);
    try {
      return step.op_type() == plan::StepOp::Matmul ? makeOneDnnMatmul(step, scope, context)
                                                    : makeOneDnnConv(step, scope, context);
    } catch (const dnnl::error &error) {
      throw environmentError(
          fmt::format("cpu: onednn has no primitive for a {} step: {}", EnumNameStepOp(step.op_type()), error.what()));
    }
  }

private:
  OneDnnContext context;
};

} // namespace

std::unique_ptr<Device> makeCpuDevice(unsigned threads, Tuning *tuning) {
  return std::make_unique<CpuDevice>(threads, tuning);
}

std::string cpuLibraryVersion() {
  const dnnl_version_t *version = dnnl_version();
  return fmt::format("{}.{}.{}", version->major, version->minor, version->patch);
}

} // namespace cleave
