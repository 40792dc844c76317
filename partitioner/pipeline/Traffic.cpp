// Follows the speeds of transfers from event to event.
#include "partitioner/pipeline/Traffic.h"

#include <algorithm>
#include <functional>

namespace cleave::partitioner {

Traffic::Traffic(std::span<const Flow> flows, uint32_t links, std::vector<TransferPiece> *pieces)
    : flows(flows), pieces(pieces), active(links), most(links, 1) {}

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
  for (const Flow::Use &use : flows[flow].uses)
    most[use.link] = mostOf(use.link);
  for (const Flow::Use &use : flows[flow].uses)
    for (const uint32_t number : active[use.link])
      setSpeed(time, number);
}

/// Every transfer may move at the same part of the speed that it has alone; those whose flow lets them have no more
/// leave the rest to the others.
double Traffic::mostOf(uint32_t link) const {
  std::vector<std::pair<double, double>> uses; // stretch and share
  double weight = 0, rest = 1;
  for (const uint32_t number : active[link])
    for (const Flow &flow = flows[transfers[number].flow]; const Flow::Use &use : flow.uses)
      if (use.link == link)
        uses.emplace_back(flow.stretch, use.share), weight += use.share;
  std::ranges::sort(uses, std::greater());
  for (const auto &[stretch, share] : uses) {
    if (rest * stretch < weight)
      return rest / weight;
    rest -= share / stretch, weight -= share;
  }
  return 1;
}

void Traffic::setSpeed(double time, uint32_t number) {
  Transfer &transfer = transfers[number];
  const Flow &flow = flows[transfer.flow];
  double speed = 1;
  for (const Flow::Use &use : flow.uses)
    speed = std::min(speed, flow.stretch * most[use.link]);
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
