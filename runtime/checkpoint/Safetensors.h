// Safetensors files: 8 bytes little-endian length of a JSON header, the header, raw little-endian data.
#pragma once
#include "runtime/base/InputFile.h"

#include <map>
#include <optional>
#include <span>
#include <vector>

namespace cleave {

/// One tensor of a file. Offsets are relative to the end of the header.
struct SafetensorsEntry {
  std::string dtype; ///< "F32", "I64", ...
  std::vector<int64_t> shape;
  uint64_t begin = 0, end = 0;
};

/// Bytes of one element; 0 for an unknown type.
size_t safetensorsWidth(const std::string &dtype);

/// Header of a file: `entries` by key, `dataStart` the file offset of the data.
struct SafetensorsHeader {
  std::map<std::string, SafetensorsEntry> entries;
  uint64_t dataStart = 0;
  std::optional<uint32_t> crc32; ///< of all data, if the file's metadata has it (Cleave's files do)
};

/// Updates a CRC-32 (as in gzip) with more data; the initial value is 0.
uint32_t crc32Of(uint32_t before, const void *data, size_t bytes);
/// The CRC-32 of two concatenated texts; the second has `bytes` bytes.
uint32_t joinedCrc32(uint32_t first, uint32_t second, uint64_t bytes);

/// Parses a header; `fileSize` is the size of the whole file. Throws environmentError that names the rule and the
/// value: every range lies in the file, fits its shape and type, and does not overlap another.
SafetensorsHeader parseSafetensors(std::span<const char> headerText, uint64_t fileSize, const std::string &name);

/// The start of a file: length and header, with the CRC-32 of the data. Entries must have their offsets.
std::string layOutSafetensors(const std::vector<std::pair<std::string, SafetensorsEntry>> &entries, uint32_t crc32);
/// Sets the entries' offsets in the given order. Throws an environment error if a type is unknown or the sizes
/// overflow.
void placeSafetensors(std::vector<std::pair<std::string, SafetensorsEntry>> &entries);

class SafetensorsFile {
public:
  /// Reads the header and, if the file has a checksum, all data. Throws environmentError if the checksum differs.
  explicit SafetensorsFile(const std::string &path);
  /// Throws environmentError that names a missing key.
  const SafetensorsEntry &entry(const std::string &key) const;
  const std::map<std::string, SafetensorsEntry> &entries() const { return header.entries; }
  /// Reads part of an entry's data.
  void read(const SafetensorsEntry &entry, uint64_t offset, void *to, size_t bytes) const {
    file.read(to, bytes, header.dataStart + entry.begin + offset);
  }
  const std::string &name() const { return file.name(); }
  uint64_t size() const { return file.size(); }
  /// The CRC-32 of the whole file, if its metadata has a checksum.
  std::optional<uint32_t> crc32() const { return whole; }

private:
  InputFile file;
  SafetensorsHeader header;
  std::optional<uint32_t> whole;
};

} // namespace cleave
