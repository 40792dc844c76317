// Helpers of Programs.h.
#include "tests/unit/passes/Programs.h"

#include "ir/graph/Graph.h"
#include "runtime/base/InputFile.h"
#include "runtime/base/JsonText.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace cleave::testing {

GraphModule forwardModule(const std::string &arguments, const std::string &body) {
  return GraphModule::parse(
      "module {\nfunc.func @forward(" + arguments +
          ") -> (tensor<f32> {cleave.kind = \"loss\"}) attributes {cleave.static_weight = 4 : i64} {\n" + body +
          "\n  return %loss : tensor<f32>\n}\n}\n",
      "test.mlir");
}

static std::string argument(const std::string &kind, const std::string &name, const std::string &type,
                            const std::string &extra) {
  std::string value = name;
  for (char &c : value)
    c = c == '.' ? '_' : c;
  return "%" + value + ": " + type + " {cleave.kind = \"" + kind + "\", cleave.name = \"" + name + "\"" + extra + "}";
}

std::string parameter(const std::string &name, const std::string &type, const std::string &extra) {
  return argument("parameter", name, type, ", cleave.trainable = true" + extra);
}

std::string input(const std::string &name, const std::string &type) { return argument("input", name, type, ""); }

std::vector<std::string> opNames(const GraphModule &module, const std::string &function) {
  std::vector<std::string> names;
  for (mlir::Operation &op : module.module().lookupSymbol<mlir::func::FuncOp>(function).front().without_terminator())
    names.push_back(op.getName().getStringRef().str());
  return names;
}

int countOps(const GraphModule &module, const std::string &function, const std::string &op) {
  auto names = opNames(module, function);
  return static_cast<int>(std::count(names.begin(), names.end(), op));
}

nlohmann::json golden(const std::string &file) {
  return parseJson(readTextFile(std::string(CLEAVE_GOLDENS) + "/" + file, Status::Environment, 1 << 24), file);
}

Array arrayOf(const nlohmann::json &value) {
  Array array{value.at("shape").get<std::vector<int64_t>>(), {}};
  for (const nlohmann::json &number : value.at("data")) // JSON numbers cannot be "nan" or "inf"
    array.data.push_back(number.is_string() ? std::stod(number.get<std::string>()) : number.get<double>());
  return array;
}

Array gradientOf(const Arrays &results, const std::string &parameter, const std::vector<int64_t> &shape) {
  if (const auto found = results.find("gradient:" + parameter); found != results.end())
    return found->second;
  int64_t elements = 1;
  for (const int64_t size : shape)
    elements *= size;
  return {shape, std::vector<double>(static_cast<size_t>(elements))};
}

Arrays argumentsOf(const nlohmann::json &example) {
  Arrays arguments;
  for (const auto &[name, value] : example.at("floats").items())
    arguments[(name == "c" ? "input:" : "parameter:") + name] = arrayOf(value);
  for (const auto &[name, value] : example.at("ints").items())
    arguments["input:" + name] = arrayOf(value);
  return arguments;
}

double apart(const Array &a, const Array &b) {
  if (a.shape != b.shape || a.data.size() != b.data.size())
    return std::numeric_limits<double>::infinity();
  double worst = 0;
  for (size_t i = 0; i < a.data.size(); ++i) {
    double difference = std::abs(a.data[i] - b.data[i]) / (1 + std::abs(b.data[i]));
    if (!std::isfinite(difference))
      return std::numeric_limits<double>::infinity();
    worst = std::max(worst, difference);
  }
  return worst;
}

} // namespace cleave::testing
