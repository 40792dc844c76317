// The steps of a reshard, and their bytes.
#include "partitioner/sharding/Messages.h"
#include "partitioner/sharding/Assign.h"
#include "tests/unit/partitioner/sharding/Problems.h"

#include <algorithm>
#include <map>
#include <random>
#include <set>

using namespace cleave;
using namespace cleave::partitioner;
using namespace cleave::partitioner::test;

namespace {

std::string text(const Message &message) {
  std::string text = std::string(cleave::partitioner::text(message.kind)) + " ";
  for (const std::string &axis : message.axes)
    text += (text.back() == ' ' ? "" : "+") + axis;
  return text + " of " + std::to_string(message.members) + ": " + std::to_string(message.bytes);
}

Lines messages(const Mesh &mesh, const Shape &shape, const char *from, const char *to, int64_t bits = 32) {
  Lines texts;
  for (const Message &message : messagesOf(mesh, sharding(from, shape), sharding(to, shape), bits))
    texts.push_back(text(message));
  return texts;
}

/// Whether a rank holds an index of a dimension.
bool holds(const Mesh &mesh, const DimSharding &dim, const std::vector<int64_t> &coords, int64_t index) {
  for (size_t f = dim.factors.size(); f-- > 0; index /= dim.factors[f].size) {
    const Factor &factor = dim.factors[f];
    const int64_t parts = mesh.size(factor.axes), at = mesh.linear(factor.axes, coords), place = index % factor.size;
    const int64_t start = shareStart(factor.size, parts, at);
    if (place < start || place >= start + shareSize(factor.size, parts, at))
      return false;
  }
  return true;
}

/// The elements of a tensor that a rank holds, by their row-major number.
std::set<int64_t> elementsOf(const Mesh &mesh, const std::vector<DimSharding> &dims, const std::vector<int64_t> &coords,
                             const Shape &shape) {
  std::vector<int64_t> held = {0};
  for (size_t d = 0; d < shape.size(); ++d) {
    std::vector<int64_t> more;
    for (const int64_t element : held)
      for (int64_t index = 0; index < shape[d]; ++index)
        if (holds(mesh, dims[d], coords, index))
          more.push_back(element * shape[d] + index);
    held = std::move(more);
  }
  return {held.begin(), held.end()};
}

/// Whether two ranks have equal coordinates on all axes except `axes`.
bool sameBut(const Mesh &mesh, const std::vector<std::string> &axes, const std::vector<int64_t> &a,
             const std::vector<int64_t> &b) {
  for (size_t i = 0; i < mesh.axes.size(); ++i)
    if (a[i] != b[i] && std::find(axes.begin(), axes.end(), mesh.axes[i].name) == axes.end())
      return false;
  return true;
}

} // namespace

TEST_CASE("a reshard costs its collectives, in bytes of the largest buffer") {
  const Mesh mesh = meshOf(2, 4);
  CHECK(messages(mesh, {8, 16}, "_, _", "dp, tp").empty()); // each rank slices its share
  CHECK(messages(mesh, {8, 16}, "dp, _ | sum tp", "dp, _") == Lines{"all-reduce tp of 4: 256"});
  CHECK(messages(mesh, {8, 16}, "dp, _ | sum tp", "dp, _", 16) == Lines{"all-reduce tp of 4: 128"});
  CHECK(messages(mesh, {8, 16}, "dp, _ | sum tp", "dp, tp") == Lines{"reduce-scatter tp of 4: 256"});
  CHECK(messages(mesh, {8, 16}, "_, _ | sum dp+tp", "_, _ | sum dp") == Lines{"all-reduce tp of 4: 512"});
  CHECK(messages(mesh, {8, 16}, "dp, tp", "_, _") == Lines{"all-gather dp of 2: 128", "all-gather tp of 4: 512"});
  CHECK(messages(mesh, {8, 16}, "tp, _", "_, tp") == Lines{"all-to-all tp of 4: 128"});
  CHECK(messages(mesh, {6, 16}, "tp, _", "_, tp") == Lines{"all-gather tp of 4: 384"}); // uneven shares
  CHECK(messages(mesh, {8, 16}, "dp+tp, _", "_, dp+tp") == Lines{"all-to-all dp of 2: 64", "all-to-all tp of 4: 64"});
  CHECK(messages(mesh, {8, 16, 3}, "dp, _, _ | sum tp", "_, dp, _") ==
        Lines{"all-reduce tp of 4: 768", "all-to-all dp of 2: 768"});
  CHECK(messages(mesh, {8, 8}, "dp, tp", "tp, dp") == Lines{"all-gather dp of 2: 64", "all-gather tp of 4: 256"});
  CHECK(messages(mesh, {8, 16}, "_, (2 x 8:tp)", "_, tp") == Lines{"all-gather tp of 4: 512"});
  CHECK(messages(mesh, {6}, "tp", "_") == Lines{"all-gather tp of 4: 24"}); // shares of 2, 2, 1, 1
  CHECK(messages(mesh, {6, 2}, "tp, _ | max dp", "tp, _") == Lines{"all-reduce dp of 2: 16"});
  CHECK(messages(meshOf(1, 4), {8}, "_ | sum dp", "_").empty()); // a group of one member
}

TEST_CASE("a reshard leaves the factors that both shardings have") {
  const Mesh mesh = meshOf(2, 4);
  const Lines overTp = {"all-gather tp of 4: 512"};
  CHECK(messages(mesh, {256}, "(8:dp x 32:tp)", "dp") == overTp);
  CHECK(messages(mesh, {256}, "(8:dp x 32:tp)", "(8:dp x 32)") == overTp);
  CHECK(messages(mesh, {256}, "dp+tp", "dp") == overTp);
  CHECK(messages(mesh, {256}, "(2:dp x 128:tp)", "dp") == overTp);
  CHECK(messages(mesh, {256}, "(2 x 8:dp x 16:tp)", "(2 x 128:dp)") == overTp);
  CHECK(messages(mesh, {256}, "dp", "(8:dp x 32:tp)").empty());
  CHECK(messages(mesh, {256}, "dp", "dp+tp").empty());
  // The shares contain different elements: everything is gathered.
  const Lines both = {"all-gather dp of 2: 256", "all-gather tp of 4: 1024"};
  CHECK(messages(mesh, {256}, "(8:dp x 32:tp)", "(2 x 128:dp)") == both);
  CHECK(messages(mesh, {256}, "tp+dp", "dp").size() > 1);
  CHECK(messages(mesh, {30}, "(3:dp x 10)", "dp") == Lines{"all-gather dp of 2: 120"}); // 20 and 10; 15 and 15
}

TEST_CASE("the steps of a reshard give every rank its elements") {
  std::mt19937 random(7);
  const auto below = [&](size_t n) { return static_cast<size_t>(random() % n); };
  const std::vector<int64_t> sizes = {1, 2, 3, 4, 5, 6, 8, 12};
  std::map<ReshardStep::Kind, int> kinds;
  for (int round = 0; round < 10000; ++round) {
    const Mesh mesh = meshOf(int64_t(1 + below(3)), int64_t(1 + below(4)));
    const auto draw = [&](int64_t total) { // factors of `total`
      DimSharding dim;
      for (int64_t rest = total; rest > 1 || dim.factors.empty();) {
        int64_t size = sizes[below(sizes.size())];
        if (rest % size || below(3) == 0)
          size = rest;
        dim.factors.push_back({size, {}});
        rest /= size;
        if (rest == 1 && below(2))
          break;
      }
      return dim;
    };
    Shape shape;
    for (size_t d = 0, rank = 1 + below(3); d < rank; ++d)
      shape.push_back(sizes[below(sizes.size())] * (rank == 1 ? sizes[below(sizes.size())] * 3 : 1));
    const auto drawSharding = [&] { // each axis splits one factor, or none
      Sharding sharding;
      for (const int64_t size : shape)
        sharding.dims.push_back(draw(size));
      std::vector<std::string> axes = {"dp", "tp"};
      std::shuffle(axes.begin(), axes.end(), random);
      for (const std::string &axis : axes) {
        DimSharding &dim = sharding.dims[below(sharding.dims.size())];
        if (below(5))
          dim.factors[below(dim.factors.size())].axes.push_back(axis);
      }
      if (round % 2)
        sharding.normalise(mesh);
      return sharding;
    };
    const Sharding from = drawSharding(), to = drawSharding();
    INFO(from.str() << " to " << to.str() << " on dp " << mesh.size("dp") << ", tp " << mesh.size("tp"));
    std::vector<DimSharding> now = from.dims;
    const auto held = [&](int64_t rank) { return elementsOf(mesh, now, mesh.coords(rank), shape); };
    for (const ReshardStep &step : reshardSteps(mesh, from, to)) {
      ++kinds[step.kind];
      std::vector<std::set<int64_t>> before;
      for (int64_t rank = 0; rank < mesh.ranks(); ++rank)
        before.push_back(held(rank));
      const std::vector<std::string> axes = step.dim.factors[step.place.factor].axes;
      now[step.place.dim] = step.dim;
      if (step.kind == ReshardStep::Kind::Slice) {
        for (int64_t rank = 0; rank < mesh.ranks(); ++rank)
          CHECK(std::ranges::includes(before[rank], held(rank)));
        continue;
      }
      // The factors of the step are those that the tensor has: no rank's elements change.
      for (int64_t rank = 0; rank < mesh.ranks(); ++rank)
        REQUIRE(held(rank) == before[rank]);
      now[step.place.dim].factors[step.place.factor].axes.clear();
      if (step.kind == ReshardStep::Kind::AllToAll)
        now[step.to.dim] = step.toDim;
      for (int64_t rank = 0; rank < mesh.ranks(); ++rank) {
        std::set<int64_t> group; // the elements of the members
        for (int64_t other = 0; other < mesh.ranks(); ++other)
          if (sameBut(mesh, axes, mesh.coords(rank), mesh.coords(other)))
            group.insert(before[other].begin(), before[other].end());
        const std::set<int64_t> after = held(rank);
        if (step.kind == ReshardStep::Kind::Gather && !before[rank].empty())
          CHECK(after == group);
        CHECK(std::ranges::includes(group, after));
        if (step.kind == ReshardStep::Kind::AllToAll)
          CHECK(after.size() == before[rank].size());
      }
    }
    for (int64_t rank = 0; rank < mesh.ranks(); ++rank)
      REQUIRE(held(rank) == elementsOf(mesh, to.dims, mesh.coords(rank), shape));
  }
  for (const auto kind : {ReshardStep::Kind::Gather, ReshardStep::Kind::AllToAll, ReshardStep::Kind::Slice})
    CHECK(kinds[kind] > 200);
}

TEST_CASE("what a rank sends, in the ring algorithm") {
  CHECK(Message{Collective::AllReduce, {"tp"}, 4, 256}.bytesSent() == 384);
  CHECK(Message{Collective::ReduceScatter, {"tp"}, 4, 256}.bytesSent() == 192);
  CHECK(Message{Collective::AllGather, {"tp"}, 2, 256}.bytesSent() == 128);
}

TEST_CASE("gathers come before slices") {
  const Mesh mesh = meshOf(2, 2);
  const auto steps = reshardSteps(mesh, sharding("_, dp | sum tp", {4, 5}), sharding("dp, _", {4, 5}));
  REQUIRE(steps.size() == 3);
  CHECK(steps[0].kind == ReshardStep::Kind::AllReduce);
  CHECK(steps[0].axes == std::vector<std::string>{"tp"});
  CHECK(steps[1].kind == ReshardStep::Kind::Gather);
  CHECK(steps[1].place.dim == 1);
  CHECK(steps[2].kind == ReshardStep::Kind::Slice);
  CHECK(steps[2].place.dim == 0);
}

TEST_CASE("the messages of a solution: its reshards, and once an iteration what results leave partial") {
  Problem problem(meshOf(2, 2));
  const TensorId x = problem.pinned({8, 4}, "dp, _"), w1 = problem.open({6, 4}, "w1"), w2 = problem.open({6, 6}, "w2"),
                 w3 = problem.open({6, 6}, "w3");
  const TensorId y = problem.linear(problem.linear(x, w1), w2), z = problem.linear(problem.relu(y), w3);
  const TensorId sum = problem.op(OpKind::Other, reduceRule(2, {0, 1}, LoopKind::Sum), {z}, {});
  const TensorId gradient = problem.op(OpKind::Other, matmulRule(2, 2, true, false), {z, x}, {6, 4}, 0, true);
  problem.addReturn({sum, gradient}, {{.mayBePartial = true}, {.follows = 1, .mayBePartial = true, .gradient = true}});
  const ShardingSolution solution = assign(problem);
  Lines lines;
  for (const SolutionMessage &message : messagesOf(problem, solution))
    lines.push_back(std::to_string(message.tensor) + (message.backward ? " backward " : " ") + text(message.message) +
                    (message.oncePerIteration ? " once" : ""));
  CHECK(lines == Lines{std::to_string(y) + " all-reduce tp of 2: 96",
                       std::to_string(sum) + " all-reduce dp+tp of 4: 4 once",
                       std::to_string(gradient) + " backward all-reduce dp of 2: 48 once"});
}
