// Kinds of faults injected into valid plans, one at a time.
#pragma once
#include "runtime/plan/plan_generated.h"

#include <random>
#include <string>
#include <vector>

namespace cleave::plan_mutations {

/// An unpacked valid plan, and the random numbers that choose the place of the fault.
struct Altered {
  plan::PlanT plan;
  std::mt19937_64 random;

  size_t below(size_t count) { return static_cast<size_t>(random() % count); }
  template <typename T> T *oneOf(const std::vector<T *> &list) { return list.empty() ? nullptr : list[below(list.size())]; }
};

struct Kind {
  std::string name;
  bool (*apply)(Altered &); ///< injects the fault; false if the plan has no place for it
};

/// Faults in tables, memory, schedules and code.
std::vector<Kind> kinds();
/// Faults in steps.
std::vector<Kind> kindsOfSteps();

} // namespace cleave::plan_mutations
