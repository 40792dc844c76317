// The plan checker on epilogues of matrix products and convolutions: which epilogues are valid, what they access, and
// that the checker does not treat them as linear.
#include "tests/conformance/Convolutions.h"
#include "tests/unit/runtime/plan/Defects.h"
#include "tests/unit/runtime/plan/TwoRanks.h"

using namespace cleave;
using namespace cleave::test;

namespace {

struct Case {
  PlanT plan;
  explicit Case(Epilogue epilogue) : plan(twoRanksWithEpilogue(epilogue)) {}
  ProgramT &program() { return *plan.programs[0]; }
  MatmulT &matmul() { return *program().segments[0]->steps[0]->op.AsMatmul(); }
  SlotT &aux() { return *program().slots.back(); }
  void makePartial(uint32_t slot) {
    program().slots[slot]->sharding = std::make_unique<ShardingT>();
    program().slots[slot]->sharding->partial_axes = {2}; // pp has two ranks
  }
};

} // namespace

TEST_CASE("checker: sound epilogues") {
  for (Epilogue epilogue : {Epilogue::Gelu, Epilogue::GeluGradient}) {
    Case c(epilogue);
    INFO(text(defects(c.plan)));
    CHECK(defects(c.plan).empty());
  }
  for (Epilogue epilogue : {Epilogue::Relu, Epilogue::Gelu}) {
    Case c(epilogue);
    c.matmul().aux.reset();
    INFO(text(defects(c.plan)));
    CHECK(defects(c.plan).empty());
  }
}

TEST_CASE("checker: epilogues of convolutions") {
  const auto with = [](auto change) {
    ConvT op = conv(1, 2, 4, 3, 3, 1, 1);
    op.bias = 0;
    op.epilogue = Epilogue::Relu;
    change(op);
    return convPlan(op);
  };
  CHECK(defects(with([](ConvT &) {})).empty());
  CHECK_FOUND(with([](ConvT &op) { op.epilogue = Epilogue::Gelu; }), "(Conv): epilogue 2 of a convolution");
  CHECK_FOUND(with([](ConvT &op) { op.accumulate = true; }),
              "(Conv): epilogue Relu of a convolution with accumulation");
  CHECK_FOUND(with([](ConvT &op) { op.kind = ConvKind::BackwardData; }), "(Conv): BackwardData with a bias");
  CHECK_FOUND(with([](ConvT &op) { op.bias = -1; }), "(Conv): epilogue Relu of a convolution without a bias");
  PlanT partial = with([](ConvT &) {});
  partial.mesh[0]->size = 2;
  partial.ranks.push_back(std::make_unique<RankT>(*partial.ranks[0]));
  partial.ranks[1]->coords[0] = 1;
  for (auto &slot : partial.programs[0]->slots) {
    slot->sharding = std::make_unique<ShardingT>();
    slot->sharding->partial_axes = {0};
  }
  CHECK_FOUND(partial, "(Conv)", "still partial over");
}

TEST_CASE("checker: sums of rows beside a product") {
  const auto with = [](auto change) {
    Case c(Epilogue::None);
    c.matmul().aux.reset();
    c.aux().shape = {rows};
    c.matmul().row_sums = static_cast<int>(c.program().slots.size()) - 1;
    change(c);
    return std::move(c.plan);
  };
  const PlanT good = with([](Case &) {});
  INFO(text(defects(good)));
  CHECK(defects(good).empty());
  CHECK_FOUND(with([](Case &c) { c.aux().dtype = plan::DType::I32; }), "(Matmul)", "must be f32, found i32");
  CHECK_FOUND(with([](Case &c) { c.matmul().epilogue = Epilogue::Relu; }), "(Matmul): row sums with an epilogue");
  CHECK_FOUND(with([](Case &c) { c.matmul().bias = static_cast<int>(c.matmul().b->slot); }),
              "(Matmul): row sums with a bias");
  CHECK_FOUND(with([](Case &c) { c.matmul().row_sums = 99; }), "Matmul.row_sums is 99");
  CHECK_FOUND(with([](Case &c) {
                c.aux().shape = {rows - 1};
                c.aux().bytes = (rows - 1) * 4;
              }),
              "(Matmul)", "which has 20");
  CHECK_FOUND(with([](Case &c) { c.matmul().row_sums = static_cast<int>(c.matmul().b->slot); }), "(Matmul)",
              "over what it reads");
  CHECK_FOUND(with([](Case &c) { c.matmul().row_sums = static_cast<int>(c.matmul().c->slot); }), "(Matmul)",
              "over what it writes");
}

TEST_CASE("checker: epilogues that are not") {
  SECTION("unknown") {
    Case c(static_cast<Epilogue>(9));
    CHECK_FOUND(c.plan, "Matmul.epilogue is 9, must be in 0..3 (Epilogue)");
  }
  SECTION("an auxiliary matrix that has no use") {
    Case c(Epilogue::Relu);
    CHECK_FOUND(c.plan, "(Matmul): epilogue Relu takes no auxiliary matrix");
    c.matmul().epilogue = Epilogue::None;
    CHECK_FOUND(c.plan, "(Matmul): epilogue None takes no auxiliary matrix");
  }
  SECTION("an auxiliary matrix that is missing") {
    Case c(Epilogue::GeluGradient);
    c.matmul().aux.reset();
    CHECK_FOUND(c.plan, "(Matmul): epilogue GeluGradient needs an auxiliary matrix");
  }
  SECTION("with accumulation") {
    Case c(Epilogue::Gelu);
    c.matmul().accumulate = true;
    CHECK_FOUND(c.plan, "(Matmul): epilogue Gelu with accumulation");
  }
  SECTION("a gradient with a bias") {
    Case c(Epilogue::GeluGradient);
    c.matmul().bias = static_cast<int>(c.matmul().b->slot);
    CHECK_FOUND(c.plan, "(Matmul): epilogue GeluGradient with a bias");
  }
  SECTION("with batch dimensions") {
    Case c(Epilogue::Gelu);
    c.matmul().batch = {1};
    for (auto *view : {&c.matmul().a, &c.matmul().b, &c.matmul().c})
      (*view)->strides.insert((*view)->strides.begin(), 0);
    CHECK_FOUND(c.plan, "(Matmul): epilogue Gelu with batch dimensions");
  }
  SECTION("columns that are not neighbours") {
    Case c(Epilogue::Gelu);
    c.matmul().aux->strides = {1, 6};
    CHECK_FOUND(c.plan, "(Matmul): epilogue Gelu on rows of 3 with strides 1 and 6");
    c.matmul().aux->strides = {2, 1}; // overlapping rows
    CHECK_FOUND(c.plan, "(Matmul): epilogue Gelu on rows of 3 with strides 2 and 1");
    c.matmul().aux->strides = {3};
    CHECK_FOUND(c.plan, "(Matmul): a view has 1 strides, needs 2");
  }
  SECTION("another type") {
    Case c(Epilogue::Gelu);
    c.aux().dtype = plan::DType::I32;
    CHECK_FOUND(c.plan, "must be f32, found i32");
  }
  SECTION("a slot that is not there") {
    Case c(Epilogue::Gelu);
    c.matmul().aux->slot = 99;
    CHECK_FOUND(c.plan, "Matmul.aux.slot is 99");
  }
  SECTION("an auxiliary matrix that is too small") {
    Case c(Epilogue::Gelu);
    c.aux().shape = {rows - 1, hidden};
    c.aux().bytes -= hidden * 4;
    CHECK_FOUND(c.plan, "(Matmul)", "which has 60");
  }
  SECTION("a result over the auxiliary matrix") {
    Case c(Epilogue::GeluGradient);
    c.matmul().aux->slot = c.matmul().c->slot;
    CHECK_FOUND(c.plan, "(Matmul): it writes slot", "over what it reads");
  }
  SECTION("an activation of a partial sum") {
    Case c(Epilogue::Gelu);
    c.makePartial(c.matmul().b->slot);
    c.makePartial(c.matmul().c->slot);
    CHECK_FOUND(c.plan, "(Matmul)", "still partial over pp");
  }
  SECTION("the slope at a partial sum") {
    Case c(Epilogue::GeluGradient);
    c.makePartial(c.matmul().aux->slot);
    c.makePartial(c.matmul().c->slot);
    CHECK_FOUND(c.plan, "(Matmul): multiplies by a function of slot", "still partial over pp");
  }
}
