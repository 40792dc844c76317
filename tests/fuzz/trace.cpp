// Traces of runs: any text is rejected with a user error, or can be compared with the plan's prediction. A text that
// does not begin with "{" is the list of events of an otherwise complete trace.
#include "partitioner/simulate/Against.h"
#include "runtime/base/Error.h"
#include "tests/support/PlanBuilder.h"

#include <cmath>
#include <cstdlib>
#include <fmt/format.h>

using namespace cleave;
using namespace cleave::partitioner;

static void require(bool ok) {
  if (!ok)
    std::abort();
}

/// A plan of one rank that copies a slot in each of two microbatches.
static std::shared_ptr<const PlanFile> makePlanFile() {
  plan::PlanT plan = test::makePlan(1);
  test::ProgramWriter p;
  const uint32_t a = p.slot("a", plan::DType::F32, {64}), b = p.slot("b", plan::DType::F32, {64});
  const uint32_t forward = p.segment();
  p.copy(forward, a, b, 64);
  p.action(forward, 0);
  p.action(forward, 1);
  plan.programs.push_back(p.finish());
  plan.ranks[0]->program = 0;
  return test::seal(plan);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static const auto file = makePlanFile();
  static const Cluster cluster = Cluster::parse(
      "[devices.core]\nbackend = \"cpu\"\nmemory_gib = 8\nmemory_gb_per_s = 20\npeak_tflops = { fp32 = 0.1 }\n"
      "[[nodes]]\ndevices = { core = 1 }\n",
      "c.toml");
  static const Simulation simulation = simulate(file->plan(), cluster);
  std::string text(reinterpret_cast<const char *>(data), size);
  if (!text.starts_with("{"))
    text = fmt::format(R"({{"run":{{"plan":"{}","kind":"train","iterations":1}},"traceEvents":[{}]}})", file->hash(),
                       text);
  try {
    const MeasuredRun run = readTrace(text, "fuzz.json", file->plan(), file->hash());
    require(run.ranks.size() == 1 && run.ranks[0].size() == 2 * run.iterations);
    const Comparison compared = compareWithRun(file->plan(), cluster, simulation, run);
    require(std::isfinite(compared.step.measured) && compared.step.measured >= 0 && compared.between >= 0);
    require(compared.ranks.size() == 1 && compared.steps.size() == 1);
  } catch (const Error &error) {
    require(error.status == Status::User && *error.what() != 0);
  }
  return 0;
}
