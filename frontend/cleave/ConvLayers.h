// Modules for 1-D and transposed convolutions. Weight and bias are initialised as in PyTorch: U(-1/sqrt(fanIn),
// 1/sqrt(fanIn)).
#pragma once
#include "cleave/Convolution.h"
#include "cleave/Module.h"

#include <optional>

namespace cleave {

struct Conv1dLayerOptions {
  int64_t kernel = 3, stride = 1, padding = 0, dilation = 1, groups = 1;
  bool bias = true;
  std::optional<Init> weightInit = {}, biasInit = {};
};
/// `conv1d` with weight [out, in / groups, kernel] and bias [out]. C3: groups divides `in` and `out`.
class Conv1d : public Module {
public:
  Conv1d(Module &parent, std::string name, int64_t in, int64_t out, Conv1dLayerOptions options = {},
         Where where = Where::current());
  Tensor forward(Tensor x) override;

  Parameter weight;
  std::optional<Parameter> bias;

private:
  Conv1dOptions options;
};

struct ConvTranspose2dOptions {
  Pair kernel = 3, stride = 1, padding = 0, outputPadding = 0, dilation = 1;
  int64_t groups = 1;
  bool bias = true;
  std::optional<Init> weightInit = {}, biasInit = {};
};
/// `convTranspose2d` with weight [in, out / groups, kernel h, kernel w] and bias [out]. C3: groups divides `in` and
/// `out`.
class ConvTranspose2d : public Module {
public:
  ConvTranspose2d(Module &parent, std::string name, int64_t in, int64_t out, ConvTranspose2dOptions options = {},
                  Where where = Where::current());
  Tensor forward(Tensor x) override;

  Parameter weight;
  std::optional<Parameter> bias;

private:
  ConvTransposeOptions options;
};

} // namespace cleave
