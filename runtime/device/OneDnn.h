// The part of oneDNN's API that the CPU device uses, wrapped: a primitive whose arguments are slots or pieces of the
// shared workspace. The files OneDnn* are all that know oneDNN.
#pragma once
#include "runtime/device/Device.h"

#include <dnnl.hpp>

namespace cleave {

/// Scratch memory shared by all Ops of a rank, which run one after another.
struct Workspace {
  std::byte *memory = nullptr;
  size_t need = 0;
  /// Reserves a piece for an Op whose other pieces take `used` bytes; gives its offset.
  size_t reserve(size_t &used, size_t bytes);
};

struct OneDnnContext {
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
  Workspace workspace;
  unsigned threads = 1;
};

/// A primitive with its arguments. Addresses are set at each run; nothing of ours is allocated then.
class BoundPrimitive {
public:
  BoundPrimitive(OneDnnContext &context, dnnl::primitive primitive)
      : context(&context), primitive(std::move(primitive)) {}
  /// Argument `arg` is a slot.
  void bindSlot(int arg, const dnnl::memory::desc &desc, Operand operand);
  /// Argument `arg` lies in the workspace at `offset`.
  void bindWorkspace(int arg, const dnnl::memory::desc &desc, size_t offset);
  void run(SlotTable slots);
  /// With `shift[arg index]` bytes added to the slot arguments in the order bound, and the workspace arguments moved by
  /// `workspaceShift`.
  void run(SlotTable slots, const int64_t *shift, size_t workspaceShift);

private:
  struct Argument {
    dnnl::memory memory;
    Operand operand;
    bool workspace;
    size_t offset;
  };
  void add(int arg, const dnnl::memory::desc &desc, Argument argument);
  OneDnnContext *context;
  dnnl::primitive primitive;
  std::vector<Argument> arguments;
  std::vector<dnnl_exec_arg_t> list;
};

/// oneDNN's element type; environment error for one it does not have on CPUs.
dnnl::memory::data_type oneDnnType(plan::DType dtype);
/// Scratch memory comes from us.
dnnl::primitive_attr userScratchpad(bool accumulate = false, bool relu = false);

std::unique_ptr<Op> makeOneDnnMatmul(const plan::Step &step, SlotScope &scope, OneDnnContext &context);
std::unique_ptr<Op> makeOneDnnConv(const plan::Step &step, SlotScope &scope, OneDnnContext &context);
std::unique_ptr<Op> makeOneDnnPool(const plan::Step &step, SlotScope &scope, OneDnnContext &context);

} // namespace cleave
