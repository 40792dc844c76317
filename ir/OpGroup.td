// A group of ops in docs/ir.md. tests/lit/ir/*/examples.mlir has an example under the same title.
#ifndef CLEAVE_OP_GROUP
#define CLEAVE_OP_GROUP

include "mlir/IR/OpBase.td"

class OpGroup<string title> : OpDocGroup {
  let summary = title;
  let description = "";
}

#endif
