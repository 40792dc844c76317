// Reads and lays out safetensors files.
#include "runtime/checkpoint/Safetensors.h"
#include "runtime/base/Error.h"
#include "runtime/base/JsonText.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <fmt/format.h>
#include <zlib.h>

namespace cleave {

size_t safetensorsWidth(const std::string &dtype) {
  static const std::map<std::string, size_t> widths{{"F64", 8}, {"F32", 4}, {"F16", 2}, {"BF16", 2}, {"I64", 8},
                                                    {"I32", 4}, {"I16", 2}, {"I8", 1},  {"U8", 1},   {"BOOL", 1}};
  const auto it = widths.find(dtype);
  return it == widths.end() ? 0 : it->second;
}

/// The bytes of a tensor's data. Throws an environment error that begins with `where`.
static uint64_t dataBytesOf(const SafetensorsEntry &entry, const std::string &where) {
  uint64_t bytes = safetensorsWidth(entry.dtype);
  if (bytes == 0)
    throw environmentError(fmt::format("{}: a type of safetensors expected, found {}", where, entry.dtype));
  for (int64_t size : entry.shape)
    if (size < 0 || __builtin_mul_overflow(bytes, uint64_t(size), &bytes))
      throw environmentError(fmt::format("{}: sizes must not be negative or overflow, found {}", where, size));
  return bytes;
}

static SafetensorsEntry parseEntry(const nlohmann::json &json, const std::string &key, uint64_t dataBytes,
                                   const std::string &name) {
  SafetensorsEntry entry;
  entry.dtype = json.at("dtype").get<std::string>();
  entry.shape = json.at("shape").get<std::vector<int64_t>>();
  const uint64_t bytes = dataBytesOf(entry, fmt::format("{}: tensor {}", name, key));
  const auto &range = json.at("data_offsets");
  if (range.size() != 2 || !range[0].is_number_unsigned() || !range[1].is_number_unsigned())
    throw environmentError(
        fmt::format("{}: tensor {}: data_offsets must be two numbers, found {}", name, key, jsonText(range)));
  entry.begin = range[0].get<uint64_t>();
  entry.end = range[1].get<uint64_t>();
  if (entry.begin > entry.end || entry.end > dataBytes || entry.end - entry.begin != bytes)
    throw environmentError(
        fmt::format("{}: tensor {}: its {} bytes must lie within the {} bytes of data, found [{}, {})", name, key,
                    bytes, dataBytes, entry.begin, entry.end));
  return entry;
}

SafetensorsHeader parseSafetensors(std::span<const char> text, uint64_t fileSize, const std::string &name) {
  SafetensorsHeader header;
  header.dataStart = 8 + uint64_t(text.size());
  if (header.dataStart > fileSize)
    throw environmentError(
        fmt::format("{}: a header of {} bytes is longer than the file of {}", name, text.size(), fileSize));
  try {
    const auto json = parseJson({text.data(), text.size()}, name);
    if (!json.is_object())
      throw environmentError(fmt::format("{}: the header must be a JSON object", name));
    if (json.contains("__metadata__") && json["__metadata__"].contains("crc32")) {
      const std::string digits = json["__metadata__"]["crc32"].get<std::string>();
      uint32_t value = 0;
      const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
      if (error != std::errc() || end != digits.data() + digits.size())
        throw environmentError(fmt::format("{}: crc32 is hexadecimal digits, found \"{}\"", name, digits));
      header.crc32 = value;
    }
    for (const auto &[key, value] : json.items())
      if (key != "__metadata__")
        header.entries.emplace(key, parseEntry(value, key, fileSize - header.dataStart, name));
  } catch (const nlohmann::json::exception &e) {
    throw environmentError(fmt::format("{}: the header is not the expected JSON: {}", name, e.what()));
  }
  std::vector<std::pair<uint64_t, uint64_t>> ranges;
  for (const auto &[key, entry] : header.entries)
    ranges.emplace_back(entry.begin, entry.end);
  std::sort(ranges.begin(), ranges.end());
  for (size_t i = 1; i < ranges.size(); ++i)
    if (ranges[i].first < ranges[i - 1].second)
      throw environmentError(fmt::format("{}: tensors must not overlap, two hold byte {}", name, ranges[i].first));
  return header;
}

uint32_t crc32Of(uint32_t before, const void *data, size_t bytes) {
  return static_cast<uint32_t>(::crc32_z(before, static_cast<const Bytef *>(data), bytes));
}

uint32_t joinedCrc32(uint32_t first, uint32_t second, uint64_t bytes) {
  return static_cast<uint32_t>(::crc32_combine64(first, second, static_cast<z_off64_t>(bytes)));
}

void placeSafetensors(std::vector<std::pair<std::string, SafetensorsEntry>> &entries) {
  uint64_t at = 0;
  for (auto &[key, entry] : entries) {
    entry.begin = at;
    if (__builtin_add_overflow(at, dataBytesOf(entry, "tensor " + key), &at))
      throw environmentError(fmt::format("tensor {}: a file must have fewer than 2^64 bytes of data", key));
    entry.end = at;
  }
}

std::string layOutSafetensors(const std::vector<std::pair<std::string, SafetensorsEntry>> &entries, uint32_t crc32) {
  auto json = nlohmann::ordered_json::object();
  json["__metadata__"] = {{"format", "cleave"}, {"crc32", fmt::format("{:08x}", crc32)}};
  for (const auto &[key, entry] : entries)
    json[key] = {{"dtype", entry.dtype}, {"shape", entry.shape}, {"data_offsets", {entry.begin, entry.end}}};
  std::string text = jsonText(json);
  text.resize((text.size() + 7) / 8 * 8, ' '); // aligns the data
  std::string out(8, '\0');
  for (int i = 0; i < 8; ++i)
    out[size_t(i)] = char(uint64_t(text.size()) >> (8 * i));
  return out + text;
}

/// Reads the start of a file: length and header.
static std::vector<char> readHead(const InputFile &file) {
  unsigned char first[8];
  if (file.size() < 8)
    throw environmentError(
        fmt::format("{}: a safetensors file has at least 8 bytes, found {}", file.name(), file.size()));
  file.read(first, 8, 0);
  uint64_t length = 0;
  for (int i = 0; i < 8; ++i)
    length |= uint64_t(first[i]) << (8 * i);
  if (length > file.size() - 8 || length > uint64_t{100} << 20)
    throw environmentError(fmt::format("{}: the header must fit the file of {} bytes and 100 MiB, found {} bytes",
                                       file.name(), file.size(), length));
  std::vector<char> head(static_cast<size_t>(8 + length));
  file.read(head.data(), head.size(), 0);
  return head;
}

SafetensorsFile::SafetensorsFile(const std::string &path) : file(path) {
  const std::vector<char> head = readHead(file);
  header = parseSafetensors(std::span(head).subspan(8), file.size(), file.name());
  if (!header.crc32)
    return;
  std::vector<char> block(size_t{1} << 20);
  uint32_t found = 0;
  for (uint64_t at = header.dataStart; at < file.size();) {
    const size_t bytes = static_cast<size_t>(std::min<uint64_t>(block.size(), file.size() - at));
    file.read(block.data(), bytes, at);
    found = crc32Of(found, block.data(), bytes);
    at += bytes;
  }
  if (found != *header.crc32)
    throw environmentError(
        fmt::format("{}: its data was modified or truncated: it has CRC-32 {:08x}, the header says {:08x}", path, found,
                    *header.crc32));
  whole = joinedCrc32(crc32Of(0, head.data(), head.size()), found, file.size() - header.dataStart);
}

const SafetensorsEntry &SafetensorsFile::entry(const std::string &key) const {
  const auto it = header.entries.find(key);
  if (it == header.entries.end())
    throw environmentError(fmt::format("{}: tensor {} is missing", file.name(), key));
  return it->second;
}

} // namespace cleave
