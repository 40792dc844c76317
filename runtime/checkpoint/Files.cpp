// Reading files, copying boxes.
#include "runtime/checkpoint/Files.h"
#include "runtime/base/Error.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

namespace cleave {

InputFile::InputFile(std::string name) : path(std::move(name)) {
  fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  struct stat info {};
  if (fd < 0 || fstat(fd, &info) != 0) {
    const int code = errno;
    if (fd >= 0)
      close(fd);
    throw environmentError(fmt::format("{}: cannot be opened: {}", path, std::strerror(code)));
  }
  bytes = uint64_t(info.st_size);
}

InputFile::~InputFile() {
  if (fd >= 0)
    close(fd);
}

InputFile::InputFile(InputFile &&other) noexcept
    : path(std::move(other.path)), fd(std::exchange(other.fd, -1)), bytes(other.bytes) {}

void InputFile::read(void *to, size_t count, uint64_t offset) const {
  char *at = static_cast<char *>(to);
  while (count > 0) {
    const ssize_t got = pread(fd, at, std::min<size_t>(count, 1 << 30), off_t(offset));
    if (got < 0 && errno == EINTR)
      continue;
    if (got <= 0)
      throw environmentError(fmt::format("{}: {} more bytes expected at offset {}: {}", path, count, offset,
                                         got < 0 ? std::strerror(errno) : "the file ends"));
    at += got;
    offset += uint64_t(got);
    count -= size_t(got);
  }
}

std::string readTextFile(const std::string &path) {
  InputFile file(path);
  if (file.size() > uint64_t{1} << 30)
    throw environmentError(fmt::format("{}: at most 1 GiB of text expected, found {} bytes", path, file.size()));
  std::string text(size_t(file.size()), '\0');
  file.read(text.data(), text.size(), 0);
  return text;
}

void copyBox(std::byte *dst, std::span<const int64_t> dstShape, std::span<const int64_t> dstStart, const std::byte *src,
             std::span<const int64_t> srcShape, std::span<const int64_t> srcStart, std::span<const int64_t> size,
             size_t width) {
  const size_t rank = size.size();
  for (int64_t extent : size)
    if (extent == 0)
      return;
  // Trailing dimensions that are whole on both sides, and the one before them, are one run.
  int64_t run = 1;
  size_t outer = rank;
  while (outer > 0) {
    const size_t d = outer - 1;
    run *= size[d];
    outer = d;
    if (size[d] != srcShape[d] || size[d] != dstShape[d])
      break;
  }
  std::vector<int64_t> at(outer, 0), srcStride(rank, 1), dstStride(rank, 1);
  for (size_t d = rank; d-- > 1;) {
    srcStride[d - 1] = srcStride[d] * srcShape[d];
    dstStride[d - 1] = dstStride[d] * dstShape[d];
  }
  for (;;) {
    int64_t from = 0, to = 0;
    for (size_t d = 0; d < rank; ++d) {
      const int64_t step = d < outer ? at[d] : 0;
      from += (srcStart[d] + step) * srcStride[d];
      to += (dstStart[d] + step) * dstStride[d];
    }
    std::memcpy(dst + to * int64_t(width), src + from * int64_t(width), size_t(run) * width);
    size_t d = outer;
    while (d > 0 && ++at[d - 1] == size[d - 1])
      at[--d] = 0;
    if (d == 0)
      return;
  }
}

} // namespace cleave
