// Every number of a plan has the values that plan.fbs declares for it.
#include "tests/support/EveryStep.h"
#include "tests/support/PlanFields.h"
#include "tests/unit/runtime/plan/Defects.h"
#include "tests/unit/runtime/plan/TwoRanks.h"

#include "runtime/plan/summary/PlanSummary.h"

using namespace cleave;
using namespace cleave::test;

namespace {

std::vector<std::string> structureOf(const std::vector<uint8_t> &flatbuffer) {
  return checkPlanStructure(PlanFile::fromBytes(sealPlan(flatbuffer), "test")->plan());
}

/// Everything that can hold numbers, with the names of these.
void listFields(const check::ObjectType &type, std::set<const check::ObjectType *> &seen,
                std::set<std::string> &names) {
  if (!seen.insert(&type).second)
    return;
  for (const check::FieldType &field : type.fields) {
    if (field.isNumber())
      names.insert(type.name + "." + field.name);
    if (field.object)
      listFields(*field.object, seen, names);
    for (const check::ObjectType *variant : field.variants)
      if (variant)
        listFields(*variant, seen, names);
  }
}

} // namespace

TEST_CASE("checker: a plan with every step and list has a valid structure") {
  const std::vector<uint8_t> bytes = copyOf(flatbuffer(EveryStep().plan));
  INFO(text(structureOf(bytes)));
  CHECK(structureOf(bytes).empty());
}

TEST_CASE("checker: every number of the schema is checked") {
  std::vector<uint8_t> bytes = copyOf(flatbuffer(EveryStep().plan));
  std::set<std::string> names, walked;
  std::set<const check::ObjectType *> types;
  listFields(check::planType(), types, names);
  for (const PlanNumber &number : numbersOf(bytes))
    for (const check::ObjectType *type : types)
      for (const check::FieldType &field : type->fields)
        if (&field == number.field)
          walked.insert(type->name + "." + field.name);
  for (const std::string &name : names)
    if (!name.starts_with("Plan.code")) // lists of bytes that may be anything
      CHECK((name + (walked.count(name) ? "" : " is in no plan of the tests")) == name);
}

TEST_CASE("checker: no number may be outside of its range") {
  const std::vector<uint8_t> good = copyOf(flatbuffer(EveryStep().plan));
  std::vector<uint8_t> listed = good;
  const std::vector<PlanNumber> numbers = numbersOf(listed, true);
  for (size_t i = 0; i < numbers.size(); ++i) {
    const PlanNumber &number = numbers[i];
    if (number.field->any)
      continue;
    for (const bool above : {false, true}) {
      std::vector<uint8_t> bytes = good;
      PlanNumber altered = numbersOf(bytes)[i];
      altered.setEdge(above ? 3 : 1);
      if (number.field->name.ends_with("_type") && above)
        continue; // a step that flatbuffers does not know is not followed: rule S5
      const std::vector<std::string> errors = structureOf(bytes);
      INFO(number.path << (above ? ", above" : ", below") << "\n" << text(errors));
      const bool wraps = !number.field->isReal() && number.low == 0 && !above; // -1 is the largest unsigned number
      CHECK((found(errors, {number.path + " is ", "(rule N1)"}) || (wraps && !errors.empty())));
    }
  }
}

TEST_CASE("checker: what is absent is a defect or is not used") {
  size_t count = 0;
  const std::vector<uint8_t> good = copyOf(flatbuffer(EveryStep().plan), {}, &count);
  CHECK(count > 200);
  for (size_t which = 0; which < count; ++which) {
    const auto file = PlanFile::fromBytes(sealPlan(copyOf(good, Alteration{which, Change::LeaveOut, 0, 0})), "test");
    if (checkPlanStructure(file->plan()).empty())
      CHECK_NOTHROW(summaryOf(*file));
  }
}

TEST_CASE("checker: a parameter, a stage and waits that are not there") {
  for (const int parameter : {INT32_MAX, 45, -7}) {
    EveryStep every;
    every.plan.tensors.back()->parameter = parameter;
    CHECK_FOUND(every.plan, "tensors[2].parameter is ",
                "must be -1 or an index of Plan.tensors, which has 3 (rule N1)");
  }
  EveryStep input;
  input.plan.tensors.back()->parameter = 1;
  CHECK_FOUND(input.plan, "tensor 2: tensor 1 is not a parameter (rule T2)");
  for (const uint32_t stage : {2u, 3u, 100u, UINT32_MAX}) {
    PlanT plan = twoRanks();
    plan.programs[1]->stage = stage;
    CHECK_FOUND(plan, "programs[1].stage is ", "must be an index of axis pp, which has 2 (rule N1)");
  }
  PlanT swapped = twoRanks();
  swapped.programs[0]->stage = 1;
  CHECK_FOUND(swapped, "rank 0: its program is of stage 1, its coordinate on pp is 0 (rule T3)");
  for (const plan::Wait &wait : {plan::Wait(99, 0, 0), plan::Wait(0, 1, 0), plan::Wait(0, 0, 99)}) {
    EveryStep every;
    every.plan.programs[0]->train[0]->waits = {wait};
    CHECK_FOUND(every.plan, "programs[0].train[0].waits[0].", "(rule N1)");
  }
}
