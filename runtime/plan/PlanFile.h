// A plan as bytes: a 64-byte header (magic, version, size, SHA-256 of everything) followed by a flatbuffer. Loading
// verifies the hash, which covers every byte except itself, and then the flatbuffer's structure. Check.h checks the
// plan's meaning.
#pragma once
#include "runtime/plan/PlanTypes.h"

#include <memory>
#include <span>
#include <string>
#include <vector>

namespace cleave {

/// The version of the plan format that this program writes. It reads plans of the same major version with an equal or
/// smaller minor version. docs/plan.md, "Versions", says which change raises which number.
constexpr uint32_t formatMajor = 3, formatMinor = 13;

class PlanFile {
public:
  /// Reads a file. A missing or unreadable file is a user error; a truncated, modified or foreign one an environment
  /// error.
  static std::shared_ptr<const PlanFile> load(const std::string &path);
  /// Takes the bytes of a whole file (with header); `name` is for error messages.
  static std::shared_ptr<const PlanFile> fromBytes(std::vector<uint8_t> bytes, const std::string &name);

  const plan::Plan &plan() const { return *root; }
  /// 64 hexadecimal digits; messages show the first six.
  std::string hash() const;
  /// The whole file with its header, for sending to another process.
  std::span<const uint8_t> bytes() const { return data; }
  const std::string &name() const { return fileName; }

private:
  PlanFile() = default;
  std::vector<uint8_t> data;
  std::string fileName;
  const plan::Plan *root = nullptr;
};

/// Adds the header to a finished flatbuffer.
std::vector<uint8_t> sealPlan(std::span<const uint8_t> flatbuffer);
/// A plan as a flatbuffer with the header.
std::vector<uint8_t> packPlan(const plan::PlanT &plan);

/// Writes sealed bytes atomically: to a temporary file next to `path`, with sync and rename. A path that cannot be
/// written is a user error, a full disk an environment error.
void writePlan(const std::string &path, std::span<const uint8_t> bytes);

} // namespace cleave
