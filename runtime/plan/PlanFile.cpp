// Reads, seals and writes plan files.
//
// Header, 64 bytes, little endian: "CLEAVEPL", u32 version, u32 header size, u64 file size, the first 8 bytes of the
// SHA-256 of plan.fbs, SHA-256 of the file without this hash. So every bit of the file is protected.
#include "runtime/plan/PlanFile.h"

#include "runtime/base/AtomicFile.h"
#include "runtime/base/Error.h"
#include "runtime/base/InputFile.h"
#include "runtime/base/Sha256.h"
#include "runtime/plan/Fields.h"
#include "runtime/plan/plan_generated.h"

#include <fmt/format.h>

#include <array>
#include <cstring>

namespace cleave {

namespace {

constexpr char magic[8] = {'C', 'L', 'E', 'A', 'V', 'E', 'P', 'L'};
constexpr size_t headerBytes = 64, hashOffset = 32;

struct Header {
  char magic[8];
  uint32_t major, headerSize;
  uint64_t fileSize;
  uint32_t minor, zero;
  uint8_t hash[32];
};
static_assert(sizeof(Header) == headerBytes);

std::array<uint8_t, 32> contentHash(std::span<const uint8_t> file) {
  Sha256 hash;
  hash.update(file.first(hashOffset));
  hash.update(file.subspan(headerBytes));
  return hash.finish();
}

/// Why this program cannot read a plan of the header's version; "" if it can.
std::string versionProblem(const Header &header) {
  if (header.major != formatMajor)
    return fmt::format(
        "it is in plan format {}, this program reads format {}: compile the plan again with this version of "
        "Cleave",
        header.major, formatMajor);
  if (header.minor > formatMinor) // an unknown field may change the meaning of a step
    return fmt::format(
        "it is in plan format {}.{}, this program reads formats {}.0 to {}.{}: compile the plan again with "
        "this version of Cleave, or run it with one that is as new as the plan's",
        header.major, header.minor, formatMajor, formatMajor, formatMinor);
  return "";
}

/// Whether the numbers of lists are aligned, which flatbuffers' verifier does not check.
class Alignment : public check::FieldVisitor {
public:
  bool list(const check::FieldWalk &, const check::FieldType &field, const uint8_t *data, uint32_t) override {
    good = good && (!field.isNumber() || reinterpret_cast<uintptr_t>(data) % field.elementBytes == 0);
    return field.object && !field.object->isStruct;
  }
  bool good = true;
};

bool wellAligned(const plan::Plan &plan) {
  Alignment alignment;
  check::FieldWalk(plan, alignment).run();
  return alignment.good;
}

} // namespace

std::vector<uint8_t> sealPlan(std::span<const uint8_t> flatbuffer) {
  std::vector<uint8_t> file(headerBytes + flatbuffer.size());
  Header header{};
  std::memcpy(header.magic, magic, sizeof magic);
  header.major = formatMajor;
  header.minor = formatMinor;
  header.headerSize = headerBytes;
  header.fileSize = file.size();
  std::memcpy(file.data(), &header, sizeof header);
  if (!flatbuffer.empty())
    std::memcpy(file.data() + headerBytes, flatbuffer.data(), flatbuffer.size());
  auto hash = contentHash(file);
  std::memcpy(file.data() + hashOffset, hash.data(), hash.size());
  return file;
}

std::vector<uint8_t> packPlan(const plan::PlanT &plan) {
  flatbuffers::FlatBufferBuilder flat;
  plan::FinishPlanBuffer(flat, plan::Plan::Pack(flat, &plan));
  return sealPlan(std::span<const uint8_t>(flat.GetBufferPointer(), flat.GetSize()));
}

std::shared_ptr<const PlanFile> PlanFile::load(const std::string &path) {
  const InputFile file(path, Status::User);
  return withMemoryFor(path, file.size(), [&] {
    std::vector<uint8_t> bytes(file.size());
    file.read(bytes.data(), bytes.size(), 0);
    return fromBytes(std::move(bytes), path);
  });
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
  if (const std::string problem = versionProblem(header); !problem.empty())
    throw refuse(problem);
  if (header.headerSize != headerBytes)
    throw refuse(fmt::format("header size must be {}, found {}", headerBytes, header.headerSize));
  if (header.fileSize != bytes.size())
    throw refuse(fmt::format("the header says {} bytes, the file has {}", header.fileSize, bytes.size()));
  auto hash = contentHash(bytes);
  if (std::memcmp(hash.data(), header.hash, sizeof header.hash) != 0)
    throw refuse(fmt::format("the file was modified: its content has hash {}, its header says {}",
                             toHex(hash).substr(0, 16), toHex(header.hash).substr(0, 16)));
  flatbuffers::Verifier verifier(bytes.data() + headerBytes, bytes.size() - headerBytes, 64, 100'000'000);
  if (!plan::VerifyPlanBuffer(verifier) || !wellAligned(*plan::GetPlan(bytes.data() + headerBytes)))
    throw refuse("its structure does not follow the plan schema");
  std::shared_ptr<PlanFile> file(new PlanFile);
  file->data = std::move(bytes);
  file->fileName = name;
  file->root = plan::GetPlan(file->data.data() + headerBytes);
  return file;
}

std::string PlanFile::hash() const { return toHex(std::span(data).subspan(hashOffset, 32)); }

void writePlan(const std::string &path, std::span<const uint8_t> bytes) {
  AtomicFile file(path);
  file.write(bytes.data(), bytes.size());
  file.commit();
  const size_t slash = path.rfind('/');
  syncFolder(slash == std::string::npos ? "." : path.substr(0, slash + 1));
}

} // namespace cleave
