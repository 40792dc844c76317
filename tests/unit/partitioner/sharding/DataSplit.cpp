#include "partitioner/sharding/DataSplit.h"

#include <catch2/catch.hpp>

using namespace cleave;
using partitioner::splitOverData;

namespace {

std::string split(const std::string &sharding, std::vector<int64_t> shape, const Mesh &mesh) {
  Sharding before = *Sharding::parse(sharding);
  REQUIRE(before.resolve(shape));
  const std::optional<Sharding> after = splitOverData(before, shape, mesh);
  return after ? after->str() : "none";
}

const Mesh mesh{{{"dp", 4}, {"tp", 2}, {"pp", 1}}};

} // namespace

TEST_CASE("ZeRO splits the first free dimension that dp divides") {
  CHECK(split("_, _", {8, 12}, mesh) == "dp, _");
  CHECK(split("_, _", {10, 12}, mesh) == "_, dp");
  CHECK(split("tp, _", {8, 12}, mesh) == "tp, dp");
  CHECK(split("_, (3 x 4:tp), _", {2, 12, 8}, mesh) == "_, (3 x 4:tp), dp");
}

TEST_CASE("ZeRO splits unevenly where dp divides nothing") {
  CHECK(split("_, _", {10, 7}, mesh) == "dp, _");
  CHECK(split("_, _", {3, 7}, mesh) == "_, dp");
}

TEST_CASE("ZeRO leaves whole what it cannot split, and vectors") {
  CHECK(split("_, _", {3, 2}, mesh) == "none");
  CHECK(split("tp, _", {8, 3}, mesh) == "none");
  CHECK(split("dp, _", {8, 8}, mesh) == "none");
  CHECK(split("_", {64}, mesh) == "none");
  CHECK(split("_, _", {8, 8}, {{{"dp", 1}, {"tp", 2}, {"pp", 1}}}) == "none");
}

TEST_CASE("an even split takes the first free dimension that the axis divides, or none") {
  const auto split = [](const std::string &sharding, std::vector<int64_t> shape) {
    Sharding before = *Sharding::parse(sharding);
    REQUIRE(before.resolve(shape));
    const std::optional<Sharding> after = partitioner::splitEvenly(before, shape, AxisRole::Tensor, mesh);
    return after ? after->str() : "none";
  };
  CHECK(split("_, _", {4, 6}) == "tp, _");
  CHECK(split("dp, _, _", {8, 3, 6}) == "dp, _, tp");
  CHECK(split("_", {6}) == "tp");
  CHECK(split("dp, _", {8, 3}) == "none");
  CHECK(split("tp, _", {8, 6}) == "none");
}
