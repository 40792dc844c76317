// Files that are whole or absent.
#pragma once
#include <cstddef>
#include <string>

namespace cleave {

/// Writes a file under a temporary name beside its own and renames it when committed; what was not committed is
/// removed. The temporary name, ".NAME-OWNER.tmp-" and 16 random hexadecimal digits, is this object's alone: it is made
/// new, never through a link, and nothing else is ever removed. A name that exists and is no regular file (a device, a pipe)
/// is refused: a rename would replace it. Errors name the file: userError for a path that cannot be written,
/// environmentError for a disk that is full or fails.
class AtomicFile {
public:
  explicit AtomicFile(std::string path, const std::string &owner = "");
  ~AtomicFile();
  AtomicFile(const AtomicFile &) = delete;
  void write(const void *data, size_t bytes);
  /// Syncs and closes: what is left to do is a rename.
  void finish();
  /// Finishes and renames.
  void commit();

private:
  [[noreturn]] void fail(int code) const;
  std::string path, temporary;
  int fd = -1;
};

/// Makes renames in a folder last. Some file systems cannot; the renames stand all the same.
void syncFolder(const std::string &folder);

/// Makes a folder and those above it, and makes them last. Throws userError: "WHAT FOLDER: cannot be made: ...".
void makeFolders(const std::string &folder, const std::string &what);

} // namespace cleave
