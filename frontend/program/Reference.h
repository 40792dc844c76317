// The reference side of a check: the step's functions run by the interpreter on named global tensors.
#pragma once
#include "ir/GraphModule.h"
#include "ir/interpreter/Interpreter.h"
#include "runtime/data/DataSource.h"

#include <map>
#include <string>
#include <vector>

namespace cleave {

/// Kind ("parameter", "buffer", "state", "gradient", "magnitude") and module path.
using TensorKey = std::pair<std::string, std::string>;
using TensorMap = std::map<TensorKey, ir::HostTensor>;

struct StepSums {
  double loss = 0, weight = 0;
};

class Reference {
public:
  Reference(const GraphModule &step, uint64_t seed, int64_t microbatches);

  /// Initial values of parameters, buffers and states.
  TensorMap initial() const;
  /// Runs forward and backward of one step on samples `rows` of an epoch; writes gradients and buffers.
  StepSums train(TensorMap &values, const DataSource &source, int64_t epoch, const std::vector<uint32_t> &rows,
                 int64_t step) const;
  /// Runs the optimizer; writes parameters and states.
  void update(TensorMap &values, double lr, int64_t step, double weight) const;
  /// Keys in the order of execution: buffers, gradients from the last layer to the first, parameters, states.
  std::vector<TensorKey> order() const;

private:
  struct Slot {
    std::string kind, name;
    std::vector<int64_t> shape;
    DType dtype;
    std::string distribution; ///< distribution of the initial values, as in InitValues; empty: no initial values
    double a = 0, b = 0;
  };
  struct Function {
    void *operation = nullptr;
    std::vector<Slot> arguments, results;
  };
  static Function read(const GraphModule &module, const char *name);
  ir::HostTensor input(const Slot &slot, const DataSource &source, int64_t epoch, const std::vector<uint32_t> &rows,
                       int64_t first) const;

  Function trainFunction, updateFunction;
  uint64_t seed;
  int64_t microbatches;
};

} // namespace cleave
