// The library dialect in C++. LibraryOps.td describes the dialect.
#pragma once
#include "ir/library/Strided.h"

#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/OpDefinition.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

#include "ir/library/LibraryDialect.h.inc"
#include "ir/library/LibraryEnums.h.inc"
#include "ir/library/LibraryInterfaces.h.inc"

#define GET_ATTRDEF_CLASSES
#include "ir/library/LibraryAttrs.h.inc"

#define GET_OP_CLASSES
#include "ir/library/LibraryOps.h.inc"
