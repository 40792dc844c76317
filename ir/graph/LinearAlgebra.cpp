// Matrix products, convolutions, pooling and attention: type inference and verifiers.
#include "ir/graph/Constraints.h"

using namespace mlir;
using namespace cleave::ir;

LogicalResult MatmulOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc, ValueRange operands,
                                         DictionaryAttr attributes, OpaqueProperties properties, RegionRange regions,
                                         SmallVectorImpl<Type> &types) {
  Adaptor op(operands, attributes, properties, regions);
  auto a = shapeOf(op.getA()), b = shapeOf(op.getB());
  if (a.size() < 2 || b.size() < 2)
    return broken(loc, getOperationName(), "C1: ranks are ", a.size(), " and ", b.size());
  auto leadingA = a.drop_back(2), leadingB = b.drop_back(2);
  int64_t m = a[a.size() - (op.getTransA() ? 1 : 2)], kA = a[a.size() - (op.getTransA() ? 2 : 1)];
  int64_t n = b[b.size() - (op.getTransB() ? 2 : 1)], kB = b[b.size() - (op.getTransB() ? 1 : 2)];
  if (kA != kB)
    return broken(loc, getOperationName(), "C2: the contracted sizes are ", kA, " and ", kB);
  if (leadingA != leadingB && b.size() != 2)
    return broken(loc, getOperationName(), "C3: leading dimensions are ", shapeText(leadingA), " and ",
                  shapeText(leadingB));
  if (elementOf(op.getA()) != elementOf(op.getB()))
    return broken(loc, getOperationName(), "C4: element types are ", elementOf(op.getA()), " and ",
                  elementOf(op.getB()));
  if (op.getTransA() && a.size() != b.size())
    return broken(loc, getOperationName(), "C5: transA with ranks ", a.size(), " and ", b.size());
  SmallVector<int64_t> shape(leadingA);
  shape.append({m, n});
  types.push_back(RankedTensorType::get(shape, elementOf(op.getA())));
  return success();
}

// ---- windows: convolution and pooling ------------------------------------------------------------------------------

/// The number of windows of `kernel` elements, `dilation` apart, at distances of `stride`; `low` and `high`: padding.
static int64_t windows(int64_t size, int64_t kernel, int64_t stride, int64_t low, int64_t high, int64_t dilation) {
  using Wide = __int128; // sizes of IR text may be any
  const Wide room = Wide(size) + low + high - Wide(dilation) * (kernel - 1) - 1;
  return room < 0 ? 0 : static_cast<int64_t>(std::min<Wide>(room / stride + 1, INT64_MAX));
}

static bool allAtLeast(ArrayRef<int64_t> values, size_t count, int64_t least) {
  return values.size() == count && llvm::all_of(values, [&](int64_t v) { return v >= least; });
}

/// Shapes [n, h, w, c] to [n, c, h, w], and back.
static SmallVector<int64_t> secondForm(ArrayRef<int64_t> shape) { return {shape[0], shape[3], shape[1], shape[2]}; }
static SmallVector<int64_t> lastForm(ArrayRef<int64_t> shape) { return {shape[0], shape[2], shape[3], shape[1]}; }

FailureOr<SmallVector<int64_t>> cleave::ir::convShape(std::optional<Location> loc, StringRef name,
                                                      ArrayRef<int64_t> input, ArrayRef<int64_t> weight,
                                                      ArrayRef<int64_t> stride, ArrayRef<int64_t> padding,
                                                      ArrayRef<int64_t> dilation, int64_t groups, bool last) {
  if (input.size() != 4 || weight.size() != 4)
    return broken(loc, name, "C1: ranks are ", input.size(), " and ", weight.size(), ", not 4");
  if (last) {
    auto shape = convShape(loc, name, secondForm(input), secondForm(weight), stride, padding, dilation, groups, false);
    return failed(shape) ? shape : FailureOr<SmallVector<int64_t>>(lastForm(*shape));
  }
  if (groups < 1 || input[1] != groups * weight[1])
    return broken(loc, name, "C2: the input has ", input[1], " channels, the weight ", groups, " groups of ",
                  weight[1]);
  if (weight[0] % groups)
    return broken(loc, name, "C3: ", groups, " groups do not divide ", weight[0], " output channels");
  if (!allAtLeast(stride, 2, 1) || !allAtLeast(dilation, 2, 1) || !allAtLeast(padding, 4, 0))
    return broken(loc, name,
                  "C5: stride and dilation are not 2 positive values, or padding not 4 that are not negative");
  int64_t h = windows(input[2], weight[2], stride[0], padding[0], padding[2], dilation[0]);
  int64_t w = windows(input[3], weight[3], stride[1], padding[1], padding[3], dilation[1]);
  if (h < 1 || w < 1)
    return broken(loc, name, "C4: the output would be ", h, "x", w);
  return SmallVector<int64_t>{input[0], weight[0], h, w};
}

double cleave::ir::convFlops(Value weight, Value result) {
  double flops = 2;
  for (ArrayRef<int64_t> sizes : {shapeOf(result), shapeOf(weight).drop_front()})
    for (int64_t size : sizes)
      flops *= static_cast<double>(size);
  return flops;
}

LogicalResult Conv2dOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc, ValueRange operands,
                                         DictionaryAttr attributes, OpaqueProperties properties, RegionRange regions,
                                         SmallVectorImpl<Type> &types) {
  Adaptor op(operands, attributes, properties, regions);
  auto shape = convShape(loc, getOperationName(), shapeOf(op.getInput()), shapeOf(op.getWeight()), op.getStride(),
                         op.getPadding(), op.getDilation(), op.getGroups(), op.getChannelsLast());
  if (failed(shape))
    return failure();
  types.push_back(RankedTensorType::get(*shape, elementOf(op.getInput())));
  return success();
}

/// Checks both convolution gradients: C1 to C5 as conv2d, C6 and C7.
template <typename Op> static LogicalResult verifyConvGrad(Op op, ArrayRef<int64_t> input, ArrayRef<int64_t> weight) {
  auto shape = convShape(op.getLoc(), op.getOperationName(), input, weight, op.getStride(), op.getPadding(),
                         op.getDilation(), op.getGroups(), op.getChannelsLast());
  if (failed(shape))
    return failure();
  if (ArrayRef<int64_t>(*shape) != shapeOf(op.getGrad()))
    return op.emitOpError("C6: grad is ")
           << shapeText(shapeOf(op.getGrad())) << ", the convolution's result " << shapeText(*shape);
  for (Value value : {Value(op->getOperand(1)), Value(op.getResult())})
    if (elementOf(value) != elementOf(op.getGrad()))
      return op.emitOpError("C7: element types are ") << elementOf(op.getGrad()) << " and " << elementOf(value);
  return success();
}

LogicalResult Conv2dInputGradOp::verify() { return verifyConvGrad(*this, getType().getShape(), shapeOf(getWeight())); }
LogicalResult Conv2dWeightGradOp::verify() { return verifyConvGrad(*this, shapeOf(getInput()), getType().getShape()); }

/// Checks C1 to C4 of pooling of shape `input`; returns its output shape.
static FailureOr<SmallVector<int64_t>> poolShape(std::optional<Location> loc, StringRef name, ArrayRef<int64_t> input,
                                                 ArrayRef<int64_t> kernel, ArrayRef<int64_t> stride,
                                                 ArrayRef<int64_t> padding, bool last) {
  if (input.size() != 4)
    return broken(loc, name, "C1: the rank is ", input.size(), ", not 4");
  if (last) {
    auto shape = poolShape(loc, name, secondForm(input), kernel, stride, padding, false);
    return failed(shape) ? shape : FailureOr<SmallVector<int64_t>>(lastForm(*shape));
  }
  if (!allAtLeast(kernel, 2, 1) || !allAtLeast(stride, 2, 1) || !allAtLeast(padding, 4, 0))
    return broken(loc, name, "C4: kernel and stride are not 2 positive values, or padding not 4 that are not negative");
  for (int i = 0; i < 4; ++i)
    if (padding[i] >= kernel[i % 2])
      return broken(loc, name, "C3: padding ", padding[i], " is not smaller than the kernel's ", kernel[i % 2]);
  int64_t h = windows(input[2], kernel[0], stride[0], padding[0], padding[2], 1);
  int64_t w = windows(input[3], kernel[1], stride[1], padding[1], padding[3], 1);
  if (h < 1 || w < 1)
    return broken(loc, name, "C2: the output would be ", h, "x", w);
  return SmallVector<int64_t>{input[0], input[1], h, w};
}

LogicalResult MaxPool2dOp::inferReturnTypes(MLIRContext *context, std::optional<Location> loc, ValueRange operands,
                                            DictionaryAttr attributes, OpaqueProperties properties, RegionRange regions,
                                            SmallVectorImpl<Type> &types) {
  Adaptor op(operands, attributes, properties, regions);
  auto shape = poolShape(loc, getOperationName(), shapeOf(op.getInput()), op.getKernel(), op.getStride(),
                         op.getPadding(), op.getChannelsLast());
  if (failed(shape))
    return failure();
  types.push_back(RankedTensorType::get(*shape, elementOf(op.getInput())));
  types.push_back(RankedTensorType::get(*shape, IntegerType::get(context, 32)));
  return success();
}

LogicalResult AvgPool2dOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc, ValueRange operands,
                                            DictionaryAttr attributes, OpaqueProperties properties, RegionRange regions,
                                            SmallVectorImpl<Type> &types) {
  Adaptor op(operands, attributes, properties, regions);
  auto shape = poolShape(loc, getOperationName(), shapeOf(op.getInput()), op.getKernel(), op.getStride(),
                         op.getPadding(), op.getChannelsLast());
  if (failed(shape))
    return failure();
  types.push_back(RankedTensorType::get(*shape, elementOf(op.getInput())));
  return success();
}

/// Checks both pooling gradients: C1 to C4 as the pooling, and C5.
template <typename Op> static LogicalResult verifyPoolGrad(Op op) {
  auto shape = poolShape(op.getLoc(), op.getOperationName(), op.getType().getShape(), op.getKernel(), op.getStride(),
                         op.getPadding(), op.getChannelsLast());
  if (failed(shape))
    return failure();
  if (ArrayRef<int64_t>(*shape) != shapeOf(op.getGrad()))
    return op.emitOpError("C5: grad is ")
           << shapeText(shapeOf(op.getGrad())) << ", the pooling's result " << shapeText(*shape);
  return success();
}

LogicalResult MaxPool2dGradOp::verify() {
  if (failed(verifyPoolGrad(*this)))
    return failure();
  if (shapeOf(getWorkspace()) != shapeOf(getGrad()))
    return emitOpError("C6: the workspace is ")
           << shapeText(shapeOf(getWorkspace())) << ", grad " << shapeText(shapeOf(getGrad()));
  return success();
}
LogicalResult AvgPool2dGradOp::verify() { return verifyPoolGrad(*this); }

// ---- attention -----------------------------------------------------------------------------------------------------

/// Checks the constraints that attention and its gradient have in common.
template <typename Adaptor>
static LogicalResult checkAttention(std::optional<Location> loc, StringRef name, Adaptor op) {
  const auto q = shapeOf(op.getQ()), k = shapeOf(op.getK()), v = shapeOf(op.getV());
  if (q.size() != 4 || k.size() != 4 || v.size() != 4)
    return broken(loc, name, "C1: ranks are ", q.size(), ", ", k.size(), " and ", v.size(), ", not 4");
  if (q[0] != k[0] || q[1] != k[1] || q[3] != k[3] || k != v)
    return broken(loc, name, "C2: q is ", shapeText(q), ", k ", shapeText(k), ", v ", shapeText(v));
  if (op.getCausal() && q[2] > k[2])
    return broken(loc, name, "C3: causal with ", q[2], " queries and ", k[2], " keys");
  const int64_t scores[] = {q[0], q[1], q[2], k[2]};
  for (Value operand : {op.getBias(), op.getKeep()})
    if (operand && shapeOf(operand) != ArrayRef<int64_t>(scores))
      return broken(loc, name, "C4: the scores are ", shapeText(scores), ", bias or keep is ",
                    shapeText(shapeOf(operand)));
  if (op.getBias() && !tensorType(op.getBias()).getElementType().isF32())
    return broken(loc, name, "C4: bias is not f32");
  const double dropout = op.getDropout().convertToDouble();
  if (!(dropout >= 0 && dropout < 1) || (dropout > 0) != static_cast<bool>(op.getKeep()))
    return broken(loc, name, "C5: dropout is ", dropout, op.getKeep() ? " with keep" : " without keep");
  return success();
}

LogicalResult AttentionOp::inferReturnTypes(MLIRContext *context, std::optional<Location> loc, ValueRange operands,
                                            DictionaryAttr attributes, OpaqueProperties properties, RegionRange regions,
                                            SmallVectorImpl<Type> &types) {
  Adaptor op(operands, attributes, properties, regions);
  if (failed(checkAttention(loc, getOperationName(), op)))
    return failure();
  types.push_back(op.getQ().getType());
  types.push_back(RankedTensorType::get(shapeOf(op.getQ()).drop_back(), Float32Type::get(context)));
  return success();
}

LogicalResult AttentionGradOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc, ValueRange operands,
                                                DictionaryAttr attributes, OpaqueProperties properties,
                                                RegionRange regions, SmallVectorImpl<Type> &types) {
  Adaptor op(operands, attributes, properties, regions);
  if (failed(checkAttention(loc, getOperationName(), op)))
    return failure();
  auto q = shapeOf(op.getQ());
  if (shapeOf(op.getGrad()) != q || shapeOf(op.getOut()) != q || shapeOf(op.getLse()) != q.drop_back())
    return broken(loc, getOperationName(), "C6: q is ", shapeText(q), ", grad ", shapeText(shapeOf(op.getGrad())),
                  ", out ", shapeText(shapeOf(op.getOut())), ", lse ", shapeText(shapeOf(op.getLse())));
  types.append({op.getQ().getType(), op.getK().getType(), op.getV().getType()});
  return success();
}
