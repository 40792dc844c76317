// Training and data as JSON.
#include "runtime/checkpoint/TrainingJson.h"

#include "runtime/base/Error.h"
#include "runtime/base/JsonText.h"
#include "runtime/base/TransformFields.h"
#include "runtime/plan/DTypes.h"
#include "runtime/plan/OptimizerFields.h"
#include "runtime/plan/StoredTransforms.h"

#include <fmt/format.h>

#include <array>

namespace cleave {

namespace {

using Json = nlohmann::ordered_json;

// Names by the values of the schema's enumerations.
constexpr std::array rateNames{"constant", "step", "cosine", "warmup_cosine"};
constexpr std::array dataNames{"mnist", "text", "synthetic", "custom", "pictures"};

template <size_t N, typename Kind> const char *nameIn(const std::array<const char *, N> &names, Kind kind) {
  static_assert(static_cast<size_t>(Kind::MAX) + 1 == N);
  return kind <= Kind::MAX ? names[static_cast<size_t>(kind)] : "unknown";
}

template <typename Kind, size_t N>
Kind kindOf(const std::array<const char *, N> &names, const char *key, const std::string &name) {
  for (size_t i = 0; i < N; ++i)
    if (name == names[i])
      return static_cast<Kind>(i);
  throw environmentError(fmt::format("checkpoint training: {} is not known, found {}", key, name));
}

Json optimizerJson(const plan::OptimizerT &optimizer, double rate) {
  Json json{{"name", nameIn(optimizerNames, optimizer.kind)}, {"lr", rate}};
  for (const OptimizerField &field : optimizerFields(optimizer.kind))
    json[field.name] = optimizer.*field.value;
  if (optimizer.kind == plan::OptimizerKind::Sgd)
    json["nesterov"] = optimizer.nesterov;
  return json;
}

Json rateJson(const plan::LearningRateT &rate) {
  Json json{{"kind", nameIn(rateNames, rate.kind)}, {"base", rate.base}};
  if (rate.kind == plan::RateKind::Step) {
    json["every"] = rate.every;
    json["gamma"] = rate.gamma;
    if (rate.warmup)
      json["warmup"] = rate.warmup;
  }
  if (rate.kind == plan::RateKind::Cosine || rate.kind == plan::RateKind::WarmupCosine) {
    json["min"] = rate.min;
    json["warmup"] = rate.warmup;
    json["steps"] = rate.steps;
  }
  if (rate.warmup_epochs > 0)
    json["warmup_epochs"] = rate.warmup_epochs;
  if (rate.every_epochs > 0)
    json["every_epochs"] = rate.every_epochs;
  return json;
}

plan::OptimizerT parseOptimizer(const Json &json) {
  plan::OptimizerT optimizer;
  optimizer.kind = kindOf<plan::OptimizerKind>(optimizerNames, "optimizer.name", json.value("name", "sgd"));
  optimizer.nesterov = json.value("nesterov", optimizer.nesterov);
  for (const OptimizerField &field : optimizerFields(optimizer.kind)) // JSON has null for a number that is not finite
    if (json.contains(field.name) && !json.at(field.name).is_null())
      optimizer.*field.value = json.at(field.name).get<double>();
  return optimizer;
}

void parseRate(const Json &json, plan::LearningRateT &rate) {
  rate.kind = kindOf<plan::RateKind>(rateNames, "lr.kind", json.value("kind", "constant"));
  rate.base = json.value("base", rate.base);
  rate.min = json.value("min", rate.min);
  rate.gamma = json.value("gamma", rate.gamma);
  rate.warmup = json.value("warmup", rate.warmup);
  rate.steps = json.value("steps", rate.steps);
  rate.every = json.value("every", rate.every);
  rate.warmup_epochs = json.value("warmup_epochs", rate.warmup_epochs);
  rate.every_epochs = json.value("every_epochs", rate.every_epochs);
}

// The enumerations have equal values.
static_assert(static_cast<int>(plan::Precision::Fp16) == static_cast<int>(Precision::Type::Fp16) &&
              static_cast<int>(plan::Precision::Bf16) == static_cast<int>(Precision::Type::Bf16) &&
              static_cast<int>(plan::Precision::Tf32) == static_cast<int>(Precision::Type::Tf32));
plan::Precision stored(Precision::Type type) { return static_cast<plan::Precision>(type); }
Precision::Type typeOf(plan::Precision type) { return static_cast<Precision::Type>(type); }

// Early checkpoints do not store reduce_dtype; parse() then derives it from the other words.
void parsePrecision(const Json &json, plan::TrainingT &training) {
  const Precision::Words words{.type = json.value("type", "fp32"),
                               .level = json.value("opt_level", "O0"),
                               .lossScale = json.value("loss_scale", "none"),
                               .reduce = json.value("reduce_dtype", "")};
  try {
    storePrecision(Precision::parse(words, Target::Kind::Cuda), training); // CUDA has every type
  } catch (const Error &e) {
    throw environmentError(fmt::format("checkpoint training: {}", e.what()));
  }
}

} // namespace

Precision precisionOf(const plan::TrainingT &training) {
  Precision precision{.type = typeOf(training.precision), .level = training.level, .reduce = typeOf(training.reduce)};
  if (training.loss_scaling == plan::LossScaling::Dynamic)
    precision.lossScale = LossScale{.initial = training.loss_scale};
  if (training.loss_scaling == plan::LossScaling::Fixed)
    precision.lossScale = LossScale{.initial = training.loss_scale, .dynamic = false};
  return precision;
}

void storePrecision(const Precision &precision, plan::TrainingT &training) {
  using plan::LossScaling;
  const std::optional<LossScale> &scale = precision.lossScale;
  training.precision = stored(precision.type);
  training.level = static_cast<uint8_t>(precision.level);
  training.loss_scaling = !scale ? LossScaling::None : scale->dynamic ? LossScaling::Dynamic : LossScaling::Fixed;
  training.loss_scale = scale ? scale->initial : 0;
  training.reduce = stored(precision.reduce);
}

std::string optimizerNameOf(const plan::TrainingT &training) {
  return training.optimizer ? nameIn(optimizerNames, training.optimizer->kind) : "";
}

std::string trainingJson(const plan::TrainingT &training) {
  const plan::LearningRateT rate = training.rate ? *training.rate : plan::LearningRateT();
  Json json = Json::object();
  if (training.optimizer)
    json["optimizer"] = optimizerJson(*training.optimizer, rate.base);
  json["lr"] = rateJson(rate);
  if (const Precision precision = precisionOf(training); precision != Precision{}) {
    const Precision::Words words = precision.words();
    json["precision"] = {{"type", words.type},
                         {"opt_level", words.level},
                         {"loss_scale", words.lossScale},
                         {"reduce_dtype", words.reduce}};
  }
  return jsonText(json);
}

plan::TrainingT parseTraining(const std::string &text) {
  plan::TrainingT training;
  training.rate = std::make_unique<plan::LearningRateT>();
  if (text.empty())
    return training;
  try {
    const auto json = parseJson<Json>(text, "checkpoint training");
    if (json.contains("optimizer"))
      training.optimizer = std::make_unique<plan::OptimizerT>(parseOptimizer(json.at("optimizer")));
    if (json.contains("lr"))
      parseRate(json.at("lr"), *training.rate);
    if (json.contains("precision"))
      parsePrecision(json.at("precision"), training);
  } catch (const nlohmann::json::exception &e) {
    throw environmentError(fmt::format("checkpoint training: not the JSON object expected: {}", e.what()));
  }
  return training;
}

/// A list of objects of a kind and the transform's numbers by name.
static Json transformsJson(const StoredTransforms &stored) {
  Json list = Json::array();
  for (const Transform &transform : transformsOf(stored)) {
    Json entry{{"kind", transformNames[transform.index()]}};
    const auto add = [&](const char *name, const auto &number, double, double) {
      entry[name] = static_cast<double>(number);
    };
    std::visit([&](const auto &each) { eachNumber(each, add); }, transform);
    list.push_back(std::move(entry));
  }
  return list;
}

static StoredTransforms parseTransforms(const Json &list) {
  StoredTransforms stored;
  for (const Json &entry : list) {
    auto &transform = stored.emplace_back(std::make_unique<plan::TransformT>());
    transform->kind = kindOf<plan::TransformKind>(transformNames, "data.transform", entry.at("kind"));
    Transform example = transformOfKind(static_cast<size_t>(transform->kind));
    const auto take = [&](const char *name, const auto &, double, double) {
      transform->numbers.push_back(entry.at(name).get<double>());
    };
    std::visit([&](auto &each) { eachNumber(each, take); }, example);
  }
  transformsOf(stored); // refuses those that cannot be
  return stored;
}

plan::DataT parseData(const std::string &text) {
  plan::DataT data;
  if (text.empty())
    return data;
  try {
    const auto json = parseJson<Json>(text, "checkpoint data");
    data.kind = kindOf<plan::DataKind>(dataNames, "data.kind", json.value("kind", "custom"));
    if (json.contains("class_names"))
      data.class_names = json.at("class_names").get<std::vector<std::string>>();
    if (json.contains("train"))
      data.train = parseTransforms(json.at("train"));
    if (json.contains("eval"))
      data.eval = parseTransforms(json.at("eval"));
  } catch (const nlohmann::json::exception &e) {
    throw environmentError(fmt::format("checkpoint data: not the JSON object expected: {}", e.what()));
  }
  return data;
}

std::string dataJson(const plan::DataT &data) {
  Json json{{"kind", nameIn(dataNames, data.kind)}, {"fields", Json::array()}};
  for (const auto &field : data.fields) {
    Json entry{{"name", field->name}, {"dtype", dtypeName(field->dtype)}, {"shape", field->shape}};
    if (field->classes > 0)
      entry["classes"] = field->classes;
    json["fields"].push_back(std::move(entry));
  }
  if (data.kind == plan::DataKind::Text) {
    json["context"] = data.context;
    json["vocab"] = data.vocab;
  }
  if (data.kind == plan::DataKind::Pictures) {
    json["train"] = transformsJson(data.train);
    json["eval"] = transformsJson(data.eval);
  }
  if (!data.class_names.empty())
    json["class_names"] = data.class_names;
  return jsonText(json);
}

} // namespace cleave
