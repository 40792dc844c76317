// Writes .npy files.
#include "frontend/program/Npy.h"

#include <fmt/format.h>

namespace cleave {

std::string npyHeader(const std::vector<int64_t> &shape) {
  std::string sizes;
  for (int64_t size : shape)
    sizes += fmt::format("{}{}", sizes.empty() ? "" : ", ", size);
  std::string dictionary =
      fmt::format("{{'descr': '<f4', 'fortran_order': False, 'shape': ({}{}), }}", sizes, shape.size() == 1 ? "," : "");
  constexpr size_t before = 10; // magic, version, header length
  dictionary.append(63 - (before + dictionary.size()) % 64, ' ');
  dictionary += '\n';
  std::string header("\x93NUMPY\x01\x00", 8);
  header += static_cast<char>(dictionary.size() & 0xff);
  header += static_cast<char>(dictionary.size() >> 8);
  return header + dictionary;
}

NpyFile::NpyFile(const std::string &path, const std::vector<int64_t> &shape) : file(path) {
  const std::string header = npyHeader(shape);
  file.write(header.data(), header.size());
}

void NpyFile::append(std::span<const float> elements) { file.write(elements.data(), elements.size_bytes()); }

} // namespace cleave
