// The required behaviour of every communicator: each rank of a world runs the checks and compares results with locally
// computed sums. Data are integers, so comparisons are exact; numbers whose sum depends on the order test the order of
// additions.
#pragma once
#include "runtime/comm/Communicator.h"

#include <string>
#include <sys/resource.h>
#include <vector>

namespace cleave::test {

/// Runs all checks on this rank (all ranks of `world` must call it). Returns the failures as text.
std::vector<std::string> checkCollectives(RankEndpoint &world);
/// Checks messages before and after the ranks are linked.
std::vector<std::string> checkMessages(RankEndpoint &world);
/// Links all ranks for messages of so many bytes.
void linkAll(RankEndpoint &world, uint64_t bytes);

/// The shared segments that this process has mapped.
unsigned sharedSegments();
/// While it lives, the system refuses to make shared segments.
class NoSegments {
public:
  NoSegments();
  ~NoSegments();

private:
  rlimit before{};
};

} // namespace cleave::test
