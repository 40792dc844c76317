// Matches the members of collectives and the ends of messages.
#include "partitioner/simulate/Transfers.h"

#include "runtime/plan/Backend.h"
#include "runtime/plan/plan_generated.h"

#include <algorithm>

namespace cleave::partitioner {

double median(std::vector<double> values) {
  if (values.empty())
    return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2)
    return *middle;
  return (*middle + *std::max_element(values.begin(), middle)) / 2;
}

Transfers::Transfers(const plan::Plan &plan, const MeasuredRun &run) : plan(plan), run(run) {
  const bool onGpus = backendOf(plan) == Target::Kind::Cuda; // senders wait for receivers
  for (const auto &measured : run.ranks) {
    std::vector<Taken> &all = steps.emplace_back();
    for (const MeasuredStep &one : measured)
      all.push_back({one.seconds});
  }
  std::map<Meeting, double> shortest;
  std::map<Message, Ends> ends;
  for (uint32_t rank = 0; rank < run.ranks.size(); ++rank)
    forEachExchange(
        rank,
        [&](const MeasuredStep &one, Taken &, const Meeting &meeting) {
          const auto [found, added] = shortest.try_emplace(meeting, one.seconds);
          found->second = std::min(found->second, one.seconds);
        },
        [&](const MeasuredStep &one, Taken &, const Message &message, bool sends) {
          (sends ? ends[message].sent : ends[message].awaited) = one.begin;
        });
  for (uint32_t rank = 0; rank < run.ranks.size(); ++rank)
    forEachExchange(
        rank, [&](const MeasuredStep &, Taken &taken, const Meeting &meeting) { taken.seconds = shortest.at(meeting); },
        [&](const MeasuredStep &one, Taken &taken, const Message &message, bool sends) {
          if (sends && !onGpus) // a host sends in the background
            return;
          const Ends &both = ends.at(message);
          taken.seconds = std::clamp(one.begin + one.seconds - std::max(both.sent, both.awaited), 0.0, one.seconds);
          taken.whole = onGpus || both.awaited <= both.sent;
        });
}

template <typename OnCollective, typename OnMessage>
void Transfers::forEachExchange(uint32_t rank, OnCollective collective, OnMessage message) {
  const plan::Rank &info = *plan.ranks()->Get(rank);
  const plan::Program &program = *plan.programs()->Get(info.program());
  std::map<std::pair<uint32_t, uint32_t>, uint64_t> before; // by group and iteration
  for (size_t i = 0; i < run.ranks[rank].size(); ++i) {
    const MeasuredStep &one = run.ranks[rank][i];
    Taken &taken = steps[rank][i];
    const plan::Step &step = *program.segments()->Get(one.segment)->steps()->Get(one.step);
    if (const auto *op = step.op_as_Collective()) {
      const uint32_t group = info.groups()->Get(op->group());
      collective(one, taken, Meeting{group, one.iteration, before[{group, one.iteration}]++});
    } else if (const auto *send = step.op_as_Send()) {
      message(one, taken, Message{rank, send->tag(), one.microbatch, one.iteration}, true);
    } else if (const auto *recv = step.op_as_Recv()) {
      message(one, taken, Message{info.peers()->Get(recv->peer()), recv->tag(), one.microbatch, one.iteration}, false);
    }
  }
}

} // namespace cleave::partitioner
