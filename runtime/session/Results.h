// Prints a job's results on standard output, as text or as one JSON object.
#pragma once
#include "runtime/session/Session.h"

#include <vector>

namespace cleave {

void printResult(const TrainResult &result, const plan::Plan &plan, const RunOptions &options);
/// `before` and the accuracy in percent; empty if the loss does not count correct predictions (NaN).
std::string accuracyText(const std::string &before, double accuracy);
/// `before` and that the evaluation is of averages; empty if it is not.
std::string averagesText(const std::string &before, bool averages);
/// "  top-5 97.10%" for each.
std::string topText(const TopAccuracies &top);
/// {"loss","accuracy","samples"}, "accuracy_top5" for a k of 5, and "averages" if the parameters are averages; accuracy
/// is null if the loss does not count correct predictions.
void printResult(const EvalResult &result, bool json);
/// Prints the slowest steps of a rank to standard error.
void printProfile(std::vector<StepTime> times, double seconds);

} // namespace cleave
