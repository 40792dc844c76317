// Files that appear complete or not at all.
#pragma once
#include <cstddef>
#include <string>
#include <sys/types.h>

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
  /// For code that writes a file by its name.
  const std::string &temporaryPath() const { return temporary; }
  /// No: the file need not survive a crash of the machine, and is not synced.
  enum class Lasting : bool { No, Yes };
  /// Syncs and closes; only the rename remains.
  void finish(Lasting lasting = Lasting::Yes);
  /// Finishes and renames. A network file system may report a rename that it did as failed; that is no error.
  void commit(Lasting lasting = Lasting::Yes);

private:
  [[noreturn]] void fail(int code) const;
  bool hasItsName() const;
  std::string path, temporary;
  int fd = -1;
  off_t offset = 0;
  dev_t device{};
  ino_t inode{};
};

/// Syncs a folder, so that renames in it are durable. Throws environmentError if that fails; a file system that does
/// not support it, or a folder that may not be listed, is no error.
void syncFolder(const std::string &folder);

/// Creates a folder and its parents, and syncs them. Throws userError: "WHAT FOLDER: cannot be made: ...".
void makeFolders(const std::string &folder, const std::string &what);

} // namespace cleave
