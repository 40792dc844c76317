// Specs of `cleave simulate --pipeline`: their meaning, and errors that name rule and value.
#include "partitioner/pipeline/Spec.h"
#include "runtime/base/Error.h"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

using namespace cleave;
using namespace cleave::partitioner;
using nlohmann::json;

static json valid() {
  return {{"schedule", "1f1b"}, {"stages", 4},           {"microbatches", 8},
          {"forward_ms", 1.0},  {"input_grad_ms", 1.0},  {"weight_grad_ms", 1},
          {"send_ms", 0.5},     {"activation_bytes", 4}, {"gradient_bytes", 0}};
}

static json with(std::initializer_list<std::pair<const char *, json>> changes) {
  json spec = valid();
  for (const auto &[key, value] : changes)
    if (value.is_discarded())
      spec.erase(key);
    else
      spec[key] = value;
  return spec;
}

static PlannedPipeline planned(const json &spec) { return planPipeline(parsePipelineSpec(spec.dump(), "s.json")); }

/// The message of the error for this spec; also checks the status.
static std::string refusal(const std::string &text, Status status = Status::User) {
  try {
    planPipeline(parsePipelineSpec(text, "s.json"));
  } catch (const Error &error) {
    CHECK(error.status == status);
    return error.what();
  }
  return "accepted";
}
static std::string refusal(const json &spec, Status status = Status::User) { return refusal(spec.dump(), status); }

TEST_CASE("costs of a rank are shared by its stages, those of a stage are its own") {
  const PlannedPipeline v = planned(with({{"schedule", "zb-v"},
                                          {"virtual", 2},
                                          {"stages", 2},
                                          {"forward_ms", {1, 3}},
                                          {"send_ms", {5, 6}},
                                          {"input_grad_ms", {1, 2, 3, 4}}}));
  REQUIRE(v.stages.size() == 4);
  const double forward[] = {0.5, 1.5, 1.5, 0.5}, send[] = {5, 6, 6, 5};
  for (size_t stage = 0; stage < 4; ++stage) {
    CHECK(v.stages[stage].forward == forward[stage]);
    CHECK(v.stages[stage].send == send[stage]);
    CHECK(v.stages[stage].inputGradient == double(stage + 1));
    CHECK(v.stages[stage].weightGradient == 0.5);
    CHECK(v.stages[stage].activationBytes == 2);
  }
  const PlannedPipeline wrapped =
      planned(with({{"schedule", "interleaved"}, {"virtual", 2}, {"stages", 2}, {"forward_ms", {1, 3}}}));
  CHECK(wrapped.stages[2].forward == 0.5);
  CHECK(wrapped.schedule.name == "interleaved");
  CHECK(planned(with({{"schedule", "zb-v"}})).schedule.chunks == 2);
}

TEST_CASE("auto without a number of stages on each rank tries one and two") {
  const json uneven =
      with({{"schedule", "auto"}, {"microbatches", 6}, {"send_ms", 0.1}, {"forward_ms", {1.0, 2.5, 0.5, 1.5}}});
  const auto step = [](const PlannedPipeline &p) { return simulate(p.schedule, p.stages).step; };
  const double best = step(planned(uneven));
  for (const char *name : {"gpipe", "1f1b", "zb-h1", "zb-h2", "zb-v"}) {
    json spec = uneven;
    spec["schedule"] = name;
    CHECK(best <= step(planned(spec)));
  }
  json one = uneven;
  one["virtual"] = 1;
  CHECK(planned(one).schedule.chunks == 1);
  CHECK(best <= step(planned(one)));
}

TEST_CASE("a spec that is wrong is refused with its field, the rule and the value") {
  using Catch::Contains;
  const json gone = json(json::value_t::discarded);
  CHECK_THAT(refusal(std::string("{")), Contains("s.json: ") && Contains("JSON"));
  CHECK_THAT(refusal(std::string("")), Contains("JSON"));
  CHECK_THAT(refusal(std::string(1000, '[')), Contains("JSON"));
  CHECK_THAT(refusal(std::string(100, '[') + std::string(100, ']')), Contains("64 levels"));
  CHECK_THAT(refusal(std::string("[1]")), Contains("must be a JSON object, found [1]"));
  for (const char *field : {"schedule", "stages", "microbatches", "forward_ms", "input_grad_ms", "weight_grad_ms",
                            "send_ms", "activation_bytes", "gradient_bytes"})
    CHECK(refusal(with({{field, gone}})) == "s.json: the field \"" + std::string(field) + "\" is missing");
  CHECK_THAT(refusal(with({{"foward_ms", 1}})), Contains("unknown field \"foward_ms\"; did you mean forward_ms?"));
  CHECK_THAT(refusal(with({{"schedule", "zb-h3"}})),
             Contains("must be one of gpipe, 1f1b, interleaved, zb-h1, zb-h2, zb-v, auto, found \"zb-h3\""));
  CHECK_THAT(refusal(with({{"schedule", 3}})), Contains("\"schedule\" must be one of") && Contains("found 3"));
  for (const json &value :
       {json(0), json(-1), json(2.5), json("4"), json(nullptr), json(1e300), json(true), json::array({4})})
    for (const char *field : {"stages", "microbatches", "virtual"})
      CHECK_THAT(refusal(with({{field, value}})),
                 Contains(field) && Contains("must be a whole number from 1 to 10000000, found " + value.dump()));
  for (const json &value : {json(-1), json("1"), json(nullptr), json(true), json(1e300), json::object()})
    for (const char *field : {"forward_ms", "send_ms", "activation_bytes", "memory_limit_bytes"}) {
      CHECK_THAT(refusal(with({{field, value}})),
                 Contains(field) && Contains("must be a number from 0 to 1e15") && Contains("found " + value.dump()));
      CHECK_THAT(refusal(with({{field, {1, 1, value, 1}}})), Contains("found " + value.dump() + " at place 2"));
    }
  CHECK_THAT(refusal(std::string(valid().dump()).insert(1, "\"memory_limit_bytes\":1e999,")), Contains("JSON"));
  CHECK_THAT(refusal(with({{"forward_ms", {1, 1, 1}}})), Contains("a list of 4 numbers, found a list of 3"));
  CHECK_THAT(refusal(with({{"schedule", "zb-v"}, {"forward_ms", json::array()}})),
             Contains("a list of 4 or 8 numbers, found a list of 0"));
  CHECK_THAT(refusal(with({{"stages", 4000}, {"microbatches", 1000}})),
             Contains("must be at most 10000000, found 12000000"));
  CHECK_THAT(refusal(with({{"schedule", "zb-v"}, {"virtual", 3}})), Contains("zb-v") && Contains("must be 2, found 3"));
  CHECK_THAT(refusal(with({{"virtual", 2}})), Contains("1f1b") && Contains("must be 1, found 2"));
  CHECK_THAT(refusal(with({{"schedule", "interleaved"}})), Contains("needs the field \"virtual\""));
  CHECK_THAT(refusal(with({{"schedule", "interleaved"}, {"virtual", 2}, {"microbatches", 6}})),
             Contains("6 microbatches and 4 ranks"));
}

TEST_CASE("a memory limit that a schedule exceeds, or that none can keep, fails with rank and bytes") {
  using Catch::Contains;
  CHECK(refusal(with({{"memory_limit_bytes", 16}})) == "accepted");
  CHECK_THAT(refusal(with({{"memory_limit_bytes", 15}}), Status::Environment),
             Contains("schedule 1f1b: rank 0") && Contains("limit of 15 bytes, but holds 16") &&
                 Contains("at least 4"));
  CHECK_THAT(refusal(with({{"memory_limit_bytes", {16, 12, 8, 3}}}), Status::Environment),
             Contains("rank 3") && Contains("limit of 3 bytes"));
  CHECK(refusal(with({{"schedule", "auto"}, {"memory_limit_bytes", 4}})) == "accepted");
  CHECK_THAT(refusal(with({{"schedule", "auto"}, {"memory_limit_bytes", {4, 4, 3, 4}}}), Status::Environment),
             Contains("no schedule keeps the memory limit") && Contains("rank 2 must fit into 3 bytes, but takes 4"));
}
