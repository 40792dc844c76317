// cleave solve: the best choices of a sharding-choice problem, with a proof or a bound.
#include "partitioner/solver/Solve.h"
#include "partitioner/solver/ReadProblem.h"
#include "runtime/base/AtomicFile.h"
#include "runtime/base/Error.h"
#include "runtime/base/FileRoles.h"
#include "runtime/data/Idx.h"
#include "runtime/options/CommandLine.h"
#include "runtime/session/Interrupt.h"
#include "tools/cleave/Commands.h"

#include <chrono>
#include <cmath>
#include <fmt/format.h>

namespace cleave::tool {
namespace {

using namespace partitioner;
using SolveClock = std::chrono::steady_clock;

AssignmentProblem readProblem(const std::string &file) {
  const std::vector<uint8_t> bytes = readMaybeGzip(file, uint64_t{1} << 30);
  return parseProblem({reinterpret_cast<const char *>(bytes.data()), bytes.size()}, file);
}

/// "cost 445, the least possible"; "cost 460, at most 3.3% above the least possible".
std::string foundText(const AssignmentSolution &solution) {
  std::string out = "cost " + text(solution.cost);
  if (solution.optimal())
    return out + ", the least possible";
  out += ", the least possible is at least " + text(solution.lowerBound);
  if (solution.cost > 0)
    out += fmt::format(" ({:.2f}% less)",
                       std::ceil(1e4 * double(solution.cost - solution.lowerBound) / double(solution.cost)) / 1e2);
  return out;
}

} // namespace

int solve(int argc, char **argv) {
  const auto begin = SolveClock::now();
  const auto seconds = [&] { return std::chrono::duration<double>(SolveClock::now() - begin).count(); };
  CLI::App app{
      "Chooses for every node of a problem one of its choices, so that the sum of costs is least and memory suffices.",
      "cleave solve"};
  std::string file, output;
  double timeout = 60;
  bool json = false;
  app.add_option("problem", file, "the problem (docs/partitioning.md), gzipped or not")
      ->type_name("PROBLEM.json")
      ->required();
  app.add_option("--timeout", timeout,
                 "ends after this many seconds with the best that was found, if it is not proved to be the best before")
      ->type_name("S")
      ->check(CLI::Range(0.001, 1e7));
  app.add_option("-o", output, "write the solution")->type_name("FILE.json");
  app.add_flag("--json", json, "print the solution as one JSON object");
  if (!parseCommandLine(app, {argv + 1, argv + argc}))
    return 0;
  FileRoles files;
  files.reads("the problem", file);
  files.writes("-o", output);
  files.check();
  std::optional<AtomicFile> out;
  if (app.count("-o"))
    out.emplace(output);
  const AssignmentProblem problem = readProblem(file);
  const InterruptGuard guard;
  SolveOptions options;
  options.threads = 2;
  options.stop = [&] { return InterruptGuard::interrupted() || seconds() >= timeout; };
  const AssignmentSolution solution = solveAssignment(problem, options);
  if (solution.infeasible)
    throw environmentError(
        fmt::format("{}: no assignment stays within the memory limit of {}", file, problem.usageLimit.value_or(0)));
  if (solution.assignment.empty() && !problem.nodes.empty())
    throw environmentError(
        fmt::format("{}: no assignment within the memory limit of {} was found in {:.1f} s; none is known not to exist",
                    file, problem.usageLimit.value_or(0), seconds()));
  const std::string text = solutionText(solution, seconds());
  if (out) {
    out->write(text.data(), text.size());
    out->commit();
  }
  fmt::print("{}", json ? text
                        : fmt::format("{}: {}, in {:.1f} s\n", problem.name.empty() ? file : problem.name,
                                      foundText(solution), seconds()));
  return 0;
}

} // namespace cleave::tool
