// Checkpoints: round trips between meshes, which files are written when, and the errors of corrupt ones.
#include "runtime/checkpoint/Checkpoint.h"
#include "runtime/base/AtomicFile.h"
#include "runtime/base/Error.h"
#include "runtime/checkpoint/CopyBox.h"
#include "runtime/checkpoint/Leftovers.h"
#include "runtime/checkpoint/Plan.h"
#include "runtime/checkpoint/Safetensors.h"
#include "runtime/comm/LocalWorld.h"
#include "tests/unit/runtime/session/TestPlans.h"

#include <catch2/catch.hpp>
#include <csignal>
#include <cstring>
#include <fmt/format.h>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace cleave;
using namespace cleave::plan;
using Catch::Matchers::Contains;
namespace fs = std::filesystem;

namespace {

struct Sharded {
  std::string name;
  TensorKind kind;
  std::vector<int64_t> shape;
  std::vector<std::vector<test::FactorSpec>> dims;
};

/// A plan of ranks that only hold tensors, split as given over the axes dp (0) and tp (1).
std::shared_ptr<const PlanFile> holderPlan(unsigned dp, unsigned tp, const std::vector<Sharded> &tensors) {
  PlanT plan = test::linearPlan({.dp = dp, .tp = tp, .batch = 12, .microbatches = 1, .rows = 12});
  plan.tensors.clear();
  for (const Sharded &spec : tensors) {
    auto tensor = std::make_unique<TensorT>();
    tensor->name = spec.name;
    tensor->kind = spec.kind;
    tensor->trainable = spec.kind == TensorKind::Parameter;
    tensor->shape = spec.shape;
    plan.tensors.push_back(std::move(tensor));
  }
  const std::vector<uint32_t> mesh{dp, tp, 1};
  for (unsigned rank = 0; rank < dp * tp; ++rank) {
    ProgramT &program = *plan.programs[rank];
    program = ProgramT{};
    uint64_t at = 0;
    for (size_t i = 0; i < tensors.size(); ++i) {
      auto slot = std::make_unique<SlotT>();
      slot->tensor = int(i);
      slot->sharding = test::sharding(tensors[i].dims);
      flatbuffers::FlatBufferBuilder builder;
      builder.Finish(Sharding::Pack(builder, slot->sharding.get()));
      slot->shape = localShape(flatbuffers::GetRoot<Sharding>(builder.GetBufferPointer()), tensors[i].shape, mesh,
                               plan.ranks[rank]->coords);
      slot->bytes = 4;
      for (int64_t size : slot->shape)
        slot->bytes *= uint64_t(size);
      slot->offset = at;
      at += (slot->bytes + 63) / 64 * 64;
      program.slots.push_back(std::move(slot));
    }
    program.arena_bytes = at;
  }
  return test::seal(plan);
}

/// The memory of every rank's slots.
struct Memories {
  Memories(const PlanFile &file) {
    for (const Rank *rank : *file.plan().ranks()) {
      ranks.emplace_back();
      for (const Slot *slot : *file.plan().programs()->Get(rank->program())->slots())
        ranks.back().emplace_back(slot->bytes(), std::byte{0});
    }
  }
  SlotMemory of(unsigned rank) {
    return [this, rank](unsigned slot) { return std::span<std::byte>(ranks[rank][slot]); };
  }
  std::vector<std::vector<std::vector<std::byte>>> ranks;
};

/// Calls fn(element of the local slot, global linear index, tensor).
template <typename Fn> void eachElement(const Plan &plan, unsigned rank, Memories &memory, Fn fn) {
  for (uint32_t slot : savedSlots(plan, rank)) {
    const auto tensor = uint32_t(programOf(plan, rank).slots()->Get(slot)->tensor());
    const auto global = tensorShape(*plan.tensors()->Get(tensor)), local = slotShape(plan, rank, slot);
    auto *data = reinterpret_cast<float *>(memory.ranks[rank][slot].data());
    for (const Box &box : slotBoxes(plan, rank, slot)) {
      int64_t count = 1;
      for (int64_t size : box.size)
        count *= size;
      for (int64_t i = 0; i < count; ++i) {
        int64_t rest = i, g = 0, l = 0, gs = 1, ls = 1;
        for (size_t d = global.size(); d-- > 0;) {
          const int64_t x = rest % box.size[d];
          rest /= box.size[d];
          g += (box.globalStart[d] + x) * gs;
          l += (box.localStart[d] + x) * ls;
          gs *= global[d];
          ls *= local[d];
        }
        fn(data[l], g, tensor);
      }
    }
  }
}

float expected(int64_t index, uint32_t tensor) { return float(tensor * 10000 + index); }

void fillAll(const Plan &plan, Memories &memory) {
  for (unsigned rank = 0; rank < memory.ranks.size(); ++rank)
    eachElement(plan, rank, memory, [](float &x, int64_t g, uint32_t t) { x = expected(g, t); });
}

/// Saves a checkpoint; each rank has its own path of the folder.
void saveTo(const std::shared_ptr<const PlanFile> &file, Memories &memory, const std::vector<CheckpointFolder> &folders,
            const CheckpointInfo &info) {
  LocalWorld world(unsigned(memory.ranks.size()));
  runRanks(world, [&](unsigned rank) {
    CheckpointWriter writer(file, rank, world[rank], folders[std::min<size_t>(rank, folders.size() - 1)]);
    writer.save(info, memory.of(rank));
    writer.close();
  });
}

/// Saves a checkpoint of a run that resumes from the one in the folder.
void saveAll(const std::shared_ptr<const PlanFile> &file, Memories &memory, const std::string &folder,
             const CheckpointInfo &info, int64_t keep = 2) {
  saveTo(file, memory, {{folder, keep, false, true}}, info);
}

std::set<std::string> namesIn(const std::string &folder) {
  std::set<std::string> names;
  for (const auto &entry : fs::directory_iterator(folder))
    names.insert(entry.path().filename().string());
  return names;
}

void writeText(const std::string &path, const std::string &text) { std::ofstream(path) << text; }

std::string readAll(const std::string &path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// tp splits three dimensions: rows, heads inside a fused dimension, columns. ZeRO splits over dp+tp.
std::vector<Sharded> tensorsSplit() {
  return {{"blocks.0.weight", TensorKind::Parameter, {12, 5}, {{{12, {1}}}, {{5, {}}}}},
          {"blocks.0.qkv", TensorKind::Parameter, {24, 3}, {{{3, {}}, {4, {1}}, {2, {}}}, {{3, {}}}}},
          {"blocks.0.out", TensorKind::Parameter, {4, 10}, {{{4, {}}}, {{10, {1}}}}},
          {"blocks.0.weight.momentum", TensorKind::State, {12, 5}, {{{12, {0, 1}}}, {{5, {}}}}},
          {"norm.mean", TensorKind::Buffer, {7}, {{{7, {}}}}},
          {"step", TensorKind::State, {}, {}}};
}
std::vector<Sharded> tensorsWhole() {
  auto tensors = tensorsSplit();
  for (Sharded &tensor : tensors)
    for (auto &dim : tensor.dims)
      for (auto &factor : dim)
        factor.axes.clear();
  return tensors;
}
CheckpointInfo someInfo(int64_t step = 10) {
  return {step, 2, 48, 7, 16, 4, 8, "mlp", R"({"width":8})", R"({"lr":{"base":0.1}})", R"({"kind":"mnist"})", "abc"};
}

} // namespace

TEST_CASE("checkpoints load into any mesh", "[checkpoint]") {
  struct Mesh {
    unsigned dp, tp;
  };
  const Mesh from = GENERATE(Mesh{1, 1}, Mesh{2, 2}, Mesh{1, 3}, Mesh{5, 1}),
             to = GENERATE(Mesh{1, 1}, Mesh{1, 2}, Mesh{3, 4});
  test::TemporaryFolder folder;
  const auto a = holderPlan(from.dp, from.tp, tensorsSplit());
  Memories written(*a);
  fillAll(a->plan(), written);
  saveAll(a, written, folder.path("ck"), someInfo());

  const auto b = holderPlan(to.dp, to.tp, to.dp == 1 ? tensorsWhole() : tensorsSplit());
  Memories read(*b);
  const Manifest manifest = readManifest(folder.path("ck"));
  CHECK(manifest.info.step == 10);
  CHECK(manifest.info.position == 48);
  CHECK(manifest.info.options == R"({"width":8})");
  CHECK(manifest.find("blocks.0.qkv")->shape == std::vector<int64_t>{24, 3});
  for (unsigned rank = 0; rank < to.dp * to.tp; ++rank) {
    loadCheckpoint(folder.path("ck"), manifest, b->plan(), rank, LoadWhat::Everything, read.of(rank));
    int wrong = 0;
    eachElement(b->plan(), rank, read, [&](float &x, int64_t g, uint32_t t) { wrong += x != expected(g, t); });
    CHECK(wrong == 0);
  }
}

TEST_CASE("each piece is written once and the oldest checkpoints go", "[checkpoint]") {
  test::TemporaryFolder folder;
  const auto file = holderPlan(2, 2, tensorsSplit());
  Memories memory(*file);
  fillAll(file->plan(), memory);
  const int64_t keep = GENERATE(1, 2, 3);
  for (const int64_t step : {5, 10, 10, 20}) // step 10 twice
    saveAll(file, memory, folder.path(), someInfo(step), keep);
  const Manifest last = readManifest(folder.path());
  CHECK(last.generation == 4);
  CHECK(last.earlier.size() == size_t(keep - 1));
  std::set<std::string> expected{"manifest.json", last.ownFile()};
  for (const KeptCheckpoint &kept : last.earlier)
    expected.insert(kept.manifest);
  std::map<std::string, int64_t> elements;
  for (const std::string &name : namesIn(folder.path())) {
    if (fs::path(name).extension() != ".safetensors") {
      CHECK(expected.contains(name));
      continue;
    }
    const SafetensorsFile written(folder.path(name));
    for (const auto &[key, tensor] : written.entries())
      elements[key.substr(0, key.find('['))] += int64_t(tensor.end - tensor.begin) / 4;
  }
  CHECK(last.files.size() == 4); // the last two ranks hold parts of the momentum
  CHECK(elements["blocks.0.weight"] == 60 * keep);
  CHECK(elements["blocks.0.qkv"] == 72 * keep);
  CHECK(elements["norm.mean"] == 7 * keep);
  CHECK(elements["step"] == keep);
  if (keep == 3) {
    CHECK(readManifest(folder.path(), 10).info.step == 10);
    CHECK_THROWS_WITH(readManifest(folder.path(), 5), Contains("20, 10, 10") && Contains("not of 5"));
    Memories into(*file);
    loadCheckpoint(folder.path(), readManifest(folder.path(), 10), file->plan(), 0, LoadWhat::Everything, into.of(0));
  }
}

TEST_CASE("a training that is not asked to replaces no checkpoint", "[checkpoint]") {
  test::TemporaryFolder folder;
  const auto file = holderPlan(1, 1, tensorsSplit());
  Memories memory(*file);
  saveTo(file, memory, {{folder.path()}}, someInfo(10));
  CHECK_THROWS_WITH(saveTo(file, memory, {{folder.path()}}, someInfo(2)),
                    Contains("--resume") && Contains("--overwrite") && Contains("step 10"));
  CHECK(readManifest(folder.path()).info.step == 10);
  saveTo(file, memory, {{folder.path(), 2, true, false}}, someInfo(2));
  CHECK(readManifest(folder.path()).info.step == 2);
  CHECK(readManifest(folder.path(), 10).info.step == 10); // step 10 stays while `keep` allows it
  writeText(folder.path("manifest.json"), "{");
  CHECK_THROWS_WITH(saveTo(file, memory, {{folder.path()}}, someInfo(2)),
                    Contains("truncated") && Contains("--overwrite"));
  CHECK_NOTHROW(saveTo(file, memory, {{folder.path(), 2, true, false}}, someInfo(3)));
}

TEST_CASE("files that no manifest lists stay", "[checkpoint]") {
  test::TemporaryFolder folder;
  const auto file = holderPlan(1, 2, tensorsSplit());
  Memories memory(*file);
  const std::vector<std::string> others{"step-precious.safetensors", "step-00000010.rank-0000.safetensors", "notes.txt",
                                        ".step-1.tmp-0123456789abcdef"};
  for (const std::string &name : others)
    writeText(folder.path(name), "mine");
  for (int64_t step = 10; step < 15; ++step)
    saveAll(file, memory, folder.path(), someInfo(step), 1);
  for (const std::string &name : others)
    CHECK(readAll(folder.path(name)) == "mine");
  CHECK(namesIn(folder.path()).size() == others.size() + 4);
}

TEST_CASE("a manifest that lies about older checkpoints removes nothing but what they list", "[checkpoint]") {
  test::TemporaryFolder folder;
  const auto file = holderPlan(1, 1, tensorsSplit());
  Memories memory(*file);
  saveAll(file, memory, folder.path(), someInfo(10));
  Manifest manifest = readManifest(folder.path());
  manifest.earlier = {{"step-x.manifest.json", 3}, {"step-../notes.manifest.json", 2}};
  CHECK_THROWS_WITH(parseManifest(printManifest(manifest), "m"), Contains("step-../notes"));
  manifest.earlier.pop_back();
  writeText(folder.path("manifest.json"), printManifest(manifest));
  writeText(folder.path("step-x.manifest.json"), R"({"files": {"step-mine.safetensors": {}}})");
  writeText(folder.path("step-mine.safetensors"), "mine");
  saveAll(file, memory, folder.path(), someInfo(20), 1);
  CHECK(readAll(folder.path("step-mine.safetensors")) == "mine");
  CHECK(fs::exists(folder.path("step-x.manifest.json"))); // unreadable, so its owner is unknown
}

TEST_CASE("two trainings do not write to one folder", "[checkpoint]") {
  test::TemporaryFolder folder;
  const auto file = holderPlan(1, 1, tensorsSplit());
  Memories memory(*file);
  LocalWorld world(1), other(1);
  CheckpointWriter first(file, 0, world[0], {folder.path()});
  CHECK_THROWS_WITH(CheckpointWriter(file, 0, other[0], {folder.path()}),
                    Contains(std::to_string(getpid())) && Contains("is training with this folder"));
  first.save(someInfo(10), memory.of(0));
  first.close();
  CHECK_FALSE(fs::exists(folder.path("lock.json")));
  CheckpointWriter(file, 0, other[0], {folder.path(), 2, false, true}); // ends without close()
  CHECK(fs::exists(folder.path("lock.json")));
  saveAll(file, memory, folder.path(), someInfo(20));
  CHECK(readManifest(folder.path()).info.step == 20);
  CHECK_FALSE(fs::exists(folder.path("lock.json")));
  writeText(folder.path("lock.json"), "notes");
  CHECK_THROWS_WITH(saveAll(file, memory, folder.path(), someInfo(30)), Contains("lock.json"));
  CHECK(readAll(folder.path("lock.json")) == "notes");
}

/// The owner of a checkpoint folder, in a separate process. It takes the folder and leaves half-written files, then
/// stops or ends. The test below starts this program again for it, because a process that was forked under a sanitizer
/// may not start threads.
TEST_CASE("a process that has a checkpoint folder", "[.][owner]") {
  const char *folder = std::getenv("CLEAVE_TEST_FOLDER");
  REQUIRE(folder);
  const auto file = holderPlan(1, 1, tensorsSplit());
  LocalWorld world(1);
  CheckpointWriter writer(file, 0, world[0], {folder, 2, false, true});
  const std::string run = lockedBy(folder);
  for (const std::string &name :
       {"step-00000011-" + run + "-9.rank-0000.safetensors",
        ".step-00000011-" + run + "-9.rank-0000.safetensors-" + run + ".tmp-0123456789abcdef"})
    writeText(folder + ("/" + name), "half");
  if (!std::getenv("CLEAVE_TEST_STOPS"))
    _exit(0); // like a kill: nothing is cleaned up
  raise(SIGSTOP);
  Memories memory(*file);
  try {
    writer.save(someInfo(12), memory.of(0));
  } catch (const Error &error) {
    _exit(std::string(error.what()).find("took over the folder") != std::string::npos ? 7 : 8);
  }
  _exit(9);
}

static pid_t ownerProcess(const std::string &folder, bool stops) {
  const std::string program = fs::read_symlink("/proc/self/exe");
  const pid_t child = fork();
  if (child != 0)
    return child;
  setenv("CLEAVE_TEST_FOLDER", folder.c_str(), 1);
  if (stops)
    setenv("CLEAVE_TEST_STOPS", "1", 1);
  execl(program.c_str(), program.c_str(), "[owner]", nullptr);
  _exit(10);
}

TEST_CASE("the lock of a process that was killed or stopped is taken over", "[checkpoint]") {
  test::TemporaryFolder folder;
  const auto file = holderPlan(1, 1, tensorsSplit());
  Memories memory(*file);
  saveAll(file, memory, folder.path(), someInfo(10));
  const auto before = namesIn(folder.path());
  const bool stops = GENERATE(false, true);
  const pid_t owner = ownerProcess(folder.path(), stops);
  int status = 0;
  waitpid(owner, &status, WUNTRACED);
  CHECK(namesIn(folder.path()).size() == before.size() + 3);
  saveAll(file, memory, folder.path(), someInfo(20));
  const auto after = namesIn(folder.path());
  CHECK(after.size() == before.size() + 2); // one more checkpoint, no leftovers, no lock
  if (!stops)
    return;
  kill(owner, SIGCONT);
  waitpid(owner, &status, 0);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 7); // the old owner may not write any more
  CHECK(namesIn(folder.path()) == after);
  CHECK(readManifest(folder.path()).info.step == 20);
}

TEST_CASE("names of a checkpoint folder's files", "[checkpoint]") {
  const std::string run = "0123456789abcdef", other = "fedcba9876543210", end = "-" + run + ".tmp-0011223344556677";
  const std::string piece = pieceFileName(10, run, 3, 2), own = manifestFileName(10, run, 3);
  CHECK(piece == "step-00000010-0123456789abcdef-3.rank-0002.safetensors");
  CHECK(own == "step-00000010-0123456789abcdef-3.manifest.json");
  for (const std::string &name : {piece, own, "." + piece + end, "." + own + end, ".manifest.json" + end,
                                  ".lock.json" + end, pieceFileName(1234567890, run, 1, 12345)})
    CHECK(runOfFile(name) == run);
  for (const std::string &name :
       {std::string("manifest.json"), std::string("lock.json"), std::string("notes.txt"), piece + "x", "x" + piece,
        piece.substr(0, 50), "." + piece, "." + piece + end + "0", ".notes.txt" + end, ".manifest.json" + end + ".bak",
        std::string("step-00000010.rank-0000.safetensors"), "step-10-" + run + "-3.rank-0002.safetensors"})
    CHECK(runOfFile(name).empty());
  CHECK(isUnfinishedLock(".lock.json" + end));
  CHECK_FALSE(isUnfinishedLock(".manifest.json" + end));
}

TEST_CASE("files of checkpoints that are superseded go, whoever wrote them", "[checkpoint]") {
  test::TemporaryFolder folder;
  const auto file = holderPlan(1, 2, tensorsSplit());
  Memories memory(*file);
  const auto save = [&](int64_t step) { saveAll(file, memory, folder.path("ck"), someInfo(step), 1); };
  const auto keepAside = [&](const std::string &to) {
    fs::copy(folder.path("ck"), folder.path(to));
    fs::remove(folder.path(to + "/manifest.json"));
  };
  save(10);
  const std::string first = readManifest(folder.path("ck")).run;
  keepAside("first");
  save(20);
  keepAside("second");
  const auto whole = namesIn(folder.path("ck"));
  for (const char *aside : {"first", "second"}) { // as after kills between a manifest's rename and the removal
    fs::copy(folder.path(aside), folder.path("ck"), fs::copy_options::skip_existing);
    save(30);
    CHECK(namesIn(folder.path("ck")).size() == whole.size());
    // The current manifest does not know the first run any more: all of its files had gone.
    CHECK_FALSE(runsOf(readManifest(folder.path("ck"))).contains(first));
  }
}

TEST_CASE("a superseded file that cannot be removed is a warning", "[checkpoint]") {
  test::TemporaryFolder folder;
  const auto file = holderPlan(1, 1, tensorsSplit());
  Memories memory(*file);
  saveAll(file, memory, folder.path(), someInfo(10));
  const std::string old = readManifest(folder.path()).files[0].name;
  std::string warnings;
  const auto save = [&](int64_t step) {
    saveTo(file, memory, {{folder.path(), 1, false, true, [&](const std::string &text) { warnings += text + "\n"; }}},
           someInfo(step));
  };
  save(20);
  CHECK(warnings.empty());
  const std::string stuck = readManifest(folder.path()).files[0].name;
  fs::remove(folder.path(stuck));
  fs::create_directory(folder.path(stuck)); // a folder cannot be unlinked
  save(30);
  CHECK_THAT(warnings, Contains("1 superseded file could not be removed") && Contains(stuck));
  CHECK(readManifest(folder.path()).info.step == 30);
  save(40); // tries again, although two runs have ended since
  fs::remove(folder.path(stuck));
  writeText(folder.path(stuck), "old");
  save(50);
  CHECK_FALSE(fs::exists(folder.path(stuck)));
}

TEST_CASE("what owners leave that end before they write a manifest goes", "[checkpoint]") {
  test::TemporaryFolder folder;
  const auto file = holderPlan(1, 1, tensorsSplit());
  Memories memory(*file);
  saveAll(file, memory, folder.path(), someInfo(10));
  const auto whole = namesIn(folder.path());
  // Two owners in a row ended; the second had no time to remove what the first one left.
  std::string lock;
  {
    const FolderLock held(folder.path(), newRunName());
    lock = readAll(folder.path("lock.json"));
  }
  auto json = nlohmann::ordered_json::parse(lock);
  const std::string first(16, 'a'), second(16, 'b'), unknown(16, 'c');
  json["run"] = second;
  json["after"] = {first};
  writeText(folder.path("lock.json"), json.dump());
  for (const std::string &run : {first, second, unknown})
    writeText(folder.path(pieceFileName(11, run, 9, 0)), "half");
  // Locks that were not renamed: of this process, which has no such run; of a process that runs; empty; of somebody
  // else.
  const auto unfinished = [&](char digit) {
    return fmt::format(".lock.json-{}.tmp-0123456789abcdef", std::string(16, digit));
  };
  json["run"] = std::string(16, '1');
  writeText(folder.path(unfinished('1')), json.dump());
  json["run"] = std::string(16, '2');
  json["pid"] = getppid();
  std::ifstream stat(fmt::format("/proc/{}/stat", getppid()));
  std::string word;
  while (word.find(')') == std::string::npos)
    stat >> word;
  for (int field = 3; field <= 22; ++field)
    stat >> word;
  json["start"] = std::stoull(word);
  writeText(folder.path(unfinished('2')), json.dump());
  writeText(folder.path(unfinished('3')), "");
  writeText(folder.path(unfinished('4')), "notes");
  saveAll(file, memory, folder.path(), someInfo(20), 1);
  CHECK_FALSE(fs::exists(folder.path(pieceFileName(11, first, 9, 0))));
  CHECK_FALSE(fs::exists(folder.path(pieceFileName(11, second, 9, 0))));
  CHECK(fs::exists(folder.path(pieceFileName(11, unknown, 9, 0))));
  CHECK_FALSE(fs::exists(folder.path(unfinished('1'))));
  for (char other : {'2', '3', '4'})
    CHECK(fs::exists(folder.path(unfinished(other))));
  for (char each : {'3', '4'})
    fs::last_write_time(folder.path(unfinished(each)), fs::file_time_type::clock::now() - std::chrono::minutes(1));
  saveAll(file, memory, folder.path(), someInfo(30), 1);
  CHECK_FALSE(fs::exists(folder.path(unfinished('3'))));
  CHECK(readAll(folder.path(unfinished('4'))) == "notes");
  CHECK(namesIn(folder.path()).size() == whole.size() + 3); // the unknown run's, the living process's, the notes
}

TEST_CASE("an unreadable manifest makes every file needed", "[checkpoint]") {
  test::TemporaryFolder folder;
  const auto file = holderPlan(1, 1, tensorsSplit());
  Memories memory(*file);
  saveAll(file, memory, folder.path(), someInfo(10));
  saveAll(file, memory, folder.path(), someInfo(20));
  const auto whole = namesIn(folder.path());
  const Manifest manifest = readManifest(folder.path());
  fs::remove(folder.path(manifest.earlier[0].manifest)); // the files of a checkpoint that is kept stay without it
  CHECK(removeLeftovers(folder.path(), runsOf(manifest)).empty());
  CHECK(namesIn(folder.path()).size() == whole.size() - 1);
  writeText(folder.path("manifest.json"), "{");
  CHECK(removeLeftovers(folder.path(), runsOf(manifest)).empty());
  CHECK(namesIn(folder.path()).size() == whole.size() - 1);
  fs::remove(folder.path("manifest.json")); // moved away by hand: the last checkpoint is complete, and not superseded
  CHECK(removeLeftovers(folder.path(), runsOf(manifest)).empty());
  CHECK(fs::exists(folder.path(manifest.ownFile())));
  CHECK(fs::exists(folder.path(manifest.files[0].name)));
}

TEST_CASE("ranks that do not share a folder are named", "[checkpoint]") {
  test::TemporaryFolder folder;
  const auto file = holderPlan(1, 3, tensorsSplit());
  Memories memory(*file);
  const std::string shared = folder.path("shared"), local = folder.path("local");
  saveAll(file, memory, shared, someInfo(10));
  CHECK_THROWS_WITH(
      saveTo(file, memory, {{shared, 2, false, true}, {shared, 2, false, true}, {local, 2, false, true}}, someInfo(20)),
      Contains("rank 2") && Contains(local));
  // The folder has the lock but not the files.
  fs::create_symlink(shared + "/lock.json", local + "/lock.json");
  CHECK_THROWS_WITH(
      saveTo(file, memory, {{shared, 2, false, true}, {shared, 2, false, true}, {local, 2, false, true}}, someInfo(20)),
      Contains("does not see what rank") && Contains("/step-00000020"));
  CHECK(readManifest(shared).info.step == 10);
  Memories into(*file);
  loadCheckpoint(shared, readManifest(shared), file->plan(), 0, LoadWhat::Everything, into.of(0));
  saveAll(file, memory, shared, someInfo(20)); // removes the files of the failed runs
  CHECK(namesIn(shared).size() == 1 + 2 * 4);
}

TEST_CASE("an altered manifest is refused", "[checkpoint]") {
  test::TemporaryFolder folder;
  const auto file = holderPlan(1, 2, tensorsSplit());
  Memories memory(*file);
  saveAll(file, memory, folder.path(), someInfo());
  const std::string good = readAll(folder.path("manifest.json"));
  const auto json = nlohmann::ordered_json::parse(good);
  CHECK(sealManifest(good) == good);
  for (const auto &[key, value] : json.items()) {
    auto altered = json;
    if (value.is_number())
      altered[key] = value.get<int64_t>() + 1;
    else if (value.is_string())
      altered[key] = value.get<std::string>() + "1";
    else if (value.is_array())
      altered[key].push_back(1);
    else
      altered[key]["more"] = 1;
    CHECK_THROWS_AS(parseManifest(altered.dump(), "m"), Error);
    altered = json;
    altered.erase(key);
    CHECK_THROWS_AS(parseManifest(altered.dump(), "m"), Error);
  }
  for (const char *key : {"step", "epoch", "position", "generation", "batch"})
    for (const char *value :
         {"-1", "9223372036854775807", "18446744073709551615", "1e30", "\"1\"", "1.5", "9007199254740992"}) {
      auto altered = json;
      altered[key] = nlohmann::ordered_json::parse(value);
      CHECK_THROWS_WITH(parseManifest(sealManifest(altered.dump()), "m"), Contains(key) && Contains("whole number"));
    }
  const std::string deep = std::string(300000, '[') + std::string(300000, ']');
  CHECK_THROWS_WITH(parseManifest(R"({"a":)" + deep + "}", "m"), Contains("nested deeper than 64"));
}

TEST_CASE("only regular files are read", "[checkpoint]") {
  test::TemporaryFolder folder;
  const auto file = holderPlan(1, 1, tensorsSplit());
  Memories memory(*file);
  saveAll(file, memory, folder.path(), someInfo());
  const std::string manifest = folder.path("manifest.json");
  const Manifest good = readManifest(folder.path());
  fs::remove(manifest);
  mkfifo(manifest.c_str(), 0644);
  CHECK_THROWS_WITH(readManifest(folder.path()), Contains("manifest.json") && Contains("a pipe"));
  fs::remove(manifest);
  fs::create_symlink("/dev/zero", manifest);
  CHECK_THROWS_WITH(readManifest(folder.path()), Contains("a device"));
  const std::string data = folder.path(good.files[0].name);
  fs::remove(data);
  fs::create_directory(data);
  Memories into(*file);
  CHECK_THROWS_WITH(loadCheckpoint(folder.path(), good, file->plan(), 0, LoadWhat::Everything, into.of(0)),
                    Contains("a folder"));
}

TEST_CASE("a file of the same name and size that another run wrote is refused", "[checkpoint]") {
  test::TemporaryFolder folder;
  const auto file = holderPlan(1, 1, tensorsSplit());
  Memories memory(*file);
  saveAll(file, memory, folder.path("a"), someInfo());
  fillAll(file->plan(), memory);
  saveAll(file, memory, folder.path("b"), someInfo());
  const Manifest a = readManifest(folder.path("a")), b = readManifest(folder.path("b"));
  fs::copy_file(folder.path("b/" + b.files[0].name), folder.path("a/" + a.files[0].name),
                fs::copy_options::overwrite_existing);
  Memories into(*file);
  CHECK_THROWS_WITH(loadCheckpoint(folder.path("a"), a, file->plan(), 0, LoadWhat::Everything, into.of(0)),
                    Contains("not the file that rank 0 wrote"));
}

TEST_CASE("a link planted for a temporary file is not followed", "[checkpoint]") {
  test::TemporaryFolder folder;
  writeText(folder.path("precious"), "mine");
  fs::create_symlink(folder.path("precious"), folder.path(fmt::format("x.tmp{}", getpid())));
  AtomicFile file(folder.path("x"));
  file.write("abc", 3);
  file.commit();
  CHECK(readAll(folder.path("precious")) == "mine");
  CHECK(readAll(folder.path("x")) == "abc");
}

TEST_CASE("a checkpoint that does not fit names tensor and value", "[checkpoint]") {
  test::TemporaryFolder folder;
  const auto file = holderPlan(1, 2, tensorsSplit());
  Memories memory(*file);
  fillAll(file->plan(), memory);
  saveAll(file, memory, folder.path(), someInfo());
  Manifest manifest = readManifest(folder.path());
  const auto load = [&](const PlanFile &plan, LoadWhat what = LoadWhat::Everything) {
    Memories into(plan);
    loadCheckpoint(folder.path(), manifest, plan.plan(), 0, what, into.of(0));
  };
  auto other = tensorsSplit();
  other[0].shape = {12, 6};
  other[0].dims[1][0].size = 6;
  CHECK_THROWS_WITH(load(*holderPlan(1, 1, other)),
                    Contains("blocks.0.weight") && Contains("12, 6") && Contains("12, 5"));
  other = tensorsSplit();
  other[1].name = "blocks.1.qkv";
  CHECK_THROWS_WITH(load(*holderPlan(1, 1, other)), Contains("blocks.0.qkv") && Contains("does not exist"));
  other = tensorsSplit();
  other.push_back({"extra", TensorKind::Parameter, {3}, {{{3, {}}}}});
  CHECK_THROWS_WITH(load(*holderPlan(1, 1, other)), Contains("extra") && Contains("missing"));
  other = tensorsSplit();
  other.erase(other.begin() + 3); // without momentum: enough to evaluate, not to resume
  CHECK_THROWS_WITH(load(*holderPlan(1, 1, other)), Contains("momentum"));
  CHECK_NOTHROW(load(*holderPlan(1, 1, other), LoadWhat::ParametersAndBuffers));
  for (ManifestTensor &tensor : manifest.tensors)
    if (tensor.name == "blocks.0.out")
      tensor.pieces.pop_back();
  CHECK_THROWS_WITH(load(*holderPlan(1, 1, tensorsSplit())), Contains("blocks.0.out") && Contains("no piece covers"));
  CHECK_THROWS_WITH(readManifest(folder.path("nowhere")), Contains("nowhere"));
}

TEST_CASE("torn files are named", "[checkpoint]") {
  test::TemporaryFolder folder;
  const auto file = holderPlan(1, 1, tensorsSplit());
  Memories memory(*file);
  saveAll(file, memory, folder.path(), someInfo());
  std::string data;
  for (const auto &entry : fs::directory_iterator(folder.path()))
    if (entry.path().extension() == ".safetensors")
      data = entry.path().string();
  const Manifest manifest = readManifest(folder.path());
  const auto size = fs::file_size(data);
  for (uintmax_t n : {uintmax_t(0), uintmax_t(7), uintmax_t(8), uintmax_t(100), size / 2, size - 1}) {
    fs::resize_file(data, n);
    Memories into(*file);
    CHECK_THROWS_AS(loadCheckpoint(folder.path(), manifest, file->plan(), 0, LoadWhat::Everything, into.of(0)), Error);
  }
  fs::remove(data);
  Memories into(*file);
  CHECK_THROWS_WITH(loadCheckpoint(folder.path(), manifest, file->plan(), 0, LoadWhat::Everything, into.of(0)),
                    Contains("cannot be opened"));
}

TEST_CASE("manifests round-trip and refuse what is torn", "[checkpoint]") {
  const std::string f = "step-1.safetensors";
  Manifest manifest{3,
                    "0123456789abcdef",
                    someInfo(),
                    {{f, 1000, 0xffffffff, 2}},
                    {{"w", "parameter", "F32", {4, 6}, {{f, "w[0:4,0:3]", {0, 0}, {4, 3}}, {f, "b", {0, 3}, {4, 3}}}}},
                    {{"step-0.manifest.json", 5}}};
  const std::string text = printManifest(manifest);
  const Manifest back = parseManifest(text, "m");
  std::string altered = text;
  altered[text.find_first_of("0123456789", text.find("\"step\"")) + 1] ^= 1; // the second digit
  CHECK_THROWS_WITH(parseManifest(altered, "m"), Contains("checksum is \"" + text.substr(text.find("sha256:"), 71) +
                                                          "\", its content has \"sha256:") &&
                                                     Catch::Matchers::EndsWith("\""));
  CHECK(printManifest(back) == text);
  CHECK(back.info.training == R"({"lr":{"base":0.1}})");
  for (size_t n = 0; n + 2 < text.size(); n += 3)
    CHECK_THROWS_AS(parseManifest(text.substr(0, n), "m"), Error);
  manifest.tensors[0].pieces[1].start[1] = 4;
  CHECK_THROWS_WITH(parseManifest(printManifest(manifest), "m"), Contains("tensor w") && Contains("within"));
  manifest.tensors[0].pieces[1] = {"../f", "b", {0, 3}, {4, 3}};
  CHECK_THROWS_WITH(parseManifest(printManifest(manifest), "m"), Contains("must be listed"));
  manifest.tensors[0].pieces[1] = {f, "b", {0}, {4}};
  CHECK_THROWS_WITH(parseManifest(printManifest(manifest), "m"), Contains("dimensions"));
}

TEST_CASE("safetensors headers are checked", "[checkpoint]") {
  const auto parse = [](const std::string &text, uint64_t bytes) {
    return parseSafetensors(text, 8 + text.size() + bytes, "s");
  };
  const std::string good = R"({"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}})";
  CHECK(parse(good, 24).entries.at("a").shape == std::vector<int64_t>{2, 3});
  CHECK_THROWS_WITH(parse(good, 23), Contains("tensor a") && Contains("24"));
  CHECK_THROWS_WITH(parse(R"({"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,20]}})", 24), Contains("24"));
  CHECK_THROWS_WITH(parse(R"({"a":{"dtype":"X9","shape":[],"data_offsets":[0,4]}})", 4), Contains("X9"));
  CHECK_THROWS_WITH(parse(R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", 4), Contains("-1"));
  CHECK_THROWS_WITH(
      parse(
          R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[4],"data_offsets":[2,6]}})",
          8),
      Contains("overlap"));
  CHECK_THROWS_AS(parse("{", 0), Error);
  std::vector<std::pair<std::string, SafetensorsEntry>> entries{{"x", {"F32", {3}, 0, 0}}, {"y", {"U8", {5}, 0, 0}}};
  placeSafetensors(entries);
  const std::string head = layOutSafetensors(entries, 0xabc);
  CHECK(head.size() % 8 == 0);
  CHECK(entries[1].second.begin == 12);
  CHECK(parseSafetensors(std::span(head).subspan(8), head.size() + 17, "s").entries.size() == 2);
  CHECK(parseSafetensors(std::span(head).subspan(8), head.size() + 17, "s").crc32 == 0xabcu);
  CHECK_THROWS_WITH(parse(R"({"__metadata__":{"crc32":"xyz"}})", 0), Contains("xyz"));
  const int64_t large = int64_t{1} << 62;
  const auto place = [](std::vector<std::pair<std::string, SafetensorsEntry>> entries) { placeSafetensors(entries); };
  CHECK_THROWS_WITH(place({{"x", {"F32", {large}, 0, 0}}}), Contains("tensor x") && Contains(std::to_string(large)));
  CHECK_THROWS_WITH(place({{"x", {"U8", {3, -1}, 0, 0}}}), Contains("tensor x") && Contains("-1"));
  CHECK_THROWS_WITH(place({{"x", {"X9", {3}, 0, 0}}}), Contains("tensor x") && Contains("X9"));
  CHECK_NOTHROW(place({{"x", {"BF16", {large}, 0, 0}}, {"y", {"U8", {large}, 0, 0}}}));
  CHECK_THROWS_WITH(place({{"x", {"BF16", {large}, 0, 0}}, {"y", {"BF16", {large}, 0, 0}}}), Contains("tensor y"));
}

TEST_CASE("data that was altered is found by its checksum", "[checkpoint]") {
  test::TemporaryFolder folder;
  std::vector<std::pair<std::string, SafetensorsEntry>> entries{{"x", {"U8", {5}, 0, 0}}};
  placeSafetensors(entries);
  const auto write = [&](const std::string &name, const char *data) {
    const std::string head = layOutSafetensors(entries, crc32Of(0, "hello", 5));
    AtomicFile file(folder.path(name));
    file.write(head.data(), head.size());
    file.write(data, 5);
    file.commit();
  };
  write("good", "hello");
  CHECK(SafetensorsFile(folder.path("good")).entries().size() == 1);
  write("bad", "hellO");
  CHECK_THROWS_WITH(SafetensorsFile(folder.path("bad")), Contains("bad") && Contains("CRC-32"));
}

TEST_CASE("a full disk leaves nothing under the final name", "[checkpoint]") {
  CHECK_THROWS_WITH(AtomicFile("/no/such/folder/x"), Contains("/no/such/folder/x"));
  test::TemporaryFolder folder;
  {
    AtomicFile file(folder.path("x"));
    file.write("abc", 3);
  }
  CHECK(fs::is_empty(folder.path()));
  AtomicFile file(folder.path("x"));
  file.write("abc", 3);
  file.commit();
  CHECK(fs::file_size(folder.path("x")) == 3);
}

TEST_CASE("boxes are copied whatever their shape", "[checkpoint]") {
  std::vector<float> from(4 * 5 * 6), to(3 * 7 * 6, -1);
  for (size_t i = 0; i < from.size(); ++i)
    from[i] = float(i);
  const int64_t fs[] = {4, 5, 6}, ts[] = {3, 7, 6}, f0[] = {1, 2, 0}, t0[] = {0, 3, 0}, size[] = {2, 3, 6};
  copyBox(reinterpret_cast<std::byte *>(to.data()), ts, t0, reinterpret_cast<std::byte *>(from.data()), fs, f0, size,
          4);
  int copied = 0;
  for (int64_t a = 0; a < 3; ++a)
    for (int64_t b = 0; b < 7; ++b)
      for (int64_t c = 0; c < 6; ++c) {
        const bool inside = a < 2 && b >= 3 && b < 6;
        const float want = inside ? float(((a + 1) * 5 + b - 3 + 2) * 6 + c) : -1;
        copied += to[size_t((a * 7 + b) * 6 + c)] == want;
      }
  CHECK(copied == 3 * 7 * 6);
}
