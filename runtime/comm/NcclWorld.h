// Ranks as processes with one GPU each. There is no such communicator yet: asking for it is an error that says so.
#pragma once
#include "runtime/comm/Communicator.h"

namespace cleave {
/// Throws an environment error that names the missing device.
std::unique_ptr<World> makeNcclWorld(unsigned expectedRanks);
} // namespace cleave
