// A function of the DSL as a graph, for comparisons with PyTorch.
#pragma once
#include "ir/GraphModule.h"

#include <cleave/cleave.h>
#include <functional>
#include <nlohmann/json.hpp>

namespace cleave::testing {

/// A case's operands by name; those that it does not have are empty.
struct In {
  Tensor x, y, z, w, b, t, ids, labels;
};
using Function = std::function<Tensor(In)>;

/// @forward of a case. Its float inputs are parameters, or inputs if `parameters` is false. It returns
/// loss = sum(result * c), and the result as a buffer.
GraphModule traced(const nlohmann::json &example, const Function &function, bool parameters = true);

} // namespace cleave::testing
