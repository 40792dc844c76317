// Checkpoints: round trips between meshes, what is written when, and what a torn one says.
#include "runtime/checkpoint/Checkpoint.h"
#include "TestPlans.h"
#include "runtime/base/AtomicFile.h"
#include "runtime/base/Error.h"
#include "runtime/checkpoint/Plan.h"
#include "runtime/checkpoint/Safetensors.h"
#include "runtime/comm/LocalWorld.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <fstream>
#include <map>
#include <set>

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

/// Memory of every rank's slots.
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

void saveAll(const std::shared_ptr<const PlanFile> &file, Memories &memory, const std::string &folder,
             const CheckpointInfo &info) {
  LocalWorld world(unsigned(memory.ranks.size()));
  runRanks(world,
           [&](unsigned rank) { CheckpointWriter(file, rank).save(folder, info, world[rank], memory.of(rank)); });
}

/// tp splits, in three ways: rows, heads inside a fused dimension, columns; and ZeRO over dp+tp.
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
  return {step, 2, 48, 7, 16, 4, "mlp", R"({"width":8})", R"({"lr":{"base":0.1}})", R"({"kind":"mnist"})", "abc"};
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

TEST_CASE("each piece is written once and older files go", "[checkpoint]") {
  test::TemporaryFolder folder;
  const auto file = holderPlan(2, 2, tensorsSplit());
  Memories memory(*file);
  fillAll(file->plan(), memory);
  saveAll(file, memory, folder.path(), someInfo(10));
  saveAll(file, memory, folder.path(), someInfo(10)); // the same step again
  saveAll(file, memory, folder.path(), someInfo(20));
  std::set<std::string> names;
  std::map<std::string, int64_t> elements;
  for (const auto &entry : fs::directory_iterator(folder.path())) {
    names.insert(entry.path().filename().string());
    if (entry.path().extension() != ".safetensors")
      continue;
    const SafetensorsFile written(entry.path().string());
    for (const auto &[key, tensor] : written.entries())
      elements[key.substr(0, key.find('['))] += int64_t(tensor.end - tensor.begin) / 4;
  }
  CHECK(names.size() == 5); // a file for each rank (the last two: their parts of the momentum) and the manifest
  for (const std::string &name : names)
    CHECK((name == "manifest.json" || name.starts_with("step-00000020-3.rank-")));
  CHECK(elements["blocks.0.weight"] == 60);
  CHECK(elements["blocks.0.qkv"] == 72);
  CHECK(elements["norm.mean"] == 7);
  CHECK(elements["step"] == 1);
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
  CHECK_THROWS_WITH(load(*holderPlan(1, 1, other)), Contains("blocks.0.qkv") && Contains("no place"));
  other = tensorsSplit();
  other.push_back({"extra", TensorKind::Parameter, {3}, {{{3, {}}}}});
  CHECK_THROWS_WITH(load(*holderPlan(1, 1, other)), Contains("extra") && Contains("missing"));
  other = tensorsSplit();
  other.erase(other.begin() + 3); // no momentum: fine to evaluate, not to resume
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
  Manifest manifest{
      3,
      someInfo(),
      {{"w", "parameter", "F32", {4, 6}, {{"f", "w[0:4,0:3]", {0, 0}, {4, 3}}, {"f", "b", {0, 3}, {4, 3}}}}}};
  const std::string text = printManifest(manifest);
  const Manifest back = parseManifest(text, "m");
  CHECK(printManifest(back) == text);
  CHECK(back.info.training == R"({"lr":{"base":0.1}})");
  for (size_t n = 0; n + 2 < text.size(); n += 3)
    CHECK_THROWS_AS(parseManifest(text.substr(0, n), "m"), Error);
  manifest.tensors[0].pieces[1].start[1] = 4;
  CHECK_THROWS_WITH(parseManifest(printManifest(manifest), "m"), Contains("tensor w") && Contains("within"));
  manifest.tensors[0].pieces[1] = {"../f", "b", {0, 3}, {4, 3}};
  CHECK_THROWS_WITH(parseManifest(printManifest(manifest), "m"), Contains("plain name"));
  manifest.tensors[0].pieces[1] = {"f", "b", {0}, {4}};
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
