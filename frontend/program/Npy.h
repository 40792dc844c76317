// NumPy's .npy files of f32, version 1.0 (numpy.lib.format), written row by row.
#pragma once
#include "runtime/base/AtomicFile.h"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace cleave {

/// The header of a file, before its elements: magic, version and a dictionary, padded to a multiple of 64 bytes.
std::string npyHeader(const std::vector<int64_t> &shape);

/// Writes a file atomically: it appears complete or not at all.
class NpyFile {
public:
  NpyFile(const std::string &path, const std::vector<int64_t> &shape);
  void append(std::span<const float> elements);
  void commit() { file.commit(); }

private:
  AtomicFile file;
};

} // namespace cleave
