// Compiles, loads and calls the kernels of a fused function.
#include "tests/unit/passes/FusedFunction.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/IRMapping.h"
#include "llvm/ADT/DenseMap.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>
#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

namespace cleave::testing {

using ir::HostTensor;
using Kernel = void (*)(void *const *, const int64_t *, int64_t, int64_t);

HostTensor like(mlir::Type type) {
  return {mlir::cast<mlir::RankedTensorType>(type).getShape().vec(), ir::dtypeOf(type)};
}

namespace {

/// Raw bytes of a tensor of f32, i32 or i1, the types of the test programs.
std::vector<uint8_t> pack(const HostTensor &t) {
  std::vector<uint8_t> bytes(t.values.size() * (t.dtype == DType::I1 ? 1 : 4));
  for (size_t i = 0; i < t.values.size(); ++i) {
    float f = static_cast<float>(t.values[i]);
    int32_t n = t.dtype == DType::F32 ? 0 : static_cast<int32_t>(t.values[i]);
    if (t.dtype == DType::I1)
      bytes[i] = t.values[i] != 0;
    else
      std::memcpy(&bytes[i * 4], t.dtype == DType::F32 ? static_cast<void *>(&f) : &n, 4);
  }
  return bytes;
}

void unpack(const std::vector<uint8_t> &bytes, HostTensor &t) {
  for (size_t i = 0; i < t.values.size(); ++i) {
    float f = 0;
    int32_t n = 0;
    if (t.dtype != DType::I1)
      std::memcpy(t.dtype == DType::F32 ? static_cast<void *>(&f) : &n, &bytes[i * 4], 4);
    t.values[i] = t.dtype == DType::I1 ? bytes[i] : t.dtype == DType::F32 ? f : n;
  }
}

} // namespace

FusedFunction::FusedFunction(mlir::func::FuncOp function) : function(function), builder(passes::hostTarget()) {
  for (mlir::Operation &op : function.front())
    if (mlir::isa<ir::FusionOp>(op))
      calls[&op] = builder.add(&op);
  std::vector<uint8_t> code = builder.link();
  if (code.empty())
    return;
  int fd = memfd_create("kernels", 0);
  REQUIRE(write(fd, code.data(), code.size()) == static_cast<ssize_t>(code.size()));
  library = dlopen(("/proc/self/fd/" + std::to_string(fd)).c_str(), RTLD_NOW | RTLD_LOCAL);
  close(fd);
  REQUIRE(library);
}

FusedFunction::~FusedFunction() {
  if (library)
    dlclose(library);
}

std::vector<HostTensor> FusedFunction::run(const std::vector<HostTensor> &inputs) {
  llvm::DenseMap<mlir::Value, HostTensor> values;
  for (auto [argument, input] : llvm::zip(function.getArguments(), inputs))
    values[argument] = input;
  for (mlir::Operation &op : function.front().without_terminator()) {
    std::vector<HostTensor> operands;
    for (mlir::Value operand : op.getOperands())
      operands.push_back(values[operand]);
    std::vector<HostTensor> results = mlir::isa<ir::FusionOp>(op) ? runKernel(op, operands) : interpret(op, operands);
    for (auto [result, tensor] : llvm::zip(op.getResults(), results))
      values[result] = tensor;
  }
  std::vector<HostTensor> results;
  for (mlir::Value result : function.front().getTerminator()->getOperands())
    results.push_back(values[result]);
  return results;
}

std::vector<HostTensor> FusedFunction::runKernel(mlir::Operation &op, const std::vector<HostTensor> &operands) {
  const passes::KernelCall &call = calls.at(&op);
  std::vector<std::vector<uint8_t>> memory;
  std::vector<int64_t> scalars;
  for (size_t i = 0; i < operands.size(); ++i)
    if (std::find(call.scalarOperands.begin(), call.scalarOperands.end(), i) == call.scalarOperands.end())
      memory.push_back(pack(operands[i]));
    else
      scalars.push_back(static_cast<int64_t>(operands[i].values[0]));
  std::vector<HostTensor> results;
  for (mlir::Type type : op.getResultTypes()) {
    results.push_back(like(type));
    memory.push_back(pack(results.back()));
  }
  std::vector<void *> args;
  for (size_t i = 0; i < memory.size(); ++i)
    args.push_back(memory[i].data() + (i < call.offsets.size() ? call.offsets[i] : 0));
  auto kernel = reinterpret_cast<Kernel>(dlsym(library, builder.kernels()[call.kernel].symbol.c_str()));
  REQUIRE(kernel);
  int64_t half = call.extent / 2 / call.grain * call.grain;
  if (half > 0)
    kernel(args.data(), scalars.data(), 0, half);
  kernel(args.data(), scalars.data(), half, call.extent);
  for (size_t r = 0; r < results.size(); ++r)
    unpack(memory[memory.size() - results.size() + r], results[r]);
  return results;
}

std::vector<HostTensor> FusedFunction::interpret(mlir::Operation &op, const std::vector<HostTensor> &operands) {
  mlir::OpBuilder b(op.getContext());
  mlir::OwningOpRef<mlir::ModuleOp> module = mlir::ModuleOp::create(op.getLoc());
  b.setInsertionPointToEnd(module->getBody());
  auto type = b.getFunctionType(op.getOperandTypes(), op.getResultTypes());
  auto one = mlir::func::FuncOp::create(b, op.getLoc(), "one", type);
  b.setInsertionPointToEnd(one.addEntryBlock());
  mlir::IRMapping map;
  map.map(op.getOperands(), one.getArguments());
  mlir::func::ReturnOp::create(b, op.getLoc(), b.clone(op, map)->getResults());
  return ir::evaluate(one, operands);
}

} // namespace cleave::testing
