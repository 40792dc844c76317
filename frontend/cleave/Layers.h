// Common layers as modules. Parameter names, shapes and initial values are PyTorch's: linear and convolution draw
// weight and bias from U(-1/sqrt(fanIn), 1/sqrt(fanIn)), embeddings from N(0, 1), norms start with weight 1 and bias 0,
// and the input projection of attention uses Xavier's uniform rule. See also Sequential.h and Recurrent.h.
#pragma once
#include "cleave/Functional.h"
#include "cleave/Module.h"

#include <optional>

namespace cleave {

struct LinearOptions {
  bool bias = true;
  std::optional<Init> weightInit = {}, biasInit = {};
};
/// `linear` with weight [out, in] and bias [out]: [..., in] -> [..., out].
class Linear : public Module {
public:
  Linear(Module &parent, std::string name, int64_t in, int64_t out, LinearOptions options = {},
         Where where = Where::current());
  Tensor forward(Tensor x) override;

  Parameter weight;
  std::optional<Parameter> bias;
};

struct Conv2dOptions {
  Pair kernel = 3, stride = 1, padding = 0, dilation = 1;
  int64_t groups = 1;
  bool bias = true;
  std::optional<Init> weightInit = {}, biasInit = {};
};
/// `conv2d` with weight [out, in / groups, kernel h, kernel w] and bias [out]. C3: groups divides `in` and `out`.
class Conv2d : public Module {
public:
  Conv2d(Module &parent, std::string name, int64_t in, int64_t out, Conv2dOptions options = {},
         Where where = Where::current());
  Tensor forward(Tensor x) override;

  Parameter weight;
  std::optional<Parameter> bias;

private:
  ConvOptions options;
};

/// `batchNorm2d` with weight, bias, runningMean and runningVar [channels], named "weight", "bias", "running_mean" and
/// "running_var".
class BatchNorm2d : public Module {
public:
  BatchNorm2d(Module &parent, std::string name, int64_t channels, BatchNormOptions options = {},
              Where where = Where::current());
  Tensor forward(Tensor x) override;

  Parameter weight, bias;
  Buffer runningMean, runningVar;

private:
  BatchNormOptions options;
};

/// `layerNorm` with weight and bias [width].
class LayerNorm : public Module {
public:
  LayerNorm(Module &parent, std::string name, int64_t width, double eps = 1e-5, Where where = Where::current());
  Tensor forward(Tensor x) override;

  Parameter weight, bias;

private:
  double eps;
};

/// `rmsNorm` with weight [width], initially 1.
class RmsNorm : public Module {
public:
  RmsNorm(Module &parent, std::string name, int64_t width, double eps = 1e-5, Where where = Where::current());
  Tensor forward(Tensor x) override;

  Parameter weight;

private:
  double eps;
};

struct GroupNormOptions {
  double eps = 1e-5;
  bool affine = true; ///< whether the module has weight and bias
};
/// `groupNorm` with weight and bias [channels]. C2: groups divides the channels.
class GroupNorm : public Module {
public:
  GroupNorm(Module &parent, std::string name, int64_t groups, int64_t channels, GroupNormOptions options = {},
            Where where = Where::current());
  Tensor forward(Tensor x) override;

  std::optional<Parameter> weight, bias;

private:
  int64_t groups;
  double eps;
};

/// `instanceNorm` of images: normalises every channel of every image separately, in training and evaluation. Has weight
/// and bias [channels] only if `affine`.
class InstanceNorm2d : public Module {
public:
  InstanceNorm2d(Module &parent, std::string name, int64_t channels, GroupNormOptions options = {.affine = false},
                 Where where = Where::current());
  /// C1: the rank is 4. C2: the input has the module's number of channels.
  Tensor forward(Tensor x) override;

  std::optional<Parameter> weight, bias;

private:
  int64_t channels;
  double eps;
};

struct EmbeddingOptions {
  Init weightInit = init::normal(0, 1);
  Outside outside = Outside::Error; ///< what an id outside [0, rows) does
};
/// `embedding` with weight [rows, width]: i32 ids [...] -> [..., width].
class Embedding : public Module {
public:
  Embedding(Module &parent, std::string name, int64_t rows, int64_t width, EmbeddingOptions options = {},
            Where where = Where::current());
  Tensor forward(Tensor ids) override;

  Parameter weight;

private:
  Outside outside;
};

struct MultiheadAttentionOptions {
  double dropout = 0; ///< probability of dropping an element of the softmax; only in training
  bool bias = true;
  bool causal = false;
  CausalAlignment alignment = CausalAlignment::UpperLeft; ///< of the causal mask, as in AttentionOptions
};
/// Multi-head attention with projections, on [batch, positions, width] (Vaswani et al. 2017): in_proj_weight [3 width,
/// width] (q, k and v stacked), in_proj_bias [3 width], out_proj.weight [width, width], out_proj.bias [width]. C1:
/// heads divides width.
class MultiheadAttention : public Module {
public:
  MultiheadAttention(Module &parent, std::string name, int64_t width, int64_t heads,
                     MultiheadAttentionOptions options = {}, Where where = Where::current());

  /// Self-attention: one matrix product computes q, k and v.
  Tensor forward(Tensor x) override;
  /// Attends from the positions of q to the positions of k and v. C2: ranks are 3, batch and width agree.
  Tensor forward(Tensor q, Tensor k, Tensor v) override;
  using Module::operator();
  /// With a mask as in scaledDotProductAttention: [b, heads, t, s], or a shape that can be broadcast to it.
  Tensor operator()(Tensor q, Tensor k, Tensor v, Tensor mask, Where where = Where::current());

  Parameter inProjWeight;
  std::optional<Parameter> inProjBias;
  Linear outProj;

private:
  Tensor attend(Tensor q, Tensor k, Tensor v, Tensor mask);
  Tensor project(Tensor x, int64_t part);
  Tensor heads(Tensor x);

  int64_t width, headCount;
  MultiheadAttentionOptions options;
};

/// `prelu` with a parameter "weight" of `channels` elements: one for all, or one per channel (dimension 1).
class PReLU : public Module {
public:
  PReLU(Module &parent, std::string name, int64_t channels = 1, double slope = 0.25, Where where = Where::current());
  Tensor forward(Tensor x) override;
  Parameter weight;
};

/// `dropout` with probability p.
class Dropout : public Module {
public:
  Dropout(Module &parent, std::string name, double p = 0.5, Where where = Where::current());
  Tensor forward(Tensor x) override;

private:
  double p;
};

} // namespace cleave
