// Matrix products, convolution, cosines, embedding.
#include "frontend/trace/Compose.h"
#include "frontend/trace/Diagnose.h"
#include "frontend/trace/Indices.h"

#include <fmt/format.h>

namespace cleave {

using namespace ir;

// ---- matmul and linear --------------------------------------------------------------------------------------------

/// Broadcasts x to the leading dimensions `lead`; keeps the last two.
static mlir::Value broadcastLead(Ops &ops, Tensor x, const Shape &lead, Where where) {
  Shape shape = lead, own = x.shape();
  shape.insert(shape.end(), own.end() - 2, own.end());
  if (own == shape)
    return valueOf(x);
  Shape kept;
  std::vector<int64_t> dims;
  const size_t shift = shape.size() - own.size();
  for (size_t i = 0; i < own.size(); ++i)
    if (i + 2 >= own.size() || own[i] == shape[shift + i]) {
      kept.push_back(own[i]);
      dims.push_back(static_cast<int64_t>(shift + i));
    }
  Tensor small = reshape(x, kept, where);
  return ops.broadcast(valueOf(small), shape, dims);
}

Tensor matmul(Tensor a, Tensor b, Where where) {
  Ops ops("matmul", where);
  const Facts facts = {fact(a, "left"), fact(b, "right")};
  if (a.rank() < 2 || b.rank() < 2)
    failRule("matmul", 1, fmt::format("ranks must be at least 2, found {} and {}", a.rank(), b.rank()), facts, where);
  if (a.size(-1) != b.size(-2))
    failRule("matmul", 2,
             fmt::format("the left operand's last dimension is {}, but the right operand's last but one is {}",
                         a.size(-1), b.size(-2)),
             facts, where);
  if (a.dtype() != b.dtype() || !llvm::isa<mlir::FloatType>(typeOf(a).getElementType()))
    failRule("matmul", 4, "element types must be one float type", facts, where);
  mlir::Value x = valueOf(a), y = valueOf(b);
  Shape leadA = a.shape(), leadB = b.shape();
  leadA.resize(leadA.size() - 2);
  leadB.resize(leadB.size() - 2);
  if (leadA != leadB && !leadB.empty()) {
    Shape lead(std::max(leadA.size(), leadB.size()), 1);
    for (size_t i = 0; i < lead.size(); ++i) {
      const int64_t p = i < leadA.size() ? leadA[leadA.size() - 1 - i] : 1,
                    q = i < leadB.size() ? leadB[leadB.size() - 1 - i] : 1;
      if (p != q && p != 1 && q != 1)
        failRule("matmul", 3, "leading dimensions cannot be broadcast to each other", facts, where);
      lead[lead.size() - 1 - i] = p == 1 ? q : p;
    }
    x = broadcastLead(ops, a, lead, where);
    y = broadcastLead(ops, b, lead, where);
  }
  return tensorOf(ops.matmul(x, y));
}

/// The path of the module that owns a weight, for messages: "fc1" for "fc1.weight".
static std::string ownerOf(Tensor weight) {
  const std::string name = nameOr(weight, "");
  const size_t dot = name.rfind('.');
  return name.empty() ? "the weight" : dot == std::string::npos ? name : name.substr(0, dot);
}

Tensor linear(Tensor x, Tensor weight, Tensor bias, Where where) {
  Ops ops("linear", where);
  const Facts facts = {fact(x, "input"), fact(weight, "weight")};
  if (x.rank() < 2 || weight.rank() != 2)
    failRule(
        "linear", 1,
        fmt::format("the input's rank must be at least 2 and the weight's 2, found {} and {}", x.rank(), weight.rank()),
        facts, where);
  if (x.size(-1) != weight.size(1))
    failRule(
        "linear", 2,
        fmt::format("the input's last dimension is {}, {} expects {}", x.size(-1), ownerOf(weight), weight.size(1)),
        facts, where);
  if (x.dtype() != weight.dtype())
    failRule("linear", 4, "the element types of input and weight differ", facts, where);
  Tensor y = tensorOf(ops.matmul(valueOf(x), valueOf(weight), false, true));
  if (!bias.defined())
    return y;
  if (bias.shape() != Shape{weight.size(0)})
    failRule("linear", 3,
             fmt::format("the bias has shape {}, the weight {} outputs", shapeText(bias.shape()), weight.size(0)),
             {fact(bias, "bias"), fact(weight, "weight")}, where);
  return Operand(y, where) + bias;
}

// ---- convolution --------------------------------------------------------------------------------------------------

/// Number of positions of a window of `kernel` elements on `size` elements with padding `pad` on both sides.
static int64_t positions(int64_t size, int64_t kernel, int64_t stride, int64_t pad, int64_t dilation) {
  const int64_t room = size + 2 * pad - dilation * (kernel - 1) - 1;
  return room < 0 ? 0 : room / stride + 1;
}

static void checkConv(Tensor x, Tensor weight, Tensor bias, const ConvOptions &o, Where where) {
  const Facts facts = {fact(x, "input"), fact(weight, "weight")};
  if (x.rank() != 4 || weight.rank() != 4)
    failRule("conv2d", 1, fmt::format("ranks must be 4, found {} and {}", x.rank(), weight.rank()), facts, where);
  if (o.stride.h < 1 || o.stride.w < 1 || o.dilation.h < 1 || o.dilation.w < 1 || o.padding.h < 0 || o.padding.w < 0)
    failRule("conv2d", 5,
             fmt::format("stride {}x{}, dilation {}x{} must be positive, padding {}x{} not negative", o.stride.h,
                         o.stride.w, o.dilation.h, o.dilation.w, o.padding.h, o.padding.w),
             facts, where);
  if (o.groups < 1 || weight.size(0) % o.groups)
    failRule("conv2d", 3, fmt::format("{} outputs cannot be cut into {} groups", weight.size(0), o.groups), facts,
             where);
  if (x.size(1) != o.groups * weight.size(1))
    failRule(
        "conv2d", 2,
        fmt::format("the input has {} channels, {} expects {}", x.size(1), ownerOf(weight), o.groups * weight.size(1)),
        facts, where);
  if (positions(x.size(2), weight.size(2), o.stride.h, o.padding.h, o.dilation.h) < 1 ||
      positions(x.size(3), weight.size(3), o.stride.w, o.padding.w, o.dilation.w) < 1)
    failRule("conv2d", 4,
             fmt::format("the image {}x{} is smaller than the kernel {}x{}", x.size(2), x.size(3), weight.size(2),
                         weight.size(3)),
             facts, where);
  if (bias.defined() && bias.shape() != Shape{weight.size(0)})
    failRule("conv2d", 6,
             fmt::format("the bias has shape {}, the weight {} outputs", shapeText(bias.shape()), weight.size(0)),
             {fact(bias, "bias"), fact(weight, "weight")}, where);
}

Tensor conv2d(Tensor x, Tensor weight, Tensor bias, ConvOptions o, Where where) {
  Ops ops("conv2d", where);
  checkConv(x, weight, bias, o, where);
  const int64_t stride[] = {o.stride.h, o.stride.w}, dilation[] = {o.dilation.h, o.dilation.w},
                padding[] = {o.padding.h, o.padding.w, o.padding.h, o.padding.w};
  Tensor y = tensorOf(ops.op<Conv2dOp>(valueOf(x), valueOf(weight), llvm::ArrayRef<int64_t>(stride),
                                       llvm::ArrayRef<int64_t>(padding), llvm::ArrayRef<int64_t>(dilation),
                                       static_cast<uint64_t>(o.groups))
                          .getResult());
  if (!bias.defined())
    return y;
  return tensorOf(ops.add(valueOf(y), ops.along(valueOf(bias), y.shape(), 1)));
}

// ---- cosine of an angle -------------------------------------------------------------------------------------------

/// max(norm, eps); as in PyTorch, the gradient is that of the norm also below eps.
static mlir::Value atLeast(Ops &ops, mlir::Value norm, double eps) {
  mlir::Value lift = ops.detach(ops.shift(ops.neg(norm), eps));
  return ops.select(ops.compare(Predicate::Lt, norm, eps), ops.add(norm, lift), norm);
}

Tensor cosineSimilarity(Tensor a, Tensor b, int64_t dim, double eps, Where where) {
  constexpr const char *name = "cosineSimilarity";
  Ops ops(name, where);
  checkFloat(name, 4, a, where);
  auto [x, y] = bothSides(name, Operand(a, where), Operand(b, where), where);
  const Shape shape = Ops::shape(x);
  dim = normalDim(name, 3, tensorOf(x), dim, where);
  x = ops.single(x), y = ops.single(y);
  const auto unit = [&](mlir::Value v) {
    mlir::Value norm = atLeast(ops, ops.safeSqrt(ops.sum(ops.mul(v, v), {dim})), eps);
    return ops.div(v, ops.broadcastBack(norm, shape, {dim}));
  };
  mlir::Value left = unit(x), right = unit(y);
  return tensorOf(ops.activation(ops.sum(ops.mul(left, right), {dim})));
}

// ---- embedding ----------------------------------------------------------------------------------------------------

Tensor embedding(Tensor ids, Tensor weight, Outside outside, Where where) {
  Ops ops("embedding", where);
  const Facts facts = {fact(ids, "ids"), fact(weight, "weight")};
  if (weight.rank() != 2)
    failRule("embedding", 1, fmt::format("the weight's rank must be 2, found {}", weight.rank()), facts, where);
  if (ids.dtype() != DType::I32)
    failRule("embedding", 2, "ids must be i32", facts, where);
  if (outside == Outside::Error)
    readIndices(ops, "embedding", valueOf(ids), {.below = weight.size(0)});
  return tensorOf(ops.op<EmbeddingOp>(valueOf(weight), valueOf(ids), mlir::Value()).getResult());
}

} // namespace cleave
