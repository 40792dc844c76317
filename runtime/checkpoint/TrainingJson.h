// What a plan says of its training and its data, as the JSON objects that a checkpoint's manifest keeps for the next
// run and for people. The plan itself has fields for it (Training and Data in plan.fbs).
#pragma once
#include "runtime/base/Precision.h"
#include "runtime/plan/PlanTypes.h"

#include <string>

namespace cleave {

/// The precision that a plan's training has, and the reverse.
Precision precisionOf(const plan::TrainingT &training);
void storePrecision(const Precision &precision, plan::TrainingT &training);
/// "sgd", "adam", "adamw"; "" where nothing is said of the optimizer.
std::string optimizerNameOf(const plan::TrainingT &training);

/// {"optimizer":{"name","lr",...},"lr":{"kind","base",...},"precision":{...}}; without "precision" where everything is
/// f32.
std::string trainingJson(const plan::TrainingT &training);
/// The reverse. What is missing has the schema's defaults, and there is no `optimizer` where the text has none. Throws
/// environmentError naming the key and the value where the text is no such object.
plan::TrainingT parseTraining(const std::string &json);

/// {"kind","fields",[...]}, and of text "context" and "vocab".
std::string dataJson(const plan::DataT &data);

} // namespace cleave
