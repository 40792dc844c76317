// Files that are whole or absent.
#pragma once
#include <cstddef>
#include <string>

namespace cleave {

/// Writes a file under a temporary name beside its own and renames it when committed; what was not committed is
/// removed. A name that exists and is no regular file (a device, a pipe) is refused: a rename would replace it. Errors
/// name the file: userError for a path that cannot be written, environmentError for a disk that is full or fails.
class AtomicFile {
public:
  explicit AtomicFile(std::string path);
  ~AtomicFile();
  AtomicFile(const AtomicFile &) = delete;
  void write(const void *data, size_t bytes);
  /// Syncs, closes and renames.
  void commit();

private:
  [[noreturn]] void fail(int code) const;
  std::string path, temporary;
  int fd = -1;
};

/// Makes renames in a folder last. Some file systems cannot; the renames stand all the same.
void syncFolder(const std::string &folder);

} // namespace cleave
