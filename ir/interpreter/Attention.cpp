// Kernels of attention and its gradient.
#include "ir/graph/Graph.h"
#include "ir/interpreter/Executable.h"

#include "llvm/ADT/TypeSwitch.h"

#include <algorithm>
#include <cmath>
#include <limits>

using namespace mlir;

namespace cleave::ir {

namespace {
struct Sizes {
  int64_t heads, t, s, d; // heads of all samples, queries, keys, width of a head
  bool causal;
  /// The score of query i and key j, -infinity if the mask hides it.
  double masked(double score, int64_t i, int64_t j) const {
    return causal && j > i + s - t ? -std::numeric_limits<double>::infinity() : score;
  }
};
} // namespace

static Sizes sizesOf(const HostTensor &q, const HostTensor &k, bool causal) {
  return {q.shape[0] * q.shape[1], q.shape[2], k.shape[2], q.shape[3], causal};
}

static double dot(const double *x, const double *y, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i)
    sum += x[i] * y[i];
  return sum;
}

static Kernel attention(AttentionOp op) {
  return [type = emptyTensor(op.getResult().getType()), lseType = emptyTensor(op.getLse().getType()),
          scale = op.getScale().convertToDouble(), causal = op.getCausal()](const Operands &in, Environment &) {
    Sizes n = sizesOf(*in[0], *in[1], causal);
    HostTensor out = type, lse = lseType;
    out.values.assign(elementCount(out.shape), 0);
    lse.values.assign(elementCount(lse.shape), 0);
    std::vector<double> score(n.s);
    for (int64_t head = 0; head < n.heads; ++head)
      for (int64_t i = 0; i < n.t; ++i) {
        int64_t row = head * n.t + i;
        double largest = -std::numeric_limits<double>::infinity(), total = 0;
        for (int64_t j = 0; j < n.s; ++j) {
          const double *key = &in[1]->values[(head * n.s + j) * n.d];
          score[j] = n.masked(scale * dot(&in[0]->values[row * n.d], key, n.d), i, j);
          largest = std::max(largest, score[j]);
        }
        for (int64_t j = 0; j < n.s; ++j)
          total += score[j] = inside(type.dtype, std::exp(score[j] - largest));
        for (int64_t j = 0; j < n.s; ++j)
          for (int64_t x = 0; x < n.d; ++x)
            out.values[row * n.d + x] += score[j] / total * in[2]->values[(head * n.s + j) * n.d + x];
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
  return [types, scale = op.getScale().convertToDouble(), causal = op.getCausal()](const Operands &in, Environment &) {
    const auto &grad = in[0]->values, &q = in[1]->values, &k = in[2]->values, &v = in[3]->values, &out = in[4]->values;
    Sizes n = sizesOf(*in[1], *in[2], causal);
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
          const double score = n.masked(scale * dot(&q[row], &k[key], n.d), i, j);
          double p = inside(type, std::exp(score - in[5]->values[head * n.t + i]));
          double slope = scale * p * (inside(type, dot(&grad[row], &v[key], n.d)) - mean);
          for (int64_t x = 0; x < n.d; ++x) {
            gradV[key + x] += p * grad[row + x];
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
