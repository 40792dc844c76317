// The usual layers as modules. Parameter names, shapes and beginnings are PyTorch's: linear and convolution draw weight
// and bias from U(-1/sqrt(fanIn), 1/sqrt(fanIn)), an embedding from N(0, 1), norms begin at weight 1, bias 0.
#pragma once
#include "cleave/Functional.h"
#include "cleave/Module.h"

#include <optional>

namespace cleave {

struct LinearOptions {
  bool bias = true;
  std::optional<Init> weightInit = {}, biasInit = {};
};
/// weight [out, in], bias [out].
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
/// weight [out, in / groups, kernel h, kernel w], bias [out]. C3: groups divides both.
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

/// weight, bias, runningMean, runningVar [channels], named "weight", "bias", "running_mean", "running_var".
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

/// weight, bias [width].
class LayerNorm : public Module {
public:
  LayerNorm(Module &parent, std::string name, int64_t width, double eps = 1e-5, Where where = Where::current());
  Tensor forward(Tensor x) override;

  Parameter weight, bias;

private:
  double eps;
};

struct EmbeddingOptions {
  Init weightInit = init::normal(0, 1);
};
/// weight [rows, width].
class Embedding : public Module {
public:
  Embedding(Module &parent, std::string name, int64_t rows, int64_t width, EmbeddingOptions options = {},
            Where where = Where::current());
  Tensor forward(Tensor ids) override;

  Parameter weight;
};

class Dropout : public Module {
public:
  Dropout(Module &parent, std::string name, double p = 0.5, Where where = Where::current());
  Tensor forward(Tensor x) override;

private:
  double p;
};

} // namespace cleave
