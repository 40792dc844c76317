// How shardings propagate through reshapes.
#include "partitioner/sharding/Reshape.h"
#include "tests/unit/partitioner/sharding/Problems.h"

#include <catch2/catch.hpp>

using namespace cleave;
using namespace cleave::partitioner;
using namespace cleave::partitioner::test;

TEST_CASE("reshape regroups factors") {
  Mesh mesh = meshOf(2, 2);
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
  // Dimensions that are not split may be regrouped freely.
  CHECK(go("dp, _, _", {4, 6, 4}, {4, 4, 6}) == "dp, _, _");
  CHECK(go("dp, _, _, _", {4, 1, 28, 28}, {4, 16, 49}) == "dp, _, _");
  CHECK(go("_, _", {6, 4}, {4, 6}) == "_, _");
  // Joined axes separate where the major one ends.
  CHECK(go("dp+tp", {8}, {2, 4}) == "dp, tp");
  CHECK(go("dp, tp", {2, 4}, {8}) == "dp+tp");
  // Uneven shares of 6 over 4 do not align with 3 pairs.
  CHECK_FALSE(reshapeSharding(sharding("tp", {6}), {6}, {3, 2}, meshOf(1, 4)));
}

TEST_CASE("what a reshape cannot carry is gathered, the last dimension first") {
  Mesh mesh = meshOf(2, 2);
  Sharding operand = sharding("dp, tp", {4, 6});
  Sharding result = reshapeOrGather(operand, {4, 6}, {4, 3, 2}, mesh);
  CHECK(operand.str() == "dp, _");
  CHECK(result.str() == "dp, _, _");
}
