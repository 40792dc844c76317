// Sequences of layers.
#include "cleave/Sequential.h"

namespace cleave {

Tensor Sequential::forward(Tensor x) {
  const Where where = callSite();
  for (Step &step : steps)
    x = step.module ? (*step.module)(x, where) : step.function(x, where);
  return x;
}

} // namespace cleave
