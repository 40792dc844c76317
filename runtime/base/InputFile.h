// Files that are read: regular ones only, each error with the file's name.
#pragma once
#include "runtime/base/Error.h"

#include <cstddef>
#include <cstdint>
#include <new>
#include <stdexcept>
#include <string>

namespace cleave {

/// A regular file open for reading at any place. A pipe, a device or a folder is refused before anything is read, since
/// reading it could wait or go on for ever.
class InputFile {
public:
  /// `missing`: whose fault a file is that cannot be opened or is not regular. Throws an Error naming file and reason.
  explicit InputFile(std::string path, Status missing = Status::Environment);
  ~InputFile();
  InputFile(InputFile &&) noexcept;
  InputFile(const InputFile &) = delete;
  uint64_t size() const { return bytes; }
  const std::string &name() const { return path; }
  /// Reads exactly `count` bytes at `offset`; a short file is an environmentError.
  void read(void *to, size_t count, uint64_t offset) const;
  /// Gives the descriptor to the caller, who closes it.
  int release();

private:
  std::string path;
  int fd = -1;
  uint64_t bytes = 0;
};

/// What `fn` gives. Where it finds no memory: an environmentError that names the file and `bytes`, as they are then:
/// what is to be held of it.
template <typename Fn> auto withMemoryFor(const std::string &path, const uint64_t &bytes, Fn fn) {
  try {
    return fn();
  } catch (const std::bad_alloc &) {
  } catch (const std::length_error &) {
  }
  throw environmentError(path + ": out of memory: it has " + std::to_string(bytes) + " bytes or more");
}

/// A whole file's text, at most `most` bytes. Throws an Error naming the file and the value.
std::string readTextFile(const std::string &path, Status missing = Status::Environment,
                         uint64_t most = uint64_t{1} << 30);

} // namespace cleave
