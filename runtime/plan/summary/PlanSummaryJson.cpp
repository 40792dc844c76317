// A report as JSON: the documented fields of `cleave show --json`, and some others.
#include "runtime/base/JsonText.h"
#include "runtime/plan/summary/PlanSummary.h"

namespace cleave {
using Json = nlohmann::ordered_json;

static Json predictedJson(const std::optional<PlanSummary::Prediction> &predicted) {
  if (!predicted)
    return nullptr;
  return {{"step_ms", predicted->step * 1e3},
          {"compute_ms", predicted->compute * 1e3},
          {"communication_ms", predicted->communication * 1e3},
          {"hidden_ms", predicted->hidden * 1e3},
          {"idle_ms", predicted->idle * 1e3},
          {"bubble_fraction", predicted->bubbleFraction}};
}

static Json searchJson(const std::optional<PlanSummary::Search> &search) {
  if (!search)
    return nullptr;
  return {{"step_ms", search->step * 1e3},
          {"lower_bound_ms", search->lower * 1e3},
          {"gap", search->gap()},
          {"floor_ms", search->least * 1e3},
          {"estimate_error", search->estimate > 0 ? search->step / search->estimate : 1},
          {"configurations",
           {{"total", search->total},
            {"evaluated", search->evaluated},
            {"pruned_by_bound", search->prunedByBound},
            {"pruned_by_memory", search->prunedByMemory},
            {"refused", search->refused}}},
          {"compiled", search->compiled},
          {"stopped_early", search->stoppedEarly}};
}

std::string toJson(const PlanSummary &report) {
  Json mesh = Json::object();
  for (const auto &[axis, size] : report.mesh.axes)
    mesh[axis] = size;
  Json json{{"model", report.model},
            {"mesh", std::move(mesh)},
            {"axis_order", report.mesh.ordered()},
            {"ranks", report.ranks},
            {"schedule", report.schedule},
            {"microbatches", report.microbatches},
            {"batch", report.batch},
            {"eval_batch", report.evalBatch},
            {"combines_samples", {{"train", report.trainMixes}, {"eval", report.evalMixes}}},
            {"seed", report.seed},
            {"backend", report.backend},
            {"target", report.target},
            {"threads", report.threads},
            {"parameters", report.parameters},
            {"frozen_parameters", report.frozen}};
  Json stages = Json::array(), tensors = Json::array(), collectives = Json::array(), messages = Json::array();
  for (const auto &stage : report.stages)
    stages.push_back(Json{
        {"layers", stage.layers}, {"ranks", stage.ranks}, {"parameters", stage.parameters}, {"flops", stage.flops}});
  for (const auto &tensor : report.tensors) {
    Json &entry = tensors.emplace_back(Json{{"name", tensor.name},
                                            {"kind", tensor.kind},
                                            {"dtype", tensor.dtype},
                                            {"shape", tensor.shape},
                                            {"sharding", tensor.sharding}});
    if (tensor.frozen)
      entry["frozen"] = true;
  }
  for (const auto &entry : report.collectives)
    collectives.push_back(Json{{"kind", entry.kind},
                               {"axis", entry.axis},
                               {"bytes", entry.bytes},
                               {"count", entry.count},
                               {"source", entry.source}});
  for (const auto &entry : report.messages)
    messages.push_back(Json{{"from", entry.from},
                            {"to", entry.to},
                            {"axis", "pp"},
                            {"bytes", entry.bytes},
                            {"count", entry.count},
                            {"source", entry.source}});
  json["stages"] = std::move(stages);
  json["tensors"] = std::move(tensors);
  json["collectives"] = std::move(collectives);
  json["messages"] = std::move(messages);
  json["peak_bytes"] = report.peakBytes;
  json["lower_bound_bytes"] = report.lowerBoundBytes;
  json["programs"] = report.programs;
  json["kernels"] = report.kernels;
  json["code_bytes"] = report.codeBytes;
  json["predicted"] = predictedJson(report.predicted);
  json["search"] = searchJson(report.search);
  json["plan_hash"] = report.hash;
  return jsonText(json);
}

} // namespace cleave
