// Reads IDX files. Sizes are checked against the available bytes before memory is allocated.
#include "runtime/data/Idx.h"
#include "runtime/base/Error.h"
#include "runtime/base/InputFile.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fmt/format.h>
#include <memory>
#include <unistd.h>
#include <zlib.h>

namespace cleave {

static uint32_t bigEndian(const uint8_t *p) {
  return uint32_t(p[0]) << 24 | uint32_t(p[1]) << 16 | uint32_t(p[2]) << 8 | uint32_t(p[3]);
}

static size_t headerBytes(unsigned rank) { return 4 + 4 * size_t(rank); }

/// The dimensions of an array; `total`: their product.
static std::vector<int64_t> parseHeader(std::span<const uint8_t> bytes, unsigned rank, const std::string &name,
                                        uint64_t &total) {
  if (bytes.size() < headerBytes(rank))
    throw userError(fmt::format("{}: an IDX file of {} dimensions has a header of {} bytes, found {} bytes", name, rank,
                                headerBytes(rank), bytes.size()));
  const uint32_t magic = bigEndian(bytes.data()), want = 0x800u | rank;
  if (magic != want)
    throw userError(fmt::format("{}: the IDX magic number must be {:#010x}, found {:#010x}", name, want, magic));
  std::vector<int64_t> dims;
  total = 1;
  for (unsigned d = 0; d < rank; ++d) {
    const uint32_t size = bigEndian(bytes.data() + 4 + 4 * size_t(d));
    dims.push_back(size);
    if (size != 0 && total > uint64_t(INT64_MAX) / size)
      throw userError(fmt::format("{}: the IDX sizes overflow at dimension {} ({})", name, d, size));
    total *= size;
  }
  return dims;
}

[[noreturn]] static void failSize(const std::string &name, uint64_t promised, const std::string &there) {
  throw userError(
      fmt::format("{}: the IDX header promises {} bytes of data, the file holds {}", name, promised, there));
}

IdxArray parseIdx(std::span<const uint8_t> bytes, unsigned rank, const std::string &name) {
  uint64_t total = 0;
  IdxArray array{parseHeader(bytes, rank, name, total), {}};
  if (total != bytes.size() - headerBytes(rank))
    failSize(name, total, fmt::format("{}", bytes.size() - headerBytes(rank)));
  array.data.assign(bytes.begin() + static_cast<std::ptrdiff_t>(headerBytes(rank)), bytes.end());
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

namespace {

/// Reads a file, decompressing gzip.
class MaybeGzip {
public:
  explicit MaybeGzip(const std::string &path) : path(path) {
    InputFile plain(path, Status::User);
    bytes = plain.size();
    const int fd = plain.release();
    file.reset(gzdopen(fd, "rb")); // zlib passes plain files through unchanged
    if (!file) {
      close(fd);
      throw environmentError(fmt::format("{}: cannot be opened: out of memory", path));
    }
    gzbuffer(file.get(), 1 << 18);
  }

  /// Reads the next bytes, at most `count`; fewer at the end.
  size_t read(uint8_t *to, size_t count) {
    size_t done = 0;
    while (done < count) {
      const int got = gzread(file.get(), to + done, static_cast<unsigned>(std::min<size_t>(count - done, 1 << 20)));
      int code = Z_OK;
      const char *text = gzerror(file.get(), &code);
      if (got < 0 || (code != Z_OK && code != Z_STREAM_END)) // Z_BUF_ERROR at the end of the file: a truncated stream
        throw userError(fmt::format("{}: truncated or damaged file: {}", path,
                                    code == Z_ERRNO ? std::strerror(errno)
                                    : text && *text ? text
                                                    : "unexpected end"));
      if (got == 0)
        break;
      done += static_cast<size_t>(got);
    }
    return done;
  }

  /// The maximum decompressed size of the file (zlib's technical details: 1032 to 1).
  uint64_t most() const { return bytes * 1032 + 1032; }

private:
  std::string path;
  std::unique_ptr<gzFile_s, int (*)(gzFile)> file{nullptr, gzclose};
  uint64_t bytes;
};

} // namespace

std::vector<uint8_t> readMaybeGzip(const std::string &path, uint64_t most) {
  uint64_t have = 0;
  return withMemoryFor(path, have, [&] {
    MaybeGzip file(path);
    std::vector<uint8_t> out, chunk(1 << 20);
    while (const size_t got = file.read(chunk.data(), chunk.size())) {
      have += got;
      if (have > most)
        throw userError(fmt::format("{}: at most {} bytes expected, found more", path, most));
      out.insert(out.end(), chunk.begin(), chunk.begin() + static_cast<std::ptrdiff_t>(got));
    }
    return out;
  });
}

/// `total`: number of data bytes, set when the header has been read.
static IdxArray readIdxFile(const std::string &path, unsigned rank, uint64_t &total) {
  MaybeGzip file(path);
  std::vector<uint8_t> header(headerBytes(rank));
  header.resize(file.read(header.data(), header.size()));
  IdxArray array{parseHeader(header, rank, path, total), {}};
  if (total > file.most())
    failSize(path, total, fmt::format("at most {}", file.most()));
  array.data.resize(total);
  if (const size_t got = file.read(array.data.data(), total); got != total)
    failSize(path, total, fmt::format("{}", got));
  if (uint8_t next; file.read(&next, 1) != 0)
    failSize(path, total, "more");
  return array;
}

IdxArray readIdx(const std::string &path, unsigned rank) {
  std::error_code ignored;
  for (const std::string &name : {path, path + ".gz"})
    if (std::filesystem::exists(std::filesystem::symlink_status(name, ignored))) { // InputFile refuses what is no file
      uint64_t total = 0;
      return withMemoryFor(name, total, [&] { return readIdxFile(name, rank, total); });
    }
  throw userError(fmt::format("{}: no such file, and no {}.gz", path, std::filesystem::path(path).filename().string()));
}

} // namespace cleave
