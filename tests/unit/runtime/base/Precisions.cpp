// Parsing of targets and precisions from options: every word, defaults, and contradictions.
#include "runtime/base/Error.h"
#include "runtime/base/Precision.h"

#include <catch2/catch.hpp>

using namespace cleave;

namespace {

using Type = Precision::Type;

Precision onGpu(const Precision::Words &words) { return Precision::parse(words, Target::Kind::Cuda); }
Precision onCpu(const Precision::Words &words) { return Precision::parse(words, Target::Kind::Cpu); }

/// The message of the user error that `fn` throws.
template <class Fn> std::string mistake(Fn fn) {
  try {
    fn();
  } catch (const Error &error) {
    CHECK(error.status == Status::User);
    return error.what();
  }
  return "";
}

} // namespace

TEST_CASE("a backend is cpu unless another is named") {
  CHECK(Target::parseKind("") == Target::Kind::Cpu);
  for (const Target::Kind kind : {Target::Kind::Cpu, Target::Kind::Cuda})
    CHECK(Target::parseKind(text(kind)) == kind);
  CHECK(mistake([] { Target::parseKind("cudo"); }) == "--backend cudo: must be one of cpu, cuda; did you mean cuda?");
}

TEST_CASE("a target is one of its backend's") {
  for (const Target::Kind kind : {Target::Kind::Cpu, Target::Kind::Cuda})
    for (const Target target : Target::all(kind)) {
      CHECK(target.kind() == kind);
      CHECK(Target::parse(target.text(), kind) == target);
      CHECK(Target::named(target.text()) == target);
    }
  CHECK(Target::parse("emulated", Target::Kind::Cuda) == Target::Emulated);
  CHECK(mistake([] { Target::parse("sm_90", Target::Kind::Cpu); }) ==
        "--target sm_90: is no target of the cpu backend; it has x86-64-v3, x86-64-v4");
  CHECK(mistake([] { Target::parse("sm_70", Target::Kind::Cuda); }) ==
        "--target sm_70: is no target of the cuda backend; it has sm_80, sm_90, sm_100");
  CHECK_FALSE(mistake([] { Target::parse("emulated", Target::Kind::Cpu); }).empty());
  CHECK_FALSE(mistake([] { Target::parse("x86-64", Target::Kind::Cpu); }).empty()); // no code is generated for it
  CHECK_FALSE(Target::named("sm_70"));
}

TEST_CASE("a processor runs the code of the levels below its own, and no GPU's") {
  CHECK(Target(Target::X86_64).runsHere());
  CHECK((Target(Target::X86_64_v3).runsHere() || !Target(Target::X86_64_v4).runsHere()));
  CHECK((Target(Target::X86_64_v2).runsHere() || !Target(Target::X86_64_v3).runsHere()));
  for (const Target target : Target::all(Target::Kind::Cuda))
    CHECK_FALSE(target.runsHere());
}

TEST_CASE("a half type alone is O2, a level alone fp16") {
  CHECK(onCpu({}) == Precision{});
  CHECK(onCpu({.type = "bf16"}) == Precision{.type = Type::Bf16, .level = 2});
  CHECK(onCpu({.level = "O1"}) == Precision{.type = Type::Fp16, .level = 1, .lossScale = LossScale{}});
  CHECK(onCpu({.type = "bf16", .level = "O3"}) == Precision{.type = Type::Bf16, .level = 3, .reduce = Type::Bf16});
  CHECK(onCpu({.type = "fp32", .level = "O0"}) == Precision{});
  CHECK(onGpu({.type = "tf32"}) == Precision{.type = Type::Tf32});
}

TEST_CASE("fp16 has a loss scale unless none is wanted") {
  CHECK(onCpu({.type = "fp16"}).lossScale == LossScale{});
  CHECK_FALSE(onCpu({.type = "fp16", .lossScale = "none"}).lossScale);
  CHECK_FALSE(onCpu({.type = "bf16"}).lossScale);
  CHECK(onCpu({.type = "bf16", .lossScale = "dynamic"}).lossScale->dynamic);
  const auto fixed = onCpu({.lossScale = "1024"}).lossScale;
  CHECK(fixed == LossScale{.initial = 1024, .dynamic = false});
  for (const char *bad : {"0.5", "16777217", "huge", "1024x", "nan", "-1"})
    CHECK(mistake([&] { LossScale::parse(bad); }) ==
          std::string("--loss-scale ") + bad + ": must be dynamic, none, or a number from 1 to 16777216");
}

TEST_CASE("contradictions name both options") {
  CHECK(mistake([] { onCpu({.type = "bf16", .level = "O0"}); }) == "--opt-level O0: contradicts --precision bf16");
  CHECK(mistake([] { onCpu({.type = "fp32", .level = "O1"}); }) == "--opt-level O1: contradicts --precision fp32");
  CHECK(mistake([] { onCpu({.type = "tf32"}); }).starts_with("--precision tf32: is a mode of NVIDIA's tensor cores"));
  CHECK(mistake([] { onCpu({.type = "bf16", .reduce = "fp16"}); }) ==
        "--reduce-dtype fp16: must be fp32 or the half type of the run, whose --precision is bf16");
  CHECK_FALSE(mistake([] { onGpu({.reduce = "tf32"}); }).empty());
  CHECK(
      mistake([] { onCpu({.type = "pf16"}); }).starts_with("--precision pf16: must be one of fp32, tf32, bf16, fp16"));
}

TEST_CASE("a precision reads back from its words") {
  for (const Precision &precision :
       {Precision{}, Precision{.type = Type::Tf32}, Precision{.type = Type::Bf16, .level = 1},
        Precision{.type = Type::Fp16, .level = 2, .lossScale = LossScale{}, .reduce = Type::Fp16},
        Precision{.type = Type::Fp16, .level = 3, .lossScale = LossScale{.initial = 1.5, .dynamic = false}},
        Precision{.lossScale = LossScale{}}}) {
    CHECK(onGpu(precision.words()) == precision);
  }
  CHECK(Precision{}.words().type == "fp32");
  CHECK(Precision{}.words().level == "O0");
  CHECK(Precision{}.words().lossScale == "none");
  CHECK(Precision{}.words().reduce == "fp32");
}
