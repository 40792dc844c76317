// The contents of a plan as plain values: computed once from the file, printed by `cleave show` and compared by `cleave
// diff`.
#pragma once
#include "runtime/base/Mesh.h"
#include "runtime/plan/PlanFile.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace cleave {

struct PlanSummary {
  struct Stage {
    std::vector<std::string> layers;
    std::vector<uint32_t> ranks;
    uint64_t parameters = 0;
    double flops = 0;
  };
  /// A persistent tensor and its split: "[512/dp, 784]", or "whole".
  struct Tensor {
    std::string name, kind, dtype;
    std::string parameter; ///< states: the parameter they belong to
    std::vector<int64_t> shape;
    std::string sharding;
    int64_t elements = 0;
    bool frozen = false; ///< a parameter that training does not change
  };
  /// Collectives of one training step with the same kind, axis and source. `bytes`: the payload of one rank of each
  /// stage, summed over stages and calls. Source: "gradients", "activations", "activation gradients", "parameters",
  /// "states", "loss".
  struct Collective {
    std::string kind, axis, source;
    uint64_t bytes = 0, count = 0;
  };
  /// Messages of one training step between two stages, for one rank of the sending stage.
  struct Message {
    uint32_t from = 0, to = 0;
    std::string source; ///< module path of the sending step
    uint64_t bytes = 0, count = 0;
  };
  /// An action in the timeline; times in forward passes.
  struct Span {
    char kind; ///< F, B, W
    uint32_t stage;
    int32_t microbatch;
    double begin, end;
  };

  /// A predicted training step, in seconds, of the rank that computes longest: step = compute + communication + idle.
  struct Prediction {
    double step = 0, compute = 0;
    double communication = 0;  ///< while nothing is computed
    double hidden = 0;         ///< communicating while something is computed
    double idle = 0;           ///< waiting for other ranks
    double bubbleFraction = 0; ///< of the pipeline (partitioner/simulate/Simulate.h)
  };

  /// The search that chose the strategy; see plan.fbs. Times in seconds.
  struct Search {
    double step = 0, estimate = 0, lower = 0, least = 0;
    uint64_t total = 0, evaluated = 0, prunedByBound = 0, prunedByMemory = 0, refused = 0;
    uint32_t compiled = 0;
    bool stoppedEarly = false;
    double gap() const { return step > 0 ? 1 - lower / step : 0; } ///< of the plan to the lower bound
  };

  std::string model, hash, schedule, backend, target, compiler;
  std::string trainMixes, evalMixes; ///< combinesSamples
  Mesh mesh;
  uint32_t ranks = 0, microbatches = 1, batch = 0, evalBatch = 0, threads = 0, programs = 0, kernels = 0, fusedOps = 0;
  uint64_t seed = 0, codeBytes = 0, fileBytes = 0;
  uint64_t parameters = 0, frozen = 0; ///< elements of all parameters (countParameters), and of the frozen ones
  std::vector<Stage> stages;
  std::vector<Tensor> tensors;
  std::vector<Collective> collectives;
  std::vector<Message> messages;
  std::vector<uint64_t> peakBytes, lowerBoundBytes; ///< per rank
  std::vector<std::vector<Span>> timeline;          ///< per coordinate on axis pp; empty if there is one
  uint64_t actions = 0, steps = 0;                  ///< of all ranks in a training iteration
  std::optional<Search> search;                     ///< none: the strategy was given
  std::optional<Prediction> predicted;              ///< summaryOf() leaves it empty: the runtime does not predict
};

/// "4 ranks = dp 2 x pp 2", "1 rank".
std::string ranksText(const Mesh &mesh);

/// Number of elements of all parameters of the model, frozen ones included; tied ones count once.
uint64_t countParameters(const plan::Plan &plan);

/// Throws environmentError if the plan's structure is invalid (Check.h). Its meaning is not checked.
PlanSummary summaryOf(const PlanFile &file);

/// The JSON of `cleave show --json`.
std::string toJson(const PlanSummary &report);

/// A tensor's split as text.
std::string shardingText(const plan::Plan &plan, const plan::Sharding *sharding);

} // namespace cleave
