// Folders, tars and record files of pictures: what is listed, what is read, and what is refused.
#include "runtime/base/Error.h"
#include "runtime/pictures/Picture.h"
#include "runtime/pictures/PictureList.h"
#include "runtime/pictures/Shards.h"
#include "tests/unit/runtime/session/TestPlans.h"

#include <algorithm>
#include <catch2/catch.hpp>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <unistd.h>

using namespace cleave;
using Catch::Matchers::Contains;
namespace fs = std::filesystem;

namespace {

const std::string goldens = CLEAVE_PICTURES;

std::vector<uint8_t> contentOf(const std::string &path) {
  std::ifstream file(path, std::ios::binary);
  REQUIRE(file);
  return {std::istreambuf_iterator<char>(file), {}};
}

ByteSource inMemory(const std::vector<uint8_t> &bytes) {
  return {"a.shard", bytes.size(), [&bytes](void *to, size_t count, uint64_t at) {
            REQUIRE(at + count <= bytes.size());
            std::copy_n(bytes.begin() + static_cast<std::ptrdiff_t>(at), count, static_cast<uint8_t *>(to));
          }};
}

void put(const std::string &path, const std::string &text) {
  fs::create_directories(fs::path(path).parent_path());
  std::ofstream(path, std::ios::binary) << text;
}

/// The cache of this process, which would otherwise be the user's.
struct CacheIn {
  explicit CacheIn(const std::string &folder) { setenv("XDG_CACHE_HOME", folder.c_str(), 1); }
  ~CacheIn() { unsetenv("XDG_CACHE_HOME"); }
};

/// A tar's member of the old format, with its padding.
std::string member(const std::string &name, const std::string &content, int64_t size = -1) {
  std::string header(512, '\0');
  name.copy(header.data(), 100);
  const auto octal = [&](size_t at, size_t width, uint64_t value) {
    for (size_t i = width - 1; i-- > 0; value /= 8)
      header[at + i] = static_cast<char>('0' + value % 8);
  };
  octal(100, 8, 0644);
  octal(108, 8, 0);
  octal(116, 8, 0);
  octal(124, 12, size < 0 ? content.size() : static_cast<uint64_t>(size));
  octal(136, 12, 0);
  header[156] = '0';
  std::memset(header.data() + 148, ' ', 8);
  uint64_t sum = 0;
  for (const char c : header)
    sum += static_cast<uint8_t>(c);
  octal(148, 7, sum);
  return header + content + std::string((512 - content.size() % 512) % 512, '\0');
}

std::vector<ShardPicture> tarOf(const std::string &text, bool end = true) {
  std::vector<uint8_t> bytes(text.begin(), text.end());
  bytes.resize(bytes.size() + (end ? 1024 : 0));
  return picturesOfTar(inMemory(bytes));
}

} // namespace

TEST_CASE("tars and record files that others have written are read") {
  const std::vector<uint8_t> jpeg = contentOf(goldens + "/plain.jpg"), png = contentOf(goldens + "/grey.png");
  test::TemporaryFolder folder;
  const CacheIn cache(folder.path("cache"));
  for (const std::string suffix : {"tar", "rec"}) {
    CAPTURE(suffix);
    fs::create_directories(folder.path(suffix));
    for (const char *name : {"/0", "/1"})
      fs::copy_file(goldens + "/plain." + suffix, folder.path(suffix) + name + "." + suffix);
    const PictureList list(folder.path(suffix));
    REQUIRE(list.count() == 6);
    CHECK(list.kind() == (suffix == "tar" ? PictureList::Kind::Tars : PictureList::Kind::Records));
    CHECK(list.labels() == 3);
    CHECK(list.classes().empty());
    CHECK(list.shards() == std::vector<int64_t>{0, 3});
    for (int64_t first : {0, 3}) {
      CHECK(list.label(first) == 2);
      CHECK(list.label(first + 1) == 0);
      CHECK(list.label(first + 2) == 1);
      CHECK(list.read(first) == jpeg);
      CHECK(list.read(first + 1) == png);
      const std::vector<uint8_t> last = list.read(first + 2); // a record in three parts
      CHECK(last.size() > jpeg.size());
      CHECK(decodePicture(last, "last").pixels == decodePicture(jpeg, "first").pixels);
      CHECK(std::string(last.end() - 3, last.end()) == "end");
    }
    CHECK_THAT(list.name(4), Contains(suffix == "tar" ? "1.tar: a/longlong" : "1.rec: record 1"));
    fs::remove(folder.path(suffix) + "/0." + suffix); // while it is used
    CHECK_THROWS_WITH(list.read(0), Contains("0." + suffix));
  }
}

TEST_CASE("the index of a tar is made anew for another file, and where it is damaged") {
  test::TemporaryFolder folder;
  const CacheIn cache(folder.path("cache"));
  fs::create_directories(folder.path("t"));
  const std::string tar = folder.path("t") + "/0.tar";
  const auto labels = [&] {
    const PictureList list(folder.path("t"));
    std::vector<int32_t> found;
    for (int64_t i = 0; i < list.count(); ++i)
      found.push_back(list.label(i));
    return found;
  };
  const std::string end(1024, '\0');
  put(tar, member("a.jpg", "x") + member("a.cls", "3") + end);
  CHECK(labels() == std::vector<int32_t>{3});
  std::vector<fs::path> files;
  for (const auto &entry : fs::recursive_directory_iterator(folder.path("cache")))
    if (entry.is_regular_file())
      files.push_back(entry.path());
  REQUIRE(files.size() == 1);
  std::ifstream in(files[0]);
  std::string index((std::istreambuf_iterator<char>(in)), {});
  const size_t at = index.find("\"a\"");
  REQUIRE(at != std::string::npos);
  const size_t label = index.find(",3,", at);
  REQUIRE(label != std::string::npos);
  index[label + 1] = '5'; // the index is used
  put(files[0], index);
  CHECK(labels() == std::vector<int32_t>{5});
  for (const std::string text : {std::string("{"), std::string("[]"), index.substr(0, index.size() / 2),
                                 index.substr(0, label) + ",-1," + index.substr(label + 3)}) {
    put(files[0], text);
    CHECK(labels() == std::vector<int32_t>{3});
  }
  const auto written = fs::last_write_time(tar);
  put(tar, member("a.jpg", "x") + member("a.cls", "4") + end); // the same file, size and time, other labels
  fs::last_write_time(tar, written);
  CHECK(labels() == std::vector<int32_t>{4});
  // The file system knows no difference: headers and labels of some members tell it.
  nlohmann::json stale = nlohmann::json::parse(index), now = nlohmann::json::parse(std::ifstream(files[0]));
  stale["state"] = now["state"];
  put(files[0], stale.dump());
  CHECK(labels() == std::vector<int32_t>{4});
  now["pictures"][0][3] = 5;
  put(files[0], now.dump());
  CHECK(labels() == std::vector<int32_t>{5}); // the index is used
  fs::permissions(files[0], fs::perms::group_write, fs::perm_options::add);
  CHECK(labels() == std::vector<int32_t>{4}); // others may have written it
  if (geteuid() == 0) {
    put(files[0], now.dump());
    REQUIRE(chown(files[0].c_str(), 12345, 12345) == 0);
    CHECK(labels() == std::vector<int32_t>{4});
  }
  fs::remove(tar);
  put(tar, member("b.jpg", "y") + member("b.cls", "7") + end);
  CHECK(labels() == std::vector<int32_t>{7});
  fs::remove_all(folder.path("cache"));
  put(folder.path("cache"), "no folder");
  CHECK(labels() == std::vector<int32_t>{7});
}

TEST_CASE("a tar or record file that changes while it is used is refused") {
  test::TemporaryFolder folder;
  const CacheIn cache(folder.path("cache"));
  for (const std::string suffix : {"tar", "rec"}) {
    CAPTURE(suffix);
    fs::create_directories(folder.path(suffix));
    const std::string path = folder.path(suffix) + "/0." + suffix, whole = goldens + "/plain." + suffix;
    const auto listed = [&] {
      fs::remove(path);
      fs::copy_file(whole, path);
      fs::last_write_time(path, fs::file_time_type::clock::now() - std::chrono::hours(1));
      return std::make_unique<PictureList>(folder.path(suffix));
    };
    const auto refused = [&](const PictureList &list, const std::string &why) {
      CHECK_THROWS_WITH(list.read(0), Contains("0." + suffix) && Contains(why) && Contains("since it was listed"));
    };
    const std::vector<uint8_t> bytes = contentOf(whole);
    const std::string text(bytes.begin(), bytes.end());
    auto list = listed();
    fs::copy_file(whole, folder.path("other"), fs::copy_options::overwrite_existing);
    fs::last_write_time(folder.path("other"), fs::last_write_time(path));
    fs::rename(folder.path("other"), path);
    refused(*list, "was replaced by another file");
    list = listed();
    put(path, text);
    refused(*list, "was written to");
    list = listed();
    put(path, text.substr(0, text.size() / 2));
    refused(*list, fmt::format("was changed from {} bytes to {}", text.size(), text.size() / 2));
    list = listed();
    fs::permissions(path, fs::perms::owner_read); // only the mode
    CHECK(list->read(0) == contentOf(goldens + "/plain.jpg"));
    fs::permissions(path, fs::perms::owner_write, fs::perm_options::add);
    const auto written = fs::last_write_time(path);
    std::string other = text; // the label of the first picture, with the time kept
    if (suffix == "tar")
      other.at(picturesOfTar(inMemory(bytes)).at(0).labelOffset) = '1';
    else
      other.at(12 + 2) = '\x40', other.at(12 + 3) = '\x40'; // 3.0f
    put(path, other);
    fs::last_write_time(path, written);
    refused(*list, "was written to");
  }
}

TEST_CASE("a list of pictures has a fingerprint, wherever it lies") {
  test::TemporaryFolder folder;
  const CacheIn cache(folder.path("cache"));
  const auto of = [&](const std::string &name) { return PictureList(folder.path(name)).fingerprint(); };
  for (const char *name : {"a/cat/1.jpg", "a/cat/2.jpg", "a/dog/1.jpg"})
    put(folder.path(name), name);
  const std::string first = of("a");
  CHECK_THAT(first, Catch::Matchers::StartsWith("sha256:"));
  fs::copy(folder.path("a"), folder.path("b"), fs::copy_options::recursive);
  CHECK(of("b") == first);
  put(folder.path("b/dog/1.jpg"), "b/dog/1.jpg"); // of the same size
  CHECK(of("b") != first);
  put(folder.path("b/dog/1.jpg"), "a/dog/1.jpg");
  CHECK(of("b") == first);
  fs::rename(folder.path("b/cat/2.jpg"), folder.path("b/cat/3.jpg"));
  CHECK(of("b") != first);
  const std::string end(1024, '\0');
  put(folder.path("t/0.tar"), member("a.jpg", "x") + member("a.cls", "3") + end);
  put(folder.path("u/0.tar"), member("a.jpg", "x") + member("a.cls", "4") + end);
  put(folder.path("v/0.tar"), member("a.jpg", "y") + member("a.cls", "3") + end);
  CHECK(of("t") == of("t")); // from the index, too
  CHECK(of("t") != of("u"));
  CHECK(of("t") != of("v"));
}

TEST_CASE("a folder's classes and files are sorted by name") {
  test::TemporaryFolder folder;
  for (const char *name : {"dog/b.JPG", "dog/a.png", "dog/more/c.jpeg", "dog/notes.txt", "dog/.hidden.jpg", "dog/plain",
                           "cat/x.webp", "readme.jpg"})
    put(folder.path() + "/" + name, "");
  const PictureList list(folder.path());
  CHECK(list.kind() == PictureList::Kind::Folder);
  CHECK(list.classes() == std::vector<std::string>{"cat", "dog"});
  std::vector<std::string> names;
  for (int64_t i = 0; i < list.count(); ++i)
    names.push_back(list.name(i).substr(folder.path().size() + 1));
  CHECK(names == std::vector<std::string>{"cat/x.webp", "dog/a.png", "dog/b.JPG", "dog/plain", "dog/more/c.jpeg"});
  CHECK(list.label(0) == 0);
  CHECK(list.label(4) == 1);
  CHECK(list.shards().empty());
}

TEST_CASE("folders that cannot be are refused with what is wrong") {
  test::TemporaryFolder folder, caches;
  const CacheIn cache(caches.path());
  const auto refused = [&](const std::string &why) { CHECK_THROWS_WITH(PictureList(folder.path()), Contains(why)); };
  CHECK_THROWS_WITH(PictureList(folder.path("nothing")), Contains("cannot be listed"));
  refused("a folder for each class");
  put(folder.path() + "/cat/a.txt", "");
  refused("cat: a class without pictures");
  put(folder.path() + "/cat/a.jpg", "");
  CHECK(PictureList(folder.path()).count() == 1);
  fs::create_directory_symlink("..", folder.path() + "/cat/round");
  refused("symbolic links lead in a circle");
  fs::remove(folder.path() + "/cat/round");
  put(folder.path() + "/a.tar", "");
  refused("a.tar: is not a tar");
  put(folder.path() + "/a.tar", std::string(1024, '\0'));
  refused("a.tar: holds no picture");
  put(folder.path() + "/b.rec", "");
  refused("both tars and record files");
}

TEST_CASE("tars are refused with the member and the rule") {
  const std::string one = member("a.jpg", "x") + member("a.cls", "3\n");
  CHECK(tarOf(one).at(0).label == 3);
  CHECK(tarOf(one + member("b.json", "x") + member("b.cls", "1") + member("b.PNG", "y")).size() == 2);
  const auto refused = [](const std::string &text, const std::string &why) {
    CHECK_THROWS_WITH(tarOf(text), Contains("a.shard: ") && Contains(why));
  };
  refused(member("../a.jpg", "x"), "lead out of the tar");
  refused(member("a/../../b.jpg", "x"), "lead out of the tar");
  refused(one + member("b.jpg", "x"), "sample \"b\": has no .cls");
  refused(member("b.cls", "1") + one, "sample \"b\": has no picture");
  refused(member("b.jpg", "x") + member("b.cls", "cat"), "must be a whole number of at least 0, found \"cat\"");
  refused(member("b.jpg", "x") + member("b.cls", "-1"), "found \"-1\"");
  refused(member("b.jpg", "x") + member("b.cls", "99999999999"), "found \"99999999999\"");
  refused(member("b.jpg", "x") + member("b.png", "x"), "a second picture");
  refused(member("b.jpg", "x", int64_t{1} << 32), "is cut off: member \"b.jpg\"");
  refused(std::string(600, 'x'), "is not a tar");
  refused(member("clip.0.jpg", "x") + member("clip.0.cls", "1"),
          "member \"clip.0.jpg\": a key ends at the first dot of a name");
  CHECK(tarOf(one + member("a.seg.png", "x")).size() == 1); // another picture of the sample is left out
  const std::string zeros(1024, '\0');
  refused(one + zeros + one, "goes on after its end at byte");
  for (const size_t size : {one.size(), one.size() - 1024, one.size() - 1024 + 512, size_t{512 + 512}}) {
    CAPTURE(size); // half a tar
    CHECK_THROWS_WITH(tarOf(one.substr(0, size), false), Contains("a.shard: is cut off"));
  }
  std::string torn = one;
  torn[512 + 512 + 3] ^= 1; // the second header's name
  CHECK_THROWS_AS(tarOf(torn), Error);
}

TEST_CASE("record files are refused with the offset and the rule") {
  const std::vector<uint8_t> whole = contentOf(goldens + "/plain.rec");
  CHECK(picturesOfRecords(inMemory(whole)).size() == 3);
  for (const size_t size : {size_t{3}, size_t{20}, whole.size() / 2, whole.size() - 1}) {
    const std::vector<uint8_t> cut(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size));
    CHECK_THROWS_WITH(picturesOfRecords(inMemory(cut)), Contains("a.shard: record at offset"));
  }
  const auto altered = [&](size_t at, uint8_t value) {
    std::vector<uint8_t> bytes = whole;
    bytes[at] = value;
    return bytes;
  };
  CHECK_THROWS_WITH(picturesOfRecords(inMemory(altered(0, 1))), Contains("instead of 0xced7230a"));
  CHECK_THROWS_WITH(picturesOfRecords(inMemory(altered(7, 0x40))), Contains("part 0 is of kind 2"));
  CHECK_THROWS_WITH(picturesOfRecords(inMemory(altered(8, 2))), Contains("one label, found 2"));
  CHECK_THROWS_WITH(picturesOfRecords(inMemory(altered(15, 0xbf))), Contains("must be a whole number"));
}

TEST_CASE("an index that does not fit its record file is refused") {
  test::TemporaryFolder folder;
  const std::string records = folder.path("train.rec"), index = folder.path("train.idx");
  fs::copy_file(goldens + "/plain.rec", records);
  std::string fits;
  for (const ShardPicture &record : picturesOfRecords(inMemory(contentOf(records))))
    fits = fmt::format("{}\t{}\n", record.offset, record.offset) + fits; // in any order
  const auto count = [&](const std::string &text) {
    put(index, text);
    return PictureList(records).count();
  };
  CHECK(count(fits) == 3);
  CHECK(count("0\t0\r\n" + fits) == 3);
  CHECK_THROWS_WITH(count(fits.substr(fits.find('\n') + 1)),
                    Contains("train.idx: lists 2 records, the file has 3") && Contains("of another state of"));
  CHECK_THROWS_WITH(count(fits + "7\t4\n"), Contains("train.idx: the line \"7\t4\" ends with no offset"));
  CHECK_THROWS_WITH(count("some text"), Contains("the line \"some text\""));
}
