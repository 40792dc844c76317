// cleave simulate --pipeline: prints the costs of a schedule, and writes its trace.
#include "tools/cleave/SimulatePipeline.h"

#include "partitioner/pipeline/Draw.h"
#include "partitioner/pipeline/Spec.h"
#include "runtime/base/AtomicFile.h"
#include "runtime/base/Counted.h"
#include "runtime/base/InputFile.h"
#include "runtime/base/JsonText.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace cleave::tool {
namespace {

using namespace partitioner;
using Json = nlohmann::ordered_json;

/// Rounds bytes up to a whole number, because a part of a rank's activations may be a fraction of a byte. A difference
/// in the last bits comes from rounded sums and is not rounded up.
double wholeBytes(double bytes) {
  const double nearest = std::round(bytes);
  return std::abs(bytes - nearest) <= std::max(1e-6, 1e-12 * bytes) ? nearest : std::ceil(bytes);
}

Json bytesOf(double bytes) { return bytes < 9e15 ? Json(int64_t(wholeBytes(bytes))) : Json(bytes); }

/// `asked`: the schedule that the spec names; "auto" if `schedule` is the result of a search.
Json jsonOf(const Schedule &schedule, const std::string &asked, const PipelineTimeline &timeline) {
  Json peaks = Json::array(), ranks = Json::array();
  for (const RankTimeline &rank : timeline.ranks) {
    peaks.push_back(bytesOf(rank.peakBytes));
    ranks.push_back({{"busy_ms", rank.busy},
                     {"idle_ms", std::max(0.0, timeline.step - rank.busy)},
                     {"communication_ms", rank.communication}});
  }
  Json out;
  out["step_ms"] = timeline.step;
  out["bubble_fraction"] = timeline.bubbleFraction;
  out["peak_bytes"] = std::move(peaks);
  out["ranks"] = std::move(ranks);
  out["schedule"] = asked;
  if (schedule.name != asked)
    out["found"] = schedule.name;
  out["stages"] = schedule.ranks;
  out["virtual"] = schedule.chunks;
  out["microbatches"] = schedule.microbatches;
  return out;
}

std::string ms(double value) { return fmt::format("{:.{}f}", value, value < 10 ? 3 : value < 1000 ? 2 : 1); }

std::string bytes(double value) {
  return value < 9e15 ? grouped(int64_t(wholeBytes(value))) : fmt::format("{:.3g}", value);
}

/// The stages of a rank as "0, 7"; at most the first eight.
std::string stagesOf(const Schedule &schedule, int64_t rank) {
  std::vector<int64_t> stages;
  for (int64_t chunk = 0; chunk < std::min<int64_t>(schedule.chunks, 8); ++chunk)
    stages.push_back(schedule.stageOf(rank, chunk));
  return fmt::format("{}{}", fmt::join(stages, ", "), schedule.chunks > 8 ? ", ..." : "");
}

void printPage(const Schedule &schedule, const std::string &asked, const PipelineTimeline &timeline) {
  fmt::print("{}{}   {} rank{}{}, {} microbatch{}   step {} ms, bubble {:.1f}%\n\n", asked,
             schedule.name == asked ? "" : ": " + schedule.name, schedule.ranks, schedule.ranks == 1 ? "" : "s",
             schedule.chunks > 1 ? fmt::format(" of {} stages", schedule.chunks) : "", grouped(schedule.microbatches),
             schedule.microbatches == 1 ? "" : "es", ms(timeline.step), 100 * timeline.bubbleFraction);
  size_t width = 6;
  for (int64_t rank = 0; rank < schedule.ranks; ++rank)
    width = std::max(width, stagesOf(schedule, rank).size());
  fmt::print("rank   {:<{}}  {:>12}  {:>12}  {:>12}  {:>20}\n", "stages", width, "work, ms", "idle, ms", "messages, ms",
             "peak, bytes");
  const size_t shown = std::min<size_t>(timeline.ranks.size(), 40);
  for (size_t r = 0; r < shown; ++r) {
    const RankTimeline &rank = timeline.ranks[r];
    fmt::print("{:<5}  {:<{}}  {:>12}  {:>12}  {:>12}  {:>20}\n", r, stagesOf(schedule, int64_t(r)), width,
               ms(rank.busy), ms(std::max(0.0, timeline.step - rank.busy)), ms(rank.communication),
               bytes(rank.peakBytes));
  }
  if (shown < timeline.ranks.size())
    fmt::print("... {} more ranks\n", timeline.ranks.size() - shown);
  fmt::print("\n{}", drawTimeline(schedule, timeline));
}

/// One event of Chrome's trace event format; times in microseconds.
Json event(const std::string &name, size_t rank, int track, const ScheduledWork &work, const Span &time) {
  return {{"name", name},
          {"cat", work.work == Work::Forward ? "forward" : "backward"},
          {"ph", "X"},
          {"pid", rank},
          {"tid", track},
          {"ts", time.begin * 1e3},
          {"dur", (time.end - time.begin) * 1e3},
          {"args", {{"stage", work.stage}, {"microbatch", work.microbatch}}}};
}

Json track(const char *kind, size_t rank, int track, const std::string &name) {
  return {{"name", kind}, {"ph", "M"}, {"pid", rank}, {"tid", track}, {"args", {{"name", name}}}};
}

/// Writes one process per rank, with one track for its work and one for its messages to each neighbour.
void writeTrace(const std::string &file, const Schedule &schedule, const PipelineTimeline &timeline) {
  Json list = Json::array();
  for (size_t rank = 0; rank < timeline.ranks.size(); ++rank) {
    const RankTimeline &r = timeline.ranks[rank];
    list.push_back(track("process_name", rank, 0, fmt::format("{}, rank {}", schedule.name, rank)));
    list.push_back(track("thread_name", rank, 0, "computes"));
    for (size_t i = 0; i < r.works.size(); ++i)
      list.push_back(event(shortName(schedule.order[rank][i]), rank, 0, schedule.order[rank][i], r.works[i]));
    bool named[2] = {false, false};
    for (const PipelineMessage &message : r.messages) {
      const bool previous = size_t(message.receiver) != (rank + 1) % timeline.ranks.size();
      if (!std::exchange(named[previous], true))
        list.push_back(track("thread_name", rank, 1 + previous, fmt::format("sends to rank {}", message.receiver)));
      list.push_back(event("send " + shortName(message.result), rank, 1 + previous, message.result, message.time));
    }
  }
  const Json trace{{"displayTimeUnit", "ms"}, {"traceEvents", std::move(list)}};
  const std::string text = jsonText(trace);
  AtomicFile out(file);
  out.write(text.data(), text.size());
  out.commit();
}

} // namespace

void simulatePipeline(const std::string &file, bool json, const std::string &trace) {
  const PipelineSpec spec = parsePipelineSpec(readTextFile(file, Status::User, uint64_t{64} << 20), file);
  const PlannedPipeline planned = planPipeline(spec);
  const PipelineTimeline timeline = simulate(planned.schedule, planned.stages);
  if (!trace.empty())
    writeTrace(trace, planned.schedule, timeline);
  if (json)
    fmt::print("{}\n", jsonText(jsonOf(planned.schedule, spec.schedule, timeline)));
  else
    printPage(planned.schedule, spec.schedule, timeline);
}

} // namespace cleave::tool
