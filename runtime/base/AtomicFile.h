// Files that appear complete or not at all.
#pragma once
#include <cstddef>
#include <string>

namespace cleave {

/// Writes a file under a temporary name next to its own and renames it on commit; removes the temporary file if it is
/// not committed. The temporary name, ".NAME-OWNER.tmp-" and 16 random hexadecimal digits, is unique to this object;
/// the file is created with O_EXCL and without following links. An existing name that is not a regular file (a device,
/// a pipe) is an error, because the rename would replace it. Errors name the file: userError for a path that cannot be
/// written, environmentError if the disk is full or fails.
class AtomicFile {
public:
  explicit AtomicFile(std::string path, const std::string &owner = "");
  ~AtomicFile();
  AtomicFile(const AtomicFile &) = delete;
  void write(const void *data, size_t bytes);
  /// Syncs and closes; only the rename remains.
  void finish();
  /// Finishes and renames.
  void commit();

private:
  [[noreturn]] void fail(int code) const;
  std::string path, temporary;
  int fd = -1;
};

/// Syncs a folder, so that renames in it are durable. Ignores file systems that do not support this.
void syncFolder(const std::string &folder);

/// Creates a folder and its parents, and syncs them. Throws userError: "WHAT FOLDER: cannot be made: ...".
void makeFolders(const std::string &folder, const std::string &what);

} // namespace cleave
