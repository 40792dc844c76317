// The manifest as JSON.
#include "runtime/checkpoint/Manifest.h"
#include "runtime/base/Error.h"
#include "runtime/checkpoint/Files.h"
#include "runtime/checkpoint/Safetensors.h"

#include <algorithm>
#include <filesystem>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>
#include <set>

namespace cleave {
using Json = nlohmann::ordered_json;

static constexpr const char *formatName = "cleave-checkpoint";

const ManifestTensor *Manifest::find(const std::string &name) const {
  for (const ManifestTensor &tensor : tensors)
    if (tensor.name == name)
      return &tensor;
  return nullptr;
}

static void checkPiece(const ManifestPiece &piece, const ManifestTensor &tensor, const std::string &name) {
  const std::string where = fmt::format("{}: tensor {}", name, tensor.name);
  if (piece.file.empty() || piece.file.find('/') != std::string::npos || piece.file.starts_with('.'))
    throw environmentError(fmt::format("{}: a piece's file is a plain name, found \"{}\"", where, piece.file));
  if (piece.start.size() != tensor.shape.size() || piece.size.size() != tensor.shape.size())
    throw environmentError(
        fmt::format("{}: a piece of a tensor [{}] has as many dimensions, found start [{}], size [{}]", where,
                    fmt::join(tensor.shape, ", "), fmt::join(piece.start, ", "), fmt::join(piece.size, ", ")));
  for (size_t d = 0; d < tensor.shape.size(); ++d)
    if (piece.start[d] < 0 || piece.size[d] < 1 || piece.start[d] > tensor.shape[d] ||
        piece.size[d] > tensor.shape[d] - piece.start[d])
      throw environmentError(fmt::format("{}: a piece must lie within [{}], found start [{}], size [{}]", where,
                                         fmt::join(tensor.shape, ", "), fmt::join(piece.start, ", "),
                                         fmt::join(piece.size, ", ")));
}

static ManifestTensor parseTensor(const std::string &key, const Json &json, const std::string &name) {
  ManifestTensor tensor;
  tensor.name = key;
  tensor.kind = json.at("kind").get<std::string>();
  tensor.dtype = json.at("dtype").get<std::string>();
  tensor.shape = json.at("shape").get<std::vector<int64_t>>();
  int64_t bytes = int64_t(safetensorsWidth(tensor.dtype));
  if (bytes == 0)
    throw environmentError(
        fmt::format("{}: tensor {}: a type of safetensors expected, found {}", name, key, tensor.dtype));
  for (int64_t size : tensor.shape)
    if (size < 1 || __builtin_mul_overflow(bytes, size, &bytes))
      throw environmentError(fmt::format("{}: tensor {}: sizes must be positive, found {}", name, key, size));
  for (const Json &item : json.at("pieces")) {
    ManifestPiece piece{item.at("file").get<std::string>(), item.at("key").get<std::string>(),
                        item.at("start").get<std::vector<int64_t>>(), item.at("size").get<std::vector<int64_t>>()};
    checkPiece(piece, tensor, name);
    tensor.pieces.push_back(std::move(piece));
  }
  return tensor;
}

/// JSON texts inside the manifest are embedded as objects where they parse, so that people can read them.
static Json embed(const std::string &text) {
  if (text.empty())
    return nullptr;
  Json json = Json::parse(text, nullptr, false);
  return json.is_discarded() ? Json(text) : json;
}
static std::string unembed(const Json &json, const char *key) {
  if (!json.contains(key) || json.at(key).is_null())
    return {};
  return json.at(key).is_string() ? json.at(key).get<std::string>() : json.at(key).dump();
}

static CheckpointInfo parseInfo(const Json &json, const std::string &name) {
  CheckpointInfo info;
  info.step = json.at("step").get<int64_t>();
  info.epoch = json.at("epoch").get<int64_t>();
  info.position = json.at("position").get<int64_t>();
  info.seed = json.at("seed").get<uint64_t>();
  info.batch = json.at("batch").get<int64_t>();
  info.microbatches = json.at("microbatches").get<int64_t>();
  info.model = json.at("model").get<std::string>();
  info.options = unembed(json, "options");
  info.training = unembed(json, "training");
  info.data = unembed(json, "data");
  info.planHash = json.value("plan_hash", "");
  if (info.batch < 1 || info.microbatches < 1)
    throw environmentError(fmt::format("{}: batch and microbatches must be positive, found {} and {}", name, info.batch,
                                       info.microbatches));
  if (info.step < 0 || info.epoch < 1 || info.position < 0)
    throw environmentError(fmt::format("{}: step and position must not be negative, epoch be positive, found step {}, "
                                       "position {}, epoch {}",
                                       name, info.step, info.position, info.epoch));
  return info;
}

Manifest parseManifest(const std::string &text, const std::string &name) {
  Manifest manifest;
  try {
    const Json json = Json::parse(text);
    if (json.value("format", "") != formatName || json.value("version", 0) != 1)
      throw environmentError(fmt::format("{}: not a {} of version 1", name, formatName));
    manifest.generation = json.at("generation").get<int64_t>();
    manifest.info = parseInfo(json, name);
    if (!json.at("tensors").is_object())
      throw environmentError(fmt::format("{}: tensors must be an object", name));
    for (const auto &[key, value] : json.at("tensors").items())
      manifest.tensors.push_back(parseTensor(key, value, name));
  } catch (const nlohmann::json::exception &e) {
    throw environmentError(fmt::format("{}: torn or not the JSON expected: {}", name, e.what()));
  }
  return manifest;
}

std::string printManifest(const Manifest &manifest) {
  const CheckpointInfo &info = manifest.info;
  Json json{{"format", formatName}, {"version", 1},        {"generation", manifest.generation},
            {"step", info.step},    {"epoch", info.epoch}, {"position", info.position},
            {"seed", info.seed},    {"batch", info.batch}, {"microbatches", info.microbatches},
            {"model", info.model}};
  json["options"] = embed(info.options);
  json["training"] = embed(info.training);
  json["data"] = embed(info.data);
  json["plan_hash"] = info.planHash;
  Json tensors = Json::object();
  for (const ManifestTensor &tensor : manifest.tensors) {
    Json pieces = Json::array();
    for (const ManifestPiece &piece : tensor.pieces)
      pieces.push_back(Json{{"file", piece.file}, {"key", piece.key}, {"start", piece.start}, {"size", piece.size}});
    tensors[tensor.name] =
        Json{{"kind", tensor.kind}, {"dtype", tensor.dtype}, {"shape", tensor.shape}, {"pieces", std::move(pieces)}};
  }
  json["tensors"] = std::move(tensors);
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

Manifest readManifest(const std::string &folder) {
  std::error_code error;
  if (!std::filesystem::is_directory(folder, error))
    throw userError(fmt::format("checkpoint {}: no such folder", folder));
  const std::string file = folder + "/manifest.json";
  if (!std::filesystem::exists(file, error))
    throw userError(fmt::format("checkpoint {}: has no manifest.json", folder));
  return parseManifest(readTextFile(file), file);
}

CheckpointInfo readCheckpointInfo(const std::string &folder) { return readManifest(folder).info; }

} // namespace cleave
