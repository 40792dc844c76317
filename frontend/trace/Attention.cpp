// Attention, and rotary position embedding.
#include "frontend/trace/Compose.h"
#include "frontend/trace/Diagnose.h"

#include <cmath>
#include <fmt/format.h>
#include <limits>
#include <map>
#include <tuple>

namespace cleave {

using namespace ir;

// ---- attention ----------------------------------------------------------------------------------------------------

namespace {

constexpr const char *attention = "scaledDotProductAttention";

/// Repeats each head of [b, kvHeads, s, d] for the queries that share it: [b, heads, s, d].
Tensor forEveryHead(Ops &ops, Tensor x, int64_t heads) {
  const Shape own = x.shape();
  if (own[1] == heads)
    return x;
  mlir::Value groups = ops.broadcast(valueOf(x), {own[0], own[1], heads / own[1], own[2], own[3]}, {0, 1, 3, 4});
  return tensorOf(ops.reshape(groups, {own[0], heads, own[2], own[3]}));
}

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

/// What attention computes besides products; null if there is none.
struct Extras {
  mlir::Value bias, keep;
};

/// The op. It aligns a causal mask at the lower right, which is also the upper left if there are as many queries as
/// keys.
Tensor fused(Ops &ops, Tensor q, Tensor k, Tensor v, const AttentionOptions &o, bool causal, Extras extras = {}) {
  const double scale = o.scale != 0 ? o.scale : 1 / std::sqrt(static_cast<double>(q.size(3)));
  return tensorOf(ops.op<AttentionOp>(valueOf(q), valueOf(k), valueOf(v), extras.bias, extras.keep,
                                      llvm::APFloat(scale), causal, llvm::APFloat(extras.keep ? o.dropout : 0))
                      .getResult());
}

/// Causal attention aligned at the upper left: no query attends to a key beyond the number of queries, and queries
/// beyond the number of keys attend to all.
Tensor upperLeft(Ops &ops, Tensor q, Tensor k, Tensor v, const AttentionOptions &o, Where where) {
  const int64_t t = q.size(2), s = k.size(2), both = std::min(t, s);
  const auto first = [&](Tensor x) { return x.size(2) == both ? x : slice(x, 2, 0, both, where); };
  Tensor result = fused(ops, first(q), first(k), first(v), o, true);
  return t <= s ? result : concat({result, fused(ops, slice(q, 2, s, t, where), k, v, o, false)}, 2, where);
}

/// What a mask of type i1 adds to the scores: 0 where it is true, elsewhere -infinity.
mlir::Value additive(Ops &ops, mlir::Value mask) {
  mlir::Value zero = ops.constant(ops.trace.type(ops.shape(mask), ops.trace.element(DType::F32)), 0);
  return ops.select(mask, zero, ops.constantLike(zero, -std::numeric_limits<double>::infinity()));
}

/// What is added to the scores; null if nothing is. `upperLeft`: it also hides later keys.
mlir::Value biasOf(Ops &ops, Tensor mask, const Shape &scores, bool upperLeft) {
  mlir::Value bias;
  if (mask.defined()) {
    const bool boolean = mask.dtype() == DType::I1;
    bias = boolean ? additive(ops, valueOf(mask)) : ops.cast(valueOf(mask), DType::F32);
    bias = ops.broadcastTo(bias, scores);
  }
  if (!upperLeft)
    return bias;
  const Shape positions{scores[2], scores[3]};
  mlir::Value seen = ops.compare(Predicate::Ge, ops.iota(positions, 0), ops.iota(positions, 1)),
              later = ops.broadcastTo(additive(ops, seen), scores);
  return bias ? ops.add(bias, later) : later;
}

} // namespace

Tensor scaledDotProductAttention(Tensor q, Tensor k, Tensor v, AttentionOptions o, Where where) {
  Ops ops(attention, where);
  checkAttention(q, k, v, o, where);
  const Shape scores{q.size(0), q.size(1), q.size(2), k.size(2)};
  if (o.mask.defined())
    checkMask(o.mask, q, scores, where);
  k = forEveryHead(ops, k, q.size(1));
  v = forEveryHead(ops, v, q.size(1));
  const bool drops = o.dropout > 0 && ops.trace.training();
  const bool otherCorner = o.causal && o.alignment == CausalAlignment::UpperLeft && q.size(2) != k.size(2);
  if (otherCorner && !o.mask.defined() && !drops)
    return upperLeft(ops, q, k, v, o, where);
  const Extras extras{biasOf(ops, o.mask, scores, otherCorner), drops ? ops.keepMask(scores, o.dropout) : nullptr};
  return fused(ops, q, k, v, o, o.causal && !otherCorner, extras);
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
  constexpr int64_t most = int64_t(1) << 26; // angles are constants of the plan
  if (x.size(-2) > most / half)
    failRule(name, 5, fmt::format("at most 2^26 angles are possible, {} positions have {} each", x.size(-2), half),
             facts, where);
  Tensor cosine = cast(angles(ops, x.size(-2), half, o, std::cos), x.dtype(), where);
  Tensor sine = cast(angles(ops, x.size(-2), half, o, std::sin), x.dtype(), where);
  Tensor first = slice(x, -1, 0, half, where), second = slice(x, -1, half, 2 * half, where);
  return concat({Operand(first, where) * cosine - Operand(second, where) * sine,
                 Operand(second, where) * cosine + Operand(first, where) * sine},
                -1, where);
}

} // namespace cleave
