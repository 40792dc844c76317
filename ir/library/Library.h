// The library dialect: one op, `library.call`, a graph op bound to a library step. Selection makes it before fusion, so
// that strides, biases and accumulation are decided while the graph is still plain; fusion leaves it alone, because it
// knows nothing of it; export turns it into a step.
//
//   %c = "library.call"(%a, %b, %bias, %acc) {op = "cleave.matmul", bias = 2 : i64, into = 3 : i64, accumulate, ...}
//
// Operands: those of the graph op, then optionally a bias and a tensor to write into. Attributes: `op`, the graph op's
// name; the graph op's own attributes; `bias` and `into`, operand indices; `accumulate` (unit), the result is `into`
// plus the product; without it, parts of `into` are overwritten and the rest kept. The result takes `into`'s memory. A
// matrix product with an `epilogue` ("relu", "gelu", "gelu_gradient") is the activation of the product, its bias added
// (so is a convolution with "relu"), or the product times the slope of gelu at the operand `aux`; a second result, if
// there is one, is what gelu was applied to; `aux_view` is how either lies; with
// `row_sums` (unit) the second result is the sums of a's rows. A matrix product further has `batch`
// (sizes), `mnk`, and `a`, `b`, `c`: offset in elements, then strides per batch dimension and for the two matrix
// dimensions ([m, k], [k, n], [m, n]); the result's type is that of the memory `c` lies in.
#pragma once
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/OpDefinition.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

namespace cleave::library {

class LibraryDialect : public mlir::Dialect {
public:
  explicit LibraryDialect(mlir::MLIRContext *context);
  static llvm::StringLiteral getDialectNamespace() { return "library"; }
};

class CallOp : public mlir::Op<CallOp, mlir::OpTrait::ZeroRegions, mlir::OpTrait::ZeroSuccessors,
                               mlir::OpTrait::VariadicOperands, mlir::OpTrait::VariadicResults,
                               mlir::MemoryEffectOpInterface::Trait> {
public:
  using Op::Op;
  static llvm::StringLiteral getOperationName() { return "library.call"; }
  static llvm::ArrayRef<llvm::StringRef> getAttributeNames() { return {}; }
  static CallOp create(mlir::OpBuilder &b, mlir::Location location, mlir::TypeRange results, mlir::ValueRange operands,
                       llvm::ArrayRef<mlir::NamedAttribute> attributes);
  /// None: removed where its results are not used.
  void getEffects(llvm::SmallVectorImpl<mlir::MemoryEffects::EffectInstance> &) {}

  /// Name of the graph op.
  llvm::StringRef callee();
  /// The operand, null where there is none.
  mlir::Value bias() { return optionalOperand("bias"); }
  mlir::Value into() { return optionalOperand("into"); }
  mlir::Value aux() { return optionalOperand("aux"); }
  bool accumulate() { return (*this)->hasAttr("accumulate"); }
  llvm::ArrayRef<int64_t> ints(llvm::StringRef name);

private:
  mlir::Value optionalOperand(llvm::StringRef name);
};

} // namespace cleave::library
