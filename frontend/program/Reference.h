// The reference side of a check: the step's functions run by the interpreter on named global tensors.
#pragma once
#include "ir/GraphModule.h"
#include "ir/interpreter/Bounds.h"
#include "ir/interpreter/Interpreter.h"
#include "runtime/data/DataSource.h"
#include "runtime/session/RankJob.h"

#include <optional>
#include <string>
#include <vector>

namespace cleave {

class Reference {
public:
  Reference(const GraphModule &step, uint64_t seed, int64_t microbatches);

  /// Initial values of parameters, buffers and states, by kind and module path.
  ir::Slots initial() const;
  /// Runs forward and backward of one step on samples `rows` of an epoch; writes gradients and buffers.
  LossSums train(ir::Slots &values, const DataSource &source, int64_t epoch, const std::vector<uint32_t> &rows,
                 int64_t step) const;
  /// Runs the optimizer; writes parameters and states. `sums`: what train returned.
  void update(ir::Slots &values, double lr, int64_t step, const LossSums &sums) const;
  /// Keys in the order of execution: buffers, gradients from the last layer to the first, parameters, states.
  std::vector<ir::SlotKey> order() const;

private:
  struct Slot {
    ir::SlotKind kind;
    std::string name;
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

  /// The values of a function's arguments for microbatch `m`.
  std::vector<ir::HostTensor> arguments(const Function &function, const ir::Slots &values, const DataSource &source,
                                        int64_t epoch, const std::vector<uint32_t> &rows, int64_t m) const;

  Function trainFunction, updateFunction;
  std::optional<Function> weightsFunction;
  uint64_t seed;
  int64_t microbatches;
};

} // namespace cleave
