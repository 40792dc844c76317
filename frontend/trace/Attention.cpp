// Attention, and rotary position embedding. Attention without a mask and dropout becomes one op, causal or not;
// otherwise it is composed of products and softmax.
#include "frontend/trace/Compose.h"
#include "frontend/trace/Diagnose.h"
#include "frontend/trace/Statistics.h"

#include <cmath>
#include <fmt/format.h>
#include <map>
#include <tuple>

namespace cleave {

using namespace ir;

// ---- attention ----------------------------------------------------------------------------------------------------

namespace {

constexpr const char *attention = "scaledDotProductAttention";

/// Attention composed of smaller ops.
struct Attention {
  Ops &ops;
  const AttentionOptions &options;
  Where where;
  double scale;
  Shape scores; ///< [b, heads, t, s]

  Tensor broadcast(Tensor x, const Shape &shape, const std::vector<int64_t> &dims) {
    return tensorOf(ops.broadcast(valueOf(x), shape, dims));
  }

  /// Repeats each head of [b, kvHeads, s, d] for the queries that share it: [b, heads, s, d].
  Tensor forEveryHead(Tensor x, int64_t heads) {
    const Shape own = x.shape();
    if (own[1] == heads)
      return x;
    Tensor groups = broadcast(x, {own[0], own[1], heads / own[1], own[2], own[3]}, {0, 1, 3, 4});
    return reshape(groups, {own[0], heads, own[2], own[3]}, where);
  }

  Tensor positions(int64_t dim) { return tensorOf(ops.iota({scores[2], scores[3]}, dim)); }

  /// The causal mask [t, s]: true for positions that may be attended to.
  Tensor causalMask() {
    const int64_t later = options.alignment == CausalAlignment::LowerRight ? scores[3] - scores[2] : 0;
    Tensor last = Operand(positions(0), where) + Operand(later, where);
    return tensorOf(ops.compare(Predicate::Ge, valueOf(last), valueOf(positions(1))));
  }

  /// Broadcasts `mask` to the scores' shape.
  Tensor wide(Tensor mask) {
    Shape kept;
    std::vector<int64_t> dims;
    const Shape own = mask.shape();
    const size_t lead = scores.size() - own.size();
    for (size_t i = 0; i < own.size(); ++i)
      if (own[i] == scores[lead + i]) {
        kept.push_back(own[i]);
        dims.push_back(static_cast<int64_t>(lead + i));
      }
    return own == scores ? mask : broadcast(reshape(mask, kept, where), scores, dims);
  }

  /// onTrue if the mask is true, otherwise `number`.
  Tensor choose(Tensor mask, Tensor onTrue, double number) {
    mlir::Value otherwise = ops.constantLike(valueOf(onTrue), number);
    return tensorOf(ops.select(valueOf(mask), valueOf(onTrue), otherwise));
  }

  Tensor composed(Tensor q, Tensor k, Tensor v) {
    Tensor x = Operand(inSingle(matmul(q, transpose(k, -2, -1, where), where), where), where) * Operand(scale, where);
    std::vector<Tensor> seen; // i1 masks
    if (options.causal)
      seen.push_back(wide(causalMask()));
    if (options.mask.defined() && options.mask.dtype() == DType::I1)
      seen.push_back(wide(options.mask));
    else if (options.mask.defined())
      x = Operand(x, where) + wide(options.mask);
    for (Tensor mask : seen)
      x = choose(mask, x, -1e38);
    x = softmax(x, -1, where);
    for (Tensor mask : seen) // zeroes rows that are fully masked
      x = choose(mask, x, 0);
    return matmul(dropout(x, options.dropout, where), v, where);
  }
};

void checkAttention(Tensor q, Tensor k, Tensor v, const AttentionOptions &o, Where where) {
  const Facts facts = {fact(q, "q"), fact(k, "k"), fact(v, "v")};
  if (q.rank() != 4 || k.rank() != 4 || v.rank() != 4)
    failRule(attention, 1, fmt::format("ranks must be 4, found {}, {} and {}", q.rank(), k.rank(), v.rank()), facts,
             where);
  if (k.shape() != v.shape() || q.size(0) != k.size(0) || q.size(3) != k.size(3))
    failRule(attention, 2, "batch and head size must agree, and k and v must have the same shape", facts, where);
  if (!isFloat(q) || q.dtype() != k.dtype() || q.dtype() != v.dtype())
    failRule(attention, 6, "element types must be one float type", facts, where);
  if (q.size(1) % k.size(1))
    failRule(attention, 2, fmt::format("{} heads cannot share {} heads of k and v", q.size(1), k.size(1)), facts,
             where);
  if (o.causal && o.alignment == CausalAlignment::LowerRight && q.size(2) > k.size(2))
    failRule(attention, 3,
             fmt::format("causal attention aligned at the lower right needs at most as many queries as keys, found {} "
                         "and {}",
                         q.size(2), k.size(2)),
             facts, where);
  if (!(o.dropout >= 0 && o.dropout < 1))
    failRule(attention, 5, fmt::format("the dropout must lie in [0, 1), found {}", o.dropout), facts, where);
}

void checkMask(Tensor mask, Tensor q, const Shape &scores, Where where) {
  const Facts facts = {fact(q, "q"), fact(mask, "mask")};
  if (mask.dtype() != DType::I1 && mask.dtype() != q.dtype())
    failRule(attention, 4, "the mask must be of type i1 or q's", facts, where);
  const Shape own = mask.shape();
  bool fits = own.size() <= scores.size();
  for (size_t i = 1; fits && i <= own.size(); ++i)
    fits = own[own.size() - i] == 1 || own[own.size() - i] == scores[scores.size() - i];
  if (!fits)
    failRule(
        attention, 4,
        fmt::format("the mask's shape {} cannot be broadcast to the scores' {}", shapeText(own), shapeText(scores)),
        facts, where);
}

/// The op. It aligns a causal mask at the lower right, which is also the upper left if there are as many queries as
/// keys.
Tensor fused(Ops &ops, Tensor q, Tensor k, Tensor v, double scale, bool causal) {
  return tensorOf(ops.op<AttentionOp>(valueOf(q), valueOf(k), valueOf(v), llvm::APFloat(scale), causal).getResult());
}

/// Causal attention aligned at the upper left: no query attends to a key beyond the number of queries, and queries
/// beyond the number of keys attend to all.
Tensor upperLeft(Ops &ops, Tensor q, Tensor k, Tensor v, double scale, Where where) {
  const int64_t t = q.size(2), s = k.size(2), both = std::min(t, s);
  const auto first = [&](Tensor x) { return x.size(2) == both ? x : slice(x, 2, 0, both, where); };
  Tensor result = fused(ops, first(q), first(k), first(v), scale, true);
  return t <= s ? result : concat({result, fused(ops, slice(q, 2, s, t, where), k, v, scale, false)}, 2, where);
}

} // namespace

Tensor scaledDotProductAttention(Tensor q, Tensor k, Tensor v, AttentionOptions o, Where where) {
  Ops ops(attention, where);
  checkAttention(q, k, v, o, where);
  const double scale = o.scale != 0 ? o.scale : 1 / std::sqrt(static_cast<double>(q.size(3)));
  Attention made{ops, o, where, scale, {q.size(0), q.size(1), q.size(2), k.size(2)}};
  if (o.mask.defined())
    checkMask(o.mask, q, made.scores, where);
  k = made.forEveryHead(k, q.size(1));
  v = made.forEveryHead(v, q.size(1));
  if (o.mask.defined() || (o.dropout > 0 && ops.trace.training()))
    return made.composed(q, k, v);
  return o.causal && o.alignment == CausalAlignment::UpperLeft ? upperLeft(ops, q, k, v, scale, where)
                                                               : fused(ops, q, k, v, scale, o.causal);
}

// ---- rotary position embedding --------------------------------------------------------------------------------------

/// The cosine or sine of the angle of every position and frequency: [t, half]. Layers ask for the same ones, so the
/// last are kept.
static Tensor angles(Ops &ops, int64_t t, int64_t half, const RotaryOptions &o, double (*f)(double)) {
  thread_local std::map<std::tuple<int64_t, int64_t, int64_t, double, double (*)(double)>, std::vector<float>> known;
  if (known.size() > 4)
    known.clear();
  std::vector<float> &values = known[{t, half, o.start, o.base, f}];
  if (!values.empty())
    return tensorOf(ops.constant({t, half}, values));
  values.reserve(static_cast<size_t>(t * half));
  std::vector<double> frequencies;
  for (int64_t i = 0; i < half; ++i)
    frequencies.push_back(std::pow(o.base, -static_cast<double>(i) / static_cast<double>(half)));
  for (int64_t position = o.start; position < o.start + t; ++position)
    for (const double frequency : frequencies)
      values.push_back(static_cast<float>(f(static_cast<double>(position) * frequency)));
  return tensorOf(ops.constant({t, half}, values));
}

Tensor rotaryEmbedding(Tensor x, RotaryOptions o, Where where) {
  constexpr const char *name = "rotaryEmbedding";
  Ops ops(name, where);
  const Facts facts = {fact(x, "input")};
  if (x.rank() < 2)
    failRule(name, 1, fmt::format("the rank must be at least 2, found {}", x.rank()), facts, where);
  if (!isFloat(x))
    failRule(name, 4, "the input's elements must be of a float type", facts, where);
  if (x.size(-1) % 2)
    failRule(name, 2, fmt::format("the last dimension must be even, found {}", x.size(-1)), facts, where);
  if (!(o.base > 0) || o.start < 0)
    failRule(name, 3,
             fmt::format("the base must be positive and the start not negative, found {} and {}", o.base, o.start),
             facts, where);
  const int64_t half = x.size(-1) / 2;
  Tensor cosine = cast(angles(ops, x.size(-2), half, o, std::cos), x.dtype(), where);
  Tensor sine = cast(angles(ops, x.size(-2), half, o, std::sin), x.dtype(), where);
  Tensor first = slice(x, -1, 0, half, where), second = slice(x, -1, half, 2 * half, where);
  return concat({Operand(first, where) * cosine - Operand(second, where) * sine,
                 Operand(second, where) * cosine + Operand(first, where) * sine},
                -1, where);
}

} // namespace cleave
