// Hashes shardings, and looks up tensors of solutions.
#include "partitioner/sharding/Solution.h"

namespace cleave::partitioner {

size_t ShardingHash::operator()(const Sharding &sharding) const {
  size_t hash = 0;
  const auto add = [&](size_t value) { hash = (hash ^ value) * 0x9e3779b97f4a7c15; };
  const auto addNames = [&](const std::vector<std::string> &names) {
    add(names.size());
    for (const std::string &name : names)
      add(std::hash<std::string>()(name));
  };
  for (const DimSharding &dim : sharding.dims) {
    add(dim.factors.size());
    for (const Factor &factor : dim.factors) {
      add(static_cast<size_t>(factor.size));
      addNames(factor.axes);
    }
  }
  addNames(sharding.partialAxes);
  return hash ^ hash >> 32;
}

TensorId ShardingSolution::origin(TensorId tensor, const ShardingProblem &problem) const {
  while (tensor >= problemTensors) {
    const AddedOp &op = added[tensor - problemTensors];
    tensor = op.copied < 0 ? op.operands[0] : problem.ops[op.copied].results[0];
  }
  return tensor;
}

} // namespace cleave::partitioner
