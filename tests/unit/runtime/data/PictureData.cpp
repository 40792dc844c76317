// Data sets of pictures: what holds which kind, classes, and pictures that take the place of damaged ones.
#include "runtime/base/Error.h"
#include "runtime/comm/LocalWorld.h"
#include "runtime/data/PictureSource.h"
#include "runtime/data/Shuffle.h"
#include "runtime/plan/plan_generated.h"
#include "runtime/session/SkipAgreement.h"
#include "tests/unit/runtime/session/TestPlans.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>

using namespace cleave;
using Catch::Matchers::Contains;
namespace fs = std::filesystem;

namespace {

const std::string goldens = CLEAVE_PICTURES;

DataSpec specOf(int64_t classes, Transforms transforms = {}) {
  DataSpec spec{plan::DataKind::Pictures,
                {{"image", FieldType::F32, {3, 23, 37}, 0}, {"label", FieldType::I32, {}, classes}}};
  spec.train = spec.eval = std::move(transforms);
  return spec;
}

/// train/{a,b,c} and val/{a,b,c} with the plain picture.
void writeFolder(const std::string &folder, int64_t each = 3) {
  for (const char *split : {"train", "val"})
    for (const char *name : {"a", "b", "c"}) {
      fs::create_directories(folder + "/" + split + "/" + name);
      for (int64_t i = 0; i < each; ++i)
        fs::copy_file(goldens + "/plain.png", folder + "/" + split + "/" + name + "/" + std::to_string(i) + ".png");
    }
}

struct Read {
  std::vector<float> image;
  int32_t label = -1;
};
Read readAt(const DataSource &source, int64_t index, bool image, bool label) {
  Read read;
  read.image.resize(image ? size_t(3 * 23 * 37) : 0);
  std::byte *const to[] = {image ? reinterpret_cast<std::byte *>(read.image.data()) : nullptr,
                           label ? reinterpret_cast<std::byte *>(&read.label) : nullptr};
  readSample(source, {Split::Train, index, 1}, 0, to);
  return read;
}

} // namespace

TEST_CASE("a model of pictures reads what the folder holds") {
  test::TemporaryFolder folder, caches;
  setenv("XDG_CACHE_HOME", caches.path().c_str(), 1); // else the user's
  writeFolder(folder.path());
  const auto source = openData(specOf(3), folder.path(), 0);
  CHECK(source->samples(Split::Train) == 9);
  CHECK(source->samples(Split::Eval) == 9);
  CHECK(source->shards(Split::Train).empty());
  CHECK(readAt(*source, 5, true, true).label == 1);
  CHECK(classNamesAt(folder.path()) == std::vector<std::string>{"a", "b", "c"});

  for (const char *split : {"/tars/train", "/tars/val"}) {
    fs::create_directories(folder.path() + split);
    fs::copy_file(goldens + "/plain.tar", folder.path() + split + "/0.tar");
  }
  const auto tars = openData(specOf(3), folder.path("tars"), 0);
  CHECK(tars->samples(Split::Train) == 3);
  CHECK(tars->shards(Split::Train) == std::vector<int64_t>{0});
  CHECK(readAt(*tars, 0, true, true).label == 2);
  CHECK(classNamesAt(folder.path("tars")).empty());
  CHECK_THROWS_WITH(openData(specOf(2), folder.path("tars"), 0),
                    Contains("0.tar: a/first") && Contains("labels lie in [0, 2), found 2"));

  fs::create_directories(folder.path("recs"));
  for (const char *split : {"/recs/train.rec", "/recs/val.rec"})
    fs::copy_file(goldens + "/plain.rec", folder.path() + split);
  CHECK(openData(specOf(3), folder.path("recs"), 0)->samples(Split::Eval) == 3);

  fs::remove_all(folder.path() + "/val");
  CHECK_NOTHROW(openData(specOf(3), folder.path(), 0, {}, {.eval = false}));
  CHECK_THROWS_WITH(openData(specOf(3), folder.path(), 0), Contains("/val: no such folder"));
  CHECK_THROWS_WITH(openData(specOf(3), folder.path("recs") + "/none", 0),
                    Contains("holds no pictures") && Contains("train-images-idx3-ubyte"));
  unsetenv("XDG_CACHE_HOME");
}

TEST_CASE("classes must be those of the model and of both splits") {
  test::TemporaryFolder folder;
  writeFolder(folder.path());
  DataSpec spec = specOf(3);
  CHECK_THROWS_WITH(openData(specOf(2), folder.path(), 0),
                    Contains("has 3 classes, the model has 2") && Contains("too many is c"));
  CHECK_NOTHROW(openData(specOf(5), folder.path(), 0));
  spec.classNames = {"a", "b", "z"};
  CHECK_THROWS_WITH(openData(spec, folder.path(), 0), Contains("has the class c, which the model has not"));
  spec.classNames = {"a", "c", "b"};
  CHECK_THROWS_WITH(openData(spec, folder.path(), 0), Contains("in another order"));
  fs::rename(folder.path() + "/val/c", folder.path() + "/val/zebra");
  CHECK_THROWS_WITH(openData(specOf(3), folder.path(), 0), Contains("/val: has the class zebra"));
  fs::remove_all(folder.path() + "/val/zebra");
  CHECK_THROWS_WITH(openData(specOf(3), folder.path(), 0), Contains("/val: has no class c"));
}

TEST_CASE("another sample takes the place of a damaged picture, for whatever is read of it") {
  test::TemporaryFolder folder;
  writeFolder(folder.path());
  for (const char *bad : {"a/2", "b/0", "c/2"})
    std::ofstream(folder.path() + "/train/" + bad + ".png") << "no picture";
  const auto stops = openData(specOf(3), folder.path(), 0);
  CHECK_THROWS_WITH(readAt(*stops, 2, true, true),
                    Contains("a/2.png") && Contains("neither a JPEG nor a PNG") && Contains("--bad-files skip"));
  CHECK(readAt(*stops, 2, false, true).label == 0); // the label alone does not need the picture
  for (const bool labelFirst : {true, false}) {
    const auto skips = openData(specOf(3), folder.path(), 0, {}, {.skipBadFiles = true});
    const auto &pictures = dynamic_cast<const PictureSource &>(*skips);
    CHECK(pictures.skipped(Split::Train).empty());
    if (labelFirst)
      CHECK(readAt(*skips, 2, false, true).label == 1); // 2 and 3 are damaged
    CHECK(readAt(*skips, 2, true, false).image == readAt(*skips, 4, true, false).image);
    CHECK(readAt(*skips, 2, false, true).label == 1);
    CHECK(pictures.skipped(Split::Train) == std::vector<int64_t>{2, 3});
    CHECK(readAt(*skips, 8, false, true).label == 0); // the last: the first takes its place
    CHECK(readAt(*skips, 0, false, true).label == 0);
    CHECK(pictures.skipped(Split::Train) == std::vector<int64_t>{2, 3, 8});
    CHECK(pictures.skipped(Split::Eval).empty());
    CHECK((pictures.isGood(Split::Train, 4) && !pictures.isGood(Split::Train, 3) && !pictures.isGood(Split::Eval, 4)));
  }
  for (const char *name : {"a", "b", "c"})
    for (int i = 0; i < 3; ++i)
      std::ofstream(folder.path() + "/train/" + name + "/" + std::to_string(i) + ".png") << "no picture";
  const auto none = openData(specOf(3), folder.path(), 0, {}, {.skipBadFiles = true});
  CHECK_THROWS_WITH(readAt(*none, 1, true, true), Contains("every picture of the training split is damaged"));
}

TEST_CASE("only what a decoder says of a picture is damage") {
  test::TemporaryFolder folder;
  writeFolder(folder.path());
  const auto file = [&](const char *name) { return folder.path() + "/train/" + name + ".png"; };
  const auto skips = openData(specOf(3), folder.path(), 0, {}, {.skipBadFiles = true});
  const auto &pictures = dynamic_cast<const PictureSource &>(*skips);
  const auto failure = [&](int64_t index) -> std::pair<Status, std::string> {
    try {
      readAt(*skips, index, true, true);
    } catch (const Error &error) {
      return {error.status, error.what()};
    }
    return {Status::Success, ""};
  };
  fs::rename(file("b/0"), file("b/gone")); // cannot be read; another rank may still read it
  CHECK(failure(3).first == Status::Environment);
  CHECK_THAT(failure(3).second, Contains("b/0.png: cannot be opened"));
  CHECK(pictures.skipped(Split::Train).empty());
  fs::rename(file("b/gone"), file("b/0"));
  CHECK(readAt(*skips, 3, true, true).label == 1);
  std::ofstream(file("b/0")) << "no picture"; // others have trained on it
  CHECK(failure(3).first == Status::Environment);
  CHECK_THAT(failure(3).second, Contains("b/0.png: was good when it was read before and is damaged now"));
  CHECK(pictures.skipped(Split::Train).empty());
  fs::copy_file(goldens + "/large.jpg", file("c/1"), fs::copy_options::overwrite_existing); // not the model's size
  CHECK(failure(7).first == Status::User);
  CHECK(pictures.skipped(Split::Train).empty());
}

namespace {

/// What rank 0 says, and how many it counts, if the ranks read these samples.
std::pair<std::string, int64_t> agreed(const std::vector<std::pair<const DataSource *, std::vector<int64_t>>> &ranks) {
  LocalWorld world(static_cast<unsigned>(ranks.size()));
  int64_t count = -1;
  try {
    runRanks(world, [&](unsigned rank) {
      const auto &[source, samples] = ranks[rank];
      for (const int64_t index : samples)
        readAt(*source, index, rank == 0, true);
      const int64_t mine = agreeOnSkipped(world[rank], dynamic_cast<const PictureSource &>(*source));
      if (rank == 0)
        count = mine;
    });
  } catch (const Error &error) {
    CHECK(error.status == Status::Environment);
    return {error.what(), count};
  }
  return {"", count};
}

} // namespace

TEST_CASE("ranks that skip other pictures are found") {
  test::TemporaryFolder one, two;
  for (const auto *folder : {&one, &two}) {
    writeFolder(folder->path());
    std::ofstream(folder->path() + "/train/a/1.png") << "no picture";
  }
  std::ofstream(two.path() + "/train/c/0.png") << "no picture"; // on the disk of one rank
  const auto opened = [](const test::TemporaryFolder &folder) {
    return openData(specOf(3), folder.path(), 0, {}, {.skipBadFiles = true});
  };
  const auto a = opened(one), b = opened(one), c = opened(two);
  using Result = std::pair<std::string, int64_t>;
  CHECK(agreed({{a.get(), {0, 3}}, {b.get(), {5}}}) == Result{"", 0});
  CHECK(agreed({{a.get(), {0, 1}}, {b.get(), {1, 2}}, {c.get(), {1}}}) == Result{"", 1});
  CHECK(agreed({{a.get(), {0}}, {c.get(), {6}}}) == Result{"", 2}); // nobody else has read it
  const std::string said = agreed({{b.get(), {6}}, {a.get(), {2}}, {c.get(), {}}}).first;
  CHECK_THAT(said, Contains("train/c/0.png: damaged as rank 2 reads it, good as rank 0 reads it"));
}

TEST_CASE("shards are permuted, and samples are shuffled within windows") {
  const int64_t count = 5 * shuffleWindow / 2;
  std::vector<int64_t> firsts;
  for (int64_t first = 0; first < count; first += 1000)
    firsts.push_back(first);
  const auto order = shuffledOrder(count, 7, 1, firsts);
  std::vector<uint32_t> sorted = order;
  std::ranges::sort(sorted);
  for (int64_t i = 0; i < count; ++i)
    REQUIRE(sorted[size_t(i)] == uint32_t(i));
  for (int64_t begin = 0; begin < count; begin += shuffleWindow) {
    std::set<uint32_t> shards; // of a window: as many as fit, and one at each end
    for (int64_t i = begin; i < std::min(count, begin + shuffleWindow); ++i)
      shards.insert(order[size_t(i)] / 1000);
    CHECK(int64_t(shards.size()) <= shuffleWindow / 1000 + 2);
  }
  CHECK(shuffledOrder(count, 7, 1, firsts) == order);
  CHECK(shuffledOrder(count, 7, 2, firsts) != order);
  CHECK(shuffledOrder(count, 8, 1, firsts) != order);
  CHECK(shuffledOrder(100, 7, 1, {0}) == shuffledOrder(100, 7, 1)); // one shard: as without
}
