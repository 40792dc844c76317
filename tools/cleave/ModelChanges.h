// What changed in the code of a model between two plans of it.
#pragma once
#include "runtime/plan/PlanTypes.h"

#include <string>
#include <vector>

namespace cleave::tool {

/// A parameter or an op that only one plan has, or that differs. Those of equal layers are one.
struct ModelChange {
  std::string path;     ///< of the module, or the parameter; a pattern of several
  std::string what;     ///< "new", "gone", "changed"
  std::string a, b;     ///< how it was and is; empty: absent
  std::string location; ///< the user's line: of the second plan, or if it is gone of the first; empty: unknown
  int64_t times = 1;
};

/// `same`: whether no decision differs, so that equal ops have equal steps, and what they compute is compared, too.
std::vector<ModelChange> modelChanges(const plan::Plan &a, const plan::Plan &b, bool same);

} // namespace cleave::tool
