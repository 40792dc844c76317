// Measures this machine's processor, as a cluster of one node whose devices are its cores.
#pragma once
#include "partitioner/cluster/Cluster.h"

namespace cleave::partitioner {

/// Measures for about three seconds, on all cores at once, the best of several times: fp32 and bf16 multiply-adds, reading and
/// writing memory larger than the caches and as large as half of a core's share of the last cache, and messages
/// between two ranks that are threads.
Cluster measureHost();

/// Rounds to three significant digits, the precision of the measurements.
double rounded(double value);

} // namespace cleave::partitioner
