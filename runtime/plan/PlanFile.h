// A plan as bytes: a 64-byte header (magic, version, size, SHA-256 of everything) followed by a flatbuffer. What loads
// is whole and unaltered: the hash covers every byte but its own, and the flatbuffer's structure is verified after it.
// Whether the plan makes sense is checked by Check.h.
#pragma once
#include "runtime/plan/PlanTypes.h"

#include <memory>
#include <span>
#include <string>
#include <vector>

namespace cleave {

class PlanFile {
public:
  /// Reads a file. A missing or unreadable file is the user's error; a torn, altered or foreign one the environment's.
  static std::shared_ptr<const PlanFile> load(const std::string &path);
  /// Takes the bytes of a whole file (header included); `name` is for error texts.
  static std::shared_ptr<const PlanFile> fromBytes(std::vector<uint8_t> bytes, const std::string &name);

  const plan::Plan &plan() const { return *root; }
  /// 64 hexadecimal digits; people are shown the first six.
  std::string hash() const;
  /// The whole file, header included: what another process needs.
  std::span<const uint8_t> bytes() const { return data; }
  const std::string &name() const { return fileName; }

private:
  PlanFile() = default;
  std::vector<uint8_t> data;
  std::string fileName;
  const plan::Plan *root = nullptr;
};

/// Puts the header before a finished flatbuffer.
std::vector<uint8_t> sealPlan(std::span<const uint8_t> flatbuffer);

/// Writes sealed bytes under a temporary name beside `path`, syncs, and renames: the file is whole or absent.
/// A path that cannot be written is the user's error, a full disk the environment's.
void writePlan(const std::string &path, std::span<const uint8_t> bytes);

} // namespace cleave
