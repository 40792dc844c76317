// Kernels of the normalisations and their gradients. Layer and batch normalisation differ only in which elements form
// a group and which weight an element has.
#include "ir/graph/Graph.h"
#include "ir/interpreter/Executable.h"

#include "llvm/ADT/TypeSwitch.h"

#include <cmath>

using namespace mlir;

namespace cleave::ir {

namespace {

/// Element i of the input belongs to group groupOf(i) and is scaled by weight weightOf(i).
struct Layout {
  bool batch;
  int64_t inner = 1;                 // layer: the last dimension; batch: elements of one channel of one sample
  int64_t channels = 1, samples = 1; // batch: samples per group of statistics
  int64_t groups = 1, members = 1;   // number of groups, elements per group

  int64_t groupOf(int64_t i) const {
    return batch ? i / (inner * channels * samples) * channels + weightOf(i) : i / inner;
  }
  int64_t weightOf(int64_t i) const { return batch ? i / inner % channels : i % inner; }
};

} // namespace

static Layout layerLayout(const HostTensor &input) {
  Layout layout{false};
  layout.inner = layout.members = input.shape.back();
  layout.groups = input.size() / layout.inner;
  return layout;
}

static Layout batchLayout(const HostTensor &input, int64_t group) {
  Layout layout{true};
  layout.channels = input.shape[1];
  layout.inner = elementCount(input.shape) / (input.shape[0] * layout.channels);
  layout.samples = group ? group : input.shape[0];
  layout.groups = input.shape[0] / layout.samples * layout.channels;
  layout.members = layout.samples * layout.inner;
  return layout;
}

static std::vector<HostTensor> zeros(std::vector<HostTensor> types) {
  for (HostTensor &type : types)
    type.values.assign(elementCount(type.shape), 0);
  return types;
}

static std::vector<HostTensor> rounded(std::vector<HostTensor> results) {
  for (HostTensor &result : results)
    result.round();
  return results;
}

static std::vector<HostTensor> typesOf(Operation *op) {
  std::vector<HostTensor> types;
  for (Value result : op->getResults())
    types.push_back(emptyTensor(result.getType()));
  return types;
}

/// Divides each group's sum by the number of its elements. As in the compiled form (passes/decompose), this is one
/// division, so that the mean of equal whole numbers is exact and x - mean is 0. (An error in x - mean would be
/// multiplied by up to 1 / sqrt(eps).)
static void average(std::vector<double> &sums, const Layout &layout) {
  for (double &sum : sums)
    sum = inside(DType::F32, sum / layout.members);
}

/// Results: the normalised input, and per group the mean and the biased variance (1 / sqrt(var + eps) if `rstd`).
static std::vector<HostTensor> normalise(const Layout &layout, const Operands &in, std::vector<HostTensor> results,
                                         double eps, bool rstd) {
  const auto &x = in[0]->values, &weight = in[1]->values, &bias = in[2]->values;
  auto &out = results[0].values, &mean = results[1].values, &variance = results[2].values;
  for (size_t i = 0; i < x.size(); ++i)
    mean[layout.groupOf(i)] += addend(x[i]);
  average(mean, layout);
  for (size_t i = 0; i < x.size(); ++i) {
    double centred = x[i] - mean[layout.groupOf(i)];
    variance[layout.groupOf(i)] += centred * centred;
  }
  average(variance, layout);
  std::vector<double> scale;
  for (double v : variance)
    scale.push_back(1 / std::sqrt(v + eps));
  for (size_t i = 0; i < x.size(); ++i) {
    int64_t group = layout.groupOf(i), w = layout.weightOf(i);
    out[i] = (x[i] - mean[group]) * scale[group] * weight[w] + bias[w];
  }
  if (rstd)
    variance = scale;
  return rounded(std::move(results));
}

/// Results: gradients of input, weight and bias. With y = (x - mean) * scale and g = grad * weight, the input's
/// gradient is scale * (g - mean(g) - y * mean(g * y)), with means over the group.
static std::vector<HostTensor> normaliseGrad(const Layout &layout, const Operands &in, const std::vector<double> &scale,
                                             std::vector<HostTensor> results) {
  const auto &grad = in[0]->values, &x = in[1]->values, &weight = in[2]->values, &mean = in[3]->values;
  auto &gradInput = results[0].values, &gradWeight = results[1].values, &gradBias = results[2].values;
  std::vector<double> first(layout.groups, 0), second(layout.groups, 0);
  for (size_t i = 0; i < x.size(); ++i) {
    int64_t group = layout.groupOf(i), w = layout.weightOf(i);
    double y = (x[i] - mean[group]) * scale[group], g = inside(DType::F32, grad[i] * weight[w]);
    first[group] += addend(g);
    second[group] += addend(g * inside(DType::F32, y));
    gradWeight[w] += addend(grad[i] * y);
    gradBias[w] += addend(grad[i]);
  }
  average(first, layout);
  average(second, layout);
  for (size_t i = 0; i < x.size(); ++i) {
    int64_t group = layout.groupOf(i), w = layout.weightOf(i);
    double y = (x[i] - mean[group]) * scale[group];
    gradInput[i] = scale[group] * (grad[i] * weight[w] - first[group] - y * second[group]);
  }
  return rounded(std::move(results));
}

static Kernel layerNorm(LayerNormOp op) {
  return [types = typesOf(op), eps = op.getEps().convertToDouble()](const Operands &in, Environment &) {
    return normalise(layerLayout(*in[0]), in, zeros(types), eps, true);
  };
}

static Kernel layerNormGrad(LayerNormGradOp op) {
  return [types = typesOf(op)](const Operands &in, Environment &) {
    return normaliseGrad(layerLayout(*in[1]), in, in[4]->values, zeros(types));
  };
}

static Kernel batchNorm(BatchNormOp op) {
  return [types = typesOf(op), eps = op.getEps().convertToDouble(), group = int64_t(op.getGroup())](const Operands &in,
                                                                                                    Environment &) {
    return normalise(batchLayout(*in[0], group), in, zeros(types), eps, false);
  };
}

static Kernel batchNormGrad(BatchNormGradOp op) {
  return [types = typesOf(op), eps = op.getEps().convertToDouble(), group = int64_t(op.getGroup())](const Operands &in,
                                                                                                    Environment &) {
    std::vector<double> scale;
    for (double variance : in[4]->values)
      scale.push_back(1 / std::sqrt(variance + eps));
    return normaliseGrad(batchLayout(*in[1], group), in, scale, zeros(types));
  };
}

Kernel normKernel(Operation *op) {
  return llvm::TypeSwitch<Operation *, Kernel>(op)
      .Case([](LayerNormOp op) { return layerNorm(op); })
      .Case([](LayerNormGradOp op) { return layerNormGrad(op); })
      .Case([](BatchNormOp op) { return batchNorm(op); })
      .Case([](BatchNormGradOp op) { return batchNormGrad(op); })
      .Default([](Operation *) { return Kernel(); });
}

} // namespace cleave::ir
