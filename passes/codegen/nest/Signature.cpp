// Signatures of kernels.
#include "passes/codegen/nest/Signature.h"

#include "mlir/IR/Value.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/Hashing.h"

namespace cleave::passes::kernel {

size_t SignatureHash::operator()(const Signature &signature) const {
  return llvm::hash_combine_range(signature.begin(), signature.end());
}

uintptr_t OpKinds::of(mlir::Operation *op) {
  return numbers
      .try_emplace({op->getName().getAsOpaquePointer(), op->getResult(0).getType().getAsOpaquePointer(),
                    op->getPropertiesAsAttribute().getAsOpaquePointer()},
                   numbers.size())
      .first->second;
}

Signature signatureOf(llvm::ArrayRef<mlir::Value> inputs, llvm::ArrayRef<mlir::Operation *> ops,
                      llvm::ArrayRef<mlir::Value> outputs, llvm::ArrayRef<bool> scalar,
                      llvm::function_ref<uintptr_t(mlir::Type)> typeOf,
                      llvm::function_ref<uintptr_t(mlir::Operation *)> kindOf) {
  Signature signature{inputs.size(), ops.size()};
  llvm::SmallDenseMap<mlir::Value, uintptr_t, 32> numbers;
  for (size_t i = 0; i < inputs.size(); ++i) {
    numbers.try_emplace(inputs[i], numbers.size());
    signature.push_back(typeOf(inputs[i].getType()));
    signature.push_back(scalar[i]);
  }
  for (mlir::Operation *op : ops) {
    signature.push_back(kindOf(op));
    for (mlir::Value operand : op->getOperands())
      signature.push_back(numbers.lookup(operand));
    signature.push_back(UINTPTR_MAX); // concatenations have a variable number of operands
    numbers.try_emplace(op->getResult(0), numbers.size());
  }
  for (mlir::Value output : outputs)
    signature.push_back(numbers.lookup(output));
  return signature;
}

Signature signatureOf(llvm::ArrayRef<mlir::Value> inputs, llvm::ArrayRef<mlir::Operation *> ops,
                      llvm::ArrayRef<mlir::Value> outputs, llvm::ArrayRef<bool> scalar,
                      llvm::function_ref<uintptr_t(mlir::Operation *)> kindOf) {
  const auto pointer = [](mlir::Type type) { return reinterpret_cast<uintptr_t>(type.getAsOpaquePointer()); };
  return signatureOf(inputs, ops, outputs, scalar, pointer, kindOf);
}

} // namespace cleave::passes::kernel
