// Prints measured and predicted times next to each other, as a page or as JSON.
#include "tools/cleave/PrintAgainst.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>

namespace cleave::tool {

using namespace partitioner;
using Json = nlohmann::ordered_json;

static constexpr size_t mostRanks = 16, mostSteps = 20;

static Json timeJson(const Compared &time) {
  Json json{{"predicted_ms", time.predicted * 1e3}, {"measured_ms", time.measured * 1e3}};
  json["ratio"] = time.predicted > 0 ? Json(time.measured / time.predicted) : Json(nullptr);
  return json;
}

static Json named(Json names, const Compared &time) {
  names.update(timeJson(time));
  return names;
}

static Json kindsJson(const std::vector<ComparedKind> &kinds) {
  Json list = Json::array();
  for (const ComparedKind &row : kinds)
    list.push_back(named({{"kind", row.kind}}, row.time));
  return list;
}

Json againstJson(const Comparison &comparison) {
  Json stages = Json::array(), ranks = Json::array(), steps = Json::array();
  for (const ComparedStage &row : comparison.stages)
    stages.push_back({{"stage", row.stage < 0 ? Json(nullptr) : Json(row.stage)},
                      {"ranks", row.ranks},
                      {"kinds", kindsJson(row.kinds)}});
  for (const ComparedRank &row : comparison.ranks)
    ranks.push_back({{"rank", row.rank},
                     {"stage", row.stage},
                     {"busy", timeJson(row.busy)},
                     {"communication", timeJson(row.communication)},
                     {"idle", timeJson(row.idle)},
                     {"kinds", kindsJson(row.kinds)}});
  for (const ComparedStep &row : comparison.steps)
    steps.push_back(named({{"kind", row.kind}, {"segment", row.segment}, {"path", row.path}}, row.time));
  return {{"iterations", comparison.iterations},
          {"step", timeJson(comparison.step)},
          {"between_ms", comparison.between * 1e3},
          {"kinds", kindsJson(comparison.kinds)},
          {"stages", std::move(stages)},
          {"ranks", std::move(ranks)},
          {"steps", std::move(steps)}};
}

namespace {

/// The ratio as "1.87", or "-" if nothing was predicted.
std::string times(const Compared &time) {
  return time.predicted > 0 ? fmt::format("{:.2f}", time.measured / time.predicted) : "-";
}

void printRow(const std::string &what, const Compared &time) {
  fmt::print("{:<58} {:>10.3f} {:>10.3f} {:>8}\n", what.size() > 58 ? what.substr(0, 55) + "..." : what,
             time.predicted * 1e3, time.measured * 1e3, times(time));
}

void printHead(const std::string &what) {
  fmt::print("\n{:<58} {:>10} {:>10} {:>8}\n", what, "predicted", "measured", "times");
}

void printKinds(const std::vector<ComparedKind> &kinds) {
  for (const ComparedKind &row : kinds)
    printRow("  " + row.kind, row.time);
}

std::string both(const Compared &time) {
  return fmt::format("{:>9.2f} {:>9.2f} {:>6}", time.predicted * 1e3, time.measured * 1e3, times(time));
}

/// Prints the ranks with the largest errors of prediction.
void printRanks(const Comparison &comparison) {
  std::vector<const ComparedRank *> rows;
  for (const ComparedRank &row : comparison.ranks)
    rows.push_back(&row);
  const auto miss = [](const ComparedRank &row) {
    return std::abs(row.busy.miss()) + std::abs(row.communication.miss());
  };
  std::sort(rows.begin(), rows.end(), [&](const ComparedRank *a, const ComparedRank *b) {
    return std::pair(-miss(*a), a->rank) < std::pair(-miss(*b), b->rank);
  });
  fmt::print("\n{:<5} {:>5}  {:^26}  {:^26}  {:^26}\n", "", "", "computes, ms", "exchanges, ms", "idle, ms");
  fmt::print("{:<5} {:>5}  {:>9} {:>9} {:>6}  {:>9} {:>9} {:>6}  {:>9} {:>9} {:>6}\n", "rank", "stage", "predicted",
             "measured", "times", "predicted", "measured", "times", "predicted", "measured", "times");
  for (size_t i = 0; i < std::min(mostRanks, rows.size()); ++i)
    fmt::print("{:<5} {:>5}  {}  {}  {}\n", rows[i]->rank, rows[i]->stage, both(rows[i]->busy),
               both(rows[i]->communication), both(rows[i]->idle));
  if (rows.size() > mostRanks)
    fmt::print("... {} more ranks (--json has all)\n", rows.size() - mostRanks);
}

} // namespace

void printAgainst(const Comparison &comparison, const std::string &trace) {
  fmt::print("\nagainst {}: the median of {} iteration{}, {:.3f} ms between them\n", trace, comparison.iterations,
             comparison.iterations == 1 ? "" : "s", comparison.between * 1e3);
  printHead("ms of an iteration, largest misses first");
  printRow("iteration", comparison.step);
  printHead("of a rank, on average, without waiting for others");
  printKinds(comparison.kinds);
  for (const ComparedStage &row : comparison.stages)
    if (comparison.stages.size() > 1) {
      printHead(row.stage < 0 ? "of no stage" : fmt::format("stage {}", row.stage));
      printKinds(row.kinds);
    }
  printRanks(comparison);
  printHead("steps");
  for (size_t i = 0; i < std::min(mostSteps, comparison.steps.size()); ++i) {
    const ComparedStep &row = comparison.steps[i];
    printRow(fmt::format("  {}, {}{}{}", row.kind, row.segment, row.path.empty() ? "" : ", ", row.path), row.time);
  }
  if (comparison.steps.size() > mostSteps)
    fmt::print("... {} more (--json has all)\n", comparison.steps.size() - mostSteps);
}

} // namespace cleave::tool
