// Prints the stages of a plan and what passes between them as a graph for documents.
#include "runtime/base/Counted.h"
#include "tools/cleave/Commands.h"

#include <fmt/format.h>
#include <map>
#include <string_view>

namespace cleave::tool {

namespace {

/// What a graph shows, whatever the language: labels as lines of plain text.
struct StageGraph {
  using Lines = std::vector<std::string>;
  struct Edge {
    uint32_t from, to;
    std::string label;
  };
  std::string title;
  std::vector<Lines> stages, notes;
  std::vector<Edge> edges;
};

/// Breaks a list at its commas into lines of at most 40 characters, if its words are that short.
void addWrapped(const std::string &list, StageGraph::Lines &lines) {
  std::string line;
  for (size_t begin = 0; begin < list.size();) {
    const size_t end = std::min(list.find(", ", begin), list.size() - 1) + 1;
    const std::string word = list.substr(begin, end - begin);
    if (!line.empty() && line.size() + 1 + word.size() > 40) {
      lines.push_back(line);
      line.clear();
    }
    line += (line.empty() ? "" : " ") + word;
    begin = end + (end < list.size());
  }
  if (!line.empty())
    lines.push_back(line);
}

std::string traffic(uint64_t count, uint64_t bytes, const char *unit) {
  return fmt::format("{} {}{}, {} MiB", grouped(int64_t(count)), unit, count == 1 ? "" : "s", mebibytes(double(bytes)));
}

StageGraph graphOf(const PlanSummary &report) {
  StageGraph graph;
  graph.title = fmt::format("{}: {}", report.model, ranksText(report.mesh));
  for (size_t s = 0; s < report.stages.size(); ++s) {
    const PlanSummary::Stage &stage = report.stages[s];
    StageGraph::Lines &lines = graph.stages.emplace_back();
    lines.push_back(fmt::format("stage {}", s));
    addWrapped(layerRanges(stage.layers), lines);
    addWrapped(fmt::format("rank{} {}", stage.ranks.size() == 1 ? "" : "s", numberRanges(stage.ranks)), lines);
    lines.push_back(fmt::format("{} parameters", grouped(int64_t(stage.parameters))));
  }
  std::map<std::pair<uint32_t, uint32_t>, PlanSummary::Message> between;
  for (const PlanSummary::Message &message : report.messages) {
    PlanSummary::Message &sum = between[{message.from, message.to}];
    sum.bytes += message.bytes;
    sum.count += message.count;
  }
  for (const auto &[ends, sum] : between)
    graph.edges.push_back({ends.first, ends.second, traffic(sum.count, sum.bytes, "message")});
  std::map<std::string, StageGraph::Lines> byAxis;
  for (const PlanSummary::Collective &one : report.collectives) {
    StageGraph::Lines &lines = byAxis[one.axis];
    if (lines.empty())
      lines.push_back("axis " + one.axis);
    lines.push_back(fmt::format("{} of {}: {}", one.kind, one.source, traffic(one.count, one.bytes, "call")));
  }
  for (auto &[axis, lines] : byAxis)
    graph.notes.push_back(std::move(lines));
  return graph;
}

/// Replaces characters that have a meaning in a language.
std::string escaped(const std::string &text, const std::map<char, std::string_view> &meanings) {
  std::string out;
  for (const char c : text) {
    const auto found = meanings.find(c);
    if (found != meanings.end())
      out += found->second;
    else
      out += static_cast<unsigned char>(c) < ' ' ? ' ' : c;
  }
  return out;
}

/// The lines as one label in double quotes.
template <typename Escape> std::string label(const StageGraph::Lines &lines, const char *lineEnd, Escape escape) {
  std::string out = "\"";
  for (const std::string &line : lines)
    out += (out.size() > 1 ? lineEnd : "") + escape(line);
  return out + "\"";
}

} // namespace

std::string showDot(const PlanSummary &report) {
  const StageGraph graph = graphOf(report);
  // A label in DOT has escapes with backslashes, and entities.
  const auto text = [](const StageGraph::Lines &lines) {
    return label(lines, "\\n", [](const std::string &line) {
      return escaped(line, {{'"', "\\\""}, {'\\', "\\\\"}, {'&', "&amp;"}, {'<', "&lt;"}, {'>', "&gt;"}});
    });
  };
  std::string out =
      fmt::format("digraph plan {{\n  rankdir=LR;\n  label={};\n  node [shape=box];\n", text({graph.title}));
  for (size_t i = 0; i < graph.stages.size(); ++i)
    out += fmt::format("  stage{} [label={}];\n", i, text(graph.stages[i]));
  for (const StageGraph::Edge &edge : graph.edges)
    out += fmt::format("  stage{} -> stage{} [label={}];\n", edge.from, edge.to, text({edge.label}));
  for (size_t i = 0; i < graph.notes.size(); ++i)
    out += fmt::format("  note{} [shape=note, label={}];\n", i, text(graph.notes[i]));
  return out + "}\n";
}

std::string showMermaid(const PlanSummary &report) {
  const StageGraph graph = graphOf(report);
  // A label in Mermaid is HTML, whose entities begin with # instead of &; backquotes would make it Markdown.
  const auto text = [](const StageGraph::Lines &lines) {
    return label(lines, "<br/>", [](const std::string &line) {
      return escaped(line, {{'"', "#quot;"},
                            {'#', "#35;"},
                            {'&', "#amp;"},
                            {'<', "#lt;"},
                            {'>', "#gt;"},
                            {'`', "#96;"},
                            {'\\', "#92;"}});
    });
  };
  std::string out = fmt::format("flowchart LR\n  subgraph plan[{}]\n", text({graph.title}));
  for (size_t i = 0; i < graph.stages.size(); ++i)
    out += fmt::format("    stage{}[{}]\n", i, text(graph.stages[i]));
  out += "  end\n";
  for (const StageGraph::Edge &edge : graph.edges)
    out += fmt::format("  stage{} -->|{}| stage{}\n", edge.from, text({edge.label}), edge.to);
  for (size_t i = 0; i < graph.notes.size(); ++i)
    out += fmt::format("  note{}>{}]\n", i, text(graph.notes[i]));
  return out;
}

} // namespace cleave::tool
