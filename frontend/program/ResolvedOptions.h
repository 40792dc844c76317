// A job with all options resolved: the program's defaults, overridden by RunOptions. Reports every invalid option that
// can be detected without the model.
#pragma once
#include "cleave/Trainer.h"
#include "passes/search/PlanRequest.h"

namespace cleave {

/// A job and the plan that it asks for. The caller sets the program's name and the model's options.
struct ResolvedOptions : passes::PlanRequest {
  TrainConfig config; ///< the program's, with the optimizer as overridden by the options
};

/// Whether --strategy names a kind of split (data, model, pipeline, hybrid, auto) rather than a file.
bool isStrategyKind(const std::string &strategy);
/// Whether --strategy names a file.
bool isStrategyFile(const std::string &strategy);

/// Throws a user error that names what is missing if the backend cannot run on this machine. (Plans can be compiled for
/// any backend.)
void checkBackend(const std::string &backend);

/// Whether the options determine the batch.
bool givesBatch(const RunOptions &options);
/// The global batch if each of the `dp` ranks that read different samples gets `perRank` of them. Throws a user error
/// if it is out of range.
int64_t globalBatch(int64_t perRank, int64_t dp);

/// Where the plan will run, unless a cluster file says it.
enum class RunsOn : uint8_t { Anywhere, ThisMachine };

/// Resolves all options. Throws a user error that names the option, the rule and the value if one is invalid.
ResolvedOptions resolveOptions(const TrainConfig &config, const RunOptions &options,
                               passes::Purpose purpose = passes::Purpose::Training, RunsOn place = RunsOn::Anywhere);

} // namespace cleave
