// random_models: draws models and splits from seeds and compares the product's results with the interpreter's.
#include "tests/random/Children.h"
#include "tests/random/Coverage.h"
#include "tests/random/Drawing.h"
#include "tests/random/Large.h"
#include "tests/random/Reduce.h"

#include <charconv>
#include <chrono>
#include <fmt/format.h>
#include <map>
#include <string_view>

using namespace cleave::random_models;

namespace {

constexpr const char *usage = R"(usage: random_models [--seeds FIRST COUNT | --seed N] [options]
  --seeds FIRST COUNT  runs these seeds (default: 1 300)
  --seed N             runs one and says what became of it
  --print              prints the case of --seed as a C++ program, without running it
  --execute EVERY      generates code and runs the plan of every EVERYth seed (default 3; 0: never, 1: always)
  --differences EVERY  compares gradients with central differences in every EVERYth seed (default 2)
  --jobs N             processes at a time (default 2)
  --limit SECONDS      of one case (default 30)
  --large              only plans every seed, with tensors of 2^30 to 2^40 elements
  --reduce N           makes the first case of each of N kinds of failure smaller and prints it (default 1)
  --without WORD       leaves out cases with this word of the coverage table, "op:setBuffer"; may be given again
  --only WORD          leaves out cases without it; a beginning like "search:" stands for all words that begin so
  --coverage           prints how often what was drawn
Exit status: 0 no failure, 1 a failure, 2 a wrong argument.
)";

struct Options {
  uint64_t first = 1, count = 300;
  bool one = false, print = false, coverage = false, large = false;
  uint64_t execute = 3, differences = 2;
  int reduce = 1;
  std::vector<std::string> without;
  std::string only;
  ChildLimits limits;
};

bool parse(int argc, char **argv, Options &options) {
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    const auto number = [&](auto &value) {
      if (++i >= argc)
        return false;
      const std::string_view text = argv[i];
      const auto [end, error] = std::from_chars(text.begin(), text.end(), value);
      return error == std::errc() && end == text.end();
    };
    bool good = true;
    if (name == "--seeds")
      good = number(options.first) && number(options.count);
    else if (name == "--seed") {
      good = number(options.first);
      options.count = 1, options.one = true, options.execute = 1, options.differences = 1;
    } else if (name == "--print")
      options.print = true;
    else if (name == "--coverage")
      options.coverage = true;
    else if (name == "--large")
      options.large = true;
    else if (name == "--without" && i + 1 < argc)
      options.without.emplace_back(argv[++i]);
    else if (name == "--only" && i + 1 < argc)
      options.only = argv[++i];
    else if (name == "--execute")
      good = number(options.execute);
    else if (name == "--differences")
      good = number(options.differences);
    else if (name == "--jobs")
      good = number(options.limits.jobs) && options.limits.jobs > 0;
    else if (name == "--limit")
      good = number(options.limits.seconds);
    else if (name == "--reduce")
      good = number(options.reduce);
    else
      good = false;
    if (!good) {
      fmt::print(stderr, "random_models: wrong argument {}\n{}", name, usage);
      return false;
    }
  }
  return true;
}

RunSettings settingsOf(const Options &options, uint64_t seed) {
  return {.execute = options.execute && seed % options.execute == 0,
          .differences = options.differences && seed % options.differences == 0};
}

/// Why a case is not run; empty: it is.
std::string leftOut(const Options &options, const Recipe &recipe) {
  if (options.without.empty() && options.only.empty())
    return {};
  const std::string words = " " + coveredBy(recipe, {}) + " ";
  for (const std::string &word : options.without)
    if (words.find(" " + word + " ") != std::string::npos)
      return "left out: " + word;
  if (!options.only.empty() &&
      words.find(" " + options.only + (options.only.ends_with(':') ? "" : " ")) == std::string::npos)
    return "left out: without " + options.only;
  return {};
}

struct Summary {
  uint64_t accepted = 0, refused = 0, failed = 0, exact = 0, executed = 0, unbounded = 0;
  std::map<std::string, uint64_t> refusals;
  std::map<std::string, std::vector<uint64_t>> failures; ///< seeds by kind of failure
  std::map<std::string, uint64_t> covered;
};

void count(Summary &summary, uint64_t seed, const Result &result) {
  summary.accepted += result.verdict == Verdict::Agrees;
  summary.exact += result.exact;
  summary.executed += result.executed;
  summary.unbounded += result.unbounded;
  if (result.verdict == Verdict::Refused)
    ++summary.refused, ++summary.refusals[result.kind];
  if (result.verdict == Verdict::Failed) {
    ++summary.failed;
    summary.failures[result.kind].push_back(seed);
    fmt::print("seed {}: {}\n  {}\n", seed, result.kind, result.text.substr(0, 600));
    std::fflush(stdout);
  }
  if (result.verdict == Verdict::Agrees)
    for (size_t from = 0; from < result.covered.size();) {
      const size_t end = std::min(result.covered.find(' ', from), result.covered.size());
      ++summary.covered[result.covered.substr(from, end - from)];
      from = end + 1;
    }
}

void print(const Summary &summary, double seconds, bool coverage) {
  if (coverage)
    for (const auto &[name, times] : completed(summary.covered))
      fmt::print("{:>8}  {}{}\n", times, name, times ? "" : "   never reached");
  for (const auto &[reason, times] : summary.refusals)
    fmt::print("{:>8}  refused: {}\n", times, reason);
  for (const auto &[kind, seeds] : summary.failures)
    fmt::print("{:>8}  failed: {} (seed {})\n", seeds.size(), kind, seeds[0]);
  fmt::print("random models: {} accepted ({} compared bit for bit, {} executed, {} with numbers too large to "
             "compare), {} refused, {} failed, {:.1f} s\n",
             summary.accepted, summary.exact, summary.executed, summary.unbounded, summary.refused, summary.failed,
             seconds);
}

void reduceFirst(const Options &options, const Summary &summary) {
  int left = options.reduce;
  for (const auto &[kind, seeds] : summary.failures) {
    if (left-- <= 0)
      return;
    RunSettings settings = settingsOf(options, seeds[0]);
    fmt::print("\n==== seed {} made smaller: {}\n", seeds[0], kind);
    std::fflush(stdout);
    const Recipe smaller = reduced(generate(seeds[0]), settings, kind, options.limits);
    fmt::print("{}\n{}\n", runInChild(smaller, settings, options.limits).text, asProgram(smaller));
    std::fflush(stdout);
  }
}

} // namespace

int main(int argc, char **argv) {
  for (const char *name : {"XDG_CACHE_HOME", "HOME"}) // every case compiles its code
    unsetenv(name);
  Options options;
  if (!parse(argc, argv, options))
    return 2;
  if (options.print) {
    fmt::print("{}\n", asProgram(generate(options.first)));
    return 0;
  }
  const auto began = std::chrono::steady_clock::now();
  Summary summary;
  runInChildren(
      options.count, options.limits,
      [&](size_t i) {
        const uint64_t seed = options.first + i;
        const Recipe recipe = generate(seed);
        if (const std::string reason = leftOut(options, recipe); !reason.empty()) {
          Result result;
          result.verdict = Verdict::Refused, result.kind = reason;
          return result;
        }
        Result result = options.large ? planLarge(recipe) : run(recipe, settingsOf(options, seed));
        result.covered = coveredBy(recipe, result);
        return result;
      },
      [&](size_t i, const Result &result) {
        count(summary, options.first + i, result);
        if (options.one)
          fmt::print("seed {}: {} {}\n", options.first,
                     result.verdict == Verdict::Agrees    ? "agrees"
                     : result.verdict == Verdict::Refused ? "is refused:"
                                                          : "fails:",
                     result.text);
        return true;
      });
  print(summary, std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count(), options.coverage);
  if (!options.large)
    reduceFirst(options, summary);
  return summary.failed ? 1 : 0;
}
