// Reads, writes and removes the files of a code cache.
#include "passes/codegen/CodeCache.h"
#include "runtime/base/AtomicFile.h"
#include "runtime/base/CacheFile.h"
#include "runtime/base/Sha256.h"

#include <algorithm>
#include <exception>
#include <fcntl.h>
#include <filesystem>
#include <sys/stat.h>

namespace cleave::passes {
namespace fs = std::filesystem;

namespace {

constexpr unsigned folders = 64;
constexpr std::chrono::hours lazy{1}; ///< a file that was used less long ago is not marked again

std::array<uint8_t, 32> sealOf(const CodeCache::Key &key, std::span<const char> code) {
  Sha256 hash;
  hash.update(key);
  hash.update({reinterpret_cast<const uint8_t *>(code.data()), code.size()});
  return hash.finish();
}

uint64_t rounded(uint64_t bytes) { return (bytes + 4095) / 4096 * 4096; }

} // namespace

uint64_t CodeCache::share() const { return most / folders; }

std::string CodeCache::folderOf(const Key &key) const {
  const uint8_t number = key[0] % folders;
  return folder + "/" + toHex({&number, 1});
}

std::string CodeCache::fileOf(const Key &key) const { return folderOf(key) + "/" + toHex(key); }

std::optional<std::vector<char>> CodeCache::find(const Key &key) const {
  if (folder.empty())
    return std::nullopt;
  const std::string path = fileOf(key);
  const OwnFile file = readOwnFile(path, share());
  const std::span<const char> bytes = file.content;
  constexpr size_t sealed = sizeof(Key);
  if (bytes.size() < sealed)
    return std::nullopt;
  const auto code = bytes.subspan(sealed);
  const auto seal = sealOf(key, code);
  if (!std::equal(seal.begin(), seal.end(), bytes.begin(), [](uint8_t a, char b) { return a == uint8_t(b); }))
    return std::nullopt;
  if (std::chrono::system_clock::now() - std::chrono::system_clock::from_time_t(file.written) > lazy) // mark as used
    ::utimensat(AT_FDCWD, path.c_str(), nullptr, AT_SYMLINK_NOFOLLOW);
  return std::vector<char>(code.begin(), code.end());
}

void CodeCache::put(const Key &key, std::span<const char> code) const {
  const auto seal = sealOf(key, code);
  if (folder.empty() || rounded(seal.size() + code.size()) > share())
    return;
  try {
    fs::create_directories(folderOf(key));
    AtomicFile file(fileOf(key));
    file.write(seal.data(), seal.size());
    file.write(code.data(), code.size());
    file.commit(AtomicFile::Lasting::No); // the seal shows what a crash of the machine leaves
    trim(folderOf(key));
  } catch (const std::exception &) { // the next compilation compiles again
  }
}

void CodeCache::trim(const std::string &full) const {
  struct Entry {
    fs::file_time_type used;
    uint64_t bytes;
    fs::path path;
  };
  std::vector<Entry> entries;
  uint64_t sum = 0;
  std::error_code error; // other processes remove files too
  for (fs::directory_iterator at(full, error), end; !error && at != end; at.increment(error)) {
    std::error_code gone;
    Entry entry{at->last_write_time(gone), rounded(at->file_size(gone)), at->path()};
    if (gone)
      continue;
    sum += entry.bytes;
    entries.push_back(std::move(entry));
  }
  if (sum <= share())
    return;
  std::sort(entries.begin(), entries.end(), [](const Entry &a, const Entry &b) { return a.used < b.used; });
  for (const Entry &entry : entries) { // an eighth more, so that not every new file looks for the oldest one
    if (sum <= share() / 8 * 7)
      break;
    fs::remove(entry.path, error);
    sum -= entry.bytes;
  }
}

} // namespace cleave::passes
