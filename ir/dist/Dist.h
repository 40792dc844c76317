// The distribution dialect in C++. The value structs (Sharding, Mesh) are in ir/dist/Sharding.h and need no MLIR.
#pragma once
#include "ir/dist/Sharding.h"

#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/OpDefinition.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/Interfaces/InferTypeOpInterface.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

#include <map>
#include <mutex>
#include <optional>

#define GET_ATTRDEF_CLASSES
#include "ir/dist/DistAttrs.h.inc"

#include "ir/dist/DistDialect.h.inc"

#define GET_OP_CLASSES
#include "ir/dist/DistOps.h.inc"

namespace cleave::dist {
/// Names of discardable attributes; see the dialect description in DistOps.td.
namespace attr {
inline constexpr llvm::StringLiteral sharding = DistDialect::ShardingAttrHelper::getNameStr(),
                                     shardings = DistDialect::ShardingsAttrHelper::getNameStr(),
                                     global = DistDialect::GlobalAttrHelper::getNameStr(),
                                     globals = DistDialect::GlobalsAttrHelper::getNameStr(),
                                     gathered = DistDialect::GatheredAttrHelper::getNameStr(),
                                     stage = DistDialect::StageAttrHelper::getNameStr(),
                                     rankClass = DistDialect::ClassAttrHelper::getNameStr(),
                                     segment = DistDialect::SegmentAttrHelper::getNameStr();
}
/// Values of attr::gathered, on a reshard that gathers a parameter which ZeRO stores in parts: once per iteration, or
/// in every segment that reads it.
inline constexpr llvm::StringLiteral gatheredForIteration = "iteration", gatheredForSegment = "segment";
} // namespace cleave::dist
