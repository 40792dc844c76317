// A plan's training and data as JSON objects, which a checkpoint's manifest keeps for the next run and for readers. In
// a plan they are the tables Training and Data (plan.fbs).
#pragma once
#include "runtime/base/Precision.h"
#include "runtime/plan/PlanTypes.h"

#include <string>

namespace cleave {

/// The precision stored in a plan's training, and the reverse.
Precision precisionOf(const plan::TrainingT &training);
void storePrecision(const Precision &precision, plan::TrainingT &training);
/// "sgd", "adam", "adamw"; "" if the training has no optimizer.
std::string optimizerNameOf(const plan::TrainingT &training);

/// {"optimizer":{"name","lr",...},"lr":{"kind","base",...},"precision":{...}}; without "precision" if everything is
/// f32.
std::string trainingJson(const plan::TrainingT &training);
/// The reverse. Missing values get the schema's defaults; without "optimizer" the result has no optimizer. Throws
/// environmentError that names key and value if the text is not such an object.
plan::TrainingT parseTraining(const std::string &json);

/// {"kind","fields",[...]}, for text also "context" and "vocab", for pictures the transforms "train" and "eval", and
/// "class_names" if they are known.
std::string dataJson(const plan::DataT &data);
/// The reverse, without fields, context and vocab. Throws environmentError that names key and value.
plan::DataT parseData(const std::string &json);

} // namespace cleave
