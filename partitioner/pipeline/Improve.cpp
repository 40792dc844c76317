// Simulated annealing on the critical path of a schedule.
#include "partitioner/pipeline/Improve.h"

#include "partitioner/schedule/Walk.h"

#include <algorithm>
#include <cmath>
#include <random>

namespace cleave::partitioner {
namespace {

using Times = std::vector<std::vector<Span>>;

/// A work on the critical path that begins when the work before it on its rank ends.
struct Place {
  size_t rank, position;
};

double stepOf(const Times &times) {
  double step = 0;
  for (const auto &rank : times)
    step = std::max(step, rank.empty() ? 0 : rank.back().end);
  return step;
}

class Annealing {
public:
  Annealing(const Schedule &schedule, const std::vector<StageCosts> &stages, const std::vector<double> &limits)
      : current(schedule), best(schedule), stages(stages), limits(limits),
        positions(4 * size_t(schedule.stages() * schedule.microbatches)), index(schedule) {
    times = *timesOf(schedule, stages);
    step = bestStep = stepOf(times);
    findPlaces();
  }

  Schedule run(double lowest, size_t trials) {
    for (size_t trial = 0; trial < trials && bestStep > lowest * (1 + 1e-9) && !places.empty(); ++trial) {
      if (trial % 4096 == 4095)
        restart();
      // The temperature falls from a thousandth of the step to 0.
      attempt(1e-3 * bestStep * (1 - double(trial) / double(trials)));
    }
    return std::move(best);
  }

private:
  uint64_t random(uint64_t below) { return generator() % below; }

  void restart() {
    current = best;
    times = *timesOf(current, stages);
    step = bestStep;
    findPlaces();
  }

  /// Moves a critical work, or the work before it, by a few places. Keeps the move if the step gets no longer; if it
  /// gets longer, keeps the move with a probability that falls with the increase.
  void attempt(double temperature) {
    const Place place = places[random(places.size())];
    auto &order = current.order[place.rank];
    const size_t distance = random(2) ? 1 : 1 + random(6);
    size_t from = place.position, to = place.position - std::min(distance, place.position);
    if (random(2)) {
      from = place.position - 1;
      to = std::min(from + distance, order.size() - 1);
    }
    if (move(order, from, to); !fits(place.rank)) {
      move(order, to, from);
      return;
    }
    auto found = timesOf(current, stages);
    const double next = found ? stepOf(*found) : 0;
    const double chance = double(random(1 << 20)) / (1 << 20);
    if (!found || (next > step && chance >= std::exp(-(next - step) / std::max(temperature, 1e-300)))) {
      move(order, to, from);
      return;
    }
    times = std::move(*found);
    step = next;
    if (step < bestStep) {
      bestStep = step;
      best = current;
    }
    findPlaces();
  }

  static void move(std::vector<ScheduledWork> &order, size_t from, size_t to) {
    const auto begin = order.begin();
    if (from < to)
      std::rotate(begin + long(from), begin + long(from) + 1, begin + long(to) + 1);
    else
      std::rotate(begin + long(to), begin + long(from), begin + long(from) + 1);
  }

  bool fits(size_t rank) const {
    double held = 0;
    for (const ScheduledWork &work : current.order[rank]) {
      const StageCosts &costs = stages[size_t(work.stage)];
      if ((held += bytesTaken(work.work, costs)) > limits[rank] * (1 + 1e-9))
        return false;
      held -= bytesFreed(work.work, costs);
    }
    return true;
  }

  /// Finds the moves: follows the critical path back from the work that ends last.
  void findPlaces() {
    places.clear();
    Place at{0, 0};
    for (size_t rank = 0; rank < current.order.size(); ++rank) {
      for (size_t i = 0; i < current.order[rank].size(); ++i)
        positions[index.indexOf(current.order[rank][i])] = i;
      if (times[rank].back().end == step)
        at = {rank, times[rank].size() - 1};
    }
    for (size_t left = positions.size(); left > 0; --left) {
      const ScheduledWork work = current.order[at.rank][at.position];
      if (at.position > 0 && times[at.rank][at.position - 1].end == times[at.rank][at.position].begin) {
        if (const ScheduledWork &before = current.order[at.rank][at.position - 1];
            before.stage != work.stage || before.microbatch != work.microbatch)
          places.push_back(at);
        --at.position;
        continue;
      }
      const int64_t writer = work.work == Work::Forward ? work.stage - 1 : work.stage + 1;
      if (work.work == Work::WeightGradient || writer < 0 || writer >= current.stages())
        break;
      at = {size_t(current.rankOf(writer)), positions[index.indexOf({work.work, writer, work.microbatch})]};
    }
  }

  Schedule current, best;
  const std::vector<StageCosts> &stages;
  const std::vector<double> &limits;
  std::vector<size_t> positions;
  Progress index;
  Times times;
  double step = 0, bestStep = 0;
  std::vector<Place> places;
  std::mt19937_64 generator{1}; // NOLINT: the same search every time
};

} // namespace

Schedule improved(const Schedule &schedule, const std::vector<StageCosts> &stages, const std::vector<double> &limits,
                  double lowest, size_t trials) {
  return trials == 0 ? schedule : Annealing(schedule, stages, limits).run(lowest, trials);
}

} // namespace cleave::partitioner
