// Ranks with equal work compute it in equal ways.
#pragma once
#include "runtime/comm/Communicator.h"
#include "runtime/device/Tuning.h"
#include "runtime/plan/plan_generated.h"

#include <string>
#include <vector>

namespace cleave {

/// Makes the Ops of every rank by `make()`. The lowest rank of each program, one after another, measures choices that
/// its record lacks and sends them to the other ranks. `mayRepeat`: Ops may be made twice. Then all ranks first try
/// with rank 0's record, and no rank waits for another to make its Ops if nothing is to be measured.
template <typename Make>
void makeWithTuning(const plan::Plan &plan, unsigned rank, RankEndpoint &world, Tuning &tuning, bool mayRepeat,
                    Make make) {
  if (world.size() == 1 || !tuning.measures()) {
    make();
    tuning.save();
    return;
  }
  const auto sendToAll = [&](const std::string &mine) {
    const auto all = world.gather(std::span(reinterpret_cast<const uint8_t *>(mine.data()), mine.size()));
    std::vector<uint8_t> chosen;
    for (const auto &text : all)
      if (!text.empty())
        chosen = text;
    world.broadcast(chosen);
    return std::string(chosen.begin(), chosen.end());
  };
  if (mayRepeat) {
    tuning.adopt(sendToAll(rank == 0 ? tuning.text() : ""));
    tuning.hold(true);
    make();
    if (sendToAll(tuning.hold(false) ? "missed" : "").empty())
      return;
  }
  bool made = false;
  for (uint32_t turn = 0; turn < plan.programs()->size(); ++turn) {
    bool lowest = plan.ranks()->Get(rank)->program() == turn;
    for (unsigned other = 0; other < rank; ++other)
      lowest = lowest && plan.ranks()->Get(other)->program() != turn;
    if (lowest) {
      make();
      tuning.save(); // others may measure now
    }
    made = made || lowest;
    const std::string chosen = sendToAll(lowest ? tuning.text() : "");
    if (!lowest)
      tuning.adopt(chosen);
  }
  if (!made)
    make();
  if (rank == 0)
    tuning.save();
}

} // namespace cleave
