// Prints results.
#include "runtime/session/Results.h"
#include "runtime/base/Counted.h"
#include "runtime/base/JsonText.h"
#include "runtime/base/StandardStreams.h"
#include "runtime/plan/plan_generated.h"
#include "runtime/session/Metrics.h"
#include "runtime/session/Progress.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>

namespace cleave {

static nlohmann::ordered_json number(double value) {
  return std::isfinite(value) ? nlohmann::ordered_json(value) : nlohmann::ordered_json(nullptr);
}

std::string accuracyText(const std::string &before, double accuracy) {
  return std::isfinite(accuracy) ? fmt::format("{}{:.2f}%", before, accuracy * 100) : "";
}

std::string averagesText(const std::string &before, bool averages) {
  return averages ? before + "(averaged parameters)" : "";
}

static std::string textOf(const EvalResult &result) {
  return fmt::format("loss {:.6g}{}{} of {} samples{}", result.loss, accuracyText(", accuracy ", result.accuracy),
                     topText(result.top), grouped(result.samples), averagesText(" ", result.averages));
}

void printResult(const TrainResult &result, const plan::Plan &plan, const RunOptions &options) {
  const std::string model = plan.model() ? plan.model()->str() : "model";
  if (options.json) {
    nlohmann::ordered_json json{{"program", model},
                                {"steps", result.steps},
                                {"epoch", result.epoch},
                                {"trained", result.trained},
                                {"loss", result.trained ? number(result.loss) : nullptr},
                                {"eval_loss", result.eval ? number(result.eval->loss) : nullptr},
                                {"eval_accuracy", result.eval ? number(result.eval->accuracy) : nullptr},
                                {"samples_per_s", number(result.samplesPerSecond)},
                                {"seconds", number(result.seconds)},
                                {"interrupted", result.interrupted}};
    if (result.badFiles)
      json["bad_files"] = *result.badFiles;
    if (!options.checkpoint.empty())
      json["checkpoint"] = options.checkpoint;
    fmt::print("{}\n", jsonText(json));
    return;
  }
  if (result.trained == 0 && result.steps > 0) {
    fmt::print("{}: all {} steps are already trained\n", model, grouped(result.steps));
    return;
  }
  if (result.trained == 0)
    fmt::print("{}: 0 steps, the initial weights\n", model);
  else
    fmt::print("{}: {} step{}, loss {:.6g}, {} samples/s, {}\n", model, grouped(result.steps),
               result.steps == 1 ? "" : "s", result.loss, grouped(int64_t(result.samplesPerSecond)),
               clockTime(result.seconds));
  if (result.eval)
    fmt::print("evaluation: {}\n", textOf(*result.eval));
  if (result.badFiles && *result.badFiles > 0)
    fmt::print("{} skipped, other pictures took their place (cleave data {} lists them)\n",
               counted(static_cast<size_t>(*result.badFiles), "damaged picture"), options.data);
  if (!options.checkpoint.empty())
    fmt::print("checkpoint: {}\n", options.checkpoint);
}

std::string topText(const TopAccuracies &top) {
  std::string text;
  for (const auto &[k, part] : top)
    text += accuracyText(fmt::format("  top-{} ", k), part);
  return text;
}

void printResult(const EvalResult &result, bool json) {
  if (json)
    fmt::print("{{\"loss\":{},\"accuracy\":{},\"samples\":{}{}{}}}\n", jsonNumber(result.loss),
               jsonNumber(result.accuracy), result.samples, topJson("accuracy_top", result.top),
               result.averages ? R"(,"averages":true)" : "");
  else
    fmt::print("{}\n", textOf(result));
}

void printProfile(std::vector<StepTime> times, double seconds) {
  std::sort(times.begin(), times.end(), [](const StepTime &a, const StepTime &b) { return a.seconds > b.seconds; });
  std::string text = fmt::format("rank 0, the costliest steps of {:.2f} s\n{:>9} {:>6} {:>8} {:>9}  {:<14} {:<14} {}\n",
                                 seconds, "ms", "share", "calls", "GFLOP/s", "kind", "segment", "path");
  for (size_t i = 0; i < std::min<size_t>(25, times.size()); ++i) {
    const StepTime &t = times[i];
    text += fmt::format("{:>9.2f} {:>5.1f}% {:>8} {:>9.1f}  {:<14} {:<14} {}\n", t.seconds * 1e3,
                        seconds > 0 ? 100 * t.seconds / seconds : 0, t.calls,
                        t.seconds > 0 ? t.flops * double(t.calls) / t.seconds / 1e9 : 0, t.kind, t.segment, t.path);
  }
  printOnStandardError(text);
}

} // namespace cleave
