// Follows the speeds of transfers from event to event.
#include "partitioner/pipeline/Traffic.h"

#include <algorithm>

namespace cleave::partitioner {

Traffic::Traffic(std::span<const Flow> flows, uint32_t links, std::vector<TransferPiece> *pieces)
    : flows(flows), pieces(pieces), active(links), load(links, 0) {}

uint32_t Traffic::add(uint32_t flow, double begin, double seconds) {
  const auto number = static_cast<uint32_t>(transfers.size());
  transfers.push_back({flow, 0, seconds, begin, 0});
  events.push({begin, number, 0});
  return number;
}

std::optional<Traffic::Ended> Traffic::next() {
  while (!events.empty()) {
    const Event event = events.top();
    events.pop();
    Transfer &transfer = transfers[event.transfer];
    if (event.version != transfer.version)
      continue;
    const Flow &flow = flows[transfer.flow];
    if (event.version == 0) {
      for (const Flow::Use &use : flow.uses)
        active[use.link].push_back(event.transfer);
      change(event.time, transfer.flow);
      if (flow.uses.empty())
        setSpeed(event.time, event.transfer);
      continue;
    }
    if (pieces)
      pieces->push_back({transfer.flow, transfer.since, event.time, transfer.speed});
    for (const Flow::Use &use : flow.uses)
      std::erase(active[use.link], event.transfer);
    change(event.time, transfer.flow);
    return Ended{event.transfer, event.time};
  }
  return std::nullopt;
}

/// Gives all transfers their speeds after one of `flow` has begun or ended.
void Traffic::change(double time, uint32_t flow) {
  for (const Flow::Use &use : flows[flow].uses) {
    load[use.link] = 0;
    for (const uint32_t number : active[use.link])
      for (const Flow::Use &other : flows[transfers[number].flow].uses)
        if (other.link == use.link)
          load[use.link] += other.share;
  }
  for (const Flow::Use &use : flows[flow].uses)
    for (const uint32_t number : active[use.link])
      setSpeed(time, number);
}

void Traffic::setSpeed(double time, uint32_t number) {
  Transfer &transfer = transfers[number];
  double most = 1;
  for (const Flow::Use &use : flows[transfer.flow].uses)
    most = std::max(most, load[use.link]);
  const double speed = 1 / most;
  if (speed == transfer.speed)
    return;
  if (pieces && time > transfer.since && transfer.speed > 0)
    pieces->push_back({transfer.flow, transfer.since, time, transfer.speed});
  transfer.left = std::max(0.0, transfer.left - (time - transfer.since) * transfer.speed);
  transfer.since = time;
  transfer.speed = speed;
  events.push({time + transfer.left / speed, number, ++transfer.version});
}

} // namespace cleave::partitioner
