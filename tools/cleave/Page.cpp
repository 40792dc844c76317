// Prints the page of `cleave show`.
#include "runtime/base/Counted.h"
#include "tools/cleave/Commands.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <iterator>
#include <map>
#include <set>
#include <tuple>

namespace cleave::tool {

std::string mebibytes(double bytes) {
  const double mib = bytes / 1048576;
  if (mib == 0)
    return "0";
  if (mib < 0.001)
    return "<0.001";
  if (mib >= 1000)
    return grouped(std::llround(mib));
  const int digits = mib >= 100 ? 0 : mib >= 10 ? 1 : mib >= 1 ? 2 : mib >= 0.1 ? 3 : 4;
  return fmt::format("{:.{}f}", mib, digits);
}

/// Splits "blocks.12" into {"blocks.", 12, true}; a name without a number at its end gives {name, 0, false}.
static std::tuple<std::string, long, bool> splitNumber(const std::string &name) {
  size_t at = name.size();
  while (at > 0 && isdigit(static_cast<unsigned char>(name[at - 1])))
    --at;
  if (at == name.size() || name.size() - at > 9)
    return {name, 0, false};
  return {name.substr(0, at), std::stol(name.substr(at)), true};
}

std::string layerRanges(const std::vector<std::string> &layers) {
  std::string out;
  for (size_t i = 0; i < layers.size();) {
    const auto [prefix, first, numbered] = splitNumber(layers[i]);
    size_t end = i + 1;
    while (numbered && end < layers.size() &&
           splitNumber(layers[end]) == std::tuple(prefix, first + long(end - i), true))
      ++end;
    out += (out.empty() ? "" : ", ") + layers[i];
    if (end - i > 1)
      out += "-" + std::to_string(first + long(end - i) - 1);
    i = end;
  }
  return out;
}

std::string numberRanges(const std::vector<uint32_t> &numbers) {
  std::string out;
  for (size_t i = 0; i < numbers.size();) {
    size_t end = i + 1;
    while (end < numbers.size() && numbers[end] == numbers[i] + (end - i))
      ++end;
    out += (out.empty() ? "" : ", ") + std::to_string(numbers[i]);
    if (end - i > 1)
      out += (end - i == 2 ? ", " : "-") + std::to_string(numbers[end - 1]);
    i = end;
  }
  return out;
}

/// A number of operations with its unit: "1.2 GFLOP".
static std::string operations(double flops) {
  const char *const units[] = {"FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP", "PFLOP", "EFLOP"};
  int unit = 0;
  while (flops >= 1000 && unit < 6)
    flops /= 1000, ++unit;
  return fmt::format("{:.3g} {}", flops, units[unit]);
}

namespace {

using Out = std::back_insert_iterator<std::string>;

std::string shorten(const std::string &text, size_t width) {
  return text.size() <= width ? text : text.substr(0, width - 3) + "...";
}

void printHead(const PlanSummary &r, Out out) {
  fmt::format_to(out, "{}   {}{}   {}, {} microbatch{} of {}   {} {}   plan {}\n", r.model, ranksText(r.mesh),
                 r.mesh.order == usualOrder ? "" : fmt::format(" along {}", fmt::join(r.mesh.ordered(), ", ")),
                 r.schedule.empty() ? "no schedule" : r.schedule, r.microbatches, r.microbatches == 1 ? "" : "es",
                 r.microbatches ? r.batch / r.microbatches : r.batch, r.backend, r.target, r.hash.substr(0, 6));
  const std::string frozen = r.frozen ? fmt::format(", {} of them not trained,", grouped(int64_t(r.frozen))) : "";
  fmt::format_to(out, "{} parameters{} in {}, {}, {} a rank, seed {}\n\n", grouped(int64_t(r.parameters)), frozen,
                 counted(r.programs, "program"),
                 r.kernels ? fmt::format("{} fused from {} ({} KiB of code)", counted(r.kernels, "kernel"),
                                         counted(r.fusedOps, "op"), (r.codeBytes + 1023) / 1024)
                           : std::string("no generated kernels"),
                 r.threads ? counted(r.threads, "thread") : std::string("any number of threads"), r.seed);
}

/// Prints the stages next to each other, each as a grid of ranks with one row per part of the batch and one column per
/// part of the tensors; as lists if the mesh is wide.
void printStages(const PlanSummary &r, Out out) {
  const int64_t rows = r.mesh.size(AxisRole::Data), columns = r.mesh.size(AxisRole::Tensor);
  const auto rankAt = [&](size_t stage, int64_t row, int64_t column) {
    std::vector<int64_t> at(r.mesh.axes.size());
    at = r.mesh.with(AxisRole::Pipeline, int64_t(stage), r.mesh.with(AxisRole::Data, row, std::move(at)));
    return r.mesh.rank(r.mesh.with(AxisRole::Tensor, column, std::move(at)));
  };
  const bool grid = columns <= 8 && rows <= 16 && r.stages.size() == size_t(r.mesh.size(AxisRole::Pipeline));
  std::vector<std::string> heads;
  std::vector<size_t> widths;
  for (size_t s = 0; s < r.stages.size(); ++s) {
    heads.push_back(fmt::format("stage {}  {}", s, shorten(layerRanges(r.stages[s].layers), 40)));
    size_t width = heads.back().size();
    if (grid) {
      size_t cells = 0;
      for (int64_t column = 0; column < columns; ++column)
        cells += fmt::format("[{} tp{}] ", rankAt(s, rows - 1, column), column).size();
      width = std::max(width, cells);
    }
    width = std::max({width, grouped(int64_t(r.stages[s].parameters)).size(), operations(r.stages[s].flops).size()});
    widths.push_back(width + 3);
  }
  size_t perLine = 0, used = 9;
  while (perLine < widths.size() && (perLine == 0 || used + widths[perLine] <= 120))
    used += widths[perLine++];
  for (size_t first = 0; first < r.stages.size(); first += perLine) {
    const size_t last = std::min(r.stages.size(), first + perLine);
    const auto row = [&](const std::string &label, auto cell, const char *remark = "") {
      std::string line = fmt::format("{:<9}", label);
      for (size_t s = first; s < last; ++s)
        line += fmt::format("{:<{}}", cell(s), widths[s]);
      line += remark;
      line.erase(line.find_last_not_of(' ') + 1);
      fmt::format_to(out, "{}\n", line);
    };
    row("", [&](size_t s) { return heads[s]; });
    for (int64_t at = 0; grid && at < rows; ++at)
      row(fmt::format("dp {}", at), [&](size_t s) {
        std::string cells;
        for (int64_t column = 0; column < columns; ++column)
          cells += columns > 1 ? fmt::format("[{} tp{}] ", rankAt(s, at, column), column)
                               : fmt::format("[{}] ", rankAt(s, at, column));
        return cells;
      });
    if (!grid)
      row("ranks", [&](size_t s) { return shorten(numberRanges(r.stages[s].ranks), widths[s] - 2); });
    row("params", [&](size_t s) { return grouped(int64_t(r.stages[s].parameters)); });
    row("work", [&](size_t s) { return operations(r.stages[s].flops); }, r.microbatches > 1 ? "(of a microbatch)" : "");
    fmt::format_to(out, "\n");
  }
}

/// A bar of '#' characters, at least one.
std::string bar(double part, int width) {
  return std::string(size_t(std::clamp(int(std::lround(part * width)), 1, width)), '#');
}

using Row = std::vector<std::string>;

/// Formats rows as a table with gaps of one or two blanks. A column is as wide as its widest cell, and at least
/// `least`; if `least` is negative, its cells are left-aligned.
std::vector<std::string> aligned(const std::vector<Row> &rows, std::vector<int> least, const std::string &gap) {
  std::vector<size_t> widths;
  for (size_t c = 0; c < least.size(); ++c) {
    widths.push_back(size_t(std::abs(least[c])));
    for (const Row &row : rows)
      widths[c] = std::max(widths[c], c < row.size() ? row[c].size() : 0);
  }
  std::vector<std::string> lines;
  for (const Row &row : rows) {
    std::string line;
    for (size_t c = 0; c < row.size(); ++c)
      line += (c ? gap : "") +
              (least[c] < 0 ? fmt::format("{:<{}}", row[c], widths[c]) : fmt::format("{:>{}}", row[c], widths[c]));
    lines.push_back(line);
  }
  return lines;
}

/// One line per rank, or per run of equal ranks if there are many.
std::vector<std::string> memoryLines(const PlanSummary &r) {
  std::vector<Row> rows{{"memory, MiB", "peak", "bound"}};
  uint64_t most = 1;
  for (uint64_t bytes : r.peakBytes)
    most = std::max(most, bytes);
  for (size_t i = 0; i < r.peakBytes.size();) {
    size_t end = i + 1;
    while (r.ranks > 8 && end < r.peakBytes.size() && r.peakBytes[end] == r.peakBytes[i] &&
           r.lowerBoundBytes[end] == r.lowerBoundBytes[i])
      ++end;
    const std::string who = end - i > 1 ? fmt::format("ranks {}-{}", i, end - 1) : fmt::format("rank {}", i);
    rows.push_back({who, mebibytes(double(r.peakBytes[i])), mebibytes(double(r.lowerBoundBytes[i])),
                    bar(double(r.peakBytes[i]) / double(most), 18)});
    i = end;
    if (rows.size() > 40 && i < r.peakBytes.size()) {
      rows.push_back({fmt::format("... {} more ranks", r.peakBytes.size() - i)});
      break;
    }
  }
  return aligned(rows, {-16, 7, 7, -18}, "  ");
}

std::vector<std::string> communicationLines(const PlanSummary &r) {
  if (r.collectives.empty() && r.messages.empty())
    return {"no communication"};
  const auto what = [](const std::string &kind, const std::string &source) {
    return fmt::format("{:<14} {}", kind, shorten(source, 21));
  };
  std::vector<Row> rows{{"communication a step", "axis", "count", "MiB"}};
  for (const auto &entry : r.collectives)
    rows.push_back(
        {what(entry.kind, entry.source), entry.axis, grouped(int64_t(entry.count)), mebibytes(double(entry.bytes))});
  std::map<std::pair<uint32_t, uint32_t>, PlanSummary::Message> between;
  for (const auto &message : r.messages) {
    auto &sum = between[{message.from, message.to}];
    sum.bytes += message.bytes;
    sum.count += message.count;
  }
  for (const auto &[ends, sum] : between)
    rows.push_back({what("send", fmt::format("stage {} to {}", ends.first, ends.second)), "pp",
                    grouped(int64_t(sum.count)), mebibytes(double(sum.bytes))});
  return aligned(rows, {-36, 5, 6, 8}, " ");
}

void printSideBySide(const std::vector<std::string> &left, const std::vector<std::string> &right, Out out) {
  size_t width = 0;
  for (const std::string &line : left)
    width = std::max(width, line.size());
  for (size_t i = 0; i < std::max(left.size(), right.size()); ++i) {
    std::string line =
        fmt::format("{:<{}}   {}", i < left.size() ? left[i] : "", width, i < right.size() ? right[i] : "");
    line.erase(line.find_last_not_of(' ') + 1);
    fmt::format_to(out, "{}\n", line);
  }
  fmt::format_to(out, "\n");
}

/// Prints one line: the number of optimizer state elements, and whether they are sharded like their parameters.
void printState(const PlanSummary &r, Out out) {
  std::map<std::string, std::string> parameters;
  for (const auto &tensor : r.tensors)
    if (tensor.kind == "parameter")
      parameters[tensor.name] = tensor.sharding;
  int64_t elements = 0, tensors = 0, otherwise = 0;
  for (const auto &tensor : r.tensors) {
    if (tensor.kind != "state")
      continue;
    ++tensors;
    elements += tensor.elements;
    otherwise += !tensor.parameter.empty() && parameters[tensor.parameter] != tensor.sharding;
  }
  if (tensors == 0)
    return;
  fmt::format_to(out, "optimizer state  {} elements in {} tensors, {}\n", grouped(elements), grouped(tensors),
                 otherwise == 0 ? "split as their parameters"
                                : fmt::format("{} of them split otherwise than their parameters", grouped(otherwise)));
}

/// Prints the largest parameters, with repeated layers on one line, then the line of the optimizer state.
void printTensors(const PlanSummary &r, Out out) {
  struct Line {
    std::string name, shape, sharding;
    bool frozen;
    int64_t count = 0, elements = 0;
  };
  std::vector<Line> lines;
  std::map<std::tuple<std::string, std::string, std::string, bool>, size_t> place;
  for (const auto &tensor : r.tensors) {
    if (tensor.kind != "parameter")
      continue;
    const std::string shape = fmt::format("[{}]", fmt::join(tensor.shape, ", "));
    const auto [it, added] =
        place.emplace(std::tuple(layerPattern(tensor.name), shape, tensor.sharding, tensor.frozen), lines.size());
    if (added)
      lines.push_back({tensor.name, shape, tensor.sharding, tensor.frozen});
    else
      lines[it->second].name = layerPattern(tensor.name);
    ++lines[it->second].count;
    lines[it->second].elements += tensor.elements;
  }
  std::sort(lines.begin(), lines.end(),
            [](const Line &a, const Line &b) { return std::tie(b.elements, a.name) < std::tie(a.elements, b.name); });
  const size_t shown = std::min<size_t>(lines.size(), 12);
  std::vector<Row> rows{{"parameters", "times", "shape", "split"}};
  for (size_t i = 0; i < shown; ++i)
    rows.push_back({lines[i].name, grouped(lines[i].count), lines[i].shape, lines[i].sharding,
                    lines[i].frozen ? "not trained" : ""});
  for (const std::string &line : aligned(rows, {-10, 5, -5, -1, -1}, "  "))
    fmt::format_to(out, "{}\n", line.substr(0, line.find_last_not_of(' ') + 1));
  if (shown < lines.size()) {
    int64_t rest = 0;
    for (size_t i = shown; i < lines.size(); ++i)
      rest += lines[i].elements;
    fmt::format_to(out, "... {} more with {} elements\n", lines.size() - shown, grouped(rest));
  }
  printState(r, out);
  fmt::format_to(out, "\n");
}

/// The label of a row of the timeline: the stages of its ranks, in order.
std::string stagesOfRow(const std::vector<PlanSummary::Span> &row, size_t position) {
  std::set<uint32_t> stages;
  for (const auto &span : row)
    stages.insert(span.stage);
  return stages.size() < 2 ? fmt::format("stage {}", position) : fmt::format("stages {}", fmt::join(stages, ", "));
}

/// The name of a span, such as F2; in lower case for a rank's second stage, fourth stage, and so on.
std::string spanText(const PlanSummary::Span &span, size_t positions) {
  const bool lower = span.stage / positions % 2;
  return fmt::format("{}{}", lower ? static_cast<char>(std::tolower(span.kind)) : span.kind, span.microbatch);
}

void printTimelineHead(const PlanSummary &r, double end, Out out) {
  double busy = 0;
  bool split = false, several = false;
  for (const auto &row : r.timeline)
    for (const auto &span : row) {
      split = split || span.kind == 'W';
      several = several || span.stage >= r.timeline.size();
      busy += span.end - span.begin;
    }
  fmt::format_to(out, "schedule, {:.0f}% idle if a forward pass takes one cell (F forward, {}{})\n",
                 100 * (1 - busy / (end * double(r.timeline.size()))),
                 split ? "B input gradient, W weight gradient" : "B backward",
                 several ? "; lower case: every second stage of a rank" : "");
}

/// Prints one row per coordinate on axis pp and one cell per duration of a forward pass. F2 is the forward pass of
/// microbatch 2; B2 is its backward pass, which takes two cells. If the schedule splits backward passes, B2 is the
/// input gradient and W2 the weight gradient.
void printTimeline(const PlanSummary &r, Out out) {
  if (r.timeline.size() < 2)
    return;
  const size_t cell = std::to_string(std::max(1u, r.microbatches) - 1).size() + 2, columns = 100 / cell;
  size_t label = 0;
  double end = 0;
  for (size_t position = 0; position < r.timeline.size(); ++position) {
    label = std::max(label, stagesOfRow(r.timeline[position], position).size() + 2);
    for (const auto &span : r.timeline[position])
      end = std::max(end, span.end);
  }
  if (end <= 0)
    return;
  printTimelineHead(r, end, out);
  for (size_t position = 0; position < r.timeline.size(); ++position) {
    std::string line;
    for (size_t i = 0; i < std::min<size_t>(columns, size_t(std::ceil(end))); ++i)
      line += fmt::format("{:<{}}", ".", cell);
    for (const auto &span : r.timeline[position])
      for (size_t at = size_t(span.begin); at < size_t(span.end) && at < columns; ++at) {
        const std::string text = at == size_t(span.begin) ? spanText(span, r.timeline.size()) : "=";
        line.replace(at * cell, cell, fmt::format("{:<{}}", text, cell));
      }
    line.erase(line.find_last_not_of(' ') + 1);
    fmt::format_to(out, "{:<{}}{}{}\n", stagesOfRow(r.timeline[position], position), label, line,
                   end > double(columns) ? " ..." : "");
  }
  fmt::format_to(out, "\n");
}

void printPrediction(const PlanSummary &r, const Out &out) {
  if (!r.predicted)
    return;
  const auto &p = *r.predicted;
  const bool seconds = p.step >= 1;
  const double unit = seconds ? 1 : 1e-3;
  fmt::format_to(
      out,
      "predicted {:.3g} {} a step: compute {:.3g}, communication {:.3g} ({:.3g} hidden), bubble {:.3g} ({:.0f}%)\n\n",
      p.step / unit, seconds ? "s" : "ms", p.compute / unit, p.communication / unit, p.hidden / unit, p.idle / unit,
      p.step > 0 ? 100 * p.idle / p.step : 0);
}

void printSearch(const PlanSummary &r, const Out &out) {
  if (!r.search)
    return;
  const auto &s = *r.search;
  fmt::format_to(
      out,
      "search   {} plans: {} estimated, {} worse by their bounds, {} without memory, {} refused; {} compiled{}\n"
      "         no plan is estimated below {:.4g} ms; this one takes {:.4g} ms, {:.1f}% more; the operations alone "
      "take {:.4g} ms\n\n",
      s.total, s.evaluated, s.prunedByBound, s.prunedByMemory, s.refused, s.compiled,
      s.stoppedEarly ? "; stopped early" : "", s.lower * 1e3, s.step * 1e3,
      s.lower > 0 ? 100 * (s.step / s.lower - 1) : 0, s.least * 1e3);
}

} // namespace

std::string showPage(const PlanSummary &report) {
  std::string page;
  const Out out(page);
  printHead(report, out);
  printStages(report, out);
  printSideBySide(memoryLines(report), communicationLines(report), out);
  printTensors(report, out);
  printTimeline(report, out);
  printPrediction(report, out);
  printSearch(report, out);
  while (page.ends_with("\n\n"))
    page.pop_back();
  return page;
}

} // namespace cleave::tool
