// Reads, writes and removes the files of a code cache.
#include "passes/codegen/CodeCache.h"
#include "runtime/base/AtomicFile.h"
#include "runtime/base/Sha256.h"

#include <algorithm>
#include <exception>
#include <fcntl.h>
#include <filesystem>
#include <sys/stat.h>
#include <unistd.h>

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

/// The bytes of a file of this user; empty if there is none, or one with more than `most` bytes. Marks it as used.
std::vector<char> readOwn(const std::string &path, uint64_t most) {
  std::vector<char> bytes;
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0)
    return bytes;
  struct stat info {};
  if (::fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && info.st_uid == ::geteuid() &&
      uint64_t(info.st_size) <= most) {
    bytes.resize(size_t(info.st_size));
    size_t done = 0;
    for (ssize_t got; done < bytes.size() && (got = ::read(fd, bytes.data() + done, bytes.size() - done)) > 0;)
      done += size_t(got);
    bytes.resize(done);
    if (const auto used = std::chrono::system_clock::from_time_t(info.st_mtim.tv_sec);
        std::chrono::system_clock::now() - used > lazy)
      ::futimens(fd, nullptr);
  }
  ::close(fd);
  return bytes;
}

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
  std::vector<char> bytes = readOwn(fileOf(key), share());
  constexpr size_t sealed = sizeof(Key);
  if (bytes.size() < sealed)
    return std::nullopt;
  const auto seal = sealOf(key, std::span(bytes).subspan(sealed));
  if (!std::equal(seal.begin(), seal.end(), bytes.begin(), [](uint8_t a, char b) { return a == uint8_t(b); }))
    return std::nullopt;
  bytes.erase(bytes.begin(), bytes.begin() + sealed);
  return bytes;
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
