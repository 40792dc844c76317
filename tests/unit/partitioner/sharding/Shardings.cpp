// Shardings as text, their shares, and how they pass through reshapes.
#include "ir/dist/Sharding.h"
#include "partitioner/sharding/Pinned.h"
#include "partitioner/sharding/Reshape.h"

#include <catch2/catch.hpp>

using namespace cleave;
using namespace cleave::partitioner;

static Mesh meshOf(int64_t dp, int64_t tp, int64_t pp) { return {{{"dp", dp}, {"tp", tp}, {"pp", pp}}}; }

static Sharding sharding(const std::string &text, const std::vector<int64_t> &shape) {
  std::string why;
  auto parsed = Sharding::parse(text, &why);
  INFO(text << ": " << why);
  REQUIRE(parsed);
  REQUIRE(parsed->resolve(shape));
  return *parsed;
}

static std::string readBack(const std::string &text) {
  std::string why;
  auto parsed = Sharding::parse(text, &why);
  return parsed ? parsed->str() : why;
}

TEST_CASE("ranks count tp fastest, then dp, then pp") {
  Mesh mesh = meshOf(2, 3, 4);
  for (int64_t pp = 0; pp < 4; ++pp)
    for (int64_t dp = 0; dp < 2; ++dp)
      for (int64_t tp = 0; tp < 3; ++tp) {
        CHECK(mesh.rank({dp, tp, pp}) == (pp * 2 + dp) * 3 + tp);
        CHECK(mesh.coords((pp * 2 + dp) * 3 + tp) == std::vector<int64_t>{dp, tp, pp});
      }
}

TEST_CASE("the text form reads back") {
  for (const char *text : {"dp, _", "dp, _, (3 x 4:tp x 16)", "dp+tp, _", "_ | sum tp", "", "| max dp+tp"})
    CHECK(readBack(text) == text);
  std::string why;
  for (const char *text : {"dp,", "(3 x )", "dp, dp", "_ | add tp", "_ | sum", "4", "(0 x 2)", "tp | sum tp"}) {
    INFO(text);
    CHECK_FALSE(Sharding::parse(text, &why));
    CHECK_FALSE(why.empty());
  }
}

TEST_CASE("sizes must fit the shape and neighbours merge") {
  CHECK_FALSE(Sharding::parse("(3 x 4:tp)")->resolve({13}));
  CHECK_FALSE(Sharding::parse("_, _")->resolve({13}));
  CHECK(sharding("(3 x 4 x 5)", {60}).str() == "_");
  CHECK(sharding("(1 x 4:tp x 5)", {20}).str() == "(4:tp x 5)");
}

TEST_CASE("uneven shares give the remainder to the first") {
  Mesh mesh = meshOf(1, 4, 1);
  int64_t begin = 0;
  for (int64_t i = 0; i < 4; ++i) {
    CHECK(shareStart(10, 4, i) == begin);
    begin += shareSize(10, 4, i);
    CHECK(sharding("(3 x 10:tp x 2)", {60}).localShape(mesh, {0, i, 0})[0] == 3 * shareSize(10, 4, i) * 2);
  }
  CHECK(begin == 10);
}

TEST_CASE("reshape regroups factors") {
  Mesh mesh = meshOf(2, 2, 1);
  auto go = [&](const char *text, std::vector<int64_t> from, std::vector<int64_t> to) {
    auto result = reshapeSharding(sharding(text, from), from, to, mesh);
    return result ? result->str() : "none";
  };
  CHECK(go("dp, _, _", {4, 8, 6}, {32, 6}) == "dp, _");
  CHECK(go("dp, _, _", {3, 8, 6}, {24, 6}) == "(3:dp x 8), _"); // shares of 16 and 8 rows
  CHECK(go("(4:dp x 8), _", {32, 6}, {4, 8, 6}) == "dp, _, _");
  CHECK(go("dp, _, (3 x 4:tp x 16)", {4, 8, 192}, {4, 8, 3, 4, 16}) == "dp, _, _, tp, _");
  CHECK(go("dp, tp, _, _", {4, 32, 7, 7}, {4, 1568}) == "dp, tp");
  CHECK(go("dp, tp", {4, 1568}, {4, 32, 7, 7}) == "dp, tp, _, _");
  CHECK(go("_, tp", {4, 6}, {3, 8}) == "none");
  CHECK(go("tp", {3}, {1, 3}) == "_, tp");
  CHECK(go("tp | sum dp", {6}, {6, 1}) == "tp, _ | sum dp");
  // What is not split regroups as it likes.
  CHECK(go("dp, _, _", {4, 6, 4}, {4, 4, 6}) == "dp, _, _");
  CHECK(go("dp, _, _, _", {4, 1, 28, 28}, {4, 16, 49}) == "dp, _, _");
  CHECK(go("_, _", {6, 4}, {4, 6}) == "_, _");
  // Joined axes come apart where the major one ends.
  CHECK(go("dp+tp", {8}, {2, 4}) == "dp, tp");
  CHECK(go("dp, tp", {2, 4}, {8}) == "dp+tp");
  // Uneven shares of 6 over 4 do not align with 3 pairs.
  CHECK_FALSE(reshapeSharding(sharding("tp", {6}), {6}, {3, 2}, meshOf(1, 4, 1)));
}

TEST_CASE("what a reshape cannot carry is gathered, the last dimension first") {
  Mesh mesh = meshOf(2, 2, 1);
  Sharding operand = sharding("dp, tp", {4, 6});
  Sharding result = reshapeOrGather(operand, {4, 6}, {4, 3, 2}, mesh);
  CHECK(operand.str() == "dp, _");
  CHECK(result.str() == "dp, _, _");
}

TEST_CASE("rules of a strategy match by path and split dimensions or factors") {
  CHECK(matches("blocks.*.fc.weight", "blocks.12.fc.weight"));
  CHECK_FALSE(matches("blocks.*.weight", "blocks.1.fc.weight"));
  CHECK(matches("*", "fc1"));
  CHECK_FALSE(matches("*", "a.b"));
  CHECK(matches("a*c*.b", "abcdcx.b"));
  CHECK_FALSE(matches("a*c*d.b", "abcdcx.b"));
  CHECK(matches("a**", "a"));
  CHECK_FALSE(matches("a.*", "a"));
  std::string stars; // in time that does not double with every star
  for (int i = 0; i < 2000; ++i)
    stars += "*a";
  CHECK_FALSE(matches(stars, std::string(5000, 'a') + "b"));
  Strategy strategy;
  strategy.mesh = meshOf(1, 2, 1);
  strategy.shard = {{"a.*", {{"0", "tp"}}, "file"}, {"a.qkv", {{"0:3x4x16.1", "tp"}}, "file"}};
  auto pinned = [&](const char *name, const std::vector<int64_t> &shape,
                    std::optional<HeadsPlace> heads = std::nullopt) {
    return pinnedSharding(name, shape, strategy, [&] { return heads; });
  };
  CHECK(pinned("a.b", {4, 4})->str() == "tp, _");
  CHECK(pinned("a.qkv", {192, 4})->str() == "(3 x 4:tp x 16), _");
  CHECK_FALSE(pinned("b.b", {4, 4}));
  CHECK_THROWS_WITH(pinned("a.b", {1}), Catch::Contains("1 elements"));
  strategy.mesh = meshOf(2, 2, 1);
  strategy.shard = {{"a", {{"0:3x8x4.1", "dp"}, {"0:3x8x4.2", "tp"}}, "file"}};
  CHECK(pinned("a", {96})->str() == "(3 x 8:dp x 4:tp)");
  CHECK(splitTexts(pinned("a", {96})->dims[0], 0) == strategy.shard[0].dims);
  strategy.shard = {{"a", {{"0:3x8x4.1", "dp"}, {"0:3x4x8.2", "tp"}}, "file"}};
  CHECK_THROWS_WITH(pinned("a", {96}), Catch::Contains("dimension 0 is split twice"));
  strategy.shard = {{"a", {{"0", "dp"}, {"0:3x8x4.2", "tp"}}, "file"}};
  CHECK_THROWS_WITH(pinned("a", {96}), Catch::Contains("dimension 0 is split twice"));
  strategy.shard = {{"a", {{"0:3x8x4.1", "tp"}, {"0:3x8x4.2", "tp"}}, "file"}};
  CHECK_THROWS_WITH(pinned("a", {96}), Catch::Contains("axis tp splits a tensor once"));
  strategy.mesh = meshOf(1, 2, 1);
  strategy.shard = {{"a", {{"0", "xp"}}, "file"}};
  CHECK_THROWS_WITH(pinned("a", {4}), Catch::Contains("xp"));
  for (const char *axes : {"tp+", "+tp", "+", "tp++dp"}) {
    strategy.shard = {{"a", {{"0", axes}}, "file"}};
    CHECK_THROWS_WITH(pinned("a", {4}), Catch::Contains("axis \"\" is unknown"));
  }
  strategy.shard = {{"a", {{"0:4611686018427387904x4x1.0", "tp"}}, "file"}};
  CHECK_THROWS_WITH(pinned("a", {4}), Catch::Contains("do not multiply"));
  strategy.shard = {{"a", {{"heads", "tp"}}, "file"}};
  CHECK(pinned("a", {4, 192}, HeadsPlace{1, 1, {3, 4, 16}})->str() == "_, (3 x 4:tp x 16)");
  CHECK_THROWS_WITH(pinned("a", {4, 3}, HeadsPlace{1, 1, {3, 1, 1}}), Catch::Contains("1 elements"));
  CHECK_THROWS_WITH(pinned("a", {4}), Catch::Contains("heads of an attention"));
}

TEST_CASE("a sum finished where it is split is a reduce-scatter") {
  Mesh mesh = meshOf(2, 2, 1);
  auto place = [&](const char *from, const char *to, const std::vector<int64_t> &shape) {
    auto found = scatterPlace(mesh, sharding(from, shape), sharding(to, shape));
    return found ? std::to_string(found->dim) + "." + std::to_string(found->factor) : "none";
  };
  CHECK(place("dp, _ | sum tp", "dp, tp", {4, 6}) == "1.0");
  CHECK(place("dp, _ | sum tp", "dp, (3 x 2:tp)", {4, 6}) == "1.1");
  CHECK(place("_, _ | sum dp+tp", "_, dp+tp", {4, 6}) == "1.0");
  CHECK(place("_, _ | sum dp+tp", "_, tp | sum dp", {4, 6}) == "1.0");
  CHECK(place("dp, _ | sum tp", "dp, _", {4, 6}) == "none");           // nothing wants it split
  CHECK(place("_, dp | sum tp", "_, dp+tp", {4, 6}) == "none");        // the dimension is split already
  CHECK(place("_, _ | sum dp+tp", "_, tp", {4, 6}) == "none");         // dp finishes too, and nothing is split over it
  CHECK(place("_, _ | sum tp", "_, (2:dp x 3:tp)", {4, 6}) == "none"); // two splits in one dimension
  mesh = meshOf(1, 2, 1);
  CHECK(place("_, _ | sum dp+tp", "_, tp", {4, 6}) == "1.0"); // dp has one member
}
