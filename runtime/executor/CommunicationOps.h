// Collectives and messages as Ops.
#pragma once
#include "runtime/comm/Communicator.h"
#include "runtime/device/Device.h"

namespace cleave {

/// For steps of kind Collective, Send and Recv; null for others. `world` outlives the Op.
std::unique_ptr<Op> makeCommunicationOp(const plan::Step &step, SlotScope &scope, World &world);

} // namespace cleave
