// Kinds of faults injected into valid plans, one at a time.
#pragma once
#include "runtime/plan/plan_generated.h"

#include <random>
#include <string>
#include <vector>

namespace cleave::plan_mutations {

/// A good plan, unpacked, and the numbers by which a place in it is chosen.
struct Altered {
  plan::PlanT plan;
  std::mt19937_64 random;

  size_t below(size_t count) { return static_cast<size_t>(random() % count); }
  template <typename T> T *oneOf(const std::vector<T *> &list) { return list.empty() ? nullptr : list[below(list.size())]; }
};

struct Kind {
  std::string name;
  bool (*apply)(Altered &); ///< false: the plan has no place for it
};

/// All of them: of tables, memory and schedules, then of steps.
std::vector<Kind> kinds();
std::vector<Kind> kindsOfSteps();

} // namespace cleave::plan_mutations
