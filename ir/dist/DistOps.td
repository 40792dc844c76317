// The distribution dialect: meshes, shardings, collectives, messages.
#ifndef CLEAVE_DIST_OPS
#define CLEAVE_DIST_OPS

include "ir/OpGroup.td"
include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/SymbolInterfaces.td"
include "mlir/Interfaces/InferTypeOpInterface.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

def Dist_Dialect : Dialect {
  let name = "dist";
  let cppNamespace = "::cleave::dist";
  let summary = "how a graph is split over a mesh of devices";
  let description = [{
    The distribution dialect describes *where* a network is computed. It is used in two phases.

    *Annotated*: functions still have global shapes. The module has a `dist.mesh`. Every argument has a `dist.sharding`, and
    every op has `dist.shardings`, one per result. A sharding is, for each dimension, a list of factors (a size and the mesh
    axes that split it), and the axes over which the value is *partial*. If an op needs its operand in another sharding than
    the producer's, a `dist.reshard` between them converts it (the global type is unchanged).

    *Local*: one function per stage, class of equal ranks, and segment kind: `@stage0.class0.forward`. Types are local
    shapes. Reshards have been lowered to collectives and slices, and values that cross stages are sent and received.
    Functions have `dist.stage`, `dist.class`, `dist.segment`. Arguments and results are named slots (`cleave.kind`,
    `cleave.name`): equal kind and name mean the same memory, read through the argument and written through the result.
    Kinds: "input", "parameter", "buffer", "state", "gradient", "scalar", "metric" (loss, weight, correct), "output" (of a
    prediction), "stash" (live from one segment to a later one of the same microbatch) and "working" (a parameter in the
    half type, or gathered over dp, created by "begin" or "eval_begin" and read by every microbatch). Accumulation over microbatches is explicit:
    the segment takes the slot as argument and returns the sum; "begin" returns zeros. Segments: "begin", "forward",
    "backward" (or "input_gradient" and "weight_gradient"), "reduce", "update"; "eval_begin", "eval", "eval_reduce".

    Values that differ between ranks of one class are never constants: offsets are `dist.shard_offset`, which reads a table
    per rank.

    These attributes may be on ops of any dialect:

    | attribute | on | type |
    |---|---|---|
    | `dist.sharding` | arguments | `#dist.sharding` |
    | `dist.shardings` | ops: an entry for each result; a library call may lack those of its last results | array of `#dist.sharding` |
    | `dist.global` | arguments of local functions: the type before the split | type |
    | `dist.globals` | ops of local functions: the same for each result | array of types |
    | `dist.gathered` | a reshard that gathers a parameter which ZeRO stores in parts: how long the result is kept | string, "iteration" or "segment" |
    | `dist.stage`, `dist.class` | local functions | i64 |
    | `dist.segment` | local functions | string |

    An entry of an op that stands for several (a fusion, a library call, an all-reduce) may be a unit attribute: unknown. The
    verifier checks for each attribute of the dialect that (C1) it is one of these, (C2) it is where it may be, (C3) it has its
    type, (C4) lists have entries of the right type, and not more than there are results, (C5) `dist.gathered` has one of its
    values.

    Constraints are numbered per op (C1, C2, ...).
  }];
  let useDefaultAttributePrinterParser = 1;
  let discardableAttrs = (ins
    "::cleave::dist::ShardingAttr":$sharding, "::mlir::ArrayAttr":$shardings, "::mlir::TypeAttr":$global,
    "::mlir::ArrayAttr":$globals, "::mlir::StringAttr":$gathered, "::mlir::IntegerAttr":$stage, "::mlir::IntegerAttr":$class,
    "::mlir::StringAttr":$segment);
  let hasOperationAttrVerify = 1;
  let hasRegionArgAttrVerify = 1;
  let hasRegionResultAttrVerify = 1;
  let extraClassDeclaration = [{
  private:
    friend class ShardingAttr;
    std::mutex readMutex;
    std::map<std::pair<const void *, const void *>, std::optional<::cleave::Sharding>> read; // by attribute and type
  }];
}

def Dist_ShardingAttr : AttrDef<Dist_Dialect, "Sharding"> {
  let mnemonic = "sharding";
  let summary = "a tensor's sharding, in the text form of ir/dist/Sharding.h";
  let description = [{
    One entry per dimension, separated by commas: `_` (not split), `dp` (split over dp), `dp+tp` (joined axes), or factors
    `(3 x 4:tp x 16)`; then optionally `| sum tp`: partial. Example: `#dist.sharding<"dp, _, (3 x 4:tp x 16) | sum pp">`.
  }];
  let parameters = (ins StringRefParameter<"text form">:$text);
  let assemblyFormat = "`<` $text `>`";
  let genVerifyDecl = 1;
  let extraClassDeclaration = [{
    /// The sharding of a tensor of this (global) type, with sizes resolved; null if it does not fit. Parsed once per
    /// type and cached in the context.
    const ::cleave::Sharding *forType(::mlir::Type type) const;
  }];
}

def Dist_Tensor : AnyTypeOf<[AnyRankedTensor]>;

class Dist_Op<string mnemonic, list<Trait> traits = []> : Op<Dist_Dialect, mnemonic, traits> {
  let assemblyFormat = "operands attr-dict `:` functional-type(operands, results)";
}

let opDocGroup = OpGroup<"Meshes and reshards"> in {

def Dist_MeshOp : Op<Dist_Dialect, "mesh", [Symbol]> {
  let summary = "a grid of devices: names and sizes of its axes";
  let description = [{ (C1) names and sizes have equal length. (C2) names differ. (C3) sizes are at least 1. }];
  let arguments = (ins SymbolNameAttr:$sym_name, StrArrayAttr:$axes, DenseI64ArrayAttr:$sizes);
  let assemblyFormat = "$sym_name $axes $sizes attr-dict";
  let hasVerifier = 1;
}

def Dist_ReshardOp : Dist_Op<"reshard", [Pure, SameOperandsAndResultType]> {
  let summary = "the same global tensor under another sharding (annotated phase)";
  let arguments = (ins Dist_Tensor:$input, Dist_ShardingAttr:$from, Dist_ShardingAttr:$to);
  let results = (outs Dist_Tensor:$result);
}

} // group

// ---- local phase: `axes` are mesh axis names; the members are the ranks that differ only in those coordinates --------

let opDocGroup = OpGroup<"Collectives"> in {

def Dist_AllReduceOp : Dist_Op<"all_reduce"> {
  let summary = "reduces over the members, in member order; every member receives the result; several tensors form one bucket";
  let description = [{
    (C1) at least one operand. (C2) results have the operands' types. (C3) axes are not empty. If `stages` is given, only
    those coordinates of axis pp are members (a parameter tied between stages). (C4) `kind` is "sum", "max", "min" or "or".
  }];
  let arguments = (ins Variadic<Dist_Tensor>:$inputs, StrArrayAttr:$axes, StrAttr:$kind, OptionalAttr<DenseI64ArrayAttr>:$stages);
  let extraClassDeclaration = [{ PartialKind getReduction() { return *partialKindOf(getKind()); } }];
  let results = (outs Variadic<Dist_Tensor>:$results);
  let hasVerifier = 1;
}
def Dist_AllGatherOp : Dist_Op<"all_gather"> {
  let summary = "concatenates the members' shares (`sizes`, in member order) along dimension `dim`, on every member";
  let description = [{ (C1) one size per member; the result's dimension is their sum. (C2) the operand's dimension is one of the sizes. }];
  let arguments = (ins Dist_Tensor:$input, StrArrayAttr:$axes, I64Attr:$dim, DenseI64ArrayAttr:$sizes);
  let results = (outs Dist_Tensor:$result);
  let hasVerifier = 1;
}
def Dist_ReduceScatterOp : Dist_Op<"reduce_scatter"> {
  let summary = "reduces over the members; each member keeps its share along dimension `dim`";
  let description = [{ (C1) one size per member; the operand's dimension is their sum. (C2) the result's dimension is one of the sizes. (C3) `kind` is "sum", "max", "min" or "or". }];
  let arguments = (ins Dist_Tensor:$input, StrArrayAttr:$axes, I64Attr:$dim, DenseI64ArrayAttr:$sizes, StrAttr:$kind);
  let extraClassDeclaration = [{ PartialKind getReduction() { return *partialKindOf(getKind()); } }];
  let results = (outs Dist_Tensor:$result);
  let hasVerifier = 1;
}
def Dist_AllToAllOp : Dist_Op<"all_to_all", [SameOperandsAndResultType]> {
  let summary = "the operand has a block for each member along dimension 0: block j is sent to member j, and block i of the result is from member i";
  let description = [{ (C1) axes are not empty. (C2) the operand has a dimension 0. }];
  let arguments = (ins Dist_Tensor:$input, StrArrayAttr:$axes);
  let results = (outs Dist_Tensor:$result);
  let hasVerifier = 1;
}

} // group

let opDocGroup = OpGroup<"Shares of a rank"> in {

def Dist_ShardOffsetOp : Dist_Op<"shard_offset", [Pure]> {
  let summary = "start of this rank's share of `size` elements split over `axes`, tensor<i32>, read from the rank's table";
  let arguments = (ins I64Attr:$size, StrArrayAttr:$axes);
  let results = (outs Dist_Tensor:$result);
}
def Dist_ShardSliceOp : Dist_Op<"shard_slice", [Pure]> {
  let summary = "this rank's share of dimension `dim`, viewed as [outer, size, inner] with `size` split over `axes`";
  let description = [{ (C1) outer * size * inner is the operand's dimension. No communication. }];
  let arguments = (ins Dist_Tensor:$input, StrArrayAttr:$axes, I64Attr:$dim, I64Attr:$outer, I64Attr:$size, I64Attr:$inner);
  let results = (outs Dist_Tensor:$result);
  let hasVerifier = 1;
}

} // group

let opDocGroup = OpGroup<"Messages"> in {

def Dist_SendOp : Dist_Op<"send"> {
  let summary = "starts sending the operand to the rank of stage `stage` with this rank's other coordinates";
  let arguments = (ins Dist_Tensor:$input, I64Attr:$stage, I64Attr:$tag);
}
def Dist_RecvOp : Dist_Op<"recv"> {
  let summary = "receives what the rank of stage `stage` sends with tag `tag` in the same microbatch";
  let arguments = (ins I64Attr:$stage, I64Attr:$tag);
  let results = (outs Dist_Tensor:$result);
}

} // group

#endif
