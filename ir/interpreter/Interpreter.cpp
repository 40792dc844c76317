// Compiles a block to instructions, and runs them.
#include "ir/interpreter/Interpreter.h"

#include "ir/dist/Dist.h"
#include "ir/graph/Graph.h"
#include "ir/interpreter/Executable.h"
#include "runtime/base/Error.h"

#include <cassert>

using namespace mlir;

namespace cleave::ir {

HostTensor emptyTensor(Type type) {
  auto tensor = cast<RankedTensorType>(type);
  HostTensor result;
  result.shape = tensor.getShape().vec();
  result.dtype = dtypeOf(tensor);
  return result;
}

static Kernel fusionKernel(Operation *op) {
  auto fusion = dyn_cast<FusionOp>(op);
  if (!fusion)
    return {};
  return [executable = executableOf(fusion.getBody().front())](const Operands &in, Environment &environment) {
    return executable.run(in, environment);
  };
}

/// Moves the last dimension of each tensor to position 1, or back. Tensors of rank less than 3 are not changed.
static std::vector<HostTensor> turned(const std::vector<const HostTensor *> &tensors, bool back) {
  std::vector<HostTensor> result;
  for (const HostTensor *tensor : tensors) {
    HostTensor &to = result.emplace_back(*tensor);
    if (tensor->rank() < 3)
      continue;
    if (back)
      std::rotate(to.shape.begin() + 1, to.shape.begin() + 2, to.shape.end());
    else
      std::rotate(to.shape.begin() + 1, to.shape.end() - 1, to.shape.end());
    if (to.values.empty())
      continue;
    const int64_t channels = to.shape[back ? to.rank() - 1 : 1], others = to.size() / to.shape[0] / channels;
    const int64_t rows = back ? channels : others, columns = back ? others : channels;
    for (int64_t i = 0; i < to.size(); ++i) {
      const int64_t sample = i / (rows * columns), row = i / columns % rows, column = i % columns;
      to.values[(sample * columns + column) * rows + row] = tensor->values[i];
    }
  }
  return result;
}

static std::vector<const HostTensor *> addresses(const std::vector<HostTensor> &tensors) {
  std::vector<const HostTensor *> list;
  for (const HostTensor &tensor : tensors)
    list.push_back(&tensor);
  return list;
}

static Kernel kernelOf(Operation *op);

/// Kernel of an op on [n, ..., c]: runs the op on [n, c, ...] between two transposes.
static Kernel channelsLastKernel(Operation *op) {
  Operation *second = op->clone();
  second->removeAttr(channelsLast);
  for (Value result : second->getResults()) {
    auto type = cast<RankedTensorType>(result.getType());
    SmallVector<int64_t> shape(type.getShape());
    if (shape.size() > 2)
      std::rotate(shape.begin() + 1, shape.end() - 1, shape.end());
    result.setType(type.clone(shape));
  }
  Kernel inner = kernelOf(second);
  second->destroy();
  return [inner](const Operands &in, Environment &environment) {
    const std::vector<HostTensor> operands = turned(in, false);
    return turned(addresses(inner(addresses(operands), environment)), true);
  };
}

static Kernel kernelOf(Operation *op) {
  if (op->hasAttr(channelsLast))
    return channelsLastKernel(op);
  for (auto *subject : {elementwiseKernel, indexKernel, shapeKernel, linearAlgebraKernel, poolingKernel,
                        attentionKernel, normKernel, lossKernel, fusionKernel, distKernel})
    if (Kernel kernel = subject(op))
      return kernel;
  throw Error(Status::Internal, "interpreter: no rule for " + op->getName().getStringRef().str());
}

Executable executableOf(Block &block) {
  Executable executable;
  llvm::DenseMap<Value, int> number;
  llvm::DenseMap<Value, size_t> lastUse; // the last instruction that reads a value
  auto add = [&](Value value) { return number[value] = executable.values++; };
  for (BlockArgument argument : block.getArguments())
    executable.arguments.push_back(add(argument));
  for (Operation &op : block.without_terminator()) {
    Instruction instruction;
    instruction.kernel = kernelOf(&op);
    for (Value operand : op.getOperands()) {
      instruction.operands.push_back(number.at(operand));
      lastUse[operand] = executable.code.size();
    }
    for (Value result : op.getResults()) {
      instruction.results.push_back(add(result));
      lastUse[result] = executable.code.size();
    }
    executable.code.push_back(std::move(instruction));
  }
  for (Value result : block.getTerminator()->getOperands()) {
    executable.results.push_back(number.at(result));
    lastUse.erase(result);
  }
  for (auto [value, at] : lastUse)
    if (!isa<BlockArgument>(value))
      executable.code[at].dead.push_back(number.at(value));
  return executable;
}

std::vector<HostTensor> Executable::run(const Operands &inputs, Environment &environment) const {
  assert(inputs.size() == arguments.size());
  std::vector<HostTensor> made(values);
  Operands at(values, nullptr);
  for (size_t i = 0; i < arguments.size(); ++i)
    at[arguments[i]] = inputs[i];
  for (const Instruction &instruction : code) {
    Operands operands;
    for (int operand : instruction.operands)
      operands.push_back(at[operand]);
    std::vector<HostTensor> results = instruction.kernel(operands, environment);
    assert(results.size() == instruction.results.size());
    for (size_t i = 0; i < results.size(); ++i) {
      made[instruction.results[i]] = std::move(results[i]);
      at[instruction.results[i]] = &made[instruction.results[i]];
    }
    for (int dead : instruction.dead)
      made[dead] = {};
  }
  std::vector<HostTensor> results;
  for (int result : this->results)
    results.push_back(*at[result]);
  return results;
}

std::vector<HostTensor> evaluate(Operation *function, const std::vector<HostTensor> &inputs, const Context &context) {
  auto func = cast<func::FuncOp>(function);
  std::string name = func.getSymName().str();
  if (inputs.size() != func.getNumArguments())
    throw userError("interpreter: @" + name + " takes " + std::to_string(func.getNumArguments()) +
                    " arguments, given " + std::to_string(inputs.size()));
  Operands operands;
  for (auto [i, input] : llvm::enumerate(inputs)) {
    HostTensor expected = emptyTensor(func.getArgument(i).getType());
    if (input.shape != expected.shape || input.dtype != expected.dtype)
      throw userError("interpreter: argument " + std::to_string(i) + " of @" + name + " is " + typeText(expected) +
                      ", given " + typeText(input));
    operands.push_back(&input);
  }
  Environment environment{context, nullptr};
  return executableOf(func.getBody().front()).run(operands, environment);
}

} // namespace cleave::ir
