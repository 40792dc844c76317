// Shardings: sizes of shares, text form, pieces.
#include "ir/interpreter/Slices.h"
#include "tests/unit/ir/Ir.h"

#include <numeric>

using namespace cleave;
using namespace cleave::ir;

static const Mesh mesh{{{"dp", 2}, {"tp", 3}, {"pp", 2}}};

static Sharding resolved(const std::string &text, const std::vector<int64_t> &shape) {
  std::string why;
  auto parsed = Sharding::parse(text, &why);
  INFO(text << ": " << why);
  REQUIRE(parsed);
  REQUIRE(parsed->resolve(shape));
  return *parsed;
}

TEST_CASE("remainders go to the first members") {
  std::vector<int64_t> sizes, starts;
  for (int64_t at = 0; at < 4; ++at) {
    sizes.push_back(shareSize(10, 4, at));
    starts.push_back(shareStart(10, 4, at));
  }
  CHECK(sizes == std::vector<int64_t>{3, 3, 2, 2});
  CHECK(starts == std::vector<int64_t>{0, 3, 6, 8});
  CHECK(shareSize(2, 3, 2) == 0);
}

TEST_CASE("rank = (pp * DP + dp) * TP + tp") {
  CHECK(mesh.ranks() == 12);
  for (int64_t rank = 0; rank < 12; ++rank) {
    auto coords = mesh.coords(rank);
    CHECK((coords[2] * 2 + coords[0]) * 3 + coords[1] == rank);
    CHECK(mesh.rank(coords) == rank);
  }
  CHECK(mesh.linear({"dp", "tp"}, {1, 2, 0}) == 5);
  CHECK(mesh.linear({"tp", "dp"}, {1, 2, 0}) == 5);
  CHECK(mesh.linear({"tp", "dp"}, {0, 1, 0}) == 2);
}

TEST_CASE("the text form reads back") {
  for (std::string text : {"dp, _, (3 x 4:tp x 16) | sum tp", "_", "dp+tp", "_, _", "(2:dp x 3:tp)", "dp, _",
                           "dp+tp, _", "dp, _, (3 x 4:tp x 16)", "_ | sum tp", "", "| max dp+tp"}) {
    std::string why;
    auto sharding = Sharding::parse(text, &why);
    INFO(text << ": " << why);
    if (text == "dp, _, (3 x 4:tp x 16) | sum tp") { // an axis may not split and be partial at once
      CHECK(!sharding);
      continue;
    }
    REQUIRE(sharding);
    CHECK(sharding->str() == text);
    CHECK(Sharding::parse(sharding->str()) == sharding);
  }
  CHECK(Sharding::parse("dp, (3 x 4:tp x 16) | max pp")->partialKind == PartialKind::Max);
  CHECK(Sharding::parse("")->dims.empty());
}

TEST_CASE("malformed text says why") {
  for (std::string text : {"dp, dp", "(3 x", "3", "dp | sum", "dp | product tp", "(0:dp)", "dp++tp", "dp,", "(3 x )",
                           "_ | add tp", "(0 x 2)", "tp | sum tp"}) {
    std::string why;
    INFO(text);
    CHECK(!Sharding::parse(text, &why));
    CHECK(!why.empty());
  }
}

TEST_CASE("pieces cover a tensor once") {
  HostTensor whole({5, 14}, DType::F32);
  std::iota(whole.values.begin(), whole.values.end(), 0);
  for (std::string text : {"dp, tp", "_, _", "_, (2 x 7:tp)", "dp+tp, _", "_, (7:dp x 2:tp)", "tp, (2:dp x 7)"}) {
    Sharding sharding = *Sharding::parse(text);
    REQUIRE(sharding.resolve(whole.shape));
    HostTensor built({5, 14}, DType::F32, -1.0);
    int64_t elements = 0, copies = 1;
    for (int64_t rank = 0; rank < mesh.ranks(); ++rank) {
      auto coords = mesh.coords(rank);
      HostTensor piece = localPiece(whole, sharding, mesh, coords);
      CHECK(piece.shape == sharding.localShape(mesh, coords));
      placePiece(built, piece, sharding, mesh, coords);
      elements += piece.size();
    }
    for (const MeshAxis &axis : mesh.axes)
      copies *= sharding.usesAxis(*axis.role()) ? 1 : axis.size;
    INFO(text);
    CHECK(built == whole);
    CHECK(elements == whole.size() * copies);
  }
}

TEST_CASE("a factor in the middle takes its share of every major index") {
  HostTensor whole({12}, DType::F32);
  std::iota(whole.values.begin(), whole.values.end(), 0);
  Sharding sharding = *Sharding::parse("(2 x 3:tp x 2)");
  CHECK(localPiece(whole, sharding, mesh, {0, 1, 0}) == f32({4}, {2, 3, 8, 9}));
  Sharding uneven = *Sharding::parse("(3 x 4:tp)");
  CHECK(localPiece(whole, uneven, mesh, {0, 0, 0}) == f32({6}, {0, 1, 4, 5, 8, 9}));
  CHECK(localPiece(whole, uneven, mesh, {0, 2, 0}) == f32({3}, {3, 7, 11}));
}

TEST_CASE("a normalised sharding is the same layout, and equal layouts have one form") {
  auto normal = [&](std::string text, std::vector<int64_t> shape) {
    Sharding sharding = *Sharding::parse(text);
    REQUIRE(sharding.resolve(shape));
    Sharding before = sharding;
    sharding.normalise(mesh);
    HostTensor whole(shape, DType::F32);
    std::iota(whole.values.begin(), whole.values.end(), 0);
    for (int64_t rank = 0; rank < mesh.ranks(); ++rank) {
      INFO(text << " on rank " << rank);
      CHECK(localPiece(whole, before, mesh, mesh.coords(rank)) == localPiece(whole, sharding, mesh, mesh.coords(rank)));
    }
    return sharding.str();
  };
  CHECK(mesh.size("tp") == 3);
  CHECK(normal("(6:tp x 4)", {24}) == "tp");
  CHECK(normal("(3:tp x 4 x 5), _", {60, 2}) == "tp, _");
  CHECK(normal("(3 x 6:tp x 4)", {72}) == "(3 x 24:tp)");
  CHECK(normal("(5:tp x 4)", {20}) == "(5:tp x 4)"); // shares of 8, 8 and 4 elements, not of 7, 7 and 6
  CHECK(normal("(2:dp x 6:tp)", {12}) == "dp+tp");
  CHECK(normal("(2:dp x 3:tp x 5)", {30}) == "dp+tp");
  CHECK(normal("(4:dp x 6:tp)", {24}) == "(4:dp x 6:tp)");
  CHECK(normal("(2:dp x 5:tp)", {10}) == "(2:dp x 5:tp)");
  CHECK(normal("_ | sum tp", {4}) == "_ | sum tp");
}

TEST_CASE("sizes must fit the shape and neighbours merge") {
  CHECK_FALSE(Sharding::parse("(3 x 4:tp)")->resolve({13}));
  CHECK_FALSE(Sharding::parse("_, _")->resolve({13}));
  CHECK(resolved("(3 x 4 x 5)", {60}).str() == "_");
  CHECK(resolved("(1 x 4:tp x 5)", {20}).str() == "(4:tp x 5)");
}

TEST_CASE("uneven shares give the remainder to the first") {
  Mesh mesh{{{"dp", 1}, {"tp", 4}, {"pp", 1}}};
  int64_t begin = 0;
  for (int64_t i = 0; i < 4; ++i) {
    CHECK(shareStart(10, 4, i) == begin);
    begin += shareSize(10, 4, i);
    CHECK(resolved("(3 x 10:tp x 2)", {60}).localShape(mesh, {0, i, 0})[0] == 3 * shareSize(10, 4, i) * 2);
  }
  CHECK(begin == 10);
}

TEST_CASE("a sum finished where it is split is a reduce-scatter") {
  Mesh mesh{{{"dp", 2}, {"tp", 2}, {"pp", 1}}};
  auto place = [&](const char *from, const char *to, const std::vector<int64_t> &shape) {
    auto found = scatterPlace(mesh, resolved(from, shape), resolved(to, shape));
    return found ? std::to_string(found->dim) + "." + std::to_string(found->factor) : "none";
  };
  CHECK(place("dp, _ | sum tp", "dp, tp", {4, 6}) == "1.0");
  CHECK(place("dp, _ | sum tp", "dp, (3 x 2:tp)", {4, 6}) == "1.1");
  CHECK(place("_, _ | sum dp+tp", "_, dp+tp", {4, 6}) == "1.0");
  CHECK(place("_, _ | sum dp+tp", "_, tp | sum dp", {4, 6}) == "1.0");
  CHECK(place("dp, _ | sum tp", "dp, _", {4, 6}) == "none");           // the target does not split it
  CHECK(place("_, dp | sum tp", "_, dp+tp", {4, 6}) == "none");        // the dimension is split already
  CHECK(place("_, _ | sum dp+tp", "_, tp", {4, 6}) == "none");         // dp is finished too, but dp splits nothing
  CHECK(place("_, _ | sum tp", "_, (2:dp x 3:tp)", {4, 6}) == "none"); // two splits in one dimension
  mesh = {{{"dp", 1}, {"tp", 2}, {"pp", 1}}};
  CHECK(place("_, _ | sum dp+tp", "_, tp", {4, 6}) == "1.0"); // dp has one member
}
