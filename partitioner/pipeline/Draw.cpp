// Timelines as text: a cell for each work if there is room, otherwise a letter for each interval of time.
#include "partitioner/pipeline/Draw.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <limits>

namespace cleave::partitioner {
namespace {

constexpr size_t mostRanks = 40;

/// "F2", in lower case for a rank's second stage and later ones.
std::string nameOf(const Schedule &schedule, const ScheduledWork &work) {
  std::string name = shortName(work);
  if (work.stage >= schedule.ranks)
    name[0] = char(std::tolower(name[0]));
  return name;
}

/// The shortest time of a work, if all works begin and end at multiples of it; else 0.
double unitOf(const PipelineTimeline &timeline) {
  double unit = std::numeric_limits<double>::infinity();
  for (const RankTimeline &rank : timeline.ranks)
    for (const Span &time : rank.works)
      if (time.end > time.begin)
        unit = std::min(unit, time.end - time.begin);
  for (const RankTimeline &rank : timeline.ranks)
    for (const Span &time : rank.works)
      for (double at : {time.begin, time.end})
        if (!(std::abs(at / unit - std::round(at / unit)) < 1e-6))
          return 0;
  return unit;
}

std::string trimmed(std::string line) {
  line.erase(line.find_last_not_of(' ') + 1);
  return line;
}

std::string cells(const Schedule &schedule, size_t rank, const RankTimeline &timeline, double unit, size_t count,
                  size_t cell) {
  std::string line;
  for (size_t i = 0; i < count; ++i)
    line += fmt::format("{:<{}}", ".", cell);
  for (size_t i = 0; i < timeline.works.size(); ++i) {
    const Span &time = timeline.works[i];
    const size_t begin = size_t(std::lround(time.begin / unit)), end = size_t(std::lround(time.end / unit));
    for (size_t at = begin; at < end; ++at)
      line.replace(at * cell, cell,
                   fmt::format("{:<{}}", at == begin ? nameOf(schedule, schedule.order[rank][i]) : "=", cell));
  }
  return trimmed(line);
}

std::string letters(const Schedule &schedule, size_t rank, const RankTimeline &timeline, double column, size_t count) {
  std::string line(count, '.');
  std::vector<double> most(count); // the time of the letter in a column
  std::vector<double> idle(count, column);
  for (size_t i = 0; i < timeline.works.size(); ++i) {
    const Span &time = timeline.works[i];
    for (size_t at = size_t(time.begin / column); at < count && double(at) * column < time.end; ++at) {
      const double part = std::min(time.end, double(at + 1) * column) - std::max(time.begin, double(at) * column);
      idle[at] -= part;
      if (part > most[at]) {
        most[at] = part;
        line[at] = nameOf(schedule, schedule.order[rank][i])[0];
      }
    }
  }
  for (size_t at = 0; at < count; ++at)
    if (idle[at] > most[at])
      line[at] = '.';
  return line;
}

} // namespace

std::string drawTimeline(const Schedule &schedule, const PipelineTimeline &timeline, size_t width) {
  if (!(timeline.step > 0))
    return "";
  const size_t label = fmt::format("rank {}  ", schedule.ranks - 1).size(),
               cell = std::to_string(schedule.microbatches - 1).size() + 2, room = std::max(width, label + 10) - label;
  const double unit = unitOf(timeline);
  const bool asCells = unit > 0 && timeline.step / unit * double(cell) < double(room) + 1.5;
  const size_t count = asCells ? size_t(std::lround(timeline.step / unit)) : room;
  const double column = timeline.step / double(count);
  std::string text;
  for (size_t rank = 0; rank < std::min(timeline.ranks.size(), mostRanks); ++rank)
    text += fmt::format("{:<{}}{}\n", fmt::format("rank {}", rank), label,
                        asCells ? cells(schedule, rank, timeline.ranks[rank], unit, count, cell)
                                : letters(schedule, rank, timeline.ranks[rank], column, count));
  if (timeline.ranks.size() > mostRanks)
    text += fmt::format("... {} more ranks\n", timeline.ranks.size() - mostRanks);
  return text +
         fmt::format("{:.4g} ms a {}; F forward, {}{}\n", column, asCells ? "cell" : "column",
                     schedule.backward == BackwardPass::Split ? "B input gradient, W weight gradient" : "B backward",
                     schedule.chunks > 1 ? "; lower case: later stages" : "");
}

} // namespace cleave::partitioner
