// Hashes, number formats, random numbers.
#include "runtime/base/Error.h"
#include "runtime/base/Flops.h"
#include "runtime/base/InputFile.h"
#include "runtime/base/Nearest.h"
#include "runtime/base/Sha256.h"
#include "runtime/device/Philox.h"
#include "runtime/plan/DTypes.h"
#include "runtime/plan/plan_generated.h"

#include <catch2/catch.hpp>

#include <cerrno>
#include <limits>
#include <vector>

using namespace cleave;

static std::string hashOf(const std::string &text) {
  return toHex(sha256({reinterpret_cast<const uint8_t *>(text.data()), text.size()}));
}

TEST_CASE("a causal mask hides the keys after each row") {
  const auto flops = [](int64_t rows, bool causal) { return attentionFlops(1, 1, rows, 64, 8, 2, causal); };
  CHECK(flops(64, false) == 2. * 2 * 64 * 64 * 8);
  CHECK(flops(64, true) == flops(64, false) / 2);
  CHECK(flops(1, true) == 2. * 2 * 8 * 63.5); // a row that continues a text sees all of it
}

TEST_CASE("sha256: published vectors") {
  CHECK(hashOf("") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  CHECK(hashOf("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  CHECK(hashOf("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq") ==
        "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  CHECK(hashOf(std::string(1000000, 'a')) == "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST_CASE("sha256: pieces give what the whole gives") {
  std::string text(300, 'x');
  for (size_t i = 0; i < text.size(); ++i)
    text[i] = static_cast<char>('a' + i % 26);
  for (size_t cut : {0, 1, 55, 56, 63, 64, 65, 128, 299}) {
    Sha256 hash;
    auto bytes = std::span(reinterpret_cast<const uint8_t *>(text.data()), text.size());
    hash.update(bytes.first(cut));
    hash.update(bytes.subspan(cut));
    CHECK(toHex(hash.finish()) == hashOf(text));
  }
}

TEST_CASE("philox: Random123's known answers") {
  CHECK(philox({0, 0, 0, 0}, 0, 0) == PhiloxBlock{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  uint32_t ones = 0xffffffff;
  CHECK(philox({ones, ones, ones, ones}, ones, ones) == PhiloxBlock{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  CHECK(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, 0xa4093822, 0x299f31d0) ==
        PhiloxBlock{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST_CASE("philox: filling a run gives the same as element by element") {
  for (uint64_t first : {uint64_t{0}, uint64_t{3}, uint64_t{61}, (uint64_t{1} << 34) - 5})
    for (int64_t count : {0, 1, 7, 64, 200, 1000}) {
      std::vector<float> run(static_cast<size_t>(count));
      philoxFill(run.data(), 0x123456789abcdef, 5, first, count);
      for (int64_t i = 0; i < count; ++i)
        REQUIRE(run[static_cast<size_t>(i)] == philoxUniform(0x123456789abcdef, 5, first + static_cast<uint64_t>(i)));
    }
}

TEST_CASE("philox: normal numbers have the moments of one") {
  double sum = 0, squares = 0;
  constexpr int count = 100000;
  for (int i = 0; i < count; ++i) {
    double value = philoxNormal(fnv1a64("weight"), 1, static_cast<uint64_t>(i));
    sum += value;
    squares += value * value;
  }
  CHECK(std::abs(sum / count) < 0.02);
  CHECK(std::abs(squares / count - 1) < 0.02);
}

TEST_CASE("philox: a run of normal numbers is the same numbers wherever it begins") {
  constexpr uint64_t key = 0x123456789abcdef, begin = (uint64_t{1} << 34) - 70;
  std::vector<double> whole(5000);
  philoxFillNormal(whole.data(), key, 1, begin, 5000);
  double furthest = 0;
  for (size_t i = 0; i < whole.size(); ++i)
    furthest = std::max(furthest, std::abs(whole[i] - philoxNormal(key, 1, begin + i)));
  CHECK(furthest < 4e-15);
  for (uint64_t from : {0, 1, 2, 3, 31, 32, 33, 61})
    for (int64_t count : {0, 1, 7, 32, 33, 200, 1000}) {
      std::vector<double> run(static_cast<size_t>(count));
      philoxFillNormal(run.data(), key, 1, begin + from, count);
      REQUIRE(std::equal(run.begin(), run.end(), whole.begin() + static_cast<std::ptrdiff_t>(from)));
    }
}

TEST_CASE("fnv1a64: published vectors") {
  CHECK(fnv1a64("") == 0xcbf29ce484222325);
  CHECK(fnv1a64("a") == 0xaf63dc4c8601ec8c);
  CHECK(fnv1a64("foobar") == 0x85944171f73967e8);
}

TEST_CASE("half formats round to nearest even") {
  CHECK(floatToF16(1.0f) == 0x3c00);
  CHECK(floatToF16(-2.0f) == 0xc000);
  CHECK(floatToF16(65504.0f) == 0x7bff);
  CHECK(floatToF16(65520.0f) == 0x7c00);
  CHECK(floatToF16(0x1p-24f) == 1);
  CHECK(floatToF16(0x1p-25f) == 0);
  CHECK(floatToF16(0x1.8p-24f) == 2);
  CHECK(floatToBf16(1.0f) == 0x3f80);
  CHECK(floatToBf16(1.00390625f) == 0x3f80); // halfway: rounds to even
  CHECK(floatToBf16(1.01171875f) == 0x3f82);
  CHECK((floatToF16(std::numeric_limits<float>::quiet_NaN()) & 0x7fff) > 0x7c00);
  // Doubles are rounded once, not to a float first: a little above or below the middle of two values of the type.
  const auto stored = [](plan::DType type, double value) {
    uint16_t bits = 0;
    storeElement(&bits, 0, type, value);
    return loadElement(&bits, 0, type);
  };
  for (const double sign : {1.0, -1.0})
    for (const auto &[type, unit] : {std::pair{plan::DType::F16, 0x1p-10}, std::pair{plan::DType::BF16, 0x1p-7}}) {
      CHECK(stored(type, sign * (1 + unit / 2 + 0x1p-40)) == sign * (1 + unit));
      CHECK(stored(type, sign * (1 + unit / 2 - 0x1p-40)) == sign);
      CHECK(stored(type, sign * (1 + unit / 2)) == sign);
      CHECK(stored(type, sign * (1 + 3 * unit / 2 - 0x1p-40)) == sign * (1 + unit));
    }
  CHECK(stored(plan::DType::F16, 0x1p-25 + 0x1p-60) == 0x1p-24);
  CHECK(stored(plan::DType::F16, 1e300) == std::numeric_limits<double>::infinity());
  CHECK(std::isnan(stored(plan::DType::F16, std::nan(""))));
  CHECK((floatToBf16(std::numeric_limits<float>::quiet_NaN()) & 0x7fff) > 0x7f80);
  for (uint32_t bits = 0; bits < 0x7c00; ++bits)
    REQUIRE(floatToF16(f16ToFloat(static_cast<uint16_t>(bits))) == bits);
}

TEST_CASE("NaN and infinity are found anywhere in an array of floats") {
  const double inf = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  for (plan::DType type : {plan::DType::F32, plan::DType::F16, plan::DType::BF16}) {
    INFO(dtypeName(type));
    constexpr int64_t count = 10000;
    std::vector<std::byte> data(count * dtypeSize(type));
    for (int64_t i = 0; i < count; ++i)
      storeElement(data.data(), i, type, i % 2 ? 65504 : -65504.0 / (1 + double(i))); // from the largest of f16 on
    CHECK(allFinite(data, type));
    CHECK(allFinite({}, type));
    for (int64_t at : {int64_t{0}, int64_t{4095}, int64_t{4096}, count - 1})
      for (double bad : {inf, -inf, nan}) {
        const double before = loadElement(data.data(), at, type);
        storeElement(data.data(), at, type, bad);
        CHECK_FALSE(allFinite(data, type));
        storeElement(data.data(), at, type, before);
      }
    CHECK(allFinite(data, type));
  }
  const std::vector<std::byte> ones(64, std::byte{0xff});
  CHECK(allFinite(ones, plan::DType::I64));
}

TEST_CASE("the word that is meant is the nearest one") {
  const std::vector<std::string> known{"--mesh", "--microbatches", "--batch", "--lr", "--seed", "-o"};
  CHECK(nearest("--mehs", known) == "--mesh"); // a swap of two letters is one mistake
  CHECK(nearest("--microbatch", known) == "--microbatches");
  CHECK(nearest("--Batch", known) == "--batch");
  CHECK(nearest("--l", known) == "--lr");
  CHECK(nearest("--learning-rate", known) == std::nullopt);
  CHECK(nearest("--mesh", {}) == std::nullopt);
  CHECK(suggestion("--sede", known) == "; did you mean --seed?");
  CHECK(suggestion("--frobnicate", known).empty());
}

TEST_CASE("what may pass is tried again, and only that") {
  const auto tried = [](int code, int failures) {
    int calls = 0;
    try {
      const int result = withRetries([&] {
        if (++calls <= failures)
          throw FileError(Status::Environment, "a.jpg: cannot be read", code);
        return 7;
      });
      return std::pair(calls, std::to_string(result));
    } catch (const FileError &error) {
      CHECK((error.code == code && error.status == Status::Environment));
      return std::pair(calls, std::string(error.what()));
    }
  };
  CHECK(tried(EIO, 0) == std::pair(1, std::string("7")));
  CHECK(tried(EIO, 2) == std::pair(3, std::string("7")));
  CHECK(tried(0, 9) == std::pair(4, std::string("a.jpg: cannot be read; tried 4 times"))); // the file ends early
  CHECK(tried(ENOENT, 1) == std::pair(1, std::string("a.jpg: cannot be read")));
  CHECK(tried(EACCES, 1) == std::pair(1, std::string("a.jpg: cannot be read")));
}
