// Reading IDX files. Every size is checked against the bytes that are there before anything is allocated for it.
#include "runtime/data/Idx.h"
#include "runtime/base/Error.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fmt/format.h>
#include <memory>
#include <zlib.h>

namespace cleave {

static uint32_t bigEndian(const uint8_t *p) {
  return uint32_t(p[0]) << 24 | uint32_t(p[1]) << 16 | uint32_t(p[2]) << 8 | uint32_t(p[3]);
}

IdxArray parseIdx(std::span<const uint8_t> bytes, unsigned rank, const std::string &name) {
  const size_t header = 4 + 4 * size_t(rank);
  if (bytes.size() < header)
    throw userError(fmt::format("{}: an IDX file of {} dimensions has a header of {} bytes, found {} bytes", name, rank,
                                header, bytes.size()));
  const uint32_t magic = bigEndian(bytes.data()), want = 0x800u | rank;
  if (magic != want)
    throw userError(fmt::format("{}: the IDX magic number must be {:#010x}, found {:#010x}", name, want, magic));

  IdxArray array;
  const uint64_t there = bytes.size() - header;
  uint64_t total = 1;
  for (unsigned d = 0; d < rank; ++d) {
    const uint32_t size = bigEndian(bytes.data() + 4 + 4 * size_t(d));
    array.dims.push_back(size);
    if (size != 0 && total > uint64_t(INT64_MAX) / size)
      throw userError(fmt::format("{}: the IDX sizes overflow at dimension {} ({})", name, d, size));
    total *= size;
  }
  if (total != there)
    throw userError(fmt::format("{}: the IDX header promises {} bytes of data, the file holds {}", name, total, there));
  array.data.assign(bytes.begin() + header, bytes.end());
  return array;
}

std::vector<uint8_t> encodeIdx(const IdxArray &array) {
  std::vector<uint8_t> out{0, 0, 8, uint8_t(array.dims.size())};
  for (int64_t size : array.dims)
    for (int shift = 24; shift >= 0; shift -= 8)
      out.push_back(uint8_t(uint64_t(size) >> shift));
  out.insert(out.end(), array.data.begin(), array.data.end());
  return out;
}

std::vector<uint8_t> readMaybeGzip(const std::string &path) {
  // zlib's gzread passes plain files through unchanged.
  std::unique_ptr<gzFile_s, int (*)(gzFile)> file(gzopen(path.c_str(), "rb"), gzclose);
  if (!file)
    throw userError(fmt::format("{}: cannot be opened: {}", path, errno ? std::strerror(errno) : "out of memory"));
  gzbuffer(file.get(), 1 << 18);
  std::vector<uint8_t> out;
  std::vector<uint8_t> chunk(1 << 20);
  for (;;) {
    const int got = gzread(file.get(), chunk.data(), unsigned(chunk.size()));
    if (got > 0)
      out.insert(out.end(), chunk.begin(), chunk.begin() + got);
    int code = Z_OK;
    const char *text = gzerror(file.get(), &code);
    if (got < 0 || (code != Z_OK && code != Z_STREAM_END)) // a torn gzip stream shows as Z_BUF_ERROR at its end
      throw userError(fmt::format("{}: a torn or damaged file: {}", path,
                                  code == Z_ERRNO ? std::strerror(errno)
                                  : text && *text ? text
                                                  : "unexpected end"));
    if (got == 0)
      return out;
  }
}

IdxArray readIdx(const std::string &path, unsigned rank) {
  std::error_code ignored;
  for (const std::string &name : {path, path + ".gz"})
    if (std::filesystem::is_regular_file(name, ignored))
      return parseIdx(readMaybeGzip(name), rank, name);
  throw userError(fmt::format("{}: no such file, and no {}.gz", path, std::filesystem::path(path).filename().string()));
}

} // namespace cleave
