// Kernels of attention and its gradient.
#include "ir/graph/Graph.h"
#include "ir/interpreter/Executable.h"

#include "llvm/ADT/TypeSwitch.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

using namespace mlir;

namespace cleave::ir {

static double dot(const double *x, const double *y, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i)
    sum += x[i] * y[i];
  return sum;
}

namespace {

/// The scores of attention, and which elements of their softmax are kept.
struct Scores {
  int64_t heads, t, s, d; // heads of all samples, queries, keys, width of a head
  const HostTensor *q, *k, *bias, *keep;
  double scale, kept; // the factors of products, and of elements that are kept
  bool causal;

  /// Of query i and key j of a head; -infinity if the causal mask hides it.
  double operator()(int64_t head, int64_t i, int64_t j) const {
    if (causal && j > i + s - t)
      return -std::numeric_limits<double>::infinity();
    const double score = scale * dot(&q->values[(head * t + i) * d], &k->values[(head * s + j) * d], d);
    return bias ? score + bias->values[at(head, i, j)] : score;
  }
  /// The factor of this element of the softmax.
  double factor(int64_t head, int64_t i, int64_t j) const {
    return !keep ? 1 : keep->values[at(head, i, j)] != 0 ? kept : 0;
  }

private:
  int64_t at(int64_t head, int64_t i, int64_t j) const { return (head * t + i) * s + j; }
};

/// Returns the scores, given the op's operands. `q` and `optional`: the numbers of the operand q and of the first
/// optional one.
template <typename Op> std::function<Scores(const Operands &)> scoresOf(Op op, int q, int optional) {
  const int bias = op.getBias() ? optional : -1, keep = op.getKeep() ? optional + (bias >= 0) : -1;
  return [=, scale = op.getScale().convertToDouble(), kept = 1 / (1 - op.getDropout().convertToDouble()),
          causal = op.getCausal()](const Operands &in) {
    const auto &queries = in[q]->shape, &keys = in[q + 1]->shape;
    const auto operand = [&](int i) { return i < 0 ? nullptr : in[i]; };
    return Scores{queries[0] * queries[1], queries[2],    keys[2], queries[3], in[q], in[q + 1],
                  operand(bias),           operand(keep), scale,   kept,       causal};
  };
}

} // namespace

static Kernel attention(AttentionOp op) {
  return [type = emptyTensor(op.getResult().getType()), lseType = emptyTensor(op.getLse().getType()),
          scoresOfOperands = scoresOf(op, 0, 3)](const Operands &in, Environment &) {
    const Scores n = scoresOfOperands(in);
    HostTensor out = type, lse = lseType;
    out.values.assign(elementCount(out.shape), 0);
    lse.values.assign(elementCount(lse.shape), 0);
    constexpr double infinity = std::numeric_limits<double>::infinity();
    std::vector<double> score(n.s);
    for (int64_t head = 0; head < n.heads; ++head)
      for (int64_t i = 0; i < n.t; ++i) {
        int64_t row = head * n.t + i;
        double largest = -infinity, total = 0;
        for (int64_t j = 0; j < n.s; ++j) {
          score[j] = n(head, i, j);
          if (score[j] > largest || std::isnan(score[j])) // NaN stays: such a row is not one without keys
            largest = score[j];
        }
        lse.values[row] = infinity;
        if (n.bias && largest == -infinity)
          continue; // the bias hides all keys
        for (int64_t j = 0; j < n.s; ++j)
          total += score[j] = inside(type.dtype, std::exp(score[j] - largest));
        for (int64_t j = 0; j < n.s; ++j)
          for (int64_t x = 0; x < n.d; ++x)
            out.values[row * n.d + x] +=
                score[j] / total * n.factor(head, i, j) * in[2]->values[(head * n.s + j) * n.d + x];
        lse.values[row] = largest + std::log(total);
      }
    out.round();
    lse.round();
    return std::vector<HostTensor>{std::move(out), std::move(lse)};
  };
}

static Kernel attentionGrad(AttentionGradOp op) {
  std::vector<HostTensor> types;
  for (Value result : op->getResults())
    types.push_back(emptyTensor(result.getType()));
  return [types, scoresOfOperands = scoresOf(op, 1, 6)](const Operands &in, Environment &) {
    const auto &grad = in[0]->values, &q = in[1]->values, &k = in[2]->values, &v = in[3]->values, &out = in[4]->values;
    const Scores n = scoresOfOperands(in);
    const DType type = in[1]->dtype;
    std::vector<HostTensor> results = types;
    for (HostTensor &result : results)
      result.values.assign(elementCount(result.shape), 0);
    auto &gradQ = results[0].values, &gradK = results[1].values, &gradV = results[2].values;
    for (int64_t head = 0; head < n.heads; ++head)
      for (int64_t i = 0; i < n.t; ++i) {
        int64_t row = (head * n.t + i) * n.d;
        double mean = inside(type, dot(&grad[row], &out[row], n.d));
        for (int64_t j = 0; j < n.s; ++j) {
          int64_t key = (head * n.s + j) * n.d;
          double p = inside(type, std::exp(n(head, i, j) - in[5]->values[head * n.t + i]));
          const double factor = n.factor(head, i, j);
          double slope = n.scale * p * (factor * inside(type, dot(&grad[row], &v[key], n.d)) - mean);
          for (int64_t x = 0; x < n.d; ++x) {
            gradV[key + x] += p * factor * grad[row + x];
            gradQ[row + x] += slope * k[key + x];
            gradK[key + x] += slope * q[row + x];
          }
        }
      }
    for (HostTensor &result : results)
      result.round();
    return results;
  };
}

Kernel attentionKernel(Operation *op) {
  return llvm::TypeSwitch<Operation *, Kernel>(op)
      .Case([](AttentionOp op) { return attention(op); })
      .Case([](AttentionGradOp op) { return attentionGrad(op); })
      .Default([](Operation *) { return Kernel(); });
}

} // namespace cleave::ir
