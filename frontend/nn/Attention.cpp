// Multi-head attention as a module, with PyTorch's parameters.
#include "cleave/Layers.h"
#include "frontend/trace/Diagnose.h"
#include "frontend/trace/Trace.h"

#include <fmt/format.h>

namespace cleave {

constexpr const char *name = "multiheadAttention";

static int64_t checkedHeads(int64_t width, int64_t heads, Where where) {
  if (heads < 1 || width % heads)
    failRule(name, 1, fmt::format("{} heads do not divide a width of {}", heads, width), {}, where);
  return heads;
}

MultiheadAttention::MultiheadAttention(Module &parent, std::string name, int64_t width, int64_t heads,
                                       MultiheadAttentionOptions o, Where where)
    : Module(parent, std::move(name), where),
      inProjWeight(*this, "in_proj_weight", {3 * width, width}, init::xavierUniform(), where),
      outProj(*this, "out_proj", width, width, {.bias = o.bias, .biasInit = init::zeros()}, where), width(width),
      headCount(checkedHeads(width, heads, where)), options(o) {
  if (o.bias)
    inProjBias.emplace(*this, "in_proj_bias", Shape{3 * width}, init::zeros(), where);
}

/// [b, t, width] -> [b, heads, t, width / heads]
Tensor MultiheadAttention::heads(Tensor x) {
  const Where where = callSite();
  return transpose(reshape(x, {x.size(0), x.size(1), headCount, width / headCount}, where), 1, 2, where);
}

/// Projects only part `part`: 0 is q, 1 k, 2 v.
Tensor MultiheadAttention::project(Tensor x, int64_t part) {
  const Where where = callSite();
  const auto rows = [&](const Parameter &p) {
    return slice(p.tensor(where), 0, part * width, (part + 1) * width, where);
  };
  return heads(linear(x, rows(inProjWeight), inProjBias ? rows(*inProjBias) : Tensor(), where));
}

Tensor MultiheadAttention::attend(Tensor q, Tensor k, Tensor v, Tensor mask) {
  const Where where = callSite();
  const AttentionOptions attention{
      .causal = options.causal, .mask = mask, .dropout = options.dropout, .alignment = options.alignment};
  Tensor mixed = scaledDotProductAttention(q, k, v, attention, where);
  return outProj(reshape(transpose(mixed, 1, 2, where), {q.size(0), q.size(2), width}, where), where);
}

static void checkInputs(Tensor q, Tensor k, Tensor v, int64_t width, Where where) {
  const auto fits = [&](Tensor x) { return x.rank() == 3 && x.size(0) == q.size(0) && x.size(2) == width; };
  if (!fits(q) || !fits(k) || !fits(v) || k.size(1) != v.size(1))
    failRule(
        name, 2,
        fmt::format(
            "inputs must be [batch, positions, {}] with equal batches, and k and v must have equally many positions",
            width),
        {fact(q, "q"), fact(k, "k"), fact(v, "v")}, where);
}

Tensor MultiheadAttention::forward(Tensor x) { return forward(x, x, x); }

Tensor MultiheadAttention::forward(Tensor q, Tensor k, Tensor v) { return (*this)(q, k, v, Tensor(), callSite()); }

Tensor MultiheadAttention::operator()(Tensor q, Tensor k, Tensor v, Tensor mask, Where where) {
  PathScope scope(Trace::current(Module::name().c_str(), where), path(), where);
  checkInputs(q, k, v, width, where);
  if (q.opaque() != k.opaque() || k.opaque() != v.opaque())
    return attend(project(q, 0), project(k, 1), project(v, 2), mask);
  const Tensor bias = inProjBias ? inProjBias->tensor(where) : Tensor();
  Tensor packed = reshape(linear(q, inProjWeight.tensor(where), bias, where),
                          {q.size(0), q.size(1), 3, headCount, width / headCount}, where);
  const auto part = [&](int64_t i) { return transpose(select(packed, 2, i, where), 1, 2, where); };
  return attend(part(0), part(1), part(2), mask);
}

} // namespace cleave
