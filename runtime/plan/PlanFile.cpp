// Reading, sealing and writing plan files.
//
// Header, 64 bytes, little endian: "CLEAVEPL", u32 version, u32 header size, u64 file size, 8 zero bytes, SHA-256 of
// the file with the hash itself left out. So every bit of the file is bound: by the hash, or by being the hash.
#include "runtime/plan/PlanFile.h"

#include "runtime/base/Error.h"
#include "runtime/base/Sha256.h"
#include "runtime/plan/plan_generated.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace cleave {

namespace {

constexpr char magic[8] = {'C', 'L', 'E', 'A', 'V', 'E', 'P', 'L'};
constexpr uint32_t formatVersion = 1;
constexpr size_t headerBytes = 64, hashOffset = 32;

struct Header {
  char magic[8];
  uint32_t version, headerSize;
  uint64_t fileSize, reserved;
  uint8_t hash[32];
};
static_assert(sizeof(Header) == headerBytes);

std::array<uint8_t, 32> contentHash(std::span<const uint8_t> file) {
  Sha256 hash;
  hash.update(file.first(hashOffset));
  hash.update(file.subspan(headerBytes));
  return hash.finish();
}

/// A file descriptor that is closed at the end.
struct Descriptor {
  int value;
  ~Descriptor() {
    if (value >= 0)
      ::close(value);
  }
};

std::string systemText(int error) { return std::strerror(error); }

/// What a failed write means: no room is the environment's fault, anything else the user's path.
Error writeError(const std::string &path, int error) {
  std::string text = fmt::format("cannot write plan '{}': {}", path, systemText(error));
  bool environment = error == ENOSPC || error == EDQUOT || error == EIO || error == EFBIG;
  return environment ? environmentError(text) : userError(text);
}

void writeAll(int file, std::span<const uint8_t> bytes) {
  while (!bytes.empty()) {
    ssize_t wrote = ::write(file, bytes.data(), bytes.size());
    if (wrote < 0 && errno == EINTR)
      continue;
    if (wrote < 0)
      throw errno;
    bytes = bytes.subspan(static_cast<size_t>(wrote));
  }
}

} // namespace

std::vector<uint8_t> sealPlan(std::span<const uint8_t> flatbuffer) {
  std::vector<uint8_t> file(headerBytes + flatbuffer.size());
  Header header{};
  std::memcpy(header.magic, magic, sizeof magic);
  header.version = formatVersion;
  header.headerSize = headerBytes;
  header.fileSize = file.size();
  std::memcpy(file.data(), &header, sizeof header);
  if (!flatbuffer.empty())
    std::memcpy(file.data() + headerBytes, flatbuffer.data(), flatbuffer.size());
  auto hash = contentHash(file);
  std::memcpy(file.data() + hashOffset, hash.data(), hash.size());
  return file;
}

std::shared_ptr<const PlanFile> PlanFile::load(const std::string &path) {
  Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  if (file.value < 0)
    throw userError(fmt::format("cannot open plan '{}': {}", path, systemText(errno)));
  struct stat info {};
  if (::fstat(file.value, &info) != 0)
    throw userError(fmt::format("cannot read plan '{}': {}", path, systemText(errno)));
  if (S_ISDIR(info.st_mode))
    throw userError(fmt::format("cannot read plan '{}': {}", path, systemText(EISDIR)));
  std::vector<uint8_t> bytes;
  bytes.reserve(static_cast<size_t>(info.st_size));
  uint8_t block[1 << 16];
  for (;;) {
    ssize_t got = ::read(file.value, block, sizeof block);
    if (got < 0 && errno == EINTR)
      continue;
    if (got < 0)
      throw userError(fmt::format("cannot read plan '{}': {}", path, systemText(errno)));
    if (got == 0)
      break;
    bytes.insert(bytes.end(), block, block + got);
  }
  return fromBytes(std::move(bytes), path);
}

std::shared_ptr<const PlanFile> PlanFile::fromBytes(std::vector<uint8_t> bytes, const std::string &name) {
  auto refuse = [&](const std::string &what) { return environmentError(fmt::format("plan '{}': {}", name, what)); };
  if (bytes.size() < headerBytes)
    throw refuse(fmt::format("a plan begins with a header of {} bytes, the file has {}", headerBytes, bytes.size()));
  Header header;
  std::memcpy(&header, bytes.data(), sizeof header);
  if (std::memcmp(header.magic, magic, sizeof magic) != 0)
    throw refuse(
        fmt::format("not a plan: the file begins with {}, not with \"CLEAVEPL\"", toHex({bytes.data(), sizeof magic})));
  if (header.version != formatVersion)
    throw refuse(fmt::format("format version must be {}, found {}", formatVersion, header.version));
  if (header.headerSize != headerBytes || header.reserved != 0)
    throw refuse(fmt::format("header size must be {}, found {}", headerBytes, header.headerSize));
  if (header.fileSize != bytes.size())
    throw refuse(fmt::format("the header says {} bytes, the file has {}", header.fileSize, bytes.size()));
  auto hash = contentHash(bytes);
  if (std::memcmp(hash.data(), header.hash, sizeof header.hash) != 0)
    throw refuse(fmt::format("the file was altered: its content has hash {}, its header says {}",
                             toHex(hash).substr(0, 16), toHex(header.hash).substr(0, 16)));
  flatbuffers::Verifier verifier(bytes.data() + headerBytes, bytes.size() - headerBytes, 64, 100'000'000);
  if (!plan::VerifyPlanBuffer(verifier))
    throw refuse("its structure does not follow the plan schema");
  std::shared_ptr<PlanFile> file(new PlanFile);
  file->data = std::move(bytes);
  file->fileName = name;
  file->root = plan::GetPlan(file->data.data() + headerBytes);
  return file;
}

std::string PlanFile::hash() const { return toHex(std::span(data).subspan(hashOffset, 32)); }

void writePlan(const std::string &path, std::span<const uint8_t> bytes) {
  std::string temporary = fmt::format("{}.{}.tmp", path, ::getpid());
  int created = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (created < 0)
    throw writeError(path, errno);
  try {
    Descriptor file{created};
    writeAll(file.value, bytes);
    if (::fsync(file.value) != 0)
      throw errno;
    if (::rename(temporary.c_str(), path.c_str()) != 0)
      throw errno;
  } catch (int error) {
    ::unlink(temporary.c_str());
    throw writeError(path, error);
  }
  size_t slash = path.rfind('/');
  std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  Descriptor parent{::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
  if (parent.value >= 0)
    ::fsync(parent.value); // the rename itself; a folder that cannot be synced is no failure
}

} // namespace cleave
