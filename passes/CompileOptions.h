// Options of a compilation. No MLIR in this header.
#pragma once
#include "partitioner/cluster/Cluster.h"
#include "partitioner/strategy/Decisions.h"
#include "runtime/base/Precision.h"
#include "runtime/base/Target.h"
#include "runtime/plan/PlanTypes.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace cleave::passes {

/// What a plan runs: training steps and evaluations; evaluations alone; or predictions, which return the model's
/// outputs.
enum class Purpose : uint8_t { Training, Evaluation, Prediction };

struct CompileOptions {
  Purpose purpose = Purpose::Training;
  partitioner::Decisions strategy;
  int64_t batch = 0;     // global; the traced functions take batch / strategy.microbatches rows
  int64_t evalBatch = 0; // the same for @eval; 0: batch
  uint64_t seed = 0;
  unsigned threads = 1; // per rank
  Target::Kind backend = Target::Kind::Cpu;
  std::optional<Target> target; // of the code, for this backend; none: this machine's processor, or sm_90 for GPUs
  Precision precision;
  bool channelsLast = false;    // convolutions on [n, h, w, c], see passes/layout/Layout.h
  plan::WinogradUse winograd{}; // of convolutions of f32 or bf16 with stride 1
  bool code = true;             // false: --no-code
  bool batchKernels = true;     // on GPUs, one launch for the optimizer updates of many tensors; false: for comparisons
  std::string model;            // program name
  std::vector<std::string> printAfter;                     // phases after which the IR is printed to standard error
  std::shared_ptr<const partitioner::ClusterFile> cluster; // the hardware that the plan is made for; null: unknown
  std::string clusterToml() const { return cluster ? cluster->toml : ""; }

  // Stored in the plan unchanged; if data or training is null, the plan has none.
  std::string modelOptions = "{}"; // JSON
  std::shared_ptr<const plan::DataT> data;
  std::shared_ptr<const plan::TrainingT> training;
  std::shared_ptr<const plan::SearchT> search; // that chose the strategy; null: none
};

} // namespace cleave::passes
