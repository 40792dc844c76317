// Data sets: file formats, their errors, shuffling, and the loader's placement on every mesh.
#include "runtime/base/Error.h"
#include "runtime/data/DataState.h"
#include "runtime/data/EvalBatches.h"
#include "runtime/data/Idx.h"
#include "runtime/data/Loader.h"
#include "runtime/data/Mnist.h"
#include "runtime/data/Shuffle.h"
#include "runtime/data/Synthetic.h"
#include "runtime/data/Text.h"
#include "tests/unit/runtime/session/TestPlans.h"

#include <algorithm>
#include <catch2/catch.hpp>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <numeric>
#include <sys/stat.h>
#include <zlib.h>

using namespace cleave;
using Catch::Matchers::Contains;

static void writeFile(const std::string &path, const std::vector<uint8_t> &bytes) {
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char *>(bytes.data()), std::streamsize(bytes.size()));
}

static void writeGzip(const std::string &path, const std::vector<uint8_t> &bytes) {
  gzFile file = gzopen(path.c_str(), "wb");
  gzwrite(file, bytes.data(), unsigned(bytes.size()));
  gzclose(file);
}

/// Writes `count` digits of 2 x 3 pixels: pixel p of image i is (i * 6 + p) % 256, the label of image i is i % 10.
static void writeMnist(const std::string &folder, const std::string &prefix, int64_t count, bool gzip) {
  IdxArray images{{count, 2, 3}, {}}, labels{{count}, {}};
  for (int64_t i = 0; i < count; ++i) {
    labels.data.push_back(uint8_t(i % 10));
    for (int64_t p = 0; p < 6; ++p)
      images.data.push_back(uint8_t(i * 6 + p));
  }
  const auto write = gzip ? writeGzip : writeFile;
  write(folder + "/" + prefix + "-images-idx3-ubyte" + (gzip ? ".gz" : ""), encodeIdx(images));
  write(folder + "/" + prefix + "-labels-idx1-ubyte" + (gzip ? ".gz" : ""), encodeIdx(labels));
}

TEST_CASE("idx files round-trip and refuse what is torn", "[data]") {
  const IdxArray array{{2, 3}, {1, 2, 3, 4, 5, 6}};
  const std::vector<uint8_t> bytes = encodeIdx(array);
  const IdxArray back = parseIdx(bytes, 2, "x");
  CHECK(back.dims == array.dims);
  CHECK(back.data == array.data);
  for (size_t n = 0; n < bytes.size(); ++n)
    CHECK_THROWS_AS(parseIdx(std::span(bytes).first(n), 2, "x"), Error);
  auto longer = bytes;
  longer.push_back(0);
  CHECK_THROWS_WITH(parseIdx(longer, 2, "a-file"), Contains("a-file") && Contains("promises 6"));
  CHECK_THROWS_WITH(parseIdx(bytes, 1, "x"), Contains("magic number") && Contains("0x00000802"));
  const std::vector<uint8_t> huge{0, 0, 8, 3, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1};
  CHECK_THROWS_AS(parseIdx(huge, 3, "x"), Error);
  const std::vector<uint8_t> hugeOfNone{0, 0, 8, 3, 255, 255, 255, 255, 255, 255, 255, 255, 0, 0, 0, 0};
  CHECK_THROWS_WITH(parseIdx(hugeOfNone, 3, "x"), Contains("overflow at dimension 1"));
}

TEST_CASE("a compressed file is inflated no further than its header says", "[data]") {
  test::TemporaryFolder folder;
  std::vector<uint8_t> bomb = encodeIdx({{2}, {1, 2}});
  bomb.resize(size_t{64} << 20);
  writeGzip(folder.path("x.gz"), bomb);
  CHECK_THROWS_WITH(readIdx(folder.path("x"), 1), Contains("promises 2") && Contains("holds more"));
  const std::vector<uint8_t> huge{0, 0, 8, 2, 255, 255, 255, 255, 0, 255, 255, 255};
  writeGzip(folder.path("y.gz"), huge);
  CHECK_THROWS_WITH(readIdx(folder.path("y"), 2), Contains("promises") && Contains("at most"));
  CHECK_THROWS_WITH(readMaybeGzip(folder.path("x.gz"), 1000), Contains("at most 1000 bytes"));
  CHECK_THROWS_WITH(readMaybeGzip("/dev/zero", 1000), Contains("a device"));
}

TEST_CASE("mnist reads plain and gzipped folders", "[data]") {
  test::TemporaryFolder folder;
  writeMnist(folder.path(), "train", 7, true);
  writeMnist(folder.path(), "t10k", 3, false);
  const MnistSource source(folder.path());
  CHECK(source.samples(Split::Train) == 7);
  CHECK(source.samples(Split::Eval) == 3);
  CHECK(source.fields()[0].shape == std::vector<int64_t>{1, 2, 3});
  float image[6];
  source.read(Split::Train, 5, 0, reinterpret_cast<std::byte *>(image));
  for (int p = 0; p < 6; ++p)
    CHECK(image[p] == float(30 + p) / 255.0f);
  int32_t label;
  source.read(Split::Eval, 2, 1, reinterpret_cast<std::byte *>(&label));
  CHECK(label == 2);
}

TEST_CASE("a job's data set reads the files that it needs alone", "[data]") {
  test::TemporaryFolder folder;
  writeMnist(folder.path(), "t10k", 3, false);
  const MnistSource evaluation(folder.path(), 10, {.train = false});
  CHECK(evaluation.samples(Split::Train) == 0);
  CHECK(evaluation.samples(Split::Eval) == 3);
  CHECK_THROWS_WITH(MnistSource(folder.path()), Contains("train-images"));
  std::filesystem::remove(folder.path() + "/t10k-labels-idx1-ubyte");
  CHECK_THROWS_WITH(MnistSource(folder.path(), 10, {.train = false}), Contains("t10k-labels"));
  const MnistSource pictures(folder.path(), 10, {.train = false, .labels = false});
  CHECK(pictures.samples(Split::Eval) == 3);
  CHECK(pictures.fields().size() == 2); // lists all fields of the model, even those that are not read
  CHECK_THROWS_WITH(TextSource("abcdefgh", 4, 128, "short"), Contains("too few for one evaluation window"));
  CHECK(TextSource("abcdefgh", 4, 128, "short", {.eval = false}).samples(Split::Train) == 1);
}

TEST_CASE("mnist names what is wrong with a folder", "[data]") {
  test::TemporaryFolder folder;
  CHECK_THROWS_WITH(MnistSource("/no/such/place"), Contains("/no/such/place"));
  writeMnist(folder.path(), "train", 7, false);
  CHECK_THROWS_WITH(MnistSource(folder.path()), Contains("t10k-images"));
  writeMnist(folder.path(), "t10k", 3, true);
  writeFile(folder.path("train-labels-idx1-ubyte"), encodeIdx({{6}, {0, 1, 2, 3, 4, 5}}));
  CHECK_THROWS_WITH(MnistSource(folder.path()), Contains("6 labels") && Contains("7 images"));
  writeFile(folder.path("train-labels-idx1-ubyte"), encodeIdx({{7}, {0, 1, 2, 33, 4, 5, 6}}));
  CHECK_THROWS_WITH(MnistSource(folder.path()), Contains("33") && Contains("index 3"));
  CHECK(MnistSource(folder.path(), 34).fields()[1].classes == 34);
  writeMnist(folder.path(), "train", 7, false);
  std::filesystem::resize_file(folder.path("t10k-images-idx3-ubyte.gz"), 20);
  CHECK_THROWS_WITH(MnistSource(folder.path()), Contains("t10k-images-idx3-ubyte.gz") && Contains("truncated"));
}

TEST_CASE("what is no file where an IDX file should be is named", "[data]") {
  test::TemporaryFolder folder;
  const std::string path = folder.path("images");
  CHECK_THROWS_WITH(readIdx(path, 3), Contains("no such file, and no images.gz"));
  REQUIRE(mkfifo(path.c_str(), 0600) == 0);
  CHECK_THROWS_WITH(readIdx(path, 3), Contains("images: a regular file expected, found a pipe"));
  std::filesystem::remove(path);
  std::filesystem::create_directory(path + ".gz");
  CHECK_THROWS_WITH(readIdx(path, 3), Contains("images.gz: a regular file expected, found a folder"));
  std::filesystem::create_symlink("/no/such/target", path);
  CHECK_THROWS_WITH(readIdx(path, 3), Contains("images: cannot be opened: No such file"));
}

TEST_CASE("a file of numbers is no text", "[data]") {
  const auto refused = [](const std::string &text, const std::string &why) {
    CHECK_THROWS_WITH(TextSource(text + std::string(100, 'x'), 4, 256, "t"),
                      Contains("t: is not text: text is UTF-8 without zero bytes, found the byte " + why));
  };
  std::string tokens;
  for (const uint16_t token : {65, 66, 300, 50256})
    tokens += {static_cast<char>(token & 255), static_cast<char>(token >> 8)};
  refused(tokens, "0x00 at offset 1");
  // Unicode's table of well-formed byte sequences: the first and last of each row, and what lies beside them.
  for (const char *character : {"\x7f", "\xc2\x80", "\xdf\xbf", "\xe0\xa0\x80", "\xed\x9f\xbf", "\xee\x80\x80",
                                "\xef\xbf\xbf", "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf"})
    CHECK(TextSource("a" + std::string(character) + std::string(100, 'x'), 4, 256, "t").samples(Split::Train) > 20);
  refused("ab\x80", "0x80 at offset 2");
  refused("\xc1\xbf", "0xc1 at offset 0");
  refused("\xe0\x9f\xbf", "0xe0 at offset 0");
  refused("\xed\xa0\x80", "0xed at offset 0");
  refused("\xf0\x8f\xbf\xbf", "0xf0 at offset 0");
  refused("\xf4\x90\x80\x80", "0xf4 at offset 0");
  refused("\xf5\x80\x80\x80", "0xf5 at offset 0");
  refused("a\xc3x", "0xc3 at offset 1");
  CHECK_NOTHROW(TextSource(std::string(100, 'x') + "\xe2\x82", 4, 256, "t")); // cut within the last character
  CHECK_THROWS_WITH(TextSource(std::string(100, 'x') + "\xe2" + "x", 4, 256, "t"), Contains("0xe2 at offset 100"));
}

TEST_CASE("text windows do not overlap and targets are one on", "[data]") {
  std::string text;
  for (int i = 0; i < 100; ++i)
    text += char(32 + i % 90);
  const TextSource source(text, 8, 128, "t");
  CHECK(source.samples(Split::Train) == 11); // (90 - 1) / 8
  CHECK(source.samples(Split::Eval) == 1);   // (10 - 1) / 8
  int32_t tokens[8], targets[8];
  for (Split split : {Split::Train, Split::Eval})
    for (int64_t i = 0; i < source.samples(split); ++i) {
      source.read(split, i, 0, reinterpret_cast<std::byte *>(tokens));
      source.read(split, i, 1, reinterpret_cast<std::byte *>(targets));
      const size_t begin = size_t((split == Split::Train ? 0 : 90) + i * 8);
      for (size_t k = 0; k < 8; ++k) {
        CHECK(tokens[k] == text[begin + k]);
        CHECK(targets[k] == text[begin + k + 1]);
      }
    }
  CHECK(source.fields()[1].isLabel());
  CHECK_FALSE(source.fields()[0].isLabel());
  CHECK_THROWS_WITH(TextSource(text, 8, 40, "t"), Contains("40") && Contains("offset 8"));
  CHECK_THROWS_WITH(TextSource(text, 200, 128, "t"), Contains("too few"));
}

TEST_CASE("data sets in memory have fingerprints of their content", "[data]") {
  const std::string text(200, 'x');
  const TextSource one(text, 4, 128, "t"), same(text, 4, 128, "u"), other("y" + text.substr(1), 4, 128, "t");
  CHECK(one.fingerprint(Split::Train) == same.fingerprint(Split::Train));
  CHECK(one.fingerprint(Split::Train) != other.fingerprint(Split::Train));
  CHECK(one.fingerprint(Split::Eval) == other.fingerprint(Split::Eval));
  test::TemporaryFolder folder, gzipped;
  writeMnist(folder.path(), "train", 7, false), writeMnist(folder.path(), "t10k", 3, false);
  writeMnist(gzipped.path(), "train", 7, true), writeMnist(gzipped.path(), "t10k", 3, true);
  const auto of = [](const test::TemporaryFolder &in) { return MnistSource(in.path()).fingerprint(Split::Train); };
  CHECK(of(folder) == of(gzipped));
  writeFile(folder.path("train-labels-idx1-ubyte"), encodeIdx({{7}, {0, 1, 2, 3, 4, 6, 5}}));
  CHECK(of(folder) != of(gzipped));
}

TEST_CASE("the state of data tells how they differ from others", "[data]") {
  const auto text = [](const std::string &begin) { return TextSource(begin + std::string(200, 'x'), 4, 128, "t"); };
  const DataState known = DataState::parse(DataState::of(text("abcd"), 1, {}).json());
  CHECK(DataState::of(text("abcd"), 2, {}).difference(known, Split::Train) == ""); // whatever the seed
  CHECK_THAT(DataState::of(text("abce"), 1, {}).difference(known, Split::Train),
             Contains("fingerprint of the training samples: sha256:") && Contains(" now, sha256:"));
  CHECK(DataState::of(text("abce"), 1, {}).difference(known, Split::Eval) == "");
  CHECK(DataState::of(text("abcd" + std::string(40, 'y')), 1, {}).difference(known, Split::Train) ==
        "training samples: 54 now, 45 before");
  // Without fingerprints, fields and some samples are compared.
  const test::CountingData counting(6, 5, 21, 13), larger(6, 5, 22, 13), wider(5, 6, 21, 13);
  const DataState before = DataState::parse(DataState::of(counting, 1, {}).json());
  CHECK(DataState::of(counting, 1, {}).difference(before, Split::Train) == "");
  CHECK(DataState::of(larger, 1, {}).difference(before, Split::Train) == "training samples: 22 now, 21 before");
  CHECK(DataState::of(larger, 1, {}).difference(before, Split::Eval) == "");
  CHECK_THAT(DataState::of(wider, 1, {}).difference(before, Split::Train), Contains("fields: image f32 [1, 5, 6]"));
  DataState changed = DataState::of(counting, 1, {});
  changed.train->some["label"] = "sha256:0";
  CHECK_THAT(changed.difference(before, Split::Train),
             Contains("field label of some training samples: sha256:0 now, sha256:"));
  CHECK(changed.difference(DataState::parse(""), Split::Train) == ""); // an early checkpoint
  CHECK_THROWS_WITH(DataState::parse("[3]"), Contains("checkpoint data_state"));
}

TEST_CASE("text folders hold one text file", "[data]") {
  test::TemporaryFolder folder;
  CHECK_THROWS_WITH(TextSource(folder.path(), 4, 128), Contains("found 0"));
  writeFile(folder.path("a.txt"), std::vector<uint8_t>(100, 'x'));
  CHECK(TextSource(folder.path(), 4, 128).samples(Split::Train) == 22);
  CHECK(TextSource(folder.path("a.txt"), 4, 128).samples(Split::Train) == 22);
  writeFile(folder.path("b.txt"), {'y'});
  CHECK_THROWS_WITH(TextSource(folder.path(), 4, 128), Contains("found 2"));
}

TEST_CASE("an epoch's order is a permutation of seed and epoch", "[data]") {
  const auto a = shuffledOrder(1000, 7, 1);
  CHECK(a == shuffledOrder(1000, 7, 1));
  CHECK(a != shuffledOrder(1000, 7, 2));
  CHECK(a != shuffledOrder(1000, 8, 1));
  auto sorted = a;
  std::sort(sorted.begin(), sorted.end());
  std::vector<uint32_t> identity(1000);
  std::iota(identity.begin(), identity.end(), 0u);
  CHECK(sorted == identity);
  CHECK(a != identity);
  CHECK(shuffledOrder(0, 1, 1).empty());
  SampleOrder order(1000, 7);
  CHECK(*order.of(1) == a);
  CHECK(order.of(1) == order.of(1));
}

TEST_CASE("the first place of an order is uniform", "[data]") {
  std::vector<int> counts(8);
  for (int64_t epoch = 0; epoch < 4000; ++epoch)
    ++counts[shuffledOrder(8, 5, epoch)[0]];
  for (int count : counts)
    CHECK(std::abs(count - 500) < 120);
}

TEST_CASE("synthetic labels lie in range and targets continue tokens", "[data]") {
  const SyntheticSource source({{"tokens", FieldType::I32, {6}, 0}, {"targets", FieldType::I32, {6}, 40}}, {10, 4}, 3,
                               40);
  int32_t tokens[6], targets[6];
  source.read(Split::Train, 3, 0, reinterpret_cast<std::byte *>(tokens));
  source.read(Split::Train, 3, 1, reinterpret_cast<std::byte *>(targets));
  for (int i = 0; i < 6; ++i) {
    CHECK((tokens[i] >= 0 && tokens[i] < 40));
    if (i)
      CHECK(tokens[i] == targets[i - 1]);
  }
}

TEST_CASE("data descriptions are checked", "[data]") {
  const DataSpec spec{plan::DataKind::Text, {{"tokens", FieldType::I32, {8}, 0}}, 8, 128};
  CHECK_THROWS_WITH(openData(spec, "", 1), Contains("--data"));
  CHECK_THROWS_WITH(openData({plan::DataKind::Custom, {}, 0, 0}, "/tmp", 1), Contains("defined in its program"));
  const test::CountingData data(2, 3, 4, 4);
  CHECK(findField(data, "image", FieldType::F32, {6}) == 0);
  CHECK_THROWS_WITH(findField(data, "image", FieldType::F32, {3, 224, 224}), Contains("224") && Contains("2, 3"));
  CHECK_THROWS_WITH(findField(data, "tokens", FieldType::I32, {3}), Contains("tokens") && Contains("image, label"));
}

TEST_CASE("the loader lays down each rank's rows, whatever the mesh", "[data]") {
  const auto [dp, tp] =
      GENERATE(std::pair(1u, 1u), std::pair(2u, 1u), std::pair(3u, 1u), std::pair(1u, 2u), std::pair(3u, 4u));
  const test::LinearSpec spec{.dp = dp, .tp = tp};
  const auto file = test::seal(test::linearPlan(spec));
  const test::CountingData data(spec.rows, spec.columns, 21, 13);
  SampleOrder order(21, spec.seed);
  const int64_t rows = spec.batch / spec.microbatches;
  const unsigned workers = GENERATE(1u, 3u);
  for (unsigned rank = 0; rank < dp * tp; ++rank) {
    Loader loader(file->plan(), rank, data, order, workers);
    const auto &program = *file->plan().programs()->Get(rank);
    for (const BatchRef batch : {BatchRef{Split::Train, 2, 8, 8}, BatchRef{Split::Eval, 0, 8, 5}}) {
      std::vector<std::byte> buffer(program.input_bytes(), std::byte{0x55});
      loader.start(batch, buffer.data());
      loader.wait();
      const auto permutation = order.of(2);
      const Part mine = splitPart(rows, dp, rank / tp), height = splitPart(spec.rows, tp, rank % tp);
      for (const InputPart &part : inputParts(file->plan(), rank, batch.split == Split::Eval))
        for (int64_t r = 0; r < mine.count; ++r) {
          const int64_t inBatch = part.microbatch * rows + mine.begin + r, at = batch.first + inBatch;
          const int64_t index =
              batch.split == Split::Train ? (*permutation)[size_t(at)] : batch.first + inBatch % batch.count;
          if (part.field == "label") {
            int32_t label;
            std::memcpy(&label, buffer.data() + part.offset + 4 * r, 4);
            CHECK(label == int32_t(index % 10));
            continue;
          }
          for (int64_t i = 0; i < height.count * spec.columns; ++i) {
            float x;
            std::memcpy(&x, buffer.data() + part.offset + 4 * (r * height.count * spec.columns + i), 4);
            CHECK(x == test::CountingData::value(batch.split, index, height.begin * spec.columns + i));
          }
        }
    }
  }
}

TEST_CASE("the batches of an evaluation count every sample once", "[data]") {
  for (int64_t samples = 0; samples < 70; ++samples)
    for (int64_t batch = 1; batch < 40; ++batch) {
      const EvalBatches batches(samples, batch);
      std::vector<double> sums, weights, means;
      for (const BatchRef &one : batches.list) {
        double sum = 0;
        for (int64_t row = 0; row < batch; ++row)
          sum += double((one.first + row % one.count) * (one.first + row % one.count));
        sums.push_back(sum);
        weights.push_back(double(batch));
        means.push_back(sum / double(batch));
      }
      CHECK(batches.total(sums) == double((samples - 1) * samples * (2 * samples - 1) / 6));
      CHECK(batches.total(weights) == double(samples));
      const std::vector<double> ones(sums.size(), 1);
      if (samples > 0) // a loss that returns means, each of weight 1
        CHECK(batches.total(means) / batches.total(ones) == Approx(batches.total(sums) / double(samples)));
    }
  CHECK(EvalBatches(70, 64).list.size() == 3); // 64 samples; 6 samples ten times and 4 more; 4 samples sixteen times
}

namespace {
/// A data set whose reads fail.
class FailingData final : public DataSource {
public:
  const std::vector<DataField> &fields() const override { return base.fields(); }
  int64_t samples(Split split) const override { return base.samples(split); }
  void read(Split, int64_t index, size_t, std::byte *) const override {
    throw userError(fmt::format("the disk of sample {} is gone", index));
  }
  test::CountingData base{6, 5, 16, 8};
};
} // namespace

TEST_CASE("labels beyond the model's classes are refused where the data is opened", "[data]") {
  test::TemporaryFolder folder;
  writeMnist(folder.path(), "train", 7, false);
  writeMnist(folder.path(), "t10k", 3, false);
  const auto specOf = [](int classes) {
    return DataSpec{
        plan::DataKind::Mnist, {{"image", FieldType::F32, {1, 2, 3}, 0}, {"label", FieldType::I32, {}, classes}}, 0, 0};
  };
  CHECK(openData(specOf(7), folder.path(), 1)->fields()[1].classes == 7);
  try {
    openData(specOf(5), folder.path(), 1);
    FAIL("opened");
  } catch (const Error &error) {
    CHECK(error.status == Status::User);
    CHECK_THAT(error.what(), Contains("train-labels") && Contains("5 classes") && Contains("found 5 at index 5"));
  }
}

namespace {
/// A data set in which sample 3 has the given label.
class OneLabel final : public DataSource {
public:
  explicit OneLabel(int32_t label) : label(label) {}
  const std::vector<DataField> &fields() const override { return base.fields(); }
  int64_t samples(Split split) const override { return base.samples(split); }
  void read(Split split, int64_t index, size_t field, std::byte *dst) const override {
    base.read(split, index, field, dst);
    if (field == 1 && index == 3)
      std::memcpy(dst, &label, 4);
  }
  test::CountingData base{6, 5, 16, 8};
  int32_t label;
};
} // namespace

TEST_CASE("labels are checked as they are read", "[data]") {
  const auto file = test::seal(test::linearPlan({}));
  const auto read = [&](int32_t label) {
    const OneLabel data(label);
    SampleOrder order(16, 1);
    Loader loader(file->plan(), 0, data, order);
    std::vector<std::byte> buffer(file->plan().programs()->Get(0)->input_bytes());
    loader.start({Split::Eval, 0, 0, 8}, buffer.data());
    loader.wait();
  };
  read(9);
  read(-100); // ignored by the loss
  CHECK_THROWS_WITH(read(10), Contains("data field label") && Contains("[0, 10)") && Contains("found 10") &&
                                  Contains("evaluation sample 3"));
}

TEST_CASE("values that the model reads as indices are checked, whatever the field declares", "[data]") {
  DataField field{"ids", FieldType::I32, {2, 3}};
  DataSpec spec{plan::DataKind::Custom, {field}};
  const auto problem = [&](std::vector<int32_t> values) -> std::string {
    try {
      ValueCheck(spec, field).require({Split::Eval, 7}, reinterpret_cast<const std::byte *>(values.data()));
    } catch (const Error &error) {
      return error.what();
    }
    return "";
  };
  CHECK(problem({-5, 1000, 0, 0, 0, 0}).empty());
  spec.indices["ids"] = {{"embedding at net.cpp:3", {0, 1}, {2, 2}, 0, 4, -7}}; // columns 1 and 2
  CHECK(problem({-5, 0, 3, 1000, 1, 2}).empty());
  CHECK(problem({0, 0, 4, 0, 0, 0}) == "data field ids: embedding at net.cpp:3 reads values in [0, 4), found 4 at "
                                       "element 2 of evaluation sample 7");
  CHECK_THAT(problem({0, 0, 0, 0, -2, 0}), Contains("found -2 at element 4"));
  CHECK(problem({0, 0, 0, 0, -7, 0}).empty()); // ignored
  spec.indices["ids"][0].least = INT32_MIN;
  CHECK(problem({0, 0, 0, 0, -2, 0}).empty());
  spec.fields[0].classes = 6; // and what is declared
  CHECK_THAT(problem({6, 0, 0, 0, 0, 0}), Contains("values lie in [0, 6)") && Contains("found 6 at element 0"));
  spec.indices["ids"][0].ignored = 255;
  CHECK(problem({0, 255, 0, 0, 0, 0}).empty());
  spec.indices["ids"][0].size = {2, 3};
  CHECK_THAT(problem({0, 0, 0, 0, 0, 0}), Contains("plan field ids: the indices of embedding"));
}

TEST_CASE("what a data set throws comes out of wait", "[data]") {
  const auto file = test::seal(test::linearPlan({}));
  const FailingData data;
  SampleOrder order(16, 1);
  Loader loader(file->plan(), 0, data, order, GENERATE(1u, 4u));
  std::vector<std::byte> buffer(file->plan().programs()->Get(0)->input_bytes());
  for (int again = 0; again < 20; ++again) { // of the first row, whichever worker was faster
    loader.start({Split::Eval, 0, 0, 8}, buffer.data());
    CHECK_THROWS_WITH(loader.wait(), Contains("the disk of sample 0 is gone"));
    loader.wait();
  }
}
