// An operation graph as values, and its evaluation.
#pragma once
#include "tests/fake/cudnn/Descriptors.h"

#include <map>
#include <memory>
#include <string>
#include <vector>

namespace cleave::fake {

struct Tensor {
  int64_t uid = 0;
  std::vector<int64_t> dims, strides;
  cudnnDataType_t type{};
  bool isVirtual = false, byValue = false;

  int64_t elements() const;
  int64_t spanBytes() const; ///< from the first element to the end of the last
};

/// The values of a tensor in the order of its dimensions, independent of its strides.
using Values = std::vector<float>;

struct Convolution {
  std::vector<int64_t> padBegin, padEnd, stride, dilation;
  bool flipped = false; ///< a mathematical convolution, not a cross-correlation
  float alpha = 1, beta = 0;
};

struct Operation {
  cudnnBackendDescriptorType_t kind{};
  std::vector<Tensor> inputs; ///< in the order given at evaluate()
  Tensor output;
  Convolution convolution;
  int mode = 0; ///< of a pointwise operation or of a reduction
  int64_t axis = -1;
};

struct Program {
  std::vector<Operation> operations;
  bool singlePrecision = true; ///< the operands of products are f32
};

/// Returns null and the reason `why` if the graph has an unknown operation.
std::shared_ptr<const Program> readProgram(const Contents &graph, std::string &why);

/// Addresses of tensors by number, and the values of tensors passed by value, read in advance.
struct Bindings {
  std::map<int64_t, void *> addresses;
  std::map<int64_t, float> scalars;
};

size_t dataBytes(cudnnDataType_t type);
float loadValue(const void *address, int64_t index, cudnnDataType_t type);
void storeValue(void *address, int64_t index, cudnnDataType_t type, float value);

/// Runs the operations in order. `tf32`: factors of products are rounded first.
void evaluate(const Program &program, const Bindings &bindings, bool tf32);

/// The three convolutions. Inputs in the order of the operation: x, w; dy, w; x, dy. `before`: the output's old values,
/// for beta.
Values convolve(const Operation &op, const Values &first, const Values &second, const Values &before);

} // namespace cleave::fake
