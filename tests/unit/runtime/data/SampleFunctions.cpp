// Random numbers of samples, data sets that read all fields in one call, and the checks that a data set is a function.
#include "runtime/base/Error.h"
#include "runtime/comm/LocalWorld.h"
#include "runtime/data/DataFunction.h"
#include "runtime/data/Loader.h"
#include "runtime/data/UserData.h"
#include "runtime/session/RankJob.h"
#include "tests/unit/runtime/session/TestPlans.h"

#include <atomic>
#include <catch2/catch.hpp>

#include <cmath>
#include <cstring>
#include <fmt/format.h>
#include <functional>
#include <numeric>
#include <random>
#include <set>
#include <thread>

using namespace cleave;
using Catch::Matchers::Contains;

TEST_CASE("a sample's random numbers depend on seed, epoch and index", "[data]") {
  std::set<uint64_t> first;
  for (uint64_t seed : {0, 1})
    for (int64_t epoch : {0, 1, 2})
      for (int64_t sample : {0, 1, 2, 1 << 30}) {
        Random random(seed, epoch, sample), again(seed, epoch, sample);
        const uint64_t bits = uint64_t{random()} << 32 | random();
        CHECK(bits == (uint64_t{again()} << 32 | again()));
        first.insert(bits);
        for (uint64_t stream : {0, 1, 7}) {
          Random own = random.stream(stream), fresh = Random(seed, epoch, sample).stream(stream);
          CHECK(own() == fresh()); // whatever was drawn before
          first.insert(uint64_t{own()} << 32 | own());
        }
      }
  CHECK(first.size() == 2 * 3 * 4 * 4);
  // Computed by another implementation of Philox4x32-10: training that is repeated draws the same numbers.
  Random known(5, 1, 7);
  const std::vector<uint32_t> words{known(), known(), known(), known(), known()};
  const std::vector<uint32_t> expected{1277962505, 968900422, 1663517999, 1960898709, 188285362};
  CHECK(words == expected);
}

TEST_CASE("random numbers have the distributions that they are said to have", "[data]") {
  Random random(1, 1, 1);
  const int count = 40000;
  double sum = 0, squares = 0, least = 1, most = 0, wide = 0;
  int heads = 0;
  std::vector<int> counts(7);
  for (int i = 0; i < count; ++i) {
    const double u = random.uniform(), n = random.normal(3, 2);
    least = std::min(least, u), most = std::max(most, u);
    sum += n, squares += n * n;
    wide += random.uniform(-4, 2);
    heads += random.chance(0.25);
    const int64_t whole = random.integer(-3, 4);
    REQUIRE((whole >= -3 && whole < 4));
    ++counts[size_t(whole + 3)];
  }
  CHECK((least >= 0 && least < 1e-3 && most < 1 && most > 0.999));
  CHECK(sum / count == Approx(3).margin(0.05));
  CHECK(std::sqrt(squares / count - sum * sum / count / count) == Approx(2).margin(0.05));
  CHECK(wide / count == Approx(-1).margin(0.05));
  CHECK(heads / double(count) == Approx(0.25).margin(0.01));
  for (int found : counts)
    CHECK(found / double(count) == Approx(1. / 7).margin(0.01));
  const int64_t lowest = std::numeric_limits<int64_t>::min(), highest = std::numeric_limits<int64_t>::max();
  std::set<int64_t> whole{random.integer(lowest, highest), random.integer(lowest, highest)};
  CHECK(whole.size() == 2);
  CHECK(random.integer(highest - 1, highest) == highest - 1);
  std::vector<int> cards(20);
  std::iota(cards.begin(), cards.end(), 0);
  std::vector<int> shuffled = cards;
  std::shuffle(shuffled.begin(), shuffled.end(), random);
  CHECK(shuffled != cards);
  CHECK(std::is_permutation(cards.begin(), cards.end(), shuffled.begin()));
}

namespace {

/// Images and labels of the plans of these tests, made by a function.
class MadeData final : public DataSource {
public:
  using Make = std::function<void(const SampleId &, Random &, float *image, int32_t *label)>;
  explicit MadeData(Make make) : make(std::move(make)) {}
  const std::vector<DataField> &fields() const override { return base.fields(); }
  int64_t samples(Split split) const override { return base.samples(split); }
  void read(const SampleId &sample, Random &random, std::span<std::byte *const> to) const override {
    ++reads;
    make(sample, random, reinterpret_cast<float *>(to[0]), reinterpret_cast<int32_t *>(to[1]));
  }
  mutable std::atomic<int> reads{0};

private:
  test::CountingData base{6, 5, 21, 13};
  Make make;
};

constexpr int64_t pixels = 30;

/// Random pixels with a brightness that is also the label.
void goodSample(const SampleId &, Random &random, float *image, int32_t *label) {
  const int64_t brightness = random.integer(0, 10);
  if (label)
    *label = int32_t(brightness);
  if (!image)
    return;
  Random noise = random.stream(0);
  for (int64_t i = 0; i < pixels; ++i)
    image[i] = float(brightness) + float(noise.integer(0, 4)) / 8;
}

std::vector<std::byte> loaded(const PlanFile &file, unsigned rank, const DataSource &data, const BatchRef &batch,
                              std::vector<RowChecksum> *sums = nullptr) {
  SampleOrder order(data.samples(Split::Train), file.plan().seed());
  Loader loader(file.plan(), rank, data, order);
  std::vector<std::byte> buffer(file.plan().programs()->Get(rank)->input_bytes());
  loader.start(batch, buffer.data(), sums);
  loader.wait();
  return buffer;
}

} // namespace

TEST_CASE("the loader reads a sample once, with the numbers of its epoch", "[data]") {
  const unsigned tp = GENERATE(1u, 2u); // whole rows, and parts of them
  const auto file = test::seal(test::linearPlan({.tp = tp}));
  const MadeData data(goodSample);
  const auto order = shuffledOrder(21, file->plan().seed(), 2);
  const auto check = [&](const BatchRef &batch, auto indexOf) {
    for (unsigned rank = 0; rank < tp; ++rank) {
      data.reads = 0;
      std::vector<RowChecksum> sums;
      const auto buffer = loaded(*file, rank, data, batch, &sums);
      CHECK(data.reads == 8);
      CHECK(sums.size() == 16);
      for (const InputPart &part : inputParts(file->plan(), rank, batch.split == Split::Eval))
        for (const Box &box : part.boxes)
          for (int64_t row = 0; row < 4; ++row) {
            Random random(file->plan().seed(), batch.split == Split::Train ? batch.epoch : 0,
                          indexOf(part.microbatch * 4 + row));
            float image[pixels];
            int32_t label;
            goodSample({}, random, image, &label);
            const std::byte *at = buffer.data() + part.offset + size_t(row) * part.bytes / 4;
            if (part.field == "label")
              CHECK(std::memcmp(at, &label, 4) == 0);
            else
              CHECK(std::memcmp(at, image + box.globalStart[2] * 5, size_t(box.size[2]) * 5 * 4) == 0);
          }
    }
  };
  check({Split::Train, 2, 8, 8}, [&](int64_t row) { return order[size_t(8 + row)]; });
  check({Split::Eval, 0, 8, 5}, [](int64_t row) { return 8 + row % 5; });
}

TEST_CASE("what a user's data set throws is the user's mistake", "[data]") {
  const auto failure = [](const DataSource &data, std::initializer_list<size_t> wanted) -> std::string {
    float image[pixels];
    int32_t label;
    std::byte *all[] = {reinterpret_cast<std::byte *>(image), reinterpret_cast<std::byte *>(&label)};
    std::vector<std::byte *> to(2);
    for (size_t field : wanted)
      to[field] = all[field];
    try {
      readSample(UserData(data), {Split::Eval, 3}, 1, to);
    } catch (const Error &error) {
      CHECK(error.status == Status::User);
      return error.what();
    }
    return "nothing";
  };
  const MadeData torn([](const SampleId &, Random &, float *, int32_t *) { throw std::out_of_range("no such row"); });
  CHECK(failure(torn, {1}) == "data field label of evaluation sample 3: no such row");
  CHECK(failure(torn, {0, 1}) == "data fields image, label of evaluation sample 3: no such row");
  struct Simple : Dataset {
    test::CountingData base{6, 5, 21, 13};
    const std::vector<DataField> &fields() const override { return base.fields(); }
    int64_t samples(Split) const override { throw 1; }
    void read(Split, int64_t, size_t field, std::byte *) const override {
      if (field == 1)
        throw std::out_of_range("no such label");
    }
  } simple;
  CHECK(failure(simple, {0, 1}) == "data field label of evaluation sample 3: no such label");
  CHECK(failure(simple, {0}) == "nothing");
  CHECK_THROWS_WITH(UserData(simple).samples(Split::Train), Contains("the number of training samples"));
  struct Neither : Dataset {
    test::CountingData base{6, 5, 21, 13};
    const std::vector<DataField> &fields() const override { return base.fields(); }
    int64_t samples(Split) const override { return 3; }
  } neither;
  CHECK_THAT(failure(neither, {0}), Contains("overrides neither"));
}

TEST_CASE("a data set that is not a function is found and named", "[data]") {
  const auto refused = [](MadeData::Make make) -> std::string {
    try {
      checkFunction(MadeData(std::move(make)), 3, {});
    } catch (const Error &error) {
      CHECK(error.status == Status::User);
      return error.what();
    }
    return "accepted";
  };
  const auto image = [](float *to, float value) {
    if (to)
      std::fill(to, to + pixels, value);
  };
  CHECK(refused(goodSample) == "accepted");
  const auto plain = [&](const SampleId &sample, Random &, float *to, int32_t *label) {
    image(to, float(sample.index));
    if (label)
      *label = int32_t(sample.index % 10);
  };
  CHECK(refused(plain) == "accepted");
  int calls = 0;
  CHECK_THAT(refused([&](const SampleId &sample, Random &random, float *to, int32_t *label) {
               plain(sample, random, to, label);
               if (label && sample.split == Split::Train && sample.index == 8)
                 *label = calls++;
             }),
             Contains("data field label of training sample 8: read again"));
  std::mt19937 shared;
  CHECK_THAT(refused([&](const SampleId &sample, Random &random, float *to, int32_t *label) {
               plain(sample, random, to, label);
               image(to, float(shared()));
             }),
             Contains("data field image of evaluation sample 12: read again"));
  CHECK_THAT(refused([&](const SampleId &sample, Random &random, float *to, int32_t *label) {
               plain(sample, random, to, label);
               image(to, float(std::hash<std::thread::id>()(std::this_thread::get_id()) % 1000));
             }),
             Contains("data field image of evaluation sample 12: read again"));
  CHECK_THAT(refused([&](const SampleId &sample, Random &random, float *to, int32_t *label) {
               if (to)
                 std::fill(to, to + pixels - 1, 1.0f); // the last pixel keeps its value
               if (label)
                 *label = 1;
             }),
             Contains("data field image of evaluation sample 12: read again") && Contains("write every element"));
  CHECK_THAT(refused([&](const SampleId &, Random &random, float *to, int32_t *label) {
               if (to)
                 image(to, float(random.uniform()));
               if (label)
                 *label = int32_t(random.integer(0, 1000));
             }),
             Contains("data field label of evaluation sample 12: read without the other fields"));
}

namespace {

/// Trains `steps` steps of a plan on two ranks that read the same rows, each with its own data set.
std::string trained(const DataSource &one, const DataSource &two, int64_t steps,
                    const std::function<void(int64_t)> &before) {
  const auto file = test::seal(test::linearPlan({.tp = 2, .batch = 20, .microbatches = 2}));
  SampleOrder order(21, file->plan().seed());
  LocalWorld world(2);
  try {
    runRanks(world, [&](unsigned rank) {
      RankJob job(file, rank, world[rank], rank ? two : one, order, {.threads = 1, .device = "reference"});
      for (int64_t step = 1; step <= steps; ++step) {
        world[rank].barrier();
        if (rank == 0)
          before(step);
        world[rank].barrier();
        job.train(step, 0.0f, {step, 0}, std::nullopt);
      }
      job.executor().wait();
    });
  } catch (const Error &error) {
    CHECK(error.status == Status::User);
    return error.what();
  }
  return "";
}

} // namespace

TEST_CASE("ranks that read the same rows compare them in the first step and in every 1,000th", "[data]") {
  std::atomic<bool> wrong{false};
  const MadeData good(goodSample);
  const MadeData other([&](const SampleId &sample, Random &random, float *image, int32_t *label) {
    goodSample(sample, random, image, label);
    if (wrong && image && sample.index == 11)
      image[4] += 1;
  });
  CHECK(trained(good, other, 3, [](int64_t) {}) == "");
  const auto differ = [](int64_t step) {
    return fmt::format("data field image of training sample 11 (step {}): ranks 0 and 1 read different values", step);
  };
  CHECK_THAT(trained(good, other, 3, [&](int64_t) { wrong = true; }), Contains(differ(1)));
  wrong = false;
  CHECK_THAT(trained(good, other, 1001, [&](int64_t step) { wrong = step > 1; }), Contains(differ(1000)));
}
