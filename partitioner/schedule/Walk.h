// Visits the works of a schedule, each after the works that it reads. Used to check and to simulate a schedule.
#pragma once
#include "partitioner/schedule/Schedule.h"
#include "runtime/base/RankWalk.h"

#include <cstddef>
#include <vector>

namespace cleave::partitioner {

/// Records which works of a schedule are done, and finds works that must be done before another one.
class Progress {
public:
  explicit Progress(const Schedule &schedule)
      : stages(schedule.stages()), microbatches(schedule.microbatches), done(size_t(4 * stages * microbatches)) {}

  size_t indexOf(const ScheduledWork &work) const {
    return size_t((int64_t(work.work) * stages + work.stage) * microbatches + work.microbatch);
  }
  bool isDone(const ScheduledWork &work) const { return done[indexOf(work)]; }
  void finish(const ScheduledWork &work) { done[indexOf(work)] = true; }

  /// A work that `work` reads and that is not done yet, or nullopt.
  std::optional<ScheduledWork> missing(const ScheduledWork &work) const {
    const auto [kind, stage, microbatch] = work;
    if (kind == Work::WeightGradient)
      return unlessDone({Work::InputGradient, stage, microbatch});
    if (kind == Work::Forward)
      return stage == 0 ? std::nullopt : unlessDone({Work::Forward, stage - 1, microbatch});
    if (const auto forward = unlessDone({Work::Forward, stage, microbatch}))
      return forward;
    return stage + 1 == stages ? std::nullopt : unlessDone({kind, stage + 1, microbatch});
  }

private:
  std::optional<ScheduledWork> unlessDone(const ScheduledWork &work) const {
    return isDone(work) ? std::nullopt : std::optional(work);
  }
  int64_t stages, microbatches;
  std::vector<char> done;
};

/// The stage whose result `work` reads, but for works of its own stage, or -1.
inline int64_t sourceOf(const ScheduledWork &work, int64_t stages) {
  if (work.work == Work::Forward)
    return work.stage - 1;
  return work.work == Work::WeightGradient || work.stage + 1 == stages ? -1 : work.stage + 1;
}

/// The stage that reads the result of `work`, or -1.
inline int64_t readerOf(const ScheduledWork &work, int64_t stages) {
  if (work.work == Work::Forward)
    return work.stage + 1 < stages ? work.stage + 1 : -1;
  return work.work == Work::WeightGradient ? -1 : work.stage - 1;
}

/// Calls visit(rank, position in the rank's order) for works in the order of their ranks, each after the works that it
/// reads and when ready(work), until all are visited or every rank waits. Then proceed(ranks) may wake ranks; false:
/// the walk ends. Every work must exist at most once. Returns the number of visited works of each rank.
template <class Visit, class Ready, class Proceed>
std::vector<size_t> walk(const Schedule &schedule, Visit visit, Ready ready, Proceed proceed) {
  Progress progress(schedule);
  RankWalk ranks(size_t(schedule.ranks));
  do
    ranks.run([&](size_t rank, size_t position) {
      const auto &order = schedule.order[rank];
      if (position == order.size() || progress.missing(order[position]) || !ready(order[position]))
        return false;
      visit(rank, position);
      progress.finish(order[position]);
      if (const int64_t reader = readerOf(order[position], schedule.stages()); reader >= 0)
        ranks.wake(size_t(schedule.rankOf(reader)));
      return true;
    });
  while (proceed(ranks));
  return std::move(ranks).done();
}

/// The same for works that wait for nothing else.
template <class Visit> std::vector<size_t> walk(const Schedule &schedule, Visit visit) {
  return walk(
      schedule, visit, [](const ScheduledWork &) { return true; }, [](RankWalk &) { return false; });
}

/// The circle of waits in a schedule whose walk ended after `visited` works of each rank, as text.
std::string circleOfWaits(const Schedule &schedule, const std::vector<size_t> &visited);

} // namespace cleave::partitioner
