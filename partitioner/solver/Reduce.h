// Makes a core smaller without losing its best assignments. Each reduction keeps at least one assignment of least cost
// within the memory, and the choices of removed nodes can be restored (Core::undo). Proofs: docs/partitioning.md.
#pragma once
#include "partitioner/solver/Core.h"

namespace cleave::partitioner {

/// Which reductions to use; all of them, unless a test looks at one alone. Removing choices that are forbidden or do
/// not fit into memory, and folding nodes with one choice, is always done.
struct Reductions {
  bool tied = true;      // a node whose choice follows from a neighbour's
  bool folded = true;    // a node without memory and with at most two neighbours
  bool dominated = true; // a choice that another one can replace
  bool rows = true;      // rows of the memory that cannot be exceeded
};

/// Reduces a core until nothing changes. `stop` is asked from time to time; if it says so, what has been done so far
/// remains valid.
void reduce(Core &core, const Reductions &reductions = {});

} // namespace cleave::partitioner
