// Reads regular files; every error names the file.
#pragma once
#include "runtime/base/Error.h"

#include <cstddef>
#include <cstdint>
#include <new>
#include <stdexcept>
#include <string>

namespace cleave {

/// A file that cannot be opened or read.
class FileError : public Error {
public:
  FileError(Status status, const std::string &message, int code) : Error(status, message), code(code) {}
  int code; ///< errno; 0: the file ends early, or is none that can be read
};

/// What tells one state of a file from another, as far as its file system knows.
struct FileState {
  uint64_t inode = 0, size = 0;
  int64_t written = 0; ///< time of the last change of its content, in nanoseconds
  int64_t changed = 0; ///< also of its owner, mode and names; no program can set it

  bool operator==(const FileState &) const = default;
};

/// A regular file open for random-access reading. Rejects pipes, devices and folders before reading, because reading
/// them could block or never end.
class InputFile {
public:
  /// `missing`: the status of errors for a file that cannot be opened or is not regular. Throws an Error with file and
  /// reason.
  explicit InputFile(std::string path, Status missing = Status::Environment);
  ~InputFile();
  InputFile(InputFile &&) noexcept;
  InputFile(const InputFile &) = delete;
  uint64_t size() const { return bytes; }
  unsigned mode() const { return permissions; } ///< as chmod has them
  unsigned owner() const { return user; }
  const std::string &name() const { return path; }
  /// The state now.
  FileState state() const;
  /// Reads exactly `count` bytes at `offset`; a short file is an environmentError.
  void read(void *to, size_t count, uint64_t offset) const;
  /// Transfers the descriptor to the caller, who must close it.
  int release();

private:
  std::string path;
  int fd = -1;
  uint64_t bytes = 0;
  unsigned permissions = 0, user = 0;
};

/// Waits for a moment after the attempt number `tried`; throws `error` if there is no sense in another one.
void waitToRetry(const FileError &error, int tried);

/// Returns fn(). If it throws a FileError that may pass (a server that does not answer, for example), calls it again,
/// up to three times within two seconds.
template <typename Fn> auto withRetries(Fn fn) {
  for (int tried = 1;; ++tried)
    try {
      return fn();
    } catch (const FileError &error) {
      waitToRetry(error, tried);
    }
}

/// Returns fn(). If it runs out of memory, throws an environmentError that names the file and `bytes`, the size being
/// allocated, as set at that time.
template <typename Fn> auto withMemoryFor(const std::string &path, const uint64_t &bytes, Fn fn) {
  try {
    return fn();
  } catch (const std::bad_alloc &) {
  } catch (const std::length_error &) {
  }
  throw environmentError(path + ": out of memory: it has " + std::to_string(bytes) + " bytes or more");
}

/// The text of a whole file of at most `most` bytes. Throws an Error that names the file and the value.
std::string readTextFile(const std::string &path, Status missing = Status::Environment,
                         uint64_t most = uint64_t{1} << 30);

} // namespace cleave
