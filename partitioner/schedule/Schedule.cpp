// Places stages on ranks, and converts schedules to items of a plan and to text.
#include "partitioner/schedule/Schedule.h"

#include "partitioner/schedule/Named.h"
#include "runtime/base/Error.h"

#include <charconv>
#include <fmt/format.h>
#include <map>
#include <sstream>
#include <string_view>
#include <tuple>
#include <utility>

namespace cleave::partitioner {

std::string shortName(const ScheduledWork &work) {
  return fmt::format("{}{}", "FBBW"[size_t(work.work)], work.microbatch);
}

std::string longName(const ScheduledWork &work) {
  static const char *const names[] = {"forward", "backward pass", "input gradient", "weight gradient"};
  return fmt::format("the {} of stage {}, microbatch {}", names[size_t(work.work)], work.stage, work.microbatch);
}

int64_t Schedule::rankOf(int64_t stage) const {
  const int64_t chunk = stage / ranks, place = stage % ranks;
  return placement == Placement::V && chunk % 2 == 1 ? ranks - 1 - place : place;
}

int64_t Schedule::stageOf(int64_t rank, int64_t chunk) const {
  return chunk * ranks + (placement == Placement::V && chunk % 2 == 1 ? ranks - 1 - rank : rank);
}

const char *const searchedSchedule = "auto";

const std::vector<std::string> &scheduleNames() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> list = namedSchedules();
    list.push_back(searchedSchedule);
    return list;
  }();
  return names;
}

std::vector<std::vector<ScheduleItem>> itemsOf(const Schedule &schedule) {
  static constexpr SegmentKind kinds[] = {SegmentKind::Forward, SegmentKind::Backward, SegmentKind::InputGradient,
                                          SegmentKind::WeightGradient};
  std::vector<std::vector<ScheduleItem>> result;
  for (const auto &order : schedule.order) {
    auto &items = result.emplace_back();
    for (const ScheduledWork &work : order)
      items.push_back({{kinds[static_cast<size_t>(work.work)], work.stage / schedule.ranks}, work.microbatch});
  }
  return result;
}

std::string orderText(const Schedule &schedule, int64_t rank) {
  std::string text;
  for (const ScheduledWork &work : schedule.order[size_t(rank)]) {
    const int64_t chunk = work.stage / schedule.ranks;
    text += fmt::format("{}{}{}", text.empty() ? "" : " ", shortName(work), chunk ? fmt::format(".{}", chunk) : "");
  }
  return text;
}

/// Reads "F2" or "F2.1". nullopt for another text, and for a stage that the rank does not have.
static std::optional<ScheduledWork> parseWork(const Schedule &schedule, int64_t rank, std::string_view word) {
  static constexpr std::string_view letters = "FBW";
  static constexpr Work works[] = {Work::Forward, Work::Backward, Work::WeightGradient};
  const size_t letter = word.empty() ? std::string_view::npos : letters.find(word.front());
  if (letter == std::string_view::npos)
    return std::nullopt;
  ScheduledWork work{works[letter], 0, 0};
  const char *const end = word.data() + word.size();
  auto [rest, error] = std::from_chars(word.data() + 1, end, work.microbatch);
  int64_t chunk = 0;
  if (error == std::errc() && rest != end && *rest == '.')
    std::tie(rest, error) = [&] {
      const auto read = std::from_chars(rest + 1, end, chunk);
      return std::pair(read.ptr, read.ec);
    }();
  if (error != std::errc() || rest != end || work.microbatch < 0 || chunk < 0 || chunk >= schedule.chunks)
    return std::nullopt;
  work.stage = schedule.stageOf(rank, chunk);
  return work;
}

static void split(Schedule &schedule) {
  schedule.backward = BackwardPass::Split;
  for (auto &order : schedule.order)
    for (ScheduledWork &work : order)
      if (work.work == Work::Backward)
        work.work = Work::InputGradient;
}

void addOrder(Schedule &schedule, const std::string &text) {
  const int64_t rank = int64_t(schedule.order.size());
  std::vector<ScheduledWork> order;
  bool weights = schedule.backward == BackwardPass::Split;
  std::stringstream words(text);
  for (std::string word; words >> word;) {
    const auto work = parseWork(schedule, rank, word);
    if (!work)
      throw userError(fmt::format("order: \"{}\" of rank {} is not a work: F, B or W, the microbatch, and .1 for the "
                                  "second of the rank's {} stage{}",
                                  word, rank, schedule.chunks, schedule.chunks == 1 ? "" : "s"));
    weights = weights || work->work == Work::WeightGradient;
    order.push_back(*work);
  }
  schedule.order.push_back(std::move(order));
  if (weights)
    split(schedule);
}

std::optional<ScheduledWork> descendingWork(const Schedule &schedule) {
  std::map<std::pair<Work, int64_t>, int64_t> last;
  for (const auto &order : schedule.order)
    for (const ScheduledWork &work : order) {
      const auto [found, fresh] = last.try_emplace({work.work, work.stage}, work.microbatch);
      if (!fresh && work.microbatch < found->second)
        return work;
      found->second = work.microbatch;
    }
  return std::nullopt;
}

Schedule ascending(Schedule schedule) {
  std::map<std::pair<Work, int64_t>, int64_t> next;
  for (auto &order : schedule.order)
    for (ScheduledWork &work : order)
      work.microbatch = next[{work.work, work.stage}]++;
  return schedule;
}

} // namespace cleave::partitioner
