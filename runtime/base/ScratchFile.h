// Bytes as a file, for libraries that take only a path (dlopen, the linker).
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace cleave {

/// Folders for files of a moment, most suitable first: TMPDIR, /dev/shm, /tmp.
std::vector<std::string> scratchFolders();

/// A file that exists as long as this object: in memory, reached through /proc, or in one of scratchFolders() if that
/// is not possible. All its bytes have been written before it is used, so a full disk is an error and not a signal
/// later.
class ScratchFile {
public:
  /// Says why the file at a path is of no use; empty if it is.
  using Use = std::function<std::string(const std::string &path)>;
  /// `what`: the beginning of the error message, such as "the object cannot be stored". `use` is called with one path
  /// after another until one succeeds (a folder may forbid code, for example). Throws environmentError that names every
  /// place and why it failed.
  ScratchFile(const std::string &what, std::span<const uint8_t> bytes, const Use &use = {});
  ScratchFile(ScratchFile &&other) noexcept;
  ScratchFile(const ScratchFile &) = delete;
  ~ScratchFile();
  const std::string &path() const { return place; }

private:
  std::string inMemory(std::span<const uint8_t> bytes);
  std::string inFolder(const std::string &folder, std::span<const uint8_t> bytes);
  std::string write(std::span<const uint8_t> bytes);
  void remove();

  std::string place;
  bool named = false; ///< `place` must be unlinked
  int fd = -1;        ///< open as long as this object, so that a file in memory keeps its path
};

} // namespace cleave
