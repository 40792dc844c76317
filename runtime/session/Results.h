// What a job prints on standard output when it is done, for people or as one JSON object.
#pragma once
#include "runtime/session/Session.h"

#include <vector>

namespace cleave {

void printResult(const TrainResult &result, const plan::Plan &plan, const TrainOptions &options);
/// `before` and the accuracy in percent; nothing where the loss counts none (NaN).
std::string accuracyText(const std::string &before, double accuracy);
/// {"loss","accuracy","samples"}; accuracy is null where the loss counts none.
void printResult(const EvalResult &result, bool json);
/// The costliest steps of a rank, on standard error.
void printProfile(std::vector<StepTime> times, double seconds);
/// What --profile and --trace ask of a rank that has run for `seconds`: printProfile, writeTrace (Trace.h).
void reportTimes(Executor &executor, const plan::Plan &plan, const TrainOptions &options, double seconds);

} // namespace cleave
