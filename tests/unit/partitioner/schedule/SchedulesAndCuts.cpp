// Schedules against their timelines; stage cuts against brute force; meshes and strategies as text.
#include "partitioner/apply/FoldRules.h"
#include "partitioner/schedule/Named.h"
#include "partitioner/stages/Layers.h"
#include "partitioner/strategy/Decisions.h"
#include "partitioner/strategy/Differences.h"
#include "runtime/base/Error.h"

#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <fmt/format.h>
#include <numeric>
#include <random>

#include <algorithm>

using namespace cleave;
using namespace cleave::partitioner;

static std::string line(const std::vector<ScheduleItem> &items) {
  std::string text;
  for (const ScheduleItem &item : items)
    text += (item.segment.kind == SegmentKind::Forward ? "F" : "B") + std::to_string(item.microbatch) + " ";
  return text;
}

TEST_CASE("gpipe runs all forwards, then all backwards") {
  auto stages = itemsOf(namedSchedule("gpipe", 2, 1, 3));
  CHECK(line(stages[0]) == "F0 F1 F2 B2 B1 B0 ");
  CHECK(line(stages[1]) == line(stages[0]));
}

TEST_CASE("1f1b alternates after its warm-up and holds at most P - s microbatches") {
  auto stages = itemsOf(namedSchedule("1f1b", 2, 1, 4));
  CHECK(line(stages[0]) == "F0 F1 B0 F2 B1 F3 B2 B3 ");
  CHECK(line(stages[1]) == "F0 B0 F1 B1 F2 B2 F3 B3 ");
  for (int64_t p : {1, 2, 4, 7})
    for (int64_t m : {1, 2, 5, 16}) {
      auto all = itemsOf(namedSchedule("1f1b", p, 1, m));
      for (int64_t s = 0; s < p; ++s) {
        int64_t held = 0, most = 0, forwards = 0;
        for (const ScheduleItem &item : all[s]) {
          const SegmentKind kind = item.segment.kind;
          held += kind == SegmentKind::Forward ? 1 : kind == SegmentKind::Backward ? -1 : 0;
          forwards += kind == SegmentKind::Forward;
          most = std::max(most, held);
        }
        CHECK(forwards == m);
        CHECK(held == 0);
        CHECK(most == std::min(p - s, m));
      }
    }
}

TEST_CASE("an unknown schedule is named") {
  CHECK_THROWS_WITH(namedSchedule("zigzag", 2, 1, 2), Catch::Contains("zigzag"));
}

TEST_CASE("uneven parts: the longest run is as short as with brute force, and limits are kept") {
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    const size_t n = 3 + random() % 6, parts = 1 + random() % 3;
    UnevenParts uneven;
    for (size_t kind = 0; kind < 2; ++kind)
      for (auto &costs = uneven.costs.emplace_back(); costs.size() < n;)
        costs.push_back(1 + random() % 20);
    std::vector<size_t> most;
    for (size_t p = 0; p < parts; ++p)
      uneven.kindOf.push_back(random() % 2), most.push_back(1 + random() % n);
    uneven.earliest = [&](size_t part, size_t end) { return end - std::min(end, most[part]); };
    const auto longest = [&](const std::vector<size_t> &begins) {
      double all = 0;
      for (size_t p = 0; p < parts; ++p) {
        const size_t end = p + 1 < parts ? begins[p + 1] : n;
        double sum = end - begins[p] > most[p] ? INFINITY : 0;
        for (size_t i = begins[p]; i < end; ++i)
          sum += uneven.costs[uneven.kindOf[p]][i];
        all = std::max(all, sum);
      }
      return all;
    };
    double best = INFINITY;
    for (size_t a = 1; a < n; ++a)
      for (size_t b = a + 1; b < n; ++b)
        if (parts == 3)
          best = std::min(best, longest({0, a, b}));
        else if (parts == 2)
          best = std::min({best, longest({0, a}), longest({0, b})});
    if (parts == 1)
      best = longest({0});
    const std::vector<size_t> begins = balancedCuts(uneven);
    REQUIRE(begins.empty() == std::isinf(best));
    if (!begins.empty())
      CHECK(longest(begins) == best);
  }
}

TEST_CASE("balanced cuts are as good as brute force") {
  std::vector<double> costs{3, 1, 4, 1, 5, 9, 2, 6};
  for (size_t parts : {1, 2, 3, 4, 8}) {
    auto worstOf = [&](const std::vector<size_t> &begins) {
      double worst = 0;
      for (size_t p = 0; p < begins.size(); ++p) {
        double sum = 0;
        for (size_t i = begins[p]; i < (p + 1 < begins.size() ? begins[p + 1] : costs.size()); ++i)
          sum += costs[i];
        worst = std::max(worst, sum);
      }
      return worst;
    };
    double best = 1e9;
    for (unsigned mask = 0; mask < 1u << (costs.size() - 1); ++mask)
      if ((size_t)__builtin_popcount(mask) + 1 == parts) {
        std::vector<size_t> begins{0};
        for (size_t i = 0; i + 1 < costs.size(); ++i)
          if (mask >> i & 1)
            begins.push_back(i + 1);
        best = std::min(best, worstOf(begins));
      }
    auto begins = balancedCuts(costs, parts);
    REQUIRE(begins.size() == parts);
    CHECK(std::is_sorted(begins.begin(), begins.end()));
    CHECK(worstOf(begins) == best);
  }
}

TEST_CASE("cuts weigh the messages between parts") {
  std::mt19937 random(5);
  const auto draw = [&](int most) { return double(random() % unsigned(most)); };
  for (int round = 0; round < 200; ++round) {
    const size_t items = 2 + random() % 7, parts = 1 + random() % items;
    std::vector<double> costs(items);
    for (double &cost : costs)
      cost = draw(10);
    std::vector<std::vector<double>> sent(parts, std::vector<double>(items));
    for (auto &ofPart : sent)
      for (double &one : ofPart)
        one = draw(30);
    const double passes = 1 + draw(8);
    const auto costOf = [&](const std::vector<size_t> &begins) {
      double all = 0, most = 0;
      for (size_t p = 0; p < parts; ++p) {
        const size_t end = p + 1 < parts ? begins[p + 1] : items;
        most = std::max(most, std::accumulate(costs.begin() + long(begins[p]), costs.begin() + long(end), 0.0));
        if (p > 0)
          all += sent[p][begins[p]], most = std::max(most, sent[p][begins[p]] / 2);
      }
      return passes * most + all;
    };
    double least = INFINITY;
    for (unsigned mask = 0; mask < 1u << (items - 1); ++mask)
      if (size_t(std::popcount(mask)) + 1 == parts) {
        std::vector<size_t> begins{0};
        for (size_t i = 0; i + 1 < items; ++i)
          if (mask >> i & 1)
            begins.push_back(i + 1);
        least = std::min(least, costOf(begins));
      }
    const std::vector<size_t> begins =
        cutsBySends(costs, parts, [&](size_t part, size_t begin) { return sent[part][begin]; }, passes);
    REQUIRE(begins.size() == parts);
    CHECK(costOf(begins) <= 1.15 * least + 1e-9);
  }
}

TEST_CASE("layers are modules without lists and members of lists") {
  LayerNames names({"fc1", "blocks.3.attention.heads.2", "layer1.0.conv1", "head.norm", ""});
  CHECK(names.of("fc1") == "fc1");
  CHECK(names.of("blocks.3.attention.qkv") == "blocks.3");
  CHECK(names.of("layer1.0.conv1") == "layer1.0");
  CHECK(names.of("head.norm") == "head");
  CHECK(names.of("") == "");
}

TEST_CASE("lists deeper in the model are found, and a model in one module is opened") {
  LayerNames deep({"model.embed", "model.layers.0.mlp", "model.layers.1.mlp", "model.norm", "head"});
  CHECK(deep.of("model.layers.1.mlp") == "model.layers.1");
  CHECK(deep.of("model.embed") == "model.embed");
  CHECK(deep.of("model") == "model");
  CHECK(deep.of("head") == "head");
  LayerNames one({"net.body.fc1", "net.body.fc2"});
  CHECK(one.of("net.body.fc2") == "net.body.fc2");
  CHECK(LayerNames({"fc"}).of("fc") == "fc");
}

TEST_CASE("a path that someone names is a layer, the longest that fits") {
  LayerNames names({"encoder.0.mlp", "encoder.1.mlp", "head"}, {"encoder", "encoder.1.mlp"});
  CHECK(names.of("encoder.0.mlp") == "encoder");
  CHECK(names.of("encoder.1.mlp") == "encoder.1.mlp");
  CHECK(names.of("head") == "head");
}

TEST_CASE("meshes read from their shorthand and name what is wrong") {
  Mesh mesh = parseMesh("tp=2,dp=3");
  CHECK(mesh.size("dp") == 3);
  CHECK(mesh.size("tp") == 2);
  CHECK(mesh.size("pp") == 1);
  for (auto [text, word] : {std::pair{"foo=2", "foo"},
                            {"dp=0", "dp"},
                            {"dp=two", "two"},
                            {"dp=2,dp=2", "twice"},
                            {"", "empty"},
                            {"dp", "dp"},
                            {"dp=-1", "-1"},
                            {"dp=2/tp=2/dp=2", "twice"},
                            {"dp=2/tp=2,pp=2", "not by both"}})
    CHECK_THROWS_WITH(parseMesh(text), Catch::Contains(word));
}

TEST_CASE("slashes order the axes along which ranks are numbered") {
  const Mesh usual = parseMesh("dp=2,tp=3,pp=4"), other = parseMesh("pp=4/tp=3/dp=2");
  CHECK(usual.rank({1, 2, 3}) == (3 * 2 + 1) * 3 + 2); // coordinates on dp, tp, pp
  CHECK(other.rank({1, 2, 3}) == (3 * 3 + 2) * 2 + 1);
  for (const Mesh &mesh : {usual, other, parseMesh("dp=2/tp=3/pp=4"), parseMesh("tp=3/pp=4/dp=2")}) {
    for (int64_t rank = 0; rank < mesh.ranks(); ++rank)
      CHECK(mesh.rank(mesh.coords(rank)) == rank);
    CHECK(parseMesh(meshText(mesh)) == mesh);
    Decisions strategy;
    strategy.mesh = mesh;
    CHECK(Strategy::parse(strategy.toToml(), "s.toml").mesh == mesh);
  }
  CHECK(other != usual);
  CHECK(meshText(other) == "pp=4/tp=3/dp=2");
  CHECK(meshText(usual) == "dp=2,tp=3,pp=4");
  // The same numbering is the same mesh: the default order, and axes of size 1 wherever they stand.
  CHECK(parseMesh("pp=4/dp=2/tp=3") == usual);
  CHECK(parseMesh("dp=2/tp=2") == parseMesh("dp=2,tp=2"));
  CHECK(parseMesh("tp=2/pp=1/dp=2") == parseMesh("tp=2/dp=2"));
}

TEST_CASE("meshes for kinds of parallelism") {
  CHECK(meshFor(8, "data").size("dp") == 8);
  CHECK(meshFor(8, "model").size("tp") == 8);
  CHECK(meshFor(8, "pipeline").size("pp") == 8);
  Mesh hybrid = meshFor(8, "hybrid");
  CHECK(hybrid.size("dp") == 2);
  CHECK(hybrid.size("tp") == 2);
  CHECK(hybrid.size("pp") == 2);
  CHECK(meshFor(7, "hybrid").ranks() == 7);
  CHECK_THROWS_WITH(meshFor(8, "auto"), Catch::Contains("auto"));
}

TEST_CASE("a strategy goes through its text") {
  Decisions strategy = Decisions::parse(R"(
mesh = { dp = 2, tp = 2, pp = 2 }
schedule = { name = "gpipe", microbatches = 4 }
stages = [["embed", "blocks.0"], ["blocks.1"]]
[shard]
"blocks.*.fc.weight" = { 0 = "tp", origin = "file" }
"a.weight" = { 1 = "tp" }
)",
                                        "test.toml");
  CHECK(strategy.mesh.ranks() == 8);
  CHECK(strategy.schedule == "gpipe");
  CHECK(strategy.microbatches == 4);
  CHECK(strategy.stages[0].size() == 2);
  CHECK(strategy.shard[0].dims.at("0") == "tp"); // rules keep the order of the file: the last rule that matches applies
  Decisions again = Decisions::parse(strategy.toToml(), "again");
  CHECK(again.toToml() == strategy.toToml());
  CHECK_THROWS_WITH(Decisions::parse("mesh = { xp = 2 }", "f.toml"),
                    Catch::Contains("f.toml:1") && Catch::Contains("xp"));
  CHECK_THROWS_WITH(Decisions::parse("speed = 3", "f.toml"), Catch::Contains("speed"));
  const Decisions quoted = Decisions::parse("[shard]\n'a\"\\b' = { 0 = \"tp\", origin = \"\\u0007\" }", "f.toml");
  CHECK(quoted.shard[0].pattern == "a\"\\b");
  CHECK(Decisions::parse(quoted.toToml(), "again").toToml() == quoted.toToml());
  CHECK(Decisions::parse("stages = [[\"\u046b\"]] # \u046b", "f.toml").stages[0][0] == "\u046b");
  for (const char *text : {"mesh = \"dp=2\"\n\u046b", "x = \"dp=2\"\nl=1\u046b", "\n[.", "\n\u046b = 1"})
    CHECK_THROWS_WITH(Decisions::parse(text, "f.toml"), Catch::Contains("f.toml:2"));
  CHECK(Decisions::parse("stages = [[\"a\", \"a use 2\"]]", "f.toml").stages[0][1] == "a use 2");
  CHECK_THROWS_WITH(Decisions::parse("stages = [[\"a\",\n\"a use\"]]", "f.toml"),
                    Catch::Contains("f.toml:2:1: stages: \"a use\" is not a module path"));
  CHECK_THROWS_WITH(Decisions::parse("stages = [[\"a use 2\", \"a use 2\"]]", "f.toml"), Catch::Contains("twice"));
  CHECK_THROWS_WITH(Decisions::parse("mesh = {", "f.toml"), Catch::Contains("f.toml:1"));
  std::string deep = "a";
  for (int i = 0; i < 100000; ++i)
    deep += ".a";
  CHECK_THROWS_WITH(Decisions::parse("\n" + deep + " = 1", "f.toml"),
                    Catch::Contains("f.toml:2: a key must have at most 64"));
  CHECK_THROWS_WITH(Decisions::parse("x = " + std::string(100000, '['), "f.toml"), Catch::Contains("f.toml:1"));
  CHECK_THROWS_WITH(Strategy::load("/dev/zero"), Catch::Contains("/dev/zero") && Catch::Contains("a device"));
  CHECK_THROWS_WITH(Strategy::load("/"), Catch::Contains("a folder"));
}

TEST_CASE("every key of a strategy is read, whatever its pattern matches") {
  const auto refused = [](const std::string &text) {
    try {
      Decisions::parse(text, "f.toml");
    } catch (const Error &error) {
      return std::string(error.what());
    }
    return std::string();
  };
  for (const char *rule :
       {"{ abc = \"zz\" }", "{ 99999999999999999999 = \"tp\" }", "{ abc = 5 }", "{ -1 = \"tp\" }",
        "{ \"0:\" = \"tp\" }", "{ \"0:3x4\" = \"tp\" }", "{ \"0:3x4x.0\" = \"tp\" }", "{ \"0:3x4.2\" = \"tp\" }",
        "{ \"0:0x4.1\" = \"tp\" }", "{ \"0:3x4.1x\" = \"tp\" }", "{ \"0.5\" = \"tp\" }", "{ Heads = \"tp\" }"})
    CHECK_THAT(refused(std::string("[shard]\n\"*\" = ") + rule),
               Catch::Contains("f.toml:2") && Catch::Contains("is not a dimension"));
  CHECK_THAT(refused("[shard]\n\"*\" = { 0 = \"zz\" }"), Catch::Contains("axis \"zz\" is unknown"));
  for (const char *axes : {"tp+", "+tp", "dp++tp", "pp", "tp,dp"})
    CHECK_THAT(refused(std::string("[shard]\n\"*\" = { 0 = \"") + axes + "\" }"), Catch::Contains("is unknown"));
  CHECK_THAT(refused("[shard]\n\"*\" = { 0 = \"tp+tp\" }"), Catch::Contains("named twice"));
  CHECK_THAT(refused("[shard]\n\"*\" = { heads = 2 }"), Catch::Contains("must name mesh axes"));
  CHECK(refused("[shard]\n\"*\" = { 0 = \"tp\", \"1:3x4.1\" = \"dp+tp\", heads = \"\", next_best_ms = 0.31 }") == "");
  for (const char *pattern : {"**", "a.**.b", "", "a..b", ".a", "a."})
    for (const auto &[before, after] :
         {std::pair("[shard]\n\"", "\" = { 0 = \"tp\" }"), std::pair("[recompute]\n\"", "\" = \"full\"")})
      CHECK_THAT(refused(std::string(before) + pattern + after), Catch::Contains("is not a pattern of module paths"));
  for (const char *number : {"0", "-1", "16777217", "9223372036854775807", "2.5", "1e300", "\"2\""})
    CHECK_THAT(refused(std::string("schedule = { microbatches = ") + number + " }"),
               Catch::Contains("must be a whole number from 1 to 16777216"));
  CHECK_THAT(refused("schedule = { virtual = 9223372036854775807 }"),
             Catch::Contains("must be a whole number from 1 to"));
  for (const char *mesh :
       {"dp=2,", ",dp=2", "dp=2,,tp=2", ",", "dp=2,tp=", "dp=+-2", "dp=2 ", "dp=99999999999999999999"})
    CHECK_THROWS_AS(parseMesh(mesh), Error);
}

TEST_CASE("later uses of a layer have one form") {
  CHECK(LayerUse::parse("blocks.0.fc") == LayerUse{"blocks.0.fc", 1});
  CHECK(LayerUse::parse("blocks.0.fc use 12") == LayerUse{"blocks.0.fc", 12});
  CHECK(LayerUse{"a", 3}.str() == "a use 3");
  for (const char *text : {"", " use 2", "a use", "a use 1", "a use 02", "a use +2", "a use 2 ", "a  use 2",
                           "a again 2", "a use 99999999999999999999", "a use -3", "a use 2.5"}) {
    INFO(text);
    CHECK_FALSE(LayerUse::parse(text));
  }
}

TEST_CASE("equal rules of equal layers are written as one, unless it would match more") {
  const auto rule = [](const char *path, const char *axes, const char *origin = "default") {
    return ShardRule{path, {{"0", axes}}, origin};
  };
  const auto patterns = [](const std::vector<ShardRule> &rules) {
    std::vector<std::string> all;
    for (const ShardRule &rule : rules)
      all.push_back(rule.pattern);
    return all;
  };
  using Names = std::vector<std::string>;
  const std::vector<ShardRule> equal{rule("b.0.fc.w", "tp"), rule("head.w", "tp"), rule("b.1.fc.w", "tp")};
  CHECK(patterns(foldRules(equal, {"b.0.fc.w", "b.1.fc.w", "head.w", "b.0.norm.w"})) == Names{"b.*.fc.w", "head.w"});
  CHECK(foldRules(equal, {"b.0.fc.w", "b.1.fc.w", "head.w"})[0].dims.at("0") == "tp");
  // b.2 is not split, and no rule covers it.
  CHECK(patterns(foldRules(equal, {"b.0.fc.w", "b.1.fc.w", "b.2.fc.w", "head.w"})) ==
        Names{"b.0.fc.w", "head.w", "b.1.fc.w"});
  CHECK(foldRules({rule("b.0.w", "tp"), rule("b.1.w", "dp")}, {"b.0.w", "b.1.w"}).size() == 2);
  CHECK(foldRules({rule("b.0.w", "tp"), rule("b.1.w", "tp", "file")}, {"b.0.w", "b.1.w"}).size() == 2);
  CHECK(patterns(foldRules({rule("b.0.w", "tp")}, {"b.0.w"})) == Names{"b.0.w"});
}

TEST_CASE("a strategy says who made each decision") {
  const std::string toml =
      R"(origin = { mesh = "search", zero = "command line", scatter_gather = "default", recompute = "memory" }
kind = "hybrid"
mesh = { dp = 2, tp = 2 }
zero = 1
scatter_gather = 4096
marks = [{ path = "fc", axes = ["", "tp"], at = "m.cpp:7:3" }]
[recompute]
"*" = "selective"
"a" = { kind = "full", origin = "file" }
)";
  const Strategy stored = Strategy::parse(toml, "plan");
  const Decisions strategy = stored.decided();
  CHECK(strategy.originOf("mesh") == "search");
  CHECK(strategy.originOf("zero") == "command line");
  CHECK(strategy.originOf("schedule") == "default");
  CHECK(strategy.originOf("recompute") == "memory");
  CHECK(strategy.recompute[1].origin == "file");
  CHECK(Decisions::parse(strategy.toToml(), "again").toToml() == strategy.toToml());
  const Strategy again = stored.askedAgain({});
  CHECK_FALSE(again.mesh);
  CHECK(again.kind == "hybrid");
  CHECK(again.zero == 1);
  CHECK_FALSE(again.scatterGather);
  REQUIRE(again.recompute.size() == 1);
  CHECK(again.recompute[0].pattern == "a");
  CHECK(again.marks.empty());
  CHECK(stored.askedBy("file").decided().originOf("mesh") == "file");
  for (const auto &[text, word] : {std::pair("origin = { speed = \"search\" }", "\"speed\" is none"),
                                   {"origin = 3", "origin must be a table"},
                                   {"kind = \"fast\"", "kind must be one of data"},
                                   {"marks = [3]", "marks must be an array"},
                                   {"[recompute]\na = { kind = \"full\" }", "with kind and origin"}})
    CHECK_THROWS_WITH(Strategy::parse(text, "f.toml"), Catch::Contains(word));
}

TEST_CASE("recomputation of every layer is one decision, also of layers with digits in their names") {
  const auto strategy = [](const char *kind) {
    return Decisions::parse(fmt::format("mesh = {{ dp = 2 }}\n[recompute]\n\"*\" = \"{}\"\n", kind), "test");
  };
  const std::vector<Difference> found = differences(strategy("none"), strategy("full"), {{"embed", "fc1", "fc2"}, {}});
  REQUIRE(found.size() == 1);
  CHECK(found[0].decision == "recompute");
  CHECK(found[0].path.empty());
  CHECK(found[0].alone->toToml() == strategy("full").toToml());
}

TEST_CASE("a request asked again: what was found is open, and what a change makes meaningless goes") {
  const std::string toml = R"(found = ["microbatches", "stages", "zero"]
mesh = { dp = 2, tp = 2, pp = 2 }
schedule = { name = "zb-h1", microbatches = 4 }
sequence = "tp"
zero = 1
scatter_gather = 4096
stages = [["a"], ["b"]]
[shard]
"a.weight" = { 0 = "tp", origin = "file" }
"b.weight" = { 1 = "tp", origin = "search" }
[recompute]
"*" = "full"
)";
  const Strategy stored = Strategy::parse(toml, "plan");
  const Strategy same = stored.askedAgain({});
  CHECK(same.mesh == stored.mesh);
  CHECK(same.schedule == "zb-h1");
  CHECK(same.sequence == "tp");
  CHECK_FALSE(same.microbatches);
  CHECK_FALSE(same.zero);
  CHECK_FALSE(same.scatterGather);
  CHECK(same.stages.empty());
  CHECK(same.recompute.size() == 1);
  REQUIRE(same.shard.size() == 1);
  CHECK(same.shard[0].pattern == "a.weight");

  Strategy moved;
  moved.mesh = parseMesh("dp=8");
  const Strategy other = stored.askedAgain(moved);
  CHECK(other.mesh == moved.mesh);
  CHECK_FALSE(other.schedule); // of a pipeline
  CHECK_FALSE(other.sequence);
  Strategy recomputed;
  recomputed.recompute = {{RecomputeRule::everyLayer, Recomputation::None}};
  const auto rules = stored.askedAgain(recomputed).recompute;
  REQUIRE(rules.size() == 1);
  CHECK(rules[0].kind == Recomputation::None);
  // Read as a file, all of it is asked for.
  CHECK(stored.decided().zero == 1);
  CHECK(Strategy::parse(stored.askedBy("file").decided().toToml(), "again").askedAgain({}).zero == 1);
}
