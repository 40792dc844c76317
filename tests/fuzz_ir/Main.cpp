// fuzz_ir: modifies IR as text and runs parser, verifiers, passes and the compiler: each must succeed or end with a
// diagnostic.
#include "tests/fuzz_ir/Case.h"
#include "tests/random/Children.h"

#include <chrono>
#include <fcntl.h>
#include <fmt/format.h>
#include <map>
#include <sys/resource.h>
#include <unistd.h>

using namespace cleave;
using random_models::Result;
using random_models::Verdict;

namespace {

constexpr const char *usage = R"(usage: fuzz_ir [--seeds FIRST COUNT | --seed N] [options]
  --seeds FIRST COUNT  runs these seeds (default: 1 600)
  --seed N             runs one in this process, and says what became of it
  --print              prints the altered IR of --seed, without reading it
  --good               prints the same before it was altered
  --kinds              prints the first message of each way in which cases end
  --jobs N             processes at a time (default 2)
  --limit SECONDS      of one case (default 20)
Exit status: 0 every case succeeds or is refused, 1 one crashes, hangs, takes more than 4 GiB, or gives a plan that the
checker refuses, 2 a wrong argument.
)";

struct Options {
  uint64_t first = 1, count = 600;
  bool one = false, print = false, good = false, kinds = false;
  random_models::ChildLimits limits{2, 20};
};

bool parse(int argc, char **argv, Options &options) {
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    const auto number = [&](auto &value) {
      char *end = nullptr;
      if (++i >= argc)
        return false;
      value = static_cast<std::remove_reference_t<decltype(value)>>(std::strtod(argv[i], &end));
      return *end == 0;
    };
    bool good = true;
    if (name == "--seeds")
      good = number(options.first) && number(options.count);
    else if (name == "--seed")
      good = options.one = number(options.first);
    else if (name == "--print")
      options.print = true;
    else if (name == "--good")
      options.good = true;
    else if (name == "--kinds")
      options.kinds = true;
    else if (name == "--jobs")
      good = number(options.limits.jobs) && options.limits.jobs > 0;
    else if (name == "--limit")
      good = number(options.limits.seconds);
    else
      good = false;
    if (!good) {
      fmt::print(stderr, "fuzz_ir: wrong argument {}\n{}", name, usage);
      return false;
    }
  }
  return true;
}

/// Limits a child's memory, disables core dumps, and discards its standard error.
void limitProcess() {
  const rlimit none{0, 0}, memory{4ull << 30, 4ull << 30};
  ::setrlimit(RLIMIT_CORE, &none);
  ::setrlimit(RLIMIT_AS, &memory);
  if (const int nowhere = ::open("/dev/null", O_WRONLY); nowhere >= 0)
    ::dup2(nowhere, STDERR_FILENO);
}

int runMany(const Options &options) {
  const auto began = std::chrono::steady_clock::now();
  std::map<std::string, uint64_t> counts;
  uint64_t failures = 0;
  random_models::runInChildren(
      options.count, options.limits,
      [&](size_t i) {
        limitProcess();
        return fuzz_ir::run(options.first + i);
      },
      [&](size_t i, const Result &result) {
        const bool failed = result.verdict == Verdict::Failed;
        const std::string kind = (failed                               ? "FAILED: "
                                  : result.verdict == Verdict::Refused ? "refused: "
                                                                       : "") +
                                 result.kind;
        failures += failed;
        if (failed || (options.kinds && counts.count(kind) == 0))
          fmt::print("seed {}: {}\n  {}\n", options.first + i, kind, result.text.substr(0, 900));
        ++counts[kind];
        std::fflush(stdout);
        return true;
      });
  for (const auto &[kind, count] : counts)
    fmt::print("{:>8}  {}\n", count, kind);
  fmt::print("altered IR: {} cases, {} failed, {:.1f} s\n", options.count, failures,
             std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count());
  return failures ? 1 : 0;
}

} // namespace

int main(int argc, char **argv) {
  Options options;
  if (!parse(argc, argv, options))
    return 2;
  if (options.print || options.good) {
    fmt::print("{}", fuzz_ir::textOf(options.first, options.good));
    return 0;
  }
  if (!options.one)
    return runMany(options);
  const Result result = fuzz_ir::run(options.first);
  fmt::print("seed {}: {}{}\n{}\n", options.first, result.verdict == Verdict::Failed ? "fails: " : "", result.kind,
             result.text);
  return result.verdict == Verdict::Failed ? 1 : 0;
}
