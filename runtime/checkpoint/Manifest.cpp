// The manifest as JSON.
#include "runtime/checkpoint/Manifest.h"
#include "runtime/base/Error.h"
#include "runtime/base/InputFile.h"
#include "runtime/base/JsonText.h"
#include "runtime/base/Sha256.h"
#include "runtime/checkpoint/Leftovers.h"
#include "runtime/checkpoint/Safetensors.h"

#include <algorithm>
#include <filesystem>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <set>

namespace cleave {
using Json = nlohmann::ordered_json;

static constexpr const char *formatName = "cleave-checkpoint";
static constexpr int formatVersion = 2;

const ManifestTensor *Manifest::find(const std::string &name) const {
  for (const ManifestTensor &tensor : tensors)
    if (tensor.name == name)
      return &tensor;
  return nullptr;
}

const ManifestFile *Manifest::file(const std::string &name) const {
  for (const ManifestFile &each : files)
    if (each.name == name)
      return &each;
  return nullptr;
}

std::string Manifest::ownFile() const { return manifestFileName(info.step, run, generation); }

/// Whether this is the name of a checkpoint's file in its folder.
static bool isOwnName(const std::string &name, const char *ending) {
  return name.starts_with("step-") && name.ends_with(ending) && name.find('/') == std::string::npos;
}

static int64_t count(const Json &json, const char *key, int64_t least, const std::string &name) {
  const auto &value = json.at(key);
  if (!value.is_number_integer() || (value.is_number_unsigned() && value.get<uint64_t>() >= uint64_t(mostSteps)) ||
      value.get<int64_t>() < least || value.get<int64_t>() >= mostSteps)
    throw environmentError(fmt::format("{}: {} must be a whole number from {} to below 2^53, found {}", name, key,
                                       least, jsonText(value)));
  return value.get<int64_t>();
}

static void checkPiece(const ManifestPiece &piece, const ManifestTensor &tensor, const std::string &name) {
  const std::string where = fmt::format("{}: tensor {}", name, tensor.name);
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

/// Embeds JSON texts as objects if they parse, for readability.
static Json embed(const std::string &text) {
  if (text.empty())
    return nullptr;
  try {
    return parseJson<Json>(text, "");
  } catch (const Error &) {
    return text;
  }
}
static std::string unembed(const Json &json, const char *key) {
  if (!json.contains(key) || json.at(key).is_null())
    return {};
  return json.at(key).is_string() ? json.at(key).get<std::string>() : jsonText(json.at(key));
}

static CheckpointInfo parseInfo(const Json &json, const std::string &name) {
  CheckpointInfo info;
  info.step = count(json, "step", 0, name);
  info.epoch = count(json, "epoch", 1, name);
  info.position = count(json, "position", 0, name);
  info.seed = json.at("seed").get<uint64_t>();
  info.batch = count(json, "batch", 1, name);
  info.microbatches = count(json, "microbatches", 1, name);
  info.evalBatch = json.contains("eval_batch") ? count(json, "eval_batch", 1, name) : 0;
  info.model = json.at("model").get<std::string>();
  info.options = unembed(json, "options");
  info.training = unembed(json, "training");
  info.data = unembed(json, "data");
  info.dataState = unembed(json, "data_state");
  info.planHash = json.value("plan_hash", "");
  info.ranks = json.contains("ranks") ? count(json, "ranks", 1, name) : 0;
  info.threads = json.contains("threads") ? count(json, "threads", 1, name) : 0;
  return info;
}

static std::vector<ManifestFile> parseFiles(const Json &json, const std::string &name) {
  std::vector<ManifestFile> files;
  if (!json.is_object())
    throw environmentError(fmt::format("{}: files must be an object", name));
  for (const auto &[key, value] : json.items()) {
    if (!isOwnName(key, ".safetensors"))
      throw environmentError(
          fmt::format("{}: a file of tensors must be named step-....safetensors, found \"{}\"", name, key));
    files.push_back({key, uint64_t(count(value, "bytes", 8, name)), uint32_t(count(value, "crc32", 0, name)),
                     uint32_t(count(value, "rank", 0, name))});
  }
  return files;
}

static std::vector<KeptCheckpoint> parseEarlier(const Json &json, const std::string &name) {
  std::vector<KeptCheckpoint> earlier;
  for (const Json &item : json) {
    earlier.push_back({item.at("manifest").get<std::string>(), count(item, "step", 0, name)});
    if (!isOwnName(earlier.back().manifest, ".manifest.json"))
      throw environmentError(fmt::format("{}: an earlier manifest must be named step-....manifest.json, found \"{}\"",
                                         name, earlier.back().manifest));
  }
  return earlier;
}

/// Early manifests do not list runs.
static std::vector<std::string> parseRuns(const Json &json, const std::string &name) {
  std::vector<std::string> runs = json.value("runs", std::vector<std::string>());
  for (const std::string &run : runs)
    if (!isRunName(run))
      throw environmentError(fmt::format("{}: runs must be 16 hexadecimal digits each, found \"{}\"", name, run));
  return runs;
}

/// The SHA-256 of a manifest without its checksum.
static std::string checksumOf(const Json &json) {
  Json rest = json;
  rest.erase("checksum");
  const std::string text = jsonText(rest);
  return "sha256:" + toHex(sha256({reinterpret_cast<const uint8_t *>(text.data()), text.size()}));
}

Manifest parseManifest(const std::string &text, const std::string &name) {
  const Json json = parseJson<Json>(text, name);
  Manifest manifest;
  try {
    if (!json.is_object() || json.value("format", "") != formatName)
      throw environmentError(fmt::format("{}: is not a {}", name, formatName));
    if (const auto version = json.at("version"); version != formatVersion)
      throw environmentError(fmt::format("{}: version {} expected, found {}", name, formatVersion, jsonText(version)));
    if (const auto found = json.at("checksum"), due = Json(checksumOf(json)); found != due)
      throw environmentError(fmt::format("{}: modified or truncated: its stated checksum is {}, its content has {}",
                                         name, jsonText(found), jsonText(due)));
    manifest.generation = count(json, "generation", 1, name);
    manifest.run = json.at("run").get<std::string>();
    manifest.info = parseInfo(json, name);
    manifest.files = parseFiles(json.at("files"), name);
    manifest.earlier = parseEarlier(json.at("earlier"), name);
    manifest.runs = parseRuns(json, name);
    if (!json.at("tensors").is_object())
      throw environmentError(fmt::format("{}: tensors must be an object", name));
    std::set<std::string> files;
    for (const ManifestFile &file : manifest.files)
      files.insert(file.name);
    for (const auto &[key, value] : json.at("tensors").items()) {
      manifest.tensors.push_back(parseTensor(key, value, name));
      for (const ManifestPiece &piece : manifest.tensors.back().pieces)
        if (!files.contains(piece.file))
          throw environmentError(
              fmt::format("{}: tensor {}: a piece's file must be listed, found \"{}\"", name, key, piece.file));
    }
  } catch (const nlohmann::json::exception &e) {
    throw environmentError(fmt::format("{}: truncated or not the expected JSON: {}", name, e.what()));
  }
  return manifest;
}

std::string sealManifest(const std::string &text) {
  Json json = parseJson<Json>(text, "manifest");
  if (!json.is_object())
    throw environmentError("manifest: a JSON object expected");
  json["checksum"] = checksumOf(json);
  return jsonText(json, 1) + "\n";
}

std::string printManifest(const Manifest &manifest) {
  const CheckpointInfo &info = manifest.info;
  Json json{{"format", formatName},
            {"version", formatVersion},
            {"generation", manifest.generation},
            {"run", manifest.run},
            {"step", info.step},
            {"epoch", info.epoch},
            {"position", info.position},
            {"seed", info.seed},
            {"batch", info.batch},
            {"microbatches", info.microbatches},
            {"model", info.model}};
  if (info.evalBatch)
    json["eval_batch"] = info.evalBatch;
  json["options"] = embed(info.options);
  json["training"] = embed(info.training);
  json["data"] = embed(info.data);
  if (!info.dataState.empty())
    json["data_state"] = embed(info.dataState);
  json["plan_hash"] = info.planHash;
  if (info.ranks)
    json["ranks"] = info.ranks;
  if (info.threads)
    json["threads"] = info.threads;
  Json earlier = Json::array(), files = Json::object(), tensors = Json::object();
  for (const KeptCheckpoint &kept : manifest.earlier)
    earlier.push_back(Json{{"manifest", kept.manifest}, {"step", kept.step}});
  json["earlier"] = std::move(earlier);
  json["runs"] = manifest.runs;
  for (const ManifestFile &file : manifest.files)
    files[file.name] = Json{{"bytes", file.bytes}, {"crc32", file.crc32}, {"rank", file.rank}};
  json["files"] = std::move(files);
  for (const ManifestTensor &tensor : manifest.tensors) {
    Json pieces = Json::array();
    for (const ManifestPiece &piece : tensor.pieces)
      pieces.push_back(Json{{"file", piece.file}, {"key", piece.key}, {"start", piece.start}, {"size", piece.size}});
    tensors[tensor.name] =
        Json{{"kind", tensor.kind}, {"dtype", tensor.dtype}, {"shape", tensor.shape}, {"pieces", std::move(pieces)}};
  }
  json["tensors"] = std::move(tensors);
  json["checksum"] = checksumOf(json);
  return jsonText(json, 1) + "\n";
}

bool hasCheckpoint(const std::string &folder) {
  std::error_code error;
  const auto found = std::filesystem::symlink_status(folder + "/manifest.json", error);
  if (found.type() == std::filesystem::file_type::not_found)
    return false;
  if (error)
    throw userError(fmt::format("checkpoint {}: cannot be accessed: {}", folder, error.message()));
  return true;
}

static Manifest readLast(const std::string &folder) {
  std::error_code error;
  const auto status = std::filesystem::status(folder, error);
  if (error && error != std::errc::no_such_file_or_directory)
    throw userError(fmt::format("checkpoint {}: cannot be accessed: {}", folder, error.message()));
  if (!std::filesystem::is_directory(status))
    throw userError(fmt::format("checkpoint {}: no such folder", folder));
  if (!hasCheckpoint(folder))
    throw userError(fmt::format("checkpoint {}: has no manifest.json", folder));
  const std::string file = folder + "/manifest.json";
  return parseManifest(readTextFile(file), file);
}

Manifest readManifest(const std::string &folder, std::optional<int64_t> step) {
  Manifest last = readLast(folder);
  if (!step || *step == last.info.step)
    return last;
  std::vector<int64_t> steps{last.info.step};
  for (const KeptCheckpoint &kept : last.earlier) {
    if (kept.step == *step) {
      const std::string file = folder + "/" + kept.manifest;
      return parseManifest(readTextFile(file), file);
    }
    steps.push_back(kept.step);
  }
  throw userError(fmt::format("checkpoint {}: has the checkpoints of steps {}, but not of {}", folder,
                              fmt::join(steps, ", "), *step));
}

CheckpointInfo readCheckpointInfo(const std::string &folder, std::optional<int64_t> step) {
  return readManifest(folder, step).info;
}

} // namespace cleave
