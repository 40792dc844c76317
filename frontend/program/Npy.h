// NumPy's .npy files of f32, version 1.0 (numpy.lib.format), written row by row.
#pragma once
#include "runtime/base/AtomicFile.h"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace cleave {

/// The header of a file whose elements follow: magic, version and a dictionary, padded to a multiple of 64 bytes.
std::string npyHeader(const std::vector<int64_t> &shape);

/// A file that is whole or absent.
class NpyFile {
public:
  NpyFile(const std::string &path, const std::vector<int64_t> &shape);
  void append(std::span<const float> elements);
  void commit() { file.commit(); }

private:
  AtomicFile file;
};

} // namespace cleave
