// The descriptions of data set and training that plans store (plan.fbs).
#pragma once
#include "cleave/Trainer.h"
#include "runtime/base/Precision.h"
#include "runtime/plan/PlanTypes.h"

namespace cleave {

plan::DataT dataOf(const Data &data);
plan::TrainingT trainingOf(const TrainConfig &config, const Precision &precision);

} // namespace cleave
