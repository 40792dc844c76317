// Helpers for IR tests: run a function given as text on tensors.
#pragma once
#include "ir/GraphModule.h"
#include "ir/interpreter/Interpreter.h"

#include <catch2/catch.hpp>

namespace cleave::ir {

inline HostTensor f32(std::vector<int64_t> shape, std::vector<double> values) {
  return {std::move(shape), DType::F32, std::move(values)};
}
inline HostTensor i32(std::vector<int64_t> shape, std::vector<double> values) {
  return {std::move(shape), DType::I32, std::move(values)};
}

/// Runs @f of `text`.
inline std::vector<HostTensor> run(const std::string &text, const std::vector<HostTensor> &inputs,
                                   const Context &context = {}) {
  GraphModule module = GraphModule::parse(text, "test");
  return evaluate(module.function("f"), inputs, context);
}

/// Numbers in [-1, 1) that depend on `seed` alone.
inline std::vector<double> numbers(int64_t count, uint32_t seed) {
  std::vector<double> values;
  for (int64_t i = 0; i < count; ++i) {
    seed = seed * 1664525u + 1013904223u;
    values.push_back((seed >> 8) * 0x1p-23 - 1);
  }
  return values;
}

inline HostTensor randomF32(const std::vector<int64_t> &shape, uint32_t seed) {
  return f32(shape, numbers(elementCount(shape), seed));
}

inline void requireClose(const HostTensor &found, const std::vector<double> &expected, double tolerance = 1e-6) {
  REQUIRE(found.values.size() == expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    INFO("element " << i);
    REQUIRE(found.values[i] == Approx(expected[i]).margin(tolerance).epsilon(tolerance));
  }
}

} // namespace cleave::ir
