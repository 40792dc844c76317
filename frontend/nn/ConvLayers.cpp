// Modules for 1-D and transposed convolutions.
#include "cleave/ConvLayers.h"
#include "frontend/nn/Layer.h"
#include "frontend/trace/Diagnose.h"

#include <cmath>
#include <fmt/format.h>

namespace cleave {

/// Checks the groups; returns the `channels` of one group.
static int64_t ofGroup(const char *op, int64_t channels, int64_t in, int64_t out, int64_t groups,
                       const std::string &name, Where where) {
  if (groups < 1 || in % groups || out % groups)
    failRule(op, 3, fmt::format("{}: {} inputs and {} outputs cannot be cut into {} groups", name, in, out, groups), {},
             where);
  return channels / groups;
}

static Init convInit(int64_t in, const Conv1dLayerOptions &o) { return byFanIn(in / o.groups * o.kernel); }

Conv1d::Conv1d(Module &parent, std::string name, int64_t in, int64_t out, Conv1dLayerOptions o, Where where)
    : Module(parent, name, where),
      weight(*this, "weight", {out, ofGroup("conv1d", in, in, out, o.groups, name, where), o.kernel},
             o.weightInit.value_or(convInit(in, o)), where),
      options{.stride = o.stride, .padding = o.padding, .dilation = o.dilation, .groups = o.groups} {
  if (o.bias)
    bias.emplace(*this, "bias", Shape{out}, o.biasInit.value_or(convInit(in, o)), where);
}

Tensor Conv1d::forward(Tensor x) { return conv1d(x, weight, given(bias), options, callSite()); }

/// Like PyTorch, uses the weight's second dimension for fan-in, although this dimension is that of the outputs here.
static Init transposedInit(int64_t out, const ConvTranspose2dOptions &o) {
  return byFanIn(out / o.groups * o.kernel.h * o.kernel.w);
}

ConvTranspose2d::ConvTranspose2d(Module &parent, std::string name, int64_t in, int64_t out, ConvTranspose2dOptions o,
                                 Where where)
    : Module(parent, name, where),
      weight(*this, "weight",
             {in, ofGroup("convTranspose2d", out, in, out, o.groups, name, where), o.kernel.h, o.kernel.w},
             o.weightInit.value_or(transposedInit(out, o)), where),
      options{.stride = o.stride,
              .padding = o.padding,
              .outputPadding = o.outputPadding,
              .dilation = o.dilation,
              .groups = o.groups} {
  if (o.bias)
    bias.emplace(*this, "bias", Shape{out}, o.biasInit.value_or(transposedInit(out, o)), where);
}

Tensor ConvTranspose2d::forward(Tensor x) { return convTranspose2d(x, weight, given(bias), options, callSite()); }

} // namespace cleave
