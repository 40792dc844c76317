// Helpers for tests: the plan checker's messages for a plan.
#pragma once
#include "runtime/plan/check/Check.h"
#include "tests/support/PlanBuilder.h"

#include <catch2/catch.hpp>

#include <algorithm>

namespace cleave::test {

inline std::vector<std::string> defects(const PlanT &plan, CheckOptions options = {}) {
  return checkPlan(seal(plan)->plan(), options);
}

/// Whether the text of some defect contains all these words.
inline bool found(const std::vector<std::string> &errors, std::vector<std::string> words) {
  for (const std::string &error : errors)
    if (std::all_of(words.begin(), words.end(),
                    [&](const std::string &word) { return error.find(word) != std::string::npos; }))
      return true;
  return false;
}

inline std::string text(const std::vector<std::string> &errors) {
  std::string all;
  for (const std::string &error : errors)
    all += error + "\n";
  return all.empty() ? "(nothing)" : all;
}

#define CHECK_FOUND(plan, ...)                                                                                         \
  do {                                                                                                                 \
    auto errors = defects(plan);                                                                                       \
    INFO(text(errors));                                                                                                \
    CHECK(found(errors, {__VA_ARGS__}));                                                                               \
  } while (false)

} // namespace cleave::test
