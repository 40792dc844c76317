// Reads a JSON file with a schedule and the costs of its stages, for `cleave simulate --pipeline`.
#pragma once
#include "partitioner/pipeline/Simulate.h"

#include <optional>
#include <string>
#include <vector>

namespace cleave::partitioner {

/// The contents of a spec. Every list has an entry for each rank of the pipeline, or for each stage.
struct PipelineSpec {
  std::string schedule; // one of namedSchedules(), or "auto"
  int64_t ranks = 1, microbatches = 1;
  std::optional<int64_t> chunks;
  std::vector<double> forward, inputGradient, weightGradient, send; // ms
  std::vector<double> activationBytes, gradientBytes;
  std::vector<double> memoryLimit; // bytes of each rank; infinity: no limit
};

/// Parses the text of a spec:
///
///   schedule                         a name of namedSchedules(), or "auto"
///   stages, microbatches             whole numbers from 1: ranks of the pipeline, microbatches of a step
///   virtual                          optional: stages on each rank (`stages` x `virtual` in all)
///   forward_ms, input_grad_ms, weight_grad_ms, send_ms, activation_bytes, gradient_bytes
///                                    numbers from 0: one for all ranks; or a list with one for each rank, divided
///                                    equally among its stages (send_ms: used for each of its messages); or a list with
///                                    one for each stage
///   memory_limit_bytes               optional: one for all ranks, or one for each
///
/// Throws a userError that begins with `name` and names the field, the rule and the value: for text that is not JSON,
/// fields that are missing, unknown or of a wrong type, numbers out of range, lists of a wrong length, and more than
/// 10,000,000 works.
PipelineSpec parsePipelineSpec(const std::string &text, const std::string &name);

/// The schedule of a spec and the costs of its stages.
struct PlannedPipeline {
  Schedule schedule; // if a search finds a named schedule, it keeps its name
  std::vector<StageCosts> stages;
};

/// Makes the schedule, or searches for it. Without `virtual`, "auto" tries one stage per rank, two wrapped, and two in
/// a V. Throws userError if the schedule does not support these sizes, environmentError if it needs more than the
/// memory limit, or if no schedule stays within it.
PlannedPipeline planPipeline(const PipelineSpec &spec);

} // namespace cleave::partitioner
