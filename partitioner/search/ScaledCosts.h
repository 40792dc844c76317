// Costs of layers that are not measured, from those that are.
#pragma once
#include "partitioner/search/LayerCosts.h"

namespace cleave::partitioner {

/// The costs with a stage of ZeRO, from those without it: it divides bytes among the `data` ranks of axis dp. Times
/// stay.
SiteCosts withZero(SiteCosts site, int64_t zero, int64_t data);

/// The costs with `share` of the rows: launches and latencies stay, all else is in proportion. Multiplied by `slack`.
SiteCosts withRows(SiteCosts site, double share, double slack);

/// The costs of the passes, with the collectives of another measurement of the same plan at both ends of an iteration.
SiteCosts withEndsOf(SiteCosts passes, const SiteCosts &ends);

} // namespace cleave::partitioner
