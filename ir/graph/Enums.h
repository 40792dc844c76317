// The enums of the graph dialect's attributes, for code that needs no ops.
#pragma once
#include "mlir/Support/LLVM.h"
#include "llvm/ADT/DenseMapInfo.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/raw_ostream.h"

#include <optional>
#include <string>

#include "ir/graph/GraphEnums.h.inc"
