// The graph dialect's ops, with numbered constraints. GraphBase.td describes the dialect.
#ifndef CLEAVE_GRAPH_OPS
#define CLEAVE_GRAPH_OPS

include "ir/graph/GraphBase.td"

let opDocGroup = OpGroup<"Elementwise ops"> in {

def Cleave_NegOp : Cleave_Unary<"neg", "-x", "-x"> { let exact = 1; let llvm = "b.CreateFNeg(x)"; }
def Cleave_AbsOp : Cleave_Function<"abs", "|x|", "std::abs(x)"> { let exact = 1; }
def Cleave_ExpOp : Cleave_Function<"exp", "e^x", "std::exp(x)", [Cleave_Delicate]> { let cycles = 12; }
def Cleave_LogOp : Cleave_Function<"log", "natural logarithm", "std::log(x)", [Cleave_Delicate]> { let cycles = 16; }
def Cleave_SqrtOp : Cleave_Function<"sqrt", "square root", "std::sqrt(x)"> { let cycles = 10; }
def Cleave_RsqrtOp : Cleave_Function<"rsqrt", "1 / square root", "1 / std::sqrt(x)", [Cleave_Delicate]> { let cycles = 20; }
def Cleave_TanhOp : Cleave_Function<"tanh", "hyperbolic tangent", "std::tanh(x)"> { let cycles = 25; }
def Cleave_ErfOp : Cleave_Function<"erf", "error function", "std::erf(x)"> { let cycles = 35; }
def Cleave_SinOp : Cleave_Function<"sin", "sine of x in radians", "std::sin(x)"> { let cycles = 35; }
def Cleave_CosOp : Cleave_Function<"cos", "cosine of x in radians", "std::cos(x)"> { let cycles = 35; }
def Cleave_SigmoidOp : Cleave_Function<"sigmoid", "1 / (1 + e^-x)", "1 / (1 + std::exp(-x))"> { let cycles = 25; }
def Cleave_ReluOp : Cleave_Function<"relu", "max(x, 0)", "x < 0 ? 0 : x"> { let exact = 1; }
def Cleave_SiluOp : Cleave_Function<"silu", "x * sigmoid(x)", "x * (1 / (1 + std::exp(-x)))"> { let cycles = 25; }

def Cleave_FloorOp : Cleave_Function<"floor", "largest integer that is not larger than x", "std::floor(x)"> {
  let exact = 1; let llvm = "b.CreateUnaryIntrinsic(llvm::Intrinsic::floor, x)";
}
def Cleave_CeilOp : Cleave_Function<"ceil", "smallest integer that is not smaller than x", "std::ceil(x)"> {
  let exact = 1; let llvm = "b.CreateUnaryIntrinsic(llvm::Intrinsic::ceil, x)";
}
def Cleave_RoundOp : Cleave_Function<"round", "nearest integer, of two the even one", "std::nearbyint(x)"> {
  let exact = 1; let llvm = "b.CreateUnaryIntrinsic(llvm::Intrinsic::nearbyint, x)";
}
def Cleave_Log1pOp : Cleave_Function<"log1p", "log(1 + x), accurate for small x", "std::log1p(x)", [Cleave_Delicate]> {
  let cycles = 30;
}
def Cleave_Expm1Op : Cleave_Function<"expm1", "e^x - 1, accurate for small x", "std::expm1(x)", [Cleave_Delicate]> {
  let cycles = 25;
}
def Cleave_TanOp : Cleave_Function<"tan", "tangent of x in radians", "std::tan(x)", [Cleave_Delicate]> { let cycles = 70; }
def Cleave_SinhOp : Cleave_Function<"sinh", "hyperbolic sine", "std::sinh(x)", [Cleave_Delicate]> { let cycles = 40; }

def Cleave_AddOp : Cleave_Binary<"add", "x + y", "x + y", [Commutative]> {
  let hasCanonicalizer = 1; let llvm = "b.CreateFAdd(x, y)";
}
def Cleave_SubOp : Cleave_Binary<"sub", "x - y", "x - y"> { let hasCanonicalizer = 1; let llvm = "b.CreateFSub(x, y)"; }
def Cleave_MulOp : Cleave_Binary<"mul", "x * y", "x * y", [Commutative]> {
  let hasCanonicalizer = 1; let llvm = "b.CreateFMul(x, y)";
}
def Cleave_DivOp : Cleave_Binary<"div", "x / y", "x / y"> {
  let hasCanonicalizer = 1; let cycles = 10; let llvm = "math.divide(x, y)";
}
def Cleave_MaxOp : Cleave_Binary<"max", "larger of x and y; NaN if one is NaN", "x > y || std::isnan(x) ? x : y",
                                 [Commutative]> { let exact = 1; }
def Cleave_MinOp : Cleave_Binary<"min", "smaller of x and y; NaN if one is NaN", "x < y || std::isnan(x) ? x : y",
                                 [Commutative]> { let exact = 1; }
def Cleave_PowOp : Cleave_Binary<"pow", "x to the power y", "std::pow(x, y)", [Cleave_Delicate]> { let cycles = 400; }
def Cleave_RemainderOp : Cleave_Binary<"remainder", "x - y * floor(x / y), which has the sign of y",
    "std::fmod(x, y) + (std::fmod(x, y) * y < 0 ? y : 0)", [Cleave_Delicate]> { let cycles = 30; }
def Cleave_Atan2Op : Cleave_Binary<"atan2", "the angle of the point (y, x) in [-pi, pi]", "std::atan2(x, y)"> { let cycles = 40; }

def Cleave_GeluOp : Cleave_Elementwise<"gelu", "x * Phi(x), or its tanh approximation (Hendrycks and Gimpel 2016)",
                                       [SameOperandsAndResultType]> {
  let cycles = 35;
  let arguments = (ins Cleave_FloatTensor:$input, UnitAttr:$tanh);
  let results = (outs Cleave_FloatTensor:$result);
  let assemblyFormat = "$input attr-dict `:` type($result)";
}
def Cleave_GeluGradOp : Cleave_Elementwise<"gelu_grad", "gradient of gelu: grad * gelu'(input)", [SameOperandsAndResultType]> {
  let cycles = 50;
  let arguments = (ins Cleave_FloatTensor:$grad, Cleave_FloatTensor:$input, UnitAttr:$tanh);
  let results = (outs Cleave_FloatTensor:$result);
  let assemblyFormat = "$grad `,` $input attr-dict `:` type($result)";
}
def Cleave_CompareOp : Cleave_Elementwise<"compare", "elementwise comparison", [
    DeclareOpInterfaceMethods<InferTypeOpInterface>, SameTypeOperands]> {
  let description = [{ (C1) operands have equal types; the result has their shape and element type i1. }];
  let arguments = (ins Cleave_PredicateAttr:$predicate, Cleave_Tensor:$lhs, Cleave_Tensor:$rhs);
  let results = (outs Cleave_BoolTensor:$result);
  let assemblyFormat = "$predicate $lhs `,` $rhs attr-dict `:` type($lhs) `->` type($result)";
}
def Cleave_SelectOp : Cleave_Elementwise<"select", "condition ? onTrue : onFalse", [
    AllTypesMatch<["onTrue", "onFalse", "result"]>]> {
  let exact = 1;
  let description = [{ (C1) all operands have equal shapes. }];
  let arguments = (ins Cleave_BoolTensor:$condition, Cleave_Tensor:$onTrue, Cleave_Tensor:$onFalse);
  let results = (outs Cleave_Tensor:$result);
  let assemblyFormat = "$condition `,` $onTrue `,` $onFalse attr-dict `:` type($condition) `,` type($result)";
}
def Cleave_CastOp : Cleave_Elementwise<"cast", "change of element type (round to nearest even; float to int truncates)", [
    SameOperandsAndResultShape]> {
  let arguments = (ins Cleave_Tensor:$input);
  let results = (outs Cleave_Tensor:$result);
  let assemblyFormat = "$input attr-dict `:` type($input) `->` type($result)";
  let hasFolder = 1;
}

} // group

let opDocGroup = OpGroup<"Constants and indices"> in {

def Cleave_ConstantOp : Cleave_Op<"constant", [ConstantLike]> {
  let summary = "a constant tensor (usually a splat)";
  let description = [{ (C1) the value's type is the result's type. }];
  let arguments = (ins ElementsAttr:$value);
  let results = (outs Cleave_Tensor:$result);
  let assemblyFormat = "attr-dict $value `:` type($result)";
  let hasFolder = 1;
  let hasVerifier = 1;
}
def Cleave_IotaOp : Cleave_Op<"iota"> {
  let summary = "result[..., i, ...] = i (+ offset) along dimension `dim`";
  let description = [{
    (C1) 0 <= dim < rank. (C2) the result is i32. (C3) `offset`, added by the partitioner if the dimension is split,
    is tensor<i32>.
  }];
  let arguments = (ins Optional<Cleave_Tensor>:$offset, I64Attr:$dim);
  let results = (outs Cleave_IntTensor:$result);
  let hasVerifier = 1;
}
def Cleave_RandomUniformOp : Cleave_Op<"random_uniform"> {
  let summary = "uniform numbers in [0, 1), Philox keyed by (seed, name, training step, global element index)";
  let description = [{
    Dimension 0 has the samples, which are counted over the global batch; with `shared` no dimension has them, and the
    numbers are the same in every microbatch. With `at_least`, whether each is at least this number. (C1) the result is
    i1 with at_least, float without it.
  }];
  let arguments = (ins StrAttr:$name, OptionalAttr<F64Attr>:$at_least, UnitAttr:$shared);
  let results = (outs Cleave_Tensor:$result);
  let hasVerifier = 1;
}

} // group

let opDocGroup = OpGroup<"Shapes"> in {

def Cleave_BroadcastOp : Cleave_Op<"broadcast"> {
  let summary = "repeats the operand along new dimensions";
  let description = [{
    Operand dimension i becomes result dimension `dims[i]`; the operand is repeated along the others.
    (C1) dims has the operand's rank and increases strictly. (C2) operand dimension i has the size of result dimension
    dims[i]. (C3) element types are equal.
  }];
  let arguments = (ins Cleave_Tensor:$input, DenseI64ArrayAttr:$dims);
  let results = (outs Cleave_Tensor:$result);
  let assemblyFormat = "$input `dims` $dims attr-dict `:` type($input) `->` type($result)";
  let hasVerifier = 1;
  let hasFolder = 1;
}
def Cleave_ReduceOp : Cleave_InferOp<"reduce", [Cleave_Delicate]> {
  let summary = "sum, max or min over dimensions, which are removed; NaN if an element is NaN";
  let description = [{ (C1) dims increase strictly within [0, rank). }];
  let arguments = (ins Cleave_ReduceKindAttr:$kind, Cleave_Tensor:$input, DenseI64ArrayAttr:$dims);
  let results = (outs Cleave_Tensor:$result);
  let assemblyFormat = "$kind $input `dims` $dims attr-dict `:` type($input) `->` type($result)";
  let hasFolder = 1;
}
def Cleave_ReshapeOp : Cleave_Op<"reshape"> {
  let summary = "the same elements in row-major order under another shape";
  let description = [{ (C1) element counts are equal. (C2) element types are equal. }];
  let arguments = (ins Cleave_Tensor:$input);
  let results = (outs Cleave_Tensor:$result);
  let assemblyFormat = "$input attr-dict `:` type($input) `->` type($result)";
  let hasVerifier = 1;
  let hasFolder = 1;
  let hasCanonicalizer = 1;
}
def Cleave_TransposeOp : Cleave_InferOp<"transpose"> {
  let summary = "result dimension i is operand dimension permutation[i]";
  let description = [{ (C1) permutation is a permutation of [0, rank). }];
  let arguments = (ins Cleave_Tensor:$input, DenseI64ArrayAttr:$permutation);
  let results = (outs Cleave_Tensor:$result);
  let assemblyFormat = "$input `permutation` $permutation attr-dict `:` type($input) `->` type($result)";
  let hasFolder = 1;
  let hasCanonicalizer = 1;
}
def Cleave_SliceOp : Cleave_InferOp<"slice"> {
  let summary = "result[i] = input[starts + i], shape sizes";
  let description = [{ (C1) starts and sizes have the rank's length. (C2) 0 <= starts, 1 <= sizes, starts + sizes <= shape. }];
  let arguments = (ins Cleave_Tensor:$input, DenseI64ArrayAttr:$starts, DenseI64ArrayAttr:$sizes);
  let results = (outs Cleave_Tensor:$result);
  let assemblyFormat = "$input `starts` $starts `sizes` $sizes attr-dict `:` type($input) `->` type($result)";
  let hasFolder = 1;
}
def Cleave_PadOp : Cleave_InferOp<"pad"> {
  let summary = "adds zeros: `low` before and `high` after the operand, per dimension";
  let description = [{ (C1) low and high have the rank's length and are not negative. }];
  let arguments = (ins Cleave_Tensor:$input, DenseI64ArrayAttr:$low, DenseI64ArrayAttr:$high);
  let results = (outs Cleave_Tensor:$result);
  let assemblyFormat = "$input `low` $low `high` $high attr-dict `:` type($input) `->` type($result)";
}
def Cleave_ConcatOp : Cleave_InferOp<"concat"> {
  let summary = "concatenates the operands along `dim`";
  let description = [{ (C1) at least one operand. (C2) 0 <= dim < rank. (C3) other dimensions and element types are equal. }];
  let arguments = (ins Variadic<Cleave_Tensor>:$inputs, I64Attr:$dim);
  let results = (outs Cleave_Tensor:$result);
  let hasFolder = 1;
}

} // group

let opDocGroup = OpGroup<"Look-ups"> in {

def Cleave_GatherOp : Cleave_InferOp<"gather"> {
  let summary = "result[.., j, ..] = input[.., index[.., j, ..], ..] along `dim` (torch.gather)";
  let description = [{ (C1) ranks are equal. (C2) 0 <= dim < rank. (C3) other dimensions are equal. (C4) index is i32. }];
  let arguments = (ins Cleave_Tensor:$input, Cleave_IntTensor:$index, I64Attr:$dim);
  let results = (outs Cleave_Tensor:$result);
}
def Cleave_ScatterAddOp : Cleave_Op<"scatter_add"> {
  let summary = "gradient of gather: zeros with grad[.., j, ..] added at index[.., j, ..] along `dim`";
  let description = [{ (C1) grad and index have equal shapes. (C2) 0 <= dim < rank. (C3) other dimensions equal the result's. }];
  let arguments = (ins Cleave_Tensor:$grad, Cleave_IntTensor:$index, I64Attr:$dim);
  let results = (outs Cleave_Tensor:$result);
  let hasVerifier = 1;
}
def Cleave_EmbeddingOp : Cleave_InferOp<"embedding"> {
  let summary = "result[..., :] = table[ids[...] - start, :], zeros if that row does not exist";
  let description = [{
    (C1) the table has rank 2. (C2) ids are i32. The partitioner adds `start` (tensor<i32>) if rows are split.
  }];
  let arguments = (ins Cleave_FloatTensor:$table, Cleave_IntTensor:$ids, Optional<Cleave_Tensor>:$start);
  let results = (outs Cleave_FloatTensor:$result);
}
def Cleave_EmbeddingGradOp : Cleave_Op<"embedding_grad"> {
  let summary = "gradient of the table: row r is the sum of grad[i, :] over all i with ids[i] - start == r, in order of i";
  let description = [{ (C1) grad's shape is ids' shape followed by the width. (C2) the result has rank 2 and that width. }];
  let arguments = (ins Cleave_FloatTensor:$grad, Cleave_IntTensor:$ids, Optional<Cleave_Tensor>:$start);
  let results = (outs Cleave_FloatTensor:$result);
  let hasVerifier = 1;
}

} // group

let opDocGroup = OpGroup<"Matrix products and convolutions"> in {

def Cleave_MatmulOp : Cleave_InferOp<"matmul"> {
  let summary = "matrix product over the last two dimensions";
  let description = [{
    a: [..., m, k] ([..., k, m] if transA), b: [..., k, n] ([..., n, k] if transB), result [..., m, n]. Leading dimensions
    are equal, or b has rank 2 and is the same for all leading indices of a.
    (C1) ranks are at least 2. (C2) the contracted sizes are equal. (C3) leading dimensions are equal or b has rank 2.
    (C4) element types are equal. (C5) transA requires equal ranks.
  }];
  let arguments = (ins Cleave_FloatTensor:$a, Cleave_FloatTensor:$b, UnitAttr:$transA, UnitAttr:$transB);
  let results = (outs Cleave_FloatTensor:$result);
  let assemblyFormat = "$a `,` $b attr-dict `:` functional-type(operands, results)";
}
class Cleave_ConvLike<string mnemonic> : Cleave_Op<mnemonic> { let hasVerifier = 1; }
// stride = [h, w], padding = [top, left, bottom, right], dilation = [h, w]
def Cleave_Conv2dOp : Cleave_InferOp<"conv2d"> {
  let summary = "2-D convolution: input [n, c, h, w], weight [o, c/groups, kh, kw] -> [n, o, oh, ow]";
  let description = [{
    `channels_last`: input [n, h, w, c], weight [o, kh, kw, c/groups] -> [n, oh, ow, o]. oh = (h + top + bottom - dilation*(kh-1) - 1) / stride + 1.
    (C1) ranks are 4. (C2) c = groups * the weight's channels. (C3) groups divides o. (C4) the output is not empty.
    (C5) stride and dilation have 2 positive values, padding 4 that are not negative.
  }];
  let arguments = (ins Cleave_FloatTensor:$input, Cleave_FloatTensor:$weight, DenseI64ArrayAttr:$stride, DenseI64ArrayAttr:$padding,
                       DenseI64ArrayAttr:$dilation, I64Attr:$groups, UnitAttr:$channels_last);
  let results = (outs Cleave_FloatTensor:$result);
}
def Cleave_Conv2dInputGradOp : Cleave_ConvLike<"conv2d_input_grad"> {
  let summary = "gradient of conv2d's input (the result type), from weight and grad, the gradient of conv2d's result";
  let description = [{ (C1) to (C5) as conv2d. (C6) grad has the shape of the convolution's result.
    (C7) element types are equal. }];
  let arguments = (ins Cleave_FloatTensor:$grad, Cleave_FloatTensor:$weight, DenseI64ArrayAttr:$stride, DenseI64ArrayAttr:$padding,
                       DenseI64ArrayAttr:$dilation, I64Attr:$groups, UnitAttr:$channels_last);
  let results = (outs Cleave_FloatTensor:$result);
}
def Cleave_Conv2dWeightGradOp : Cleave_ConvLike<"conv2d_weight_grad"> {
  let summary = "gradient of conv2d's weight (the result type), from input and grad, the gradient of conv2d's result";
  let description = [{ (C1) to (C5) as conv2d. (C6) grad has the shape of the convolution's result.
    (C7) element types are equal. }];
  let arguments = (ins Cleave_FloatTensor:$grad, Cleave_FloatTensor:$input, DenseI64ArrayAttr:$stride, DenseI64ArrayAttr:$padding,
                       DenseI64ArrayAttr:$dilation, I64Attr:$groups, UnitAttr:$channels_last);
  let results = (outs Cleave_FloatTensor:$result);
}

} // group

let opDocGroup = OpGroup<"Pooling"> in {

// kernel = [h, w]; tensors are [n, c, h, w], with `channels_last` [n, h, w, c]
def Cleave_MaxPool2dOp : Cleave_InferOp<"max_pool2d"> {
  let summary = "maximum of each window, NaN if one is NaN; `workspace` (i32, the result's shape) is opaque, for the gradient only";
  let description = [{ (C1) rank is 4. (C2) the output is not empty. (C3) padding is smaller than the kernel.
    (C4) kernel and stride have 2 positive values, padding 4 that are not negative. }];
  let arguments = (ins Cleave_FloatTensor:$input, DenseI64ArrayAttr:$kernel, DenseI64ArrayAttr:$stride, DenseI64ArrayAttr:$padding,
                       UnitAttr:$channels_last);
  let results = (outs Cleave_FloatTensor:$result, Cleave_Int32Tensor:$workspace);
}
def Cleave_MaxPool2dGradOp : Cleave_Op<"max_pool2d_grad"> {
  let summary = "gradient of max_pool2d's input (the result type); the first maximum in row order receives it, or the last NaN";
  let description = [{ (C1) to (C4) as max_pool2d. (C5) grad has the shape of its result. (C6) the workspace has the same shape. }];
  let hasVerifier = 1;
  let arguments = (ins Cleave_FloatTensor:$grad, Cleave_Int32Tensor:$workspace, DenseI64ArrayAttr:$kernel, DenseI64ArrayAttr:$stride,
                       DenseI64ArrayAttr:$padding, UnitAttr:$channels_last);
  let results = (outs Cleave_FloatTensor:$result);
}
def Cleave_AvgPool2dOp : Cleave_InferOp<"avg_pool2d"> {
  let summary = "mean of each window, including the padding";
  let description = [{ (C1) rank is 4. (C2) the output is not empty. (C3) padding is smaller than the kernel.
    (C4) kernel and stride have 2 positive values, padding 4 that are not negative. }];
  let arguments = (ins Cleave_FloatTensor:$input, DenseI64ArrayAttr:$kernel, DenseI64ArrayAttr:$stride, DenseI64ArrayAttr:$padding,
                       UnitAttr:$channels_last);
  let results = (outs Cleave_FloatTensor:$result);
}
def Cleave_AvgPool2dGradOp : Cleave_Op<"avg_pool2d_grad"> {
  let summary = "gradient of avg_pool2d's input (the result type)";
  let description = [{ (C1) to (C4) as avg_pool2d. (C5) grad has the shape of its result. }];
  let hasVerifier = 1;
  let arguments = (ins Cleave_FloatTensor:$grad, DenseI64ArrayAttr:$kernel, DenseI64ArrayAttr:$stride, DenseI64ArrayAttr:$padding,
                       UnitAttr:$channels_last);
  let results = (outs Cleave_FloatTensor:$result);
}

} // group

let opDocGroup = OpGroup<"Attention"> in {

defvar Cleave_AttentionAttributes = (ins F64Attr:$scale, UnitAttr:$causal, DefaultValuedAttr<F64Attr, "0.0">:$dropout);

def Cleave_AttentionOp : Cleave_InferOp<"attention", [AttrSizedOperandSegments]> {
  let summary = "softmax(scale * q k^T + bias, causal mask) v; `lse` is the log of the softmax's denominator";
  let description = [{
    q [b, h, t, d], k and v [b, h, s, d] -> result [b, h, t, d], lse [b, h, t] (f32). Causal: position i sees j <= i + s - t.
    `bias`, in f32, is added to the scores; a row in which it is -infinity everywhere yields zeros, and an lse of infinity.
    `keep`: which elements of the softmax are not dropped; these are divided by 1 - dropout.
    (C1) ranks are 4. (C2) b, h, d agree and k's shape is v's. (C3) causal needs t <= s. (C4) bias is f32, and bias and keep
    are [b, h, t, s]. (C5) keep comes with dropout, which is in [0, 1).
  }];
  let arguments = !con((ins Cleave_FloatTensor:$q, Cleave_FloatTensor:$k, Cleave_FloatTensor:$v,
                            Optional<Cleave_FloatTensor>:$bias, Optional<Cleave_BoolTensor>:$keep), Cleave_AttentionAttributes);
  let results = (outs Cleave_FloatTensor:$result, Cleave_FloatTensor:$lse);
  let assemblyFormat = [{
    $q `,` $k `,` $v (`bias` $bias^)? (`keep` $keep^)? attr-dict `:` functional-type(operands, results)
  }];
}
def Cleave_AttentionGradOp : Cleave_InferOp<"attention_grad", [AttrSizedOperandSegments]> {
  let summary = "gradients of q, k and v (Dao et al. 2022, algorithm 4: probabilities are recomputed from lse)";
  let description = [{
    (C1) to (C5) as attention. (C6) grad and out have q's shape, lse q's without the last dimension.
  }];
  let arguments = !con((ins Cleave_FloatTensor:$grad, Cleave_FloatTensor:$q, Cleave_FloatTensor:$k, Cleave_FloatTensor:$v,
                            Cleave_FloatTensor:$out, Cleave_FloatTensor:$lse, Optional<Cleave_FloatTensor>:$bias,
                            Optional<Cleave_BoolTensor>:$keep), Cleave_AttentionAttributes);
  let results = (outs Cleave_FloatTensor:$gradQ, Cleave_FloatTensor:$gradK, Cleave_FloatTensor:$gradV);
  let assemblyFormat = [{
    $grad `,` $q `,` $k `,` $v `,` $out `,` $lse (`bias` $bias^)? (`keep` $keep^)? attr-dict
    `:` functional-type(operands, results)
  }];
}

} // group

let opDocGroup = OpGroup<"Composites"> in {

def Cleave_SoftmaxOp : Cleave_Op<"softmax", [SameOperandsAndResultType, Cleave_Delicate]> {
  let summary = "exp(x - max) / sum along `dim`";
  let description = [{ (C1) 0 <= dim < rank. }];
  let arguments = (ins Cleave_FloatTensor:$input, I64Attr:$dim);
  let results = (outs Cleave_FloatTensor:$result);
  let hasVerifier = 1;
}
def Cleave_LogSoftmaxOp : Cleave_Op<"log_softmax", [SameOperandsAndResultType, Cleave_Delicate]> {
  let summary = "log(softmax(x)) along `dim`";
  let description = [{ (C1) 0 <= dim < rank. }];
  let arguments = (ins Cleave_FloatTensor:$input, I64Attr:$dim);
  let results = (outs Cleave_FloatTensor:$result);
  let hasVerifier = 1;
}
def Cleave_LayerNormOp : Cleave_InferOp<"layer_norm"> {
  let summary = "(x - mean) / sqrt(var + eps) * weight + bias over the last dimension";
  let description = [{
    result as x; mean and rstd [leading dimensions] (f32). (C1) weight and bias have shape [last dimension].
  }];
  let arguments = (ins Cleave_FloatTensor:$input, Cleave_FloatTensor:$weight, Cleave_FloatTensor:$bias, F64Attr:$eps);
  let results = (outs Cleave_FloatTensor:$result, Cleave_FloatTensor:$mean, Cleave_FloatTensor:$rstd);
}
def Cleave_LayerNormGradOp : Cleave_InferOp<"layer_norm_grad"> {
  let summary = "gradients of layer_norm's input, weight and bias";
  let description = [{ (C1) grad has the input's shape, weight its last dimension, mean and rstd its leading ones. }];
  let arguments = (ins Cleave_FloatTensor:$grad, Cleave_FloatTensor:$input, Cleave_FloatTensor:$weight, Cleave_FloatTensor:$mean, Cleave_FloatTensor:$rstd);
  let results = (outs Cleave_FloatTensor:$gradInput, Cleave_FloatTensor:$gradWeight, Cleave_FloatTensor:$gradBias);
}
def Cleave_BatchNormOp : Cleave_InferOp<"batch_norm"> {
  let summary = "batch normalisation in training, over all dimensions except channels: statistics of the whole microbatch";
  let description = [{
    x [n, c, ...], with `channels_last` [n, ..., c] -> result; mean and variance (biased) [c]. (C1) rank is at least 2. (C2) weight and bias have shape [c].
    `group` > 0: statistics over each group of that many consecutive samples; then mean and variance are [n/group, c]. (C3) group divides n.
  }];
  let arguments = (ins Cleave_FloatTensor:$input, Cleave_FloatTensor:$weight, Cleave_FloatTensor:$bias, F64Attr:$eps, DefaultValuedAttr<I64Attr, "0">:$group, UnitAttr:$channels_last);
  let results = (outs Cleave_FloatTensor:$result, Cleave_FloatTensor:$mean, Cleave_FloatTensor:$variance);
}
def Cleave_BatchNormGradOp : Cleave_InferOp<"batch_norm_grad"> {
  let summary = "gradients of batch_norm's input, weight and bias";
  let description = [{
    (C1) grad has the input's shape and weight its channels. (C2) group divides n. (C3) mean and variance are batch_norm's.
  }];
  let arguments = (ins Cleave_FloatTensor:$grad, Cleave_FloatTensor:$input, Cleave_FloatTensor:$weight, Cleave_FloatTensor:$mean, Cleave_FloatTensor:$variance,
                       F64Attr:$eps, DefaultValuedAttr<I64Attr, "0">:$group, UnitAttr:$channels_last);
  let results = (outs Cleave_FloatTensor:$gradInput, Cleave_FloatTensor:$gradWeight, Cleave_FloatTensor:$gradBias);
}
def Cleave_CrossEntropyOp : Cleave_InferOp<"cross_entropy"> {
  let summary = "sum over rows of logsumexp(logits) - logits[label], number of rows counted, and lse";
  let description = [{
    logits [..., classes], labels [...] i32; rows with a negative label are ignored. loss and weight are tensor<f32>, lse [...].
    (C1) labels' shape is logits' without the last dimension. (C2) labels are i32.
  }];
  let arguments = (ins Cleave_FloatTensor:$logits, Cleave_IntTensor:$labels);
  let results = (outs Cleave_FloatTensor:$loss, Cleave_FloatTensor:$weight, Cleave_FloatTensor:$lse);
}
def Cleave_CrossEntropyGradOp : Cleave_Op<"cross_entropy_grad"> {
  let summary = "grad (tensor<f32>) * (softmax(logits) - onehot(labels)), zero in ignored rows; the result has the type of logits";
  let description = [{
    (C1) labels' shape is logits' without the last dimension. (C2) labels are i32. (C3) grad is a scalar, lse has labels'
    shape, the result logits' type.
  }];
  let hasVerifier = 1;
  let arguments = (ins Cleave_FloatTensor:$grad, Cleave_FloatTensor:$logits, Cleave_IntTensor:$labels, Cleave_FloatTensor:$lse);
  let results = (outs Cleave_FloatTensor:$result);
}
def Cleave_TopCorrectOp : Cleave_InferOp<"top_correct"> {
  let summary = "number of rows with label >= 0 that is among the k first classes by their logits (tensor<f32>)";
  let description = [{
    Larger logits come first; of equal ones, the lower class. A logit that is NaN comes before all others, and a row whose
    label has such a logit does not count: with k = 1, these are the rows whose label is argmax(logits).
    (C1) labels' shape is logits' without the last dimension. (C2) labels are i32. (C3) k is positive.
  }];
  let arguments = (ins Cleave_FloatTensor:$logits, Cleave_IntTensor:$labels, DefaultValuedAttr<I64Attr, "1">:$k);
  let results = (outs Cleave_FloatTensor:$result);
}

} // group

let opDocGroup = OpGroup<"Fusions"> in {

def Cleave_FusionOp : Op<Cleave_Dialect, "fusion", [Pure, IsolatedFromAbove, SingleBlockImplicitTerminator<"YieldOp">]> {
  let summary = "elementwise ops and reductions computed by one generated kernel";
  let description = [{
    The body's block arguments are the operands; it ends in `cleave.yield` of the results.
    (C1) block arguments have the operands' types. (C2) yielded types are the result types.
  }];
  let arguments = (ins Variadic<Cleave_Tensor>:$inputs);
  let results = (outs Variadic<Cleave_Tensor>:$results);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = "`(` operands `)` attr-dict-with-keyword `:` functional-type(operands, results) $body";
  let hasVerifier = 1;
}
def Cleave_YieldOp : Op<Cleave_Dialect, "yield", [Pure, Terminator, ParentOneOf<["FusionOp"]>]> {
  let summary = "the results of a fusion";
  let arguments = (ins Variadic<Cleave_Tensor>:$results);
  let assemblyFormat = "attr-dict ($results^ `:` type($results))?";
  let builders = [OpBuilder<(ins), [{}]>];
}

} // group

let opDocGroup = OpGroup<"Marks"> in {

def Cleave_DetachOp : Cleave_Op<"detach", [Elementwise, SameOperandsAndResultType]> {
  let summary = "identity with zero gradient; removed by decomposition";
  let arguments = (ins Cleave_Tensor:$input);
  let results = (outs Cleave_Tensor:$result);
  let assemblyFormat = "$input attr-dict `:` type($result)";
}
def Cleave_ShardHintOp : Cleave_Op<"shard_hint", [SameOperandsAndResultType]> {
  let summary = "identity with the user's withSharding request, one entry per dimension: mesh axes joined by +, \"whole\", or \"\" for no request";
  let description = [{ (C1) one entry per dimension. }];
  let arguments = (ins Cleave_Tensor:$input, StrArrayAttr:$sharding);
  let results = (outs Cleave_Tensor:$result);
  let assemblyFormat = "$input $sharding attr-dict `:` type($result)";
  let hasVerifier = 1;
}

} // group

#endif
