// Reads a problem while its JSON text is parsed: files have tens of millions of numbers, and no tree of values is
// built.
#include "partitioner/solver/ReadProblem.h"
#include "runtime/base/Error.h"
#include "runtime/base/JsonText.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

namespace cleave::partitioner {
namespace {

using Lists = std::vector<std::vector<int64_t>>;

/// The fields of the text as they were read.
struct ProblemText {
  std::string name;
  std::optional<Lists> intervals, costs, usages, edgeNodes, edgeCosts;
  std::optional<int64_t> limit;
  bool problem = false;
};

/// Receives the parser's events and puts the numbers in their lists. A level is an object or an array.
class ProblemReader : public nlohmann::json_sax<nlohmann::json> {
public:
  ProblemReader(ProblemText &out, const std::string &file) : out(out), file(file) {}

  bool null() override {
    if (!skipped() && !(field == &limitField && levels.size() == 2))
      fail("must be " + wanted() + ", found null");
    return true;
  }
  bool boolean(bool value) override {
    if (!skipped())
      fail(fmt::format("must be {}, found {}", wanted(), value));
    return true;
  }
  bool number_integer(number_integer_t value) override { return number(value); }
  bool number_unsigned(number_unsigned_t value) override {
    if (value > uint64_t(INT64_MAX) && !skipped())
      fail(fmt::format("must be below 2^63, found {}", value));
    return number(int64_t(value));
  }
  bool number_float(number_float_t, const string_t &digits) override {
    if (!skipped())
      fail(fmt::format("must be {}, found {}", wanted(), digits));
    return true;
  }
  bool string(string_t &value) override {
    if (skipped())
      return true;
    if (field != &nameField || levels.size() != 2)
      fail(fmt::format("must be {}, found a text", wanted()));
    out.name = value;
    return true;
  }
  bool binary(binary_t &) override { return true; }

  bool start_object(size_t) override {
    if (skipped()) {
      open(false);
      return true;
    }
    const std::string path = where();
    if (levels.size() > 2 || (levels.size() == 1 && path != "problem") ||
        (levels.size() == 2 && path != "problem.nodes" && path != "problem.edges"))
      fail(fmt::format("must be {}, found an object", wanted()));
    out.problem |= path == "problem";
    if (path == "problem.edges") {
      out.edgeNodes.emplace();
      out.edgeCosts.emplace();
    }
    open(false);
    return true;
  }
  bool key(string_t &name) override {
    levels.back().key = name;
    if (skipDepth == 0)
      choose();
    return true;
  }
  bool end_object() override { return close(); }

  bool start_array(size_t) override {
    if (!skipped()) {
      if (!list)
        fail(fmt::format("must be {}, found a list", wanted()));
      if (levels.size() == 4)
        list->emplace_back();
      else if (levels.size() == 3)
        list->clear();
      else
        fail(fmt::format("must be {}, found a list", wanted()));
    }
    open(true);
    return true;
  }
  bool end_array() override { return close(); }

  bool parse_error(size_t at, const std::string &, const nlohmann::detail::exception &error) override {
    throw userError(fmt::format("{}: not JSON, or a number beyond its range, at byte {}: {}", file, at, error.what()));
  }

private:
  struct Level {
    bool array;
    size_t next = 0; // the next element's index
    std::string key;
  };

  bool skipped() const { return skipDepth > 0 || skipValue; }

  /// Sets what the value of the key that was just read is.
  void choose() {
    field = nullptr;
    list = nullptr;
    skipValue = false;
    const std::string path = where();
    if (path == "problem" || path == "problem.nodes" || path == "problem.edges")
      return;
    const std::pair<const char *, std::optional<Lists> *> lists[] = {{"problem.nodes.intervals", &out.intervals},
                                                                     {"problem.nodes.costs", &out.costs},
                                                                     {"problem.nodes.usages", &out.usages},
                                                                     {"problem.edges.nodes", &out.edgeNodes},
                                                                     {"problem.edges.costs", &out.edgeCosts}};
    for (const auto &[known, lists] : lists)
      if (path == known) {
        list = &lists->emplace();
        return;
      }
    if (path == "problem.usage_limit")
      field = &limitField;
    else if (path == "problem.name")
      field = &nameField;
    else
      skipValue = true;
  }

  bool number(int64_t value) {
    if (skipped())
      return true;
    if (field == &limitField && levels.size() == 2) {
      out.limit = value;
      return true;
    }
    if (!list || levels.size() != 5)
      fail(fmt::format("must be {}, found {}", wanted(), value));
    list->back().push_back(value);
    ++levels.back().next;
    return true;
  }

  void open(bool array) {
    if (skipped())
      ++skipDepth;
    if (levels.size() >= size_t(mostJsonDepth))
      fail(fmt::format("nested more than {} levels deep", mostJsonDepth));
    levels.push_back({array, 0, {}});
  }
  bool close() {
    if (skipDepth > 0)
      --skipDepth;
    levels.pop_back();
    if (!levels.empty() && levels.back().array)
      ++levels.back().next;
    return true;
  }

  std::string wanted() const {
    if (levels.empty() || (levels.size() == 1 && !skipped()) || (levels.size() == 2 && !field && !list))
      return "an object";
    if (field)
      return field == &nameField ? "a text" : "a whole number";
    return levels.size() == 5 ? "a whole number" : levels.size() == 4 ? "a list of whole numbers" : "a list of lists";
  }
  /// "problem.edges.nodes[17][1]"; empty for the whole text.
  std::string where() const {
    std::string path;
    for (const Level &level : levels)
      path += level.array ? fmt::format("[{}]", level.next) : (path.empty() ? "" : ".") + level.key;
    return path;
  }
  [[noreturn]] void fail(const std::string &what) const {
    const std::string path = where();
    throw userError(fmt::format("{}: {}: {}", file, path.empty() ? "the text" : path, what));
  }

  ProblemText &out;
  const std::string &file;
  std::vector<Level> levels;
  size_t skipDepth = 0;   // open levels of an unknown field
  bool skipValue = false; // the next value is an unknown field's
  const int limitField = 0, nameField = 0;
  const int *field = nullptr; // &limitField, &nameField, or none
  Lists *list = nullptr;      // of the lists of numbers
};

void requireField(bool there, const char *path, const std::string &file) {
  if (!there)
    throw userError(fmt::format("{}: {}: is missing", file, path));
}

void requireSame(size_t found, size_t want, const char *path, const char *as, const std::string &file) {
  if (found != want)
    throw userError(fmt::format("{}: {}: must have as many entries as {} ({}), found {}", file, path, as, want, found));
}

/// Joins the lists of nodes and edges.
AssignmentProblem joined(ProblemText &&read, const std::string &file) {
  requireField(read.problem, "problem", file);
  requireField(read.costs.has_value(), "problem.nodes.costs", file);
  AssignmentProblem out;
  out.name = std::move(read.name);
  out.usageLimit = read.limit;
  const size_t count = read.costs->size();
  out.nodes.resize(count);
  for (size_t v = 0; v < count; ++v)
    out.nodes[v].costs = std::move((*read.costs)[v]);
  if (read.limit) {
    requireField(read.intervals.has_value(), "problem.nodes.intervals", file);
    requireField(read.usages.has_value(), "problem.nodes.usages", file);
  }
  if (read.usages) {
    requireSame(read.usages->size(), count, "problem.nodes.usages", "problem.nodes.costs", file);
    for (size_t v = 0; v < count; ++v)
      out.nodes[v].usages = std::move((*read.usages)[v]);
  }
  if (read.intervals) {
    requireSame(read.intervals->size(), count, "problem.nodes.intervals", "problem.nodes.costs", file);
    for (size_t v = 0; v < count; ++v) {
      const std::vector<int64_t> &ends = (*read.intervals)[v];
      if (ends.size() != 2)
        throw userError(fmt::format("{}: problem.nodes.intervals[{}]: must be [begin, end], found {} numbers", file, v,
                                    ends.size()));
      out.nodes[v].begin = ends[0];
      out.nodes[v].end = ends[1];
    }
  }
  if (!read.edgeNodes && !read.edgeCosts)
    return out;
  requireField(read.edgeNodes.has_value(), "problem.edges.nodes", file);
  requireField(read.edgeCosts.has_value(), "problem.edges.costs", file);
  requireSame(read.edgeCosts->size(), read.edgeNodes->size(), "problem.edges.costs", "problem.edges.nodes", file);
  out.edges.resize(read.edgeNodes->size());
  for (size_t e = 0; e < out.edges.size(); ++e) {
    const std::vector<int64_t> &ends = (*read.edgeNodes)[e];
    for (size_t i = 0; i < ends.size(); ++i) {
      if (ends[i] < 0 || ends[i] >= int64_t(count))
        throw userError(
            fmt::format("{}: problem.edges.nodes[{}][{}]: {} is not below the {} nodes", file, e, i, ends[i], count));
      out.edges[e].nodes.push_back(uint32_t(ends[i]));
    }
    out.edges[e].costs = std::move((*read.edgeCosts)[e]);
  }
  return out;
}

} // namespace

AssignmentProblem parseProblem(std::string_view text, const std::string &name) {
  ProblemText read;
  ProblemReader reader(read, name);
  nlohmann::json::sax_parse(text.begin(), text.end(), &reader);
  AssignmentProblem problem = joined(std::move(read), name);
  checkProblem(problem, name);
  return problem;
}

/// [[1,2],[3]]
template <typename Items, typename Numbers> static std::string listsText(const Items &items, Numbers numbers) {
  std::string out;
  for (const auto &item : items)
    out += fmt::format("{}[{}]", out.empty() ? "" : ",", fmt::join(numbers(item), ","));
  return "[" + out + "]";
}

std::string problemText(const AssignmentProblem &problem) {
  const bool limited = problem.usageLimit.has_value();
  std::string nodes;
  if (limited)
    nodes = fmt::format(R"("intervals":{},"usages":{},)",
                        listsText(problem.nodes,
                                  [](const AssignmentNode &n) {
                                    return std::array{n.begin, n.end};
                                  }),
                        listsText(problem.nodes, [](const AssignmentNode &n) { return n.usages; }));
  return fmt::format(R"({{"problem":{{"name":{},"nodes":{{{}"costs":{}}},"edges":{{"nodes":{},"costs":{}}},)"
                     R"("usage_limit":{}}}}})"
                     "\n",
                     nlohmann::json(problem.name).dump(), nodes,
                     listsText(problem.nodes, [](const AssignmentNode &n) { return n.costs; }),
                     listsText(problem.edges, [](const AssignmentEdge &e) { return e.nodes; }),
                     listsText(problem.edges, [](const AssignmentEdge &e) { return e.costs; }),
                     limited ? std::to_string(*problem.usageLimit) : "null");
}

std::string solutionText(const AssignmentSolution &solution, double seconds) {
  return fmt::format("{{\"cost\":{},\"lower_bound\":{},\"optimal\":{},\"assignment\":[{}],\"seconds\":{:.3f}}}\n",
                     text(solution.cost), text(solution.lowerBound), solution.optimal(),
                     fmt::join(solution.assignment, ","), seconds);
}

} // namespace cleave::partitioner
