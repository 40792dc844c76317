// Specs of pipeline schedules: for any text the result is an error, or a schedule that ends and stays within its
// memory. The search of schedules is not run, because it takes too long for each input.
#include "partitioner/pipeline/Draw.h"
#include "partitioner/pipeline/Search.h"
#include "partitioner/pipeline/Spec.h"
#include "runtime/base/Error.h"

#include <cmath>
#include <cstdlib>

using namespace cleave::partitioner;

static void require(bool ok) {
  if (!ok)
    std::abort();
}

static void run(const PipelineSpec &spec) {
  const PlannedPipeline planned = planPipeline(spec);
  const PipelineTimeline timeline = simulate(planned.schedule, planned.stages); // throws if the schedule never ends
  require(std::isfinite(timeline.step) && timeline.step >= lowestStep(planned.schedule, planned.stages) * (1 - 1e-9));
  require(timeline.bubbleFraction >= 0 && timeline.bubbleFraction <= 1);
  for (size_t rank = 0; rank < timeline.ranks.size(); ++rank)
    require(timeline.ranks[rank].peakBytes <= spec.memoryLimit[rank] * (1 + 1e-9));
  drawTimeline(planned.schedule, timeline);
}

/// A text that does not begin with "{" is a list of fields that replace those of a valid spec, so that most inputs get
/// past the parser.
static std::string specOf(const std::string &text) {
  if (text.starts_with("{"))
    return text;
  return R"({"schedule":"1f1b","stages":4,"microbatches":8,"forward_ms":1,"input_grad_ms":1,"weight_grad_ms":1,"send_ms":0,)"
         R"("activation_bytes":1,"gradient_bytes":0)" +
         (text.empty() ? "" : "," + text) + "}";
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  std::optional<PipelineSpec> spec;
  try {
    spec = parsePipelineSpec(specOf({reinterpret_cast<const char *>(data), size}), "fuzz.json");
  } catch (const cleave::Error &error) {
    require(error.status == cleave::Status::User && *error.what() != 0);
    return 0;
  }
  if (spec->schedule == "auto" || spec->ranks * *spec->chunks * spec->microbatches > 20'000)
    return 0;
  try {
    run(*spec);
  } catch (const cleave::Error &error) { // sizes that the schedule does not allow, or too little memory
    require(std::string(error.what()).find("never ends") == std::string::npos);
  }
  return 0;
}
