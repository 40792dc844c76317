// Compiled kernels of earlier compilations, by content, in a folder that processes may share. No LLVM.
//
// A file is one kernel's object code. Its name is the hash of everything that decides the code, so it never becomes
// outdated. Its first 32 bytes are the hash of the name and the code: a file that is torn, damaged or renamed is as
// none. A file appears complete, by a rename. Nothing here is an error: what cannot be read is compiled, and what
// cannot be written is compiled again the next time.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace cleave::passes {

class CodeCache {
public:
  using Key = std::array<uint8_t, 32>;

  /// `folder` empty: nothing is found or kept. `most`: bytes of all files, each rounded up to 4 KiB. The files are
  /// spread over 64 folders by their key, and each folder has its share: the files that were not used for the longest
  /// time are removed from a full one.
  explicit CodeCache(std::string folder, uint64_t most = uint64_t{256} << 20) : folder(std::move(folder)), most(most) {}

  /// The code that was put under this key, by any process of this user.
  std::optional<std::vector<char>> find(const Key &key) const;
  void put(const Key &key, std::span<const char> code) const;

private:
  uint64_t share() const;
  std::string folderOf(const Key &key) const;
  std::string fileOf(const Key &key) const;
  void trim(const std::string &full) const;

  std::string folder;
  uint64_t most;
};

} // namespace cleave::passes
