// Common layers: parameters with PyTorch's initial values, and their forward functions.
#include "cleave/Layers.h"
#include "cleave/Pointwise.h"
#include "frontend/nn/Layer.h"
#include "frontend/trace/Diagnose.h"

#include <cmath>
#include <fmt/format.h>

namespace cleave {

Linear::Linear(Module &parent, std::string name, int64_t in, int64_t out, LinearOptions o, Where where)
    : Module(parent, std::move(name), where),
      weight(*this, "weight", {out, in}, o.weightInit.value_or(byFanIn(in)), where) {
  if (o.bias)
    bias.emplace(*this, "bias", Shape{out}, o.biasInit.value_or(byFanIn(in)), where);
}

Tensor Linear::forward(Tensor x) { return linear(x, weight, given(bias), callSite()); }

static int64_t inOfGroup(int64_t in, int64_t out, int64_t groups, const std::string &name, Where where) {
  if (groups < 1 || in % groups || out % groups)
    failRule("conv2d", 3,
             fmt::format("{}: {} inputs and {} outputs cannot be cut into {} groups", name, in, out, groups), {},
             where);
  return in / groups;
}

static Init convInit(int64_t in, const Conv2dOptions &o) { return byFanIn(in / o.groups * o.kernel.h * o.kernel.w); }

Conv2d::Conv2d(Module &parent, std::string name, int64_t in, int64_t out, Conv2dOptions o, Where where)
    : Module(parent, name, where),
      weight(*this, "weight", {out, inOfGroup(in, out, o.groups, name, where), o.kernel.h, o.kernel.w},
             o.weightInit.value_or(convInit(in, o)), where),
      options{.stride = o.stride, .padding = o.padding, .dilation = o.dilation, .groups = o.groups} {
  if (o.bias)
    bias.emplace(*this, "bias", Shape{out}, o.biasInit.value_or(convInit(in, o)), where);
}

Tensor Conv2d::forward(Tensor x) { return conv2d(x, weight, given(bias), options, callSite()); }

BatchNorm2d::BatchNorm2d(Module &parent, std::string name, int64_t channels, BatchNormOptions options, Where where)
    : Module(parent, std::move(name), where), weight(*this, "weight", {channels}, init::ones(), where),
      bias(*this, "bias", {channels}, init::zeros(), where),
      runningMean(*this, "running_mean", {channels}, init::zeros(), where),
      runningVar(*this, "running_var", {channels}, init::ones(), where), options(options) {}

Tensor BatchNorm2d::forward(Tensor x) {
  return batchNorm2d(x, weight, bias, runningMean, runningVar, options, callSite());
}

LayerNorm::LayerNorm(Module &parent, std::string name, int64_t width, double eps, Where where)
    : Module(parent, std::move(name), where), weight(*this, "weight", {width}, init::ones(), where),
      bias(*this, "bias", {width}, init::zeros(), where), eps(eps) {}

Tensor LayerNorm::forward(Tensor x) { return layerNorm(x, weight, bias, eps, callSite()); }

RmsNorm::RmsNorm(Module &parent, std::string name, int64_t width, double eps, Where where)
    : Module(parent, std::move(name), where), weight(*this, "weight", {width}, init::ones(), where), eps(eps) {}

Tensor RmsNorm::forward(Tensor x) { return rmsNorm(x, weight, eps, callSite()); }

GroupNorm::GroupNorm(Module &parent, std::string name, int64_t groups, int64_t channels, GroupNormOptions o,
                     Where where)
    : Module(parent, name, where), groups(groups), eps(o.eps) {
  if (groups < 1 || channels % groups)
    failRule("groupNorm", 2, fmt::format("{}: {} channels cannot be cut into {} groups", name, channels, groups), {},
             where);
  if (!o.affine)
    return;
  weight.emplace(*this, "weight", Shape{channels}, init::ones(), where);
  bias.emplace(*this, "bias", Shape{channels}, init::zeros(), where);
}

Tensor GroupNorm::forward(Tensor x) { return groupNorm(x, groups, given(weight), given(bias), eps, callSite()); }

InstanceNorm2d::InstanceNorm2d(Module &parent, std::string name, int64_t channels, GroupNormOptions o, Where where)
    : Module(parent, std::move(name), where), channels(channels), eps(o.eps) {
  if (!o.affine)
    return;
  weight.emplace(*this, "weight", Shape{channels}, init::ones(), where);
  bias.emplace(*this, "bias", Shape{channels}, init::zeros(), where);
}

Tensor InstanceNorm2d::forward(Tensor x) {
  if (x.rank() != 4)
    failRule("instanceNorm2d", 1, fmt::format("the rank must be 4, found {}", x.rank()), {fact(x, "input")},
             callSite());
  if (x.size(1) != channels)
    failRule("instanceNorm2d", 2, fmt::format("the input has {} channels, {} expects {}", x.size(1), path(), channels),
             {fact(x, "input")}, callSite());
  return instanceNorm(x, given(weight), given(bias), eps, callSite());
}

Embedding::Embedding(Module &parent, std::string name, int64_t rows, int64_t width, EmbeddingOptions options,
                     Where where)
    : Module(parent, std::move(name), where), weight(*this, "weight", {rows, width}, options.weightInit, where),
      outside(options.outside) {}

Tensor Embedding::forward(Tensor ids) { return embedding(ids, weight, outside, callSite()); }

PReLU::PReLU(Module &parent, std::string name, int64_t channels, double slope, Where where)
    : Module(parent, std::move(name), where), weight(*this, "weight", {channels}, init::constant(slope), where) {}

Tensor PReLU::forward(Tensor x) { return prelu(x, weight.tensor(callSite()), callSite()); }

Dropout::Dropout(Module &parent, std::string name, double p, Where where)
    : Module(parent, std::move(name), where), p(p) {}

Tensor Dropout::forward(Tensor x) { return dropout(x, p, callSite()); }

} // namespace cleave
