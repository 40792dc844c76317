// Checks that a schedule can run: it has every work once, on its rank, and no circle of waits.
#include "partitioner/schedule/Walk.h"

#include <algorithm>
#include <fmt/format.h>

namespace cleave::partitioner {

static std::optional<std::string> checkSizes(const Schedule &schedule) {
  for (const auto &[what, value] :
       {std::pair("ranks", schedule.ranks), {"chunks", schedule.chunks}, {"microbatches", schedule.microbatches}})
    if (value < 1)
      return fmt::format("a schedule has {} from 1, found {}", what, value);
  if (int64_t(schedule.order.size()) != schedule.ranks)
    return fmt::format("a schedule has an order for each of its {} ranks, found {}", schedule.ranks,
                       schedule.order.size());
  return std::nullopt;
}

static std::optional<std::string> checkWorks(const Schedule &schedule) {
  Progress seen(schedule);
  for (size_t rank = 0; rank < schedule.order.size(); ++rank) {
    for (const ScheduledWork &work : schedule.order[rank]) {
      if (work.stage < 0 || work.stage >= schedule.stages() || work.microbatch < 0 ||
          work.microbatch >= schedule.microbatches)
        return fmt::format("rank {} has {}, but there are {} stages and {} microbatches", rank, longName(work),
                           schedule.stages(), schedule.microbatches);
      if (schedule.rankOf(work.stage) != int64_t(rank))
        return fmt::format("rank {} has {}, but that stage is on rank {}", rank, longName(work),
                           schedule.rankOf(work.stage));
      if (work.work != Work::Forward && (work.work == Work::Backward) != (schedule.backward == BackwardPass::Joined))
        return fmt::format("rank {} has {}, but the schedule's backward pass is {}", rank, longName(work),
                           schedule.backward == BackwardPass::Joined ? "joined" : "split");
      if (seen.isDone(work))
        return fmt::format("rank {} has {} twice", rank, longName(work));
      seen.finish(work);
    }
    const int64_t wanted = schedule.worksOfMicrobatch() * schedule.chunks * schedule.microbatches,
                  found = int64_t(schedule.order[rank].size());
    if (found != wanted)
      return fmt::format("rank {} must have every work of its stages once, {} in all, found {}", rank, wanted, found);
  }
  return std::nullopt;
}

std::string circleOfWaits(const Schedule &schedule, const std::vector<size_t> &visited) {
  Progress progress(schedule);
  for (size_t rank = 0; rank < visited.size(); ++rank)
    for (size_t i = 0; i < visited[rank]; ++i)
      progress.finish(schedule.order[rank][i]);
  size_t rank = 0;
  while (visited[rank] == schedule.order[rank].size())
    ++rank;
  // Each rank waits for another one that waits, so following them ends in a circle.
  std::vector<size_t> path;
  while (std::find(path.begin(), path.end(), rank) == path.end()) {
    path.push_back(rank);
    rank = size_t(schedule.rankOf(progress.missing(schedule.order[rank][visited[rank]])->stage));
  }
  path.erase(path.begin(), std::find(path.begin(), path.end(), rank));
  std::string text = "the schedule never ends: ";
  for (size_t i = 0; i < path.size(); ++i) {
    const ScheduledWork &work = schedule.order[path[i]][visited[path[i]]];
    text += fmt::format("{}rank {} cannot begin {} before {}", i ? "; " : "", path[i], longName(work),
                        longName(*progress.missing(work)));
  }
  return text;
}

std::optional<std::string> check(const Schedule &schedule) {
  if (auto defect = checkSizes(schedule))
    return defect;
  if (auto defect = checkWorks(schedule))
    return defect;
  const std::vector<size_t> visited = walk(schedule, [](size_t, size_t) {});
  for (size_t rank = 0; rank < visited.size(); ++rank)
    if (visited[rank] < schedule.order[rank].size())
      return circleOfWaits(schedule, visited);
  return std::nullopt;
}

} // namespace cleave::partitioner
