// The library dialect: calls of cuBLASLt, cuDNN and oneDNN, with strides, epilogues and accumulation.
#ifndef CLEAVE_LIBRARY_OPS
#define CLEAVE_LIBRARY_OPS

include "ir/OpGroup.td"
include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/EnumAttr.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

def Library_Dialect : Dialect {
  let name = "library";
  let cppNamespace = "::cleave::library";
  let summary = "calls of a library: graph ops with the memory layout and the epilogue that a library call has";
  let description = [{
    The library dialect says *which call* computes an op. It exists between selection and export. Selection
    (`passes/select`) replaces graph ops by these ops before fusion, so that strides, biases and accumulation are decided
    while the graph is still plain. A graph op that says all that its call needs stays as it is: pooling, its gradients, and
    the gradient of a convolution's input. Fusion makes kernels of the other graph ops that are left and does not look into
    library ops. Export writes one step of the plan for each library op. A cost model reads the same ops: every op says how
    many floating-point operations it does, and its types and views say which bytes it reads and writes.

    *Views.* A call reads an operand as a strided window onto the tensor's memory: `#library.view<offset, [strides]>`, in
    elements. Transposes, slices, reshapes and broadcasts before the call become views, and so do transposes and reshapes
    after it. An operand is therefore the tensor whose memory is read, and the result is the tensor whose memory is
    written; the shape that the call computes on is given by attributes.

    *Destinations.* An op with an operand `into` writes its result into the memory of that operand. With `accumulate` the
    result is `into` plus what the op computes. Without it the op overwrites the elements that its view reaches and keeps
    the others: so several calls fill one concatenation.

    *Epilogues.* `relu`, `gelu` (the tanh form) and `gelu_gradient` are applied to the sums before they are rounded to the
    result's type, after the bias is added. They are the epilogues of cuBLASLt (cublasLtEpilogue_t), and `relu` that of
    cuDNN's convolutions. CPUs use fused kernels for them.

    All ops are pure: `into` is an operand like any other, and export gives the result the memory of `into`.

    Constraints are numbered per op (C1, C2, ...); the verifier's messages and the tests name them.
  }];
  let useDefaultAttributePrinterParser = 1;
}

def Library_ViewAttr : AttrDef<Library_Dialect, "View"> {
  let mnemonic = "view";
  let summary = "element (i0, i1, ...) is at offset + i0 * strides[0] + i1 * strides[1] + ..., in elements";
  let parameters = (ins "int64_t":$offset, OptionalArrayRefParameter<"int64_t">:$strides);
  let assemblyFormat = "`<` $offset `,` `[` (`]`) : ($strides^ `]`)? `>`";
  let genVerifyDecl = 1;
  let builders = [AttrBuilder<(ins "const ::cleave::library::Strided &":$view), [{
    return $_get($_ctxt, view.offset, ::llvm::ArrayRef<int64_t>(view.strides));
  }]>];
}

def Library_Epilogue : I32EnumAttr<"Epilogue", "what is applied to the sums of a call", [
    I32EnumAttrCase<"None", 0, "none">, I32EnumAttrCase<"Relu", 1, "relu">, I32EnumAttrCase<"Gelu", 2, "gelu">,
    I32EnumAttrCase<"GeluGradient", 3, "gelu_gradient">]> {
  let cppNamespace = "::cleave::library"; let genSpecializedAttr = 0;
}
def Library_EpilogueAttr : EnumAttr<Library_Dialect, Library_Epilogue, "epilogue"> { let assemblyFormat = "`<` $value `>`"; }

def Library_Call : OpInterface<"Call"> {
  let cppNamespace = "::cleave::library";
  let description = "What all library calls answer.";
  let methods = [
    InterfaceMethod<"The operand whose memory the first result takes; null: the result has memory of its own.",
                    "::mlir::Value", "getInto", (ins), "", "return {};">
  ];
}

def Library_Tensor : StaticShapeTensorOf<[F32, F16, BF16, I32, I64, I1, UI8]>;
def Library_Float : StaticShapeTensorOf<[F32, F16, BF16]>;
def Library_Int : StaticShapeTensorOf<[I32]>;
def Library_Bool : StaticShapeTensorOf<[I1]>;

class Library_Op<string mnemonic, list<Trait> traits = []>
    : Op<Library_Dialect, mnemonic, !listconcat([Pure, DeclareOpInterfaceMethods<Library_Call>], traits)> {
  let assemblyFormat = "operands attr-dict `:` functional-type(operands, results)";
  let hasVerifier = 1;
}

let opDocGroup = OpGroup<"Matrix products"> in {

def Library_MatmulOp : Library_Op<"matmul", [AttrSizedOperandSegments]> {
  let summary = "c = epilogue(a b + bias), or into + a b; batched: for every index into `batch`";
  let description = [{
    The views have one stride for each batch dimension, then those of [m, k] (a), [k, n] (b) and [m, n] (c, aux). `bias`
    has one element for each column. `aux` is what gelu is applied to: read by `gelu_gradient`, which multiplies the sums
    by gelu's slope there; written by `gelu` as the second result where there is one. With `sum_rows` the second result is
    the sums of a's rows: a bias's gradient, computed beside that of the weight.
    (C1) batch sizes, m, n and k are positive. (C2) views have one stride per dimension. (C3) views stay inside their
    tensors. (C4) one stride of each matrix is 1 and the other steps over its rows or columns; of c and aux it is the
    last. (C5) c's elements do not overlap. (C6) a and b have one element type, the result the same, or f32 where they are
    half; bias and into have the result's. (C7) bias has n elements. (C8) into has the result's type, and accumulate
    needs it. (C9) aux is there with gelu_gradient alone, and there is a view of aux where it is read or written; an
    epilogue has no batch and does not accumulate. (C10) sum_rows has no batch and no epilogue, and its result m elements.
    (C11) a second result is what gelu was applied to, or the sums of rows.
  }];
  let arguments = (ins Library_Float:$a, Library_ViewAttr:$a_view, Library_Float:$b, Library_ViewAttr:$b_view,
                       Optional<Library_Float>:$bias, Optional<Library_Float>:$into, Optional<Library_Float>:$aux,
                       Library_ViewAttr:$c_view, OptionalAttr<Library_ViewAttr>:$aux_view,
                       DefaultValuedAttr<DenseI64ArrayAttr, "{}">:$batch, I64Attr:$m, I64Attr:$n, I64Attr:$k,
                       UnitAttr:$accumulate, DefaultValuedAttr<Library_EpilogueAttr, "Epilogue::None">:$epilogue,
                       UnitAttr:$sum_rows);
  let results = (outs Library_Float:$result, Optional<Library_Float>:$second);
  let assemblyFormat = [{
    $a $a_view `,` $b $b_view (`bias` $bias^)? (`into` $into^)? (`aux` $aux^)? `to` $c_view
    attr-dict `:` functional-type(operands, results)
  }];
  let extraClassDeclaration = [{
    /// Second result: what gelu was applied to; null where there is none.
    ::mlir::Value auxResult() { return getSumRows() ? ::mlir::Value() : getSecond(); }
    /// Second result: the sums of a's rows; null where there is none.
    ::mlir::Value rowSums() { return getSumRows() ? getSecond() : ::mlir::Value(); }
  }];
}

} // group

let opDocGroup = OpGroup<"Convolutions"> in {

defvar Library_ConvAttributes = (ins DenseI64ArrayAttr:$stride, DenseI64ArrayAttr:$padding, DenseI64ArrayAttr:$dilation,
                                     I64Attr:$groups, UnitAttr:$channels_last);

def Library_Conv2dOp : Library_Op<"conv2d"> {
  let summary = "epilogue(convolution + bias); shapes and attributes as cleave.conv2d";
  let description = [{
    (C1) to (C5) as cleave.conv2d. (C6) the result has the convolution's shape. (C7) element types are equal. (C8) bias has
    one element per output channel. (C9) the epilogue is none, or relu after a bias.
  }];
  let arguments = !con((ins Library_Float:$input, Library_Float:$weight, Optional<Library_Float>:$bias), Library_ConvAttributes,
                       (ins DefaultValuedAttr<Library_EpilogueAttr, "Epilogue::None">:$epilogue));
  let results = (outs Library_Float:$result);
  let assemblyFormat = "$input `,` $weight (`bias` $bias^)? attr-dict `:` functional-type(operands, results)";
}
def Library_Conv2dWeightGradOp : Library_Op<"conv2d_weight_grad"> {
  let summary = "gradient of a convolution's weight (the result), or into plus it";
  let description = [{
    (C1) to (C5) as cleave.conv2d. (C6) grad has the convolution's shape. (C7) the element types of grad and input are
    equal; that of the result is the same or f32. (C8) into has the result's type and comes with accumulate.
  }];
  let arguments = !con((ins Library_Float:$grad, Library_Float:$input, Optional<Library_Float>:$into), Library_ConvAttributes,
                       (ins UnitAttr:$accumulate));
  let results = (outs Library_Float:$result);
  let assemblyFormat = "$grad `,` $input (`into` $into^)? attr-dict `:` functional-type(operands, results)";
}

} // group

let opDocGroup = OpGroup<"Attention"> in {

defvar Library_AttentionAttributes = (ins OptionalAttr<Library_ViewAttr>:$bias_view, OptionalAttr<Library_ViewAttr>:$keep_view,
                                          I64Attr:$batch, I64Attr:$heads, I64Attr:$rows, I64Attr:$keys, I64Attr:$width,
                                          F64Attr:$scale, UnitAttr:$causal, DefaultValuedAttr<F64Attr, "0.0">:$dropout);

def Library_AttentionOp : Library_Op<"attention", [AttrSizedOperandSegments]> {
  let summary = "attention, heads read and written in place; bias, keep, dropout and lse as cleave.attention";
  let description = [{
    Views have four strides: q and result of [batch, heads, rows, width], k and v of [batch, heads, keys, width], bias and
    keep of [batch, heads, rows, keys].
    (C1) sizes are positive, and causal needs rows <= keys. (C2) views have four strides, the last of them 1. (C3) views
    stay inside their tensors. (C4) the result's elements do not overlap. (C5) element types are equal, and lse is f32 of
    [batch, heads, rows]. (C6) bias is f32; bias and keep come with their views, keep with dropout, which is in [0, 1).
  }];
  let arguments = !con((ins Library_Float:$q, Library_ViewAttr:$q_view, Library_Float:$k, Library_ViewAttr:$k_view,
                            Library_Float:$v, Library_ViewAttr:$v_view, Optional<Library_Float>:$bias,
                            Optional<Library_Bool>:$keep, Library_ViewAttr:$out_view), Library_AttentionAttributes);
  let results = (outs Library_Float:$result, Library_Float:$lse);
  let assemblyFormat = [{
    $q $q_view `,` $k $k_view `,` $v $v_view (`bias` $bias^ $bias_view)? (`keep` $keep^ $keep_view)? `to` $out_view attr-dict
    `:` functional-type(operands, results)
  }];
}
def Library_AttentionGradOp : Library_Op<"attention_grad", [AttrSizedOperandSegments]> {
  let summary = "gradients of q, k and v: three results, or one tensor that holds all three (a projection's gradient)";
  let description = [{
    (C1) sizes are positive, and causal needs rows <= keys. (C2) views have four strides, the last of them 1. (C3) views
    stay inside their tensors. (C4) the gradients' elements do not overlap. (C5) element types are equal, and lse is f32 of
    [batch, heads, rows]. (C6) as attention. (C7) there are one or three results.
  }];
  let arguments = !con((ins Library_Float:$grad, Library_ViewAttr:$grad_view, Library_Float:$q, Library_ViewAttr:$q_view,
                            Library_Float:$k, Library_ViewAttr:$k_view, Library_Float:$v, Library_ViewAttr:$v_view,
                            Library_Float:$out, Library_ViewAttr:$out_view, Library_Float:$lse, Optional<Library_Float>:$bias,
                            Optional<Library_Bool>:$keep, Library_ViewAttr:$dq_view, Library_ViewAttr:$dk_view,
                            Library_ViewAttr:$dv_view), Library_AttentionAttributes);
  let results = (outs Variadic<Library_Float>:$results);
  let assemblyFormat = [{
    $grad $grad_view `,` $q $q_view `,` $k $k_view `,` $v $v_view `,` $out $out_view `,` $lse
    (`bias` $bias^ $bias_view)? (`keep` $keep^ $keep_view)? `to` $dq_view `,` $dk_view `,` $dv_view attr-dict
    `:` functional-type(operands, results)
  }];
  let extraClassDeclaration = [{
    /// The results that hold the gradients of q, k and v.
    ::mlir::Value gradient(unsigned i) { return getResults()[getResults().size() == 1 ? 0 : i]; }
  }];
}

} // group

let opDocGroup = OpGroup<"Look-ups and copies"> in {

def Library_EmbeddingGradOp : Library_Op<"embedding_grad", [AttrSizedOperandSegments]> {
  let summary = "gradient of an embedding's table, or into plus it; operands as cleave.embedding_grad";
  let description = [{
    (C1) grad's shape is ids' shape and the width. (C2) the result has rank 2 and that width. (C3) element types are equal.
    (C4) into has the result's type and comes with accumulate. (C5) start is a scalar.
  }];
  let arguments = (ins Library_Float:$grad, Library_Int:$ids, Optional<Library_Int>:$start, Optional<Library_Float>:$into,
                       UnitAttr:$accumulate);
  let results = (outs Library_Float:$result);
  let assemblyFormat = [{
    $grad `,` $ids (`start` $start^)? (`into` $into^)? attr-dict `:` functional-type(operands, results)
  }];
}
def Library_CopyOp : Library_Op<"copy"> {
  let summary = "copies a window onto the source's memory to one onto the result's";
  let description = [{
    (C1) sizes are positive. (C2) views have one stride per dimension. (C3) views stay inside their tensors. (C4) the
    result's elements do not overlap. (C5) element types are equal. (C6) into has the result's type.
  }];
  let arguments = (ins Library_Tensor:$source, Library_ViewAttr:$source_view, Optional<Library_Tensor>:$into,
                       Library_ViewAttr:$result_view, DenseI64ArrayAttr:$shape);
  let results = (outs Library_Tensor:$result);
  let assemblyFormat = [{
    $source $source_view (`into` $into^)? `to` $result_view attr-dict `:` functional-type(operands, results)
  }];
}

} // group

#endif
