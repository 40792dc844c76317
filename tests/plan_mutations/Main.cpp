// plan_mutations: injects each kind of fault into valid plans of different models and splits. The checker must report a
// violated rule, or the plan must run and compute the same bits on every rank as without the fault. Any other result is
// a failure.
#include "runtime/base/Error.h"
#include "runtime/plan/PlanFile.h"
#include "runtime/plan/check/Check.h"
#include "tests/plan_mutations/Execute.h"
#include "tests/plan_mutations/Kinds.h"
#include "tests/random/Children.h"
#include "tests/random/Drawing.h"

#include <cstring>
#include <fmt/format.h>
#include <iterator>
#include <map>
#include <sstream>

using namespace cleave;
using namespace cleave::plan_mutations;

namespace {

constexpr const char *usage = R"(usage: plan_mutations [options]
  --plans N    puts each kind into N plans (default 3)
  --first S    the first seed (default 1)
  --kind TEXT  only kinds whose name has this text
  --keep FILE  writes the last plan that fails there, and what it was made from to FILE.good
  --jobs N     processes at a time (default 2)
Exit status: 0 every fault is found or changes nothing, 1 one is not, 2 a wrong argument.
)";

struct Options {
  uint64_t plans = 3, first = 1;
  std::string kind, keep;
  unsigned jobs = 2;
};

bool parse(int argc, char **argv, Options &options) {
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i], value = argv[i + 1];
    if (name == "--plans")
      options.plans = std::strtoull(value.c_str(), nullptr, 10);
    else if (name == "--first")
      options.first = std::strtoull(value.c_str(), nullptr, 10);
    else if (name == "--jobs")
      options.jobs = static_cast<unsigned>(std::strtoul(value.c_str(), nullptr, 10));
    else if (name == "--kind")
      options.kind = value;
    else if (name == "--keep")
      options.keep = value;
    else
      return false;
  }
  return argc % 2 == 1 && options.plans > 0 && options.jobs > 0;
}

/// Results of one kind of fault: plans it was put into, plans with unchanged results, failures, and defects by rule.
struct Count {
  uint64_t put = 0, same = 0, failed = 0;
  std::map<std::string, uint64_t> rules;
};

/// The name of the rule, such as S6, from "(rule S6)" at the end of a defect.
std::string ruleOf(const std::string &defect) {
  const size_t at = defect.rfind("(rule ");
  return at == std::string::npos ? "?" : defect.substr(at + 6, defect.size() - at - 7);
}

std::vector<uint8_t> sealed(const plan::PlanT &plan) {
  flatbuffers::FlatBufferBuilder builder;
  plan::FinishPlanBuffer(builder, plan::Plan::Pack(builder, &plan));
  return sealPlan({builder.GetBufferPointer(), builder.GetSize()});
}

/// One valid plan, into which the wanted faults are injected one at a time. run() returns a line "number of the kind,
/// verdict, detail", separated by tabs, for each fault.
class Case {
public:
  Case(uint64_t seed, const Options &options) : seed(seed), options(options) {}

  std::string run(const std::vector<Kind> &kinds, const std::vector<size_t> &wanted) {
    bytes = random_models::planOf(random_models::generate(seed));
    if (bytes.empty())
      return "";
    good = PlanFile::fromBytes(bytes, "good");
    if (!options.keep.empty())
      writePlan(options.keep + ".good", bytes);
    if (const auto defects = checkPlan(good->plan()); !defects.empty())
      return "-1\tfailed\tthe good plan is refused: " + defects[0] + "\n";
    std::string lines;
    for (size_t kind : wanted)
      lines += judge(kinds[kind], kind);
    return lines;
  }

private:
  std::string judge(const Kind &kind, size_t number) {
    Altered altered;
    good->plan().UnPackTo(&altered.plan);
    std::string key = fmt::format("{} {}", seed, kind.name); // a fault does not depend on other kinds
    std::seed_seq keys(key.begin(), key.end());
    altered.random.seed(keys);
    if (!kind.apply(altered))
      return "";
    const std::vector<uint8_t> made = sealed(altered.plan);
    std::vector<std::string> defects;
    try {
      defects = checkPlan(PlanFile::fromBytes(made, "altered")->plan());
    } catch (const Error &error) {
      defects = {std::string(error.what()) + " (rule F1)"};
    }
    if (!defects.empty())
      return fmt::format("{}\tcaught\t{}\n", number, ruleOf(defects[0]));
    const std::string found = resultsOf(made, 20);
    if (found == expected())
      return fmt::format("{}\tsame\t\n", number);
    if (!options.keep.empty())
      writePlan(options.keep, made);
    const bool results = found.find(':') == std::string::npos && found != "hang";
    return fmt::format("{}\tfailed\t{}\n", number, results ? "other results" : found);
  }

  const std::string &expected() {
    if (results.empty())
      results = resultsOf(bytes, 60);
    return results;
  }

  uint64_t seed;
  const Options &options;
  std::vector<uint8_t> bytes;
  std::shared_ptr<const PlanFile> good;
  std::string results;
};

void take(const std::string &lines, uint64_t seed, const std::vector<Kind> &kinds, std::vector<Count> &counts,
          uint64_t &failures) {
  std::istringstream text(lines);
  for (std::string line; std::getline(text, line);) {
    const size_t first = line.find('\t'), second = line.find('\t', first + 1);
    if (first == std::string::npos || second == std::string::npos)
      continue;
    const std::string verdict = line.substr(first + 1, second - first - 1), detail = line.substr(second + 1);
    const long kind = std::strtol(line.c_str(), nullptr, 10);
    if (verdict == "failed") {
      ++failures;
      fmt::print("seed {}: {}: {}\n", seed, kind < 0 ? "no fault" : kinds[static_cast<size_t>(kind)].name, detail);
    }
    if (kind < 0)
      continue;
    Count &count = counts[static_cast<size_t>(kind)];
    ++count.put;
    if (verdict == "caught")
      ++count.rules[detail];
    else
      ++(verdict == "same" ? count.same : count.failed);
  }
}

void print(const std::vector<Kind> &kinds, const std::vector<Count> &counts) {
  fmt::print("| fault | plans | found by | changes no result |\n|---|---|---|---|\n");
  for (size_t k = 0; k < kinds.size(); ++k) {
    std::vector<std::pair<uint64_t, std::string>> rules;
    for (const auto &[rule, times] : counts[k].rules)
      rules.push_back({times, rule});
    std::sort(rules.rbegin(), rules.rend());
    std::string text;
    for (const auto &[times, rule] : rules)
      text += fmt::format("{}{} {}", text.empty() ? "" : ", ", rule, times);
    fmt::print("| {} | {} | {} | {} |{}\n", kinds[k].name, counts[k].put, text, counts[k].same,
               counts[k].failed ? fmt::format(" not found {} |", counts[k].failed) : "");
  }
}

int run(const Options &options) {
  std::vector<Kind> kinds;
  for (std::vector<Kind> some : {plan_mutations::kinds(), kindsOfSteps()})
    for (Kind &kind : some)
      if (kind.name.find(options.kind) != std::string::npos)
        kinds.push_back(std::move(kind));
  std::vector<Count> counts(kinds.size());
  uint64_t failures = 0, plans = 0;
  const uint64_t most = 20 * options.plans + 40; // few plans have a place for some kinds
  random_models::ChildLimits limits{options.jobs, 300};
  random_models::runInChildren(
      most, limits,
      [&](size_t i) {
        std::vector<size_t> wanted;
        for (size_t k = 0; k < kinds.size(); ++k)
          if (counts[k].put < options.plans)
            wanted.push_back(k);
        random_models::Result result;
        result.text = Case(options.first + i, options).run(kinds, wanted);
        return result;
      },
      [&](size_t i, const random_models::Result &result) {
        if (result.verdict == random_models::Verdict::Failed) {
          ++failures;
          fmt::print("seed {}: {} {}\n", options.first + i, result.kind, result.text);
        } else {
          plans += !result.text.empty();
          take(result.text, options.first + i, kinds, counts, failures);
        }
        return std::any_of(counts.begin(), counts.end(), [&](const Count &c) { return c.put < options.plans; });
      });
  print(kinds, counts);
  uint64_t put = 0, caught = 0, same = 0;
  for (const Count &count : counts) {
    put += count.put, same += count.same;
    for (const auto &[rule, times] : count.rules)
      caught += times;
  }
  fmt::print("{} kinds, {} faults in {} plans: {} found, {} change no result, {} failures\n", kinds.size(), put, plans,
             caught, same, failures);
  return failures ? 1 : 0;
}

} // namespace

int main(int argc, char **argv) {
  Options options;
  if (!parse(argc, argv, options)) {
    fmt::print(stderr, "{}", usage);
    return 2;
  }
  return run(options);
}
