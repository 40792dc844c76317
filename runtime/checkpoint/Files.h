// Files written so that they are whole or absent, and copies between boxes of row-major arrays.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace cleave {

/// A file open for reading at any place.
class InputFile {
public:
  /// Throws environmentError naming the file.
  explicit InputFile(std::string path);
  ~InputFile();
  InputFile(InputFile &&) noexcept;
  InputFile(const InputFile &) = delete;
  uint64_t size() const { return bytes; }
  const std::string &name() const { return path; }
  /// Reads exactly `count` bytes at `offset`; a short file is an environmentError.
  void read(void *to, size_t count, uint64_t offset) const;

private:
  std::string path;
  int fd = -1;
  uint64_t bytes = 0;
};

/// A whole file's text. Throws environmentError naming the file.
std::string readTextFile(const std::string &path);

/// Copies a box of `size` elements (of `width` bytes) between row-major arrays of shapes srcShape and dstShape.
void copyBox(std::byte *dst, std::span<const int64_t> dstShape, std::span<const int64_t> dstStart, const std::byte *src,
             std::span<const int64_t> srcShape, std::span<const int64_t> srcStart, std::span<const int64_t> size,
             size_t width);

} // namespace cleave
