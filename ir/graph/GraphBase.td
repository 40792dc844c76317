// The graph dialect's base: dialect description, attributes, enums and op classes.
#ifndef CLEAVE_GRAPH_BASE
#define CLEAVE_GRAPH_BASE

include "ir/OpGroup.td"
include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/EnumAttr.td"
include "mlir/Interfaces/InferTypeOpInterface.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

def Cleave_Dialect : Dialect {
  let name = "cleave";
  let cppNamespace = "::cleave::ir";
  let summary = "a neural network's training step on whole tensors, independent of devices";
  let description = [{
    The graph dialect describes *what* a network computes, not where. Tensors are ranked, static and whole: a value of type
    `tensor<48x784xf32>` is the whole microbatch, even if many devices will hold pieces of it. All ops are pure. State
    (parameters, running statistics, optimizer state) enters a function as arguments and leaves it as results.

    A model is a module with functions (`func.func`):

    - `@forward`: the model traced for training. Arguments have `cleave.kind` ("input", "parameter", "buffer") and
      `cleave.name` (the module path, "blocks.0.attention.qkv.weight"). Parameters and buffers also have `cleave.init`;
      parameters have `cleave.trainable` and optionally `cleave.lr_scale`, `cleave.weight_decay` (parameter groups). Results
      have `cleave.kind`: "loss" (the *sum* over samples, `tensor<f32>`), "weight" (the number of samples or positions
      counted, `tensor<f32>`), "correct" (optional metric, `tensor<f32>`), "buffer" with its `cleave.name` (the new value),
      "invalid" (how many computed indices no element has, `tensor<f32>`; `cleave.name` tells which function reads them). An
      input whose values are read as indices has `cleave.indices`.
    - `@eval`: the same model traced for inference; results "loss", "weight", "correct", "invalid".
    - `@train`: `@forward` after differentiation: its results and, for every trainable parameter, a result of kind
      "gradient" with the parameter's name. A parameter on which the traced loss does not depend is no longer trainable.
    - `@update`: the optimizer as graph ops: arguments "parameter", "gradient", "state" (named "<parameter>.<slot>"),
      "scalar" ("lr", "step": `tensor<f32>`), "metric" ("weight": `tensor<f32>`); results "parameter" and "state".

    A loss of several terms has further results "loss" and "weight", with `cleave.name` "1", "2", ...; the loss is the sum of
    the quotients. Gradients then need the weights of the whole batch. After differentiation, `@weights` returns the weights of
    a microbatch, computed from inputs alone, and `@train` takes the summed weights as arguments of kind "metric" instead of
    returning them; `@update` then has no "metric".

    Every op has the user's source line as its location, `cleave.path` (the path of the module that created it) and, if the
    user set one, `cleave.stage`. Ops with `cleave.per_microbatch` combine the samples of a microbatch on purpose. Where stages are
    cut, ops get the layer that they are in, `cleave.layer`; ops outside any module have one, too. Differentiation copies path, layer
    and stage to the gradient ops and adds `cleave.phase = "backward"`. Before local programs are made, ops of the backward pass
    whose results no other layer waits for (or stage, if the schedule splits the pass) get `cleave.role = "weight_gradient"`. Other
    roles are those of reshards: "parameters" gathers a parameter, "gradients" sums a gradient, "metrics" sums a metric.
    Broadcasting is explicit (`cleave.broadcast`), so that the operands of elementwise ops,
    their gradients and their sharding rules have equal shapes. Composite ops (softmax, layer_norm, batch_norm, cross_entropy)
    have gradient ops and are decomposed into primitives after differentiation, before a strategy is applied. A reduction
    over a split dimension is then an ordinary partial sum, so synchronised batch normalisation and cross-entropy over
    split classes need no rule of their own.

    These attributes may be on ops of any dialect:

    | attribute | on | type |
    |---|---|---|
    | `cleave.kind`, `cleave.name` | arguments, results | string |
    | `cleave.init` | arguments | `#cleave.init` |
    | `cleave.indices` | arguments that are inputs | array of `#cleave.indices` |
    | `cleave.trainable` | arguments; results that are gradients | bool |
    | `cleave.lr_scale`, `cleave.weight_decay` | arguments | f64 |
    | `cleave.parameter` | ops of `@update` and its states: the parameter to which they belong | string |
    | `cleave.path` | ops | string |
    | `cleave.layer` | ops: the layer; of a fusion, the first | string |
    | `cleave.last_layer` | fusions of several layers: the last | string |
    | `cleave.role` | ops | string |
    | `cleave.stage` | ops, results | i64 |
    | `cleave.phase` | ops | string, "backward" |
    | `cleave.per_microbatch` | ops | unit |
    | `cleave.activation` | a cast at the end of a composite op, which mixed precision may store in the half type | unit |
    | `cleave.single` | a matrix product that stays f32 under mixed precision | unit |
    | `cleave.static_weight` | `@forward`: the weight of a microbatch if the loss ignores no label; at least 1 | i64 |
    | `cleave.static_count` | `@train`: the same for all microbatches of a step | i64 |
    | `cleave.optimizer` | the module: the optimizer and its settings | dictionary |
    | `cleave.loss_scale` | the module: `initial`, `dynamic`, `growth_interval` | dictionary |
    | `cleave.reduce_dtype` | the module: the type in which gradients are reduced | type |
    | `cleave.epilogues` | the module: matrix products may compute bias and activation | unit |

    The verifier checks for each attribute of the dialect that (C1) it is one of these, (C2) it is where it may be, (C3) it
    has its type, (C4) `cleave.phase` is "backward", (C5) `cleave.kind` is a kind
    of `ir/graph/SlotKind.h`, (C6) `cleave.indices` has entries `#cleave.indices`, each with as many starts as sizes,
    (C7) `cleave.stage` lies in [0, 2^20), (C8) `cleave.role` is "weight_gradient", "gradients", "parameters" or
    "metrics".

    Constraints are numbered per op (C1, C2, ...); the verifier's messages and the tests refer to these numbers. If result
    types are inferred, inference checks the constraints. If a trait requires equal shapes or types, the message is the
    trait's.
  }];
  let useDefaultAttributePrinterParser = 1;
  let hasConstantMaterializer = 1;
  let discardableAttrs = (ins
    "::mlir::StringAttr":$kind, "::mlir::StringAttr":$name, "::cleave::ir::InitAttr":$init,
    "::mlir::ArrayAttr":$indices, "::mlir::BoolAttr":$trainable,
    "::mlir::FloatAttr":$lr_scale, "::mlir::FloatAttr":$weight_decay, "::mlir::StringAttr":$parameter,
    "::mlir::StringAttr":$path, "::mlir::StringAttr":$layer, "::mlir::StringAttr":$last_layer, "::mlir::StringAttr":$role,
    "::mlir::IntegerAttr":$stage, "::mlir::StringAttr":$phase, "::mlir::UnitAttr":$per_microbatch,
    "::mlir::UnitAttr":$activation, "::mlir::UnitAttr":$single,
    "::mlir::IntegerAttr":$static_weight, "::mlir::IntegerAttr":$static_count,
    "::mlir::DictionaryAttr":$optimizer, "::mlir::DictionaryAttr":$loss_scale, "::mlir::TypeAttr":$reduce_dtype,
    "::mlir::UnitAttr":$epilogues);
  let hasOperationAttrVerify = 1;
  let hasRegionArgAttrVerify = 1;
  let hasRegionResultAttrVerify = 1;
}

class Cleave_Attr<string name, string attrMnemonic> : AttrDef<Cleave_Dialect, name> { let mnemonic = attrMnemonic; }

/// A double printed with enough digits to be parsed back exactly.
def Cleave_Double : AttrOrTypeParameter<"::cleave::ir::Number", "a number"> {
  let cppAccessorType = "double";
  let parser = "::cleave::ir::parseNumber($_parser)";
  let printer = "$_printer.printFloat(::llvm::APFloat(double($_self)))";
}

def Cleave_InitAttr : Cleave_Attr<"Init", "init"> {
  let summary = "initial values of a parameter";
  let description = [{ `constant` a; `uniform` in [a, b); `normal` with mean a and standard deviation b. }];
  let parameters = (ins StringRefParameter<"constant, uniform or normal">:$distribution, Cleave_Double:$a, Cleave_Double:$b);
  let assemblyFormat = "`<` $distribution `,` $a `,` $b `>`";
}

def Cleave_IndicesAttr : Cleave_Attr<"Indices", "indices"> {
  let summary = "which values of an input a function may read as indices";
  let description = [{
    Of each sample, the elements from `start`, `size` of them in each dimension: values in [least, below), or `ignored` (by
    default -2^40, which no value is). `reader`: the function and its place in the program, for messages.
  }];
  let parameters = (ins "::mlir::StringAttr":$reader, "int64_t":$least, "int64_t":$below,
                        DefaultValuedParameter<"int64_t", "::cleave::ir::noIndex">:$ignored,
                        OptionalArrayRefParameter<"int64_t">:$start, OptionalArrayRefParameter<"int64_t">:$size);
  let assemblyFormat = "`<` $reader `,` $least `,` $below (`ignored` $ignored^)? (`from` `[` $start^ `]` `size` `[` $size `]`)? `>`";
}

def Cleave_ReduceKind : I32EnumAttr<"ReduceKind", "combining function of a reduction", [
    I32EnumAttrCase<"Sum", 0, "sum">, I32EnumAttrCase<"Max", 1, "max">, I32EnumAttrCase<"Min", 2, "min">]> {
  let cppNamespace = "::cleave::ir"; let genSpecializedAttr = 0;
}
def Cleave_ReduceKindAttr : EnumAttr<Cleave_Dialect, Cleave_ReduceKind, "reduce_kind"> { let assemblyFormat = "$value"; }

def Cleave_Predicate : I32EnumAttr<"Predicate", "predicate of a comparison", [
    I32EnumAttrCase<"Eq", 0, "eq">, I32EnumAttrCase<"Ne", 1, "ne">, I32EnumAttrCase<"Lt", 2, "lt">,
    I32EnumAttrCase<"Le", 3, "le">, I32EnumAttrCase<"Gt", 4, "gt">, I32EnumAttrCase<"Ge", 5, "ge">]> {
  let cppNamespace = "::cleave::ir"; let genSpecializedAttr = 0;
}
def Cleave_PredicateAttr : EnumAttr<Cleave_Dialect, Cleave_Predicate, "predicate"> { let assemblyFormat = "$value"; }

def Cleave_Tensor : StaticShapeTensorOf<[F32, F16, BF16, I32, I64, I1, UI8]> {
  let summary = "tensor of static shape of f32, f16, bf16, i32, i64, i1 or ui8";
}
def Cleave_FloatTensor : StaticShapeTensorOf<[F32, F16, BF16]> {
  let summary = "tensor of static shape of f32, f16 or bf16";
}
def Cleave_IntTensor : StaticShapeTensorOf<[I32, I64]> {
  let summary = "tensor of static shape of i32 or i64";
}
def Cleave_Int32Tensor : StaticShapeTensorOf<[I32]> {
  let summary = "tensor of static shape of i32";
}
def Cleave_BoolTensor : StaticShapeTensorOf<[I1]> {
  let summary = "tensor of static shape of i1";
}

class Cleave_Op<string mnemonic, list<Trait> traits = []> : Op<Cleave_Dialect, mnemonic, !listconcat([Pure], traits)> {
  let assemblyFormat = "operands attr-dict `:` functional-type(operands, results)";
}
/// Result types follow from operands and attributes: `builder.create<Op>(loc, operands..., attributes...)`.
class Cleave_InferOp<string mnemonic, list<Trait> traits = []>
    : Cleave_Op<mnemonic, !listconcat([DeclareOpInterfaceMethods<InferTypeOpInterface>], traits)>;

/// Loses accuracy in half types: sums many terms, or amplifies small differences. Mixed precision computes it in f32.
def Cleave_Delicate : NativeOpTrait<"Delicate"> { let cppNamespace = "::cleave::ir"; }

/// An elementwise op that kernels compute. From these fields cmake/ElementwiseTable.cpp writes a table,
/// GraphElementwise.inc, of which the builder of ops, the interpreter, the frontend and code generation are made.
class Cleave_Elementwise<string mnemonic, string what, list<Trait> traits = []>
    : Cleave_Op<mnemonic, !listconcat([Elementwise], traits)> {
  let summary = what;
  int cycles = 1;    // of one vector in a CPU's kernel, by measurement
  bit exact = 0;     // selects or moves values, so the result needs no rounding
  string value = ""; // what the interpreter computes from doubles x (and y), in C++; "": it has a case of its own
  string llvm = "";  // the same from LLVM values, in C++ (passes/codegen/cpu/EmitValue.cpp)
}
class Cleave_Unary<string mnemonic, string what, string expression, list<Trait> traits = []>
    : Cleave_Elementwise<mnemonic, what, !listconcat([SameOperandsAndResultType], traits)> {
  let value = expression;
  let llvm = "math." # mnemonic # "(x)";
  let arguments = (ins Cleave_Tensor:$input);
  let results = (outs Cleave_Tensor:$result);
  let assemblyFormat = "$input attr-dict `:` type($result)";
}
/// A unary op that is also a function of the frontend, for float types.
class Cleave_Function<string mnemonic, string what, string expression, list<Trait> traits = []>
    : Cleave_Unary<mnemonic, what, expression, traits>;
class Cleave_Binary<string mnemonic, string what, string expression, list<Trait> traits = []>
    : Cleave_Elementwise<mnemonic, what, !listconcat([SameOperandsAndResultType], traits)> {
  let value = expression;
  let llvm = "math." # mnemonic # "(x, y)";
  let arguments = (ins Cleave_Tensor:$lhs, Cleave_Tensor:$rhs);
  let results = (outs Cleave_Tensor:$result);
  let assemblyFormat = "$lhs `,` $rhs attr-dict `:` type($result)";
}

#endif
