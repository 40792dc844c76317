// Tables of shardings.
#include "tests/unit/partitioner/sharding/Problems.h"

#include <set>

using namespace cleave;
using namespace cleave::partitioner;
using namespace cleave::partitioner::test;

TEST_CASE("equal shardings of a table have one index") {
  ShardingTable table;
  const ShardingId whole = table.add(sharding("_, _", {4, 6}));
  CHECK(table.add(sharding("_, _", {4, 6})) == whole);
  const std::set<ShardingId> others{whole, table.add(sharding("_, _", {6, 4})), table.add(sharding("dp, _", {4, 6})),
                                    table.add(sharding("_, _ | sum dp", {4, 6})),
                                    table.add(sharding("_, _ | max dp", {4, 6}))};
  CHECK(others.size() == 5);
  for (int64_t size = 1; size < 100; ++size) // entries keep their address as the table grows
    table.add(sharding("dp", {size}));
  CHECK(table[whole] == sharding("_, _", {4, 6}));
  ShardingTable moved = std::move(table);
  CHECK(moved[whole] == sharding("_, _", {4, 6}));
  CHECK(moved.add(sharding("_, _", {4, 6})) == whole);
}
