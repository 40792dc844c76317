// Collectives and messages as Ops on the host.
#pragma once
#include "runtime/comm/Communicator.h"
#include "runtime/device/Device.h"

namespace cleave {

/// Creates the Op of a Collective, Send or Recv step; null for other steps. `world` must outlive the Op.
std::unique_ptr<Op> makeCommunicationOp(const plan::Step &step, SlotScope &scope, RankEndpoint &world);

} // namespace cleave
