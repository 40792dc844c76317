// Plan files: an incomplete or altered file is rejected.
#include "runtime/base/Error.h"
#include "runtime/base/Sha256.h"
#include "tests/support/PlanBuilder.h"

#include <catch2/catch.hpp>

#include <csignal>
#include <cstring>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <sys/resource.h>
#include <unistd.h>

using namespace cleave;
using namespace cleave::test;
using Catch::Matchers::Contains;

namespace {

PlanT tiny() {
  PlanT plan = makePlan(1);
  ProgramWriter builder;
  uint32_t x = builder.slot("x", plan::DType::F32, {4}, Space::Persistent);
  uint32_t s = builder.segment();
  builder.fill(s, x, 1);
  builder.action(s);
  plan.programs.push_back(builder.finish());
  plan.model = "tiny";
  return plan;
}

Status statusOf(const std::function<void()> &fn) {
  try {
    fn();
    return Status::Success;
  } catch (const Error &error) {
    return error.status;
  }
}

} // namespace

TEST_CASE("plan file: comes back as written, under its name only") {
  auto path = std::filesystem::temp_directory_path() / ("cleave-plan-" + std::to_string(::getpid()));
  auto bytes = sealPlan(flatbuffer(tiny()));
  writePlan(path, bytes);
  auto file = PlanFile::load(path);
  CHECK(file->plan().model()->str() == "tiny");
  CHECK(file->hash().size() == 64);
  CHECK(std::equal(bytes.begin(), bytes.end(), file->bytes().begin(), file->bytes().end()));
  for (const auto &entry : std::filesystem::directory_iterator(path.parent_path()))
    CHECK(entry.path().string().find(path.filename().string() + ".") == std::string::npos);
  std::filesystem::remove(path);
}

TEST_CASE("plan file: equal plans have equal hashes, others not") {
  PlanT other = tiny();
  other.seed = 1;
  CHECK(seal(tiny())->hash() == seal(tiny())->hash());
  CHECK(seal(tiny())->hash() != seal(other)->hash());
}

TEST_CASE("plan file: every flipped bit is refused") {
  auto bytes = sealPlan(flatbuffer(tiny()));
  for (size_t i = 0; i < bytes.size(); ++i)
    for (int bit = 0; bit < 8; ++bit) {
      auto altered = bytes;
      altered[i] ^= static_cast<uint8_t>(1 << bit);
      REQUIRE(statusOf([&] { PlanFile::fromBytes(altered, "altered"); }) == Status::Environment);
    }
}

namespace {

/// The error for a plan with this version in its header and a correct hash.
std::string saidOfVersion(uint32_t major, uint32_t minor) {
  auto bytes = sealPlan(flatbuffer(tiny()));
  std::memcpy(bytes.data() + 8, &major, sizeof major);
  std::memcpy(bytes.data() + 24, &minor, sizeof minor);
  Sha256 hash;
  hash.update(std::span(bytes).first(32));
  hash.update(std::span(bytes).subspan(64));
  const auto digest = hash.finish();
  std::memcpy(bytes.data() + 32, digest.data(), digest.size());
  try {
    PlanFile::fromBytes(bytes, "some");
  } catch (const Error &error) {
    CHECK(error.status == Status::Environment);
    return error.what();
  }
  return "";
}

} // namespace

TEST_CASE("plan file: another version is refused, saying which is read and what to do") {
  for (uint32_t minor = 0; minor <= formatMinor; ++minor)
    CHECK(saidOfVersion(formatMajor, minor) == "");
  for (const std::string &said : {saidOfVersion(formatMajor - 1, formatMinor), saidOfVersion(formatMajor + 1, 0),
                                  saidOfVersion(formatMajor, formatMinor + 1)}) {
    CHECK_THAT(said, Contains("plan 'some'"));
    CHECK_THAT(said, Contains("this program reads"));
    CHECK_THAT(said, Contains("compile the plan again"));
  }
  CHECK_THAT(saidOfVersion(formatMajor - 1, 0), Contains(fmt::format("format {},", formatMajor - 1)));
  CHECK_THAT(saidOfVersion(formatMajor, formatMinor + 1),
             Contains(fmt::format("format {}.{},", formatMajor, formatMinor + 1)));
}

TEST_CASE("plan file: every truncation and extension is refused") {
  auto bytes = sealPlan(flatbuffer(tiny()));
  for (size_t size = 0; size < bytes.size(); ++size)
    REQUIRE(statusOf([&] {
              PlanFile::fromBytes({bytes.begin(), bytes.begin() + static_cast<long>(size)}, "torn");
            }) == Status::Environment);
  bytes.push_back(0);
  CHECK(statusOf([&] { PlanFile::fromBytes(bytes, "longer"); }) == Status::Environment);
}

TEST_CASE("plan file: a vector of 8-byte numbers that is not aligned is refused") {
  int refused = 0;
  for (bool shifted : {false, true}) { // in one of the two cases the vector is four bytes off
    flatbuffers::FlatBufferBuilder builder;
    builder.CreateVector(std::vector<uint32_t>(64));
    auto words = builder.CreateVector(std::vector<uint32_t>{1, 0});
    if (shifted) // FlatBuffers places later objects in front
      builder.CreateVector(std::vector<uint32_t>());
    TensorBuilder tensor(builder);
    tensor.add_shape(flatbuffers::Offset<flatbuffers::Vector<int64_t>>(words.o));
    auto tensors = builder.CreateVector(std::vector{tensor.Finish()});
    PlanBuilder plan(builder);
    plan.add_tensors(tensors);
    FinishPlanBuffer(builder, plan.Finish());
    std::vector<uint8_t> bytes(builder.GetBufferPointer(), builder.GetBufferPointer() + builder.GetSize());
    refused += statusOf([&] { PlanFile::fromBytes(sealPlan(bytes), "shifted"); }) == Status::Environment;
  }
  CHECK(refused == 1);
}

TEST_CASE("plan file: a seal over nonsense is refused") {
  std::vector<uint8_t> nonsense(200, 0xab);
  CHECK(statusOf([&] { PlanFile::fromBytes(sealPlan(nonsense), "nonsense"); }) == Status::Environment);
  CHECK(statusOf([&] { PlanFile::fromBytes(sealPlan({}), "empty"); }) == Status::Environment);
}

TEST_CASE("plan file: a missing file is the user's mistake and is named") {
  try {
    PlanFile::load("/nonexistent/a.plan");
    FAIL("loaded a missing file");
  } catch (const Error &error) {
    CHECK(error.status == Status::User);
    CHECK(std::string(error.what()).find("/nonexistent/a.plan") != std::string::npos);
  }
  CHECK(statusOf([] { PlanFile::load("/"); }) == Status::User);
  CHECK(statusOf([] { writePlan("/nonexistent/folder/a.plan", {}); }) == Status::User);
}

TEST_CASE("plan file: a full disk is the environment's fault and leaves nothing") {
  const std::string folder = std::filesystem::temp_directory_path() / ("cleave-full-" + std::to_string(::getpid()));
  std::filesystem::create_directory(folder);
  const auto bytes = sealPlan(flatbuffer(tiny()));
  rlimit before{};
  ::getrlimit(RLIMIT_FSIZE, &before);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{16, before.rlim_max};
  ::setrlimit(RLIMIT_FSIZE, &small);
  const Status status = statusOf([&] { writePlan(folder + "/a.plan", bytes); });
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  CHECK(status == Status::Environment);
  CHECK(std::filesystem::is_empty(folder));
  std::filesystem::remove_all(folder);
}

TEST_CASE("plan file: a device is not replaced") {
  CHECK(statusOf([] { writePlan("/dev/null", {}); }) == Status::User);
  CHECK(std::filesystem::is_character_file("/dev/null"));
}
