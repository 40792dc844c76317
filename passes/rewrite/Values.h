// Facts of values and ops for the rewriting passes, which write new ops with ir::GraphBuilder.
#pragma once
#include "ir/graph/GraphBuilder.h"

namespace cleave::passes {

using ir::Dims;
using ir::dimsExcept;
using ir::GraphBuilder;
using ir::rankOf;
using ir::shapeOf;
using ir::tensorType;
/// Product of sizes.
int64_t product(Dims sizes);
/// Whether a value is a floating-point tensor.
bool isFloat(mlir::Value value);
/// "file.cpp:12:5: ", or "" if the location has no file.
std::string locationText(mlir::Location location);
/// A string attribute of an op or argument, "" if missing.
llvm::StringRef textAttr(mlir::Operation *op, llvm::StringRef name);
/// Gives `op`, whose results replace these results of other ops, their dist.shardings and dist.globals: an entry a
/// result, unit where unknown; no attribute if none is known.
void carryShardings(llvm::ArrayRef<mlir::Value> replaced, mlir::Operation *op);

} // namespace cleave::passes
