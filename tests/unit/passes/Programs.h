// Small graph programs for tests of passes: build them from text, inspect the results, and read PyTorch's goldens.
#pragma once
#include "ir/GraphModule.h"

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace cleave::testing {

/// A module whose @forward has these arguments, body (defining %loss: tensor<f32>) and static weight 4.
/// Arguments are separated by commas as MLIR text.
GraphModule forwardModule(const std::string &arguments, const std::string &body);
/// `%name: type {cleave.kind = "parameter", cleave.name = name, cleave.trainable = true EXTRA}`
std::string parameter(const std::string &name, const std::string &type, const std::string &extra = "");
std::string input(const std::string &name, const std::string &type);

/// Op names ("cleave.add") of a function, in program order, without the terminator.
std::vector<std::string> opNames(const GraphModule &module, const std::string &function);
/// Number of ops with this name in the function.
int countOps(const GraphModule &module, const std::string &function, const std::string &op);

/// A file under tests/parity/goldens.
nlohmann::json golden(const std::string &file);

/// Row-major numbers.
struct Array {
  std::vector<int64_t> shape;
  std::vector<double> data;
};
Array arrayOf(const nlohmann::json &value); // {"shape": [...], "data": [...]}

/// Values by "kind" or "kind:name" ("input:image", "loss", "gradient:fc.weight").
using Arrays = std::map<std::string, Array>;
/// Runs a function in the reference interpreter. Every argument must be given.
Arrays evaluate(const GraphModule &module, const std::string &function, const Arrays &arguments);
/// The gradient of a parameter of this shape in the results of @train: zeros if it has none.
Array gradientOf(const Arrays &results, const std::string &parameter, const std::vector<int64_t> &shape);
/// The arguments of a test case in ops.json.
Arrays argumentsOf(const nlohmann::json &example);

/// Largest |a - b| / (1 + |b|); infinite if the shapes differ or a number is not finite.
double apart(const Array &a, const Array &b);

} // namespace cleave::testing
