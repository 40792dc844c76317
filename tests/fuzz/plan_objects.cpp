// A valid plan with numbers, lists, texts and tables altered, found by the plan's schema, and sealed again: the checker
// finds a defect, or the plan can be shown, simulated and run. The input is a byte that selects the plan, then
// alterations of four bytes: the number of the field (two bytes), how to alter it, and a value.
#include "tests/fuzz/RunPlan.h"
#include "tests/support/PlanFields.h"

using namespace cleave;

namespace {

/// Sets a value at or beside an end of its range, or one near the one that it has.
void alterNumber(const test::PlanNumber &number, uint8_t how, uint8_t value) {
  if (number.field->isReal() || how % 2 == 0)
    return number.setEdge(value);
  switch (how / 2 % 5) {
  case 0:
    return number.set(value);
  case 1:
    return number.set(number.value + value % 16 + 1);
  case 2:
    return number.set(number.value - value % 16 - 1);
  case 3:
    return number.set(number.value * (value % 7 + 2));
  default:
    return number.set(check::Wide{1} << value % 64);
  }
}

/// With the values numbered again, if the plan is one whose objects can be unpacked.
std::vector<uint8_t> renumbered(const std::vector<uint8_t> &flatbuffer) try {
  const auto file = PlanFile::fromBytes(sealPlan(flatbuffer), "fuzz");
  if (!checkPlanStructure(file->plan()).empty())
    return flatbuffer;
  plan::PlanT plan;
  file->plan().UnPackTo(&plan);
  test::forgetValues(plan);
  return test::flatbuffer(plan);
} catch (const Error &) {
  return flatbuffer;
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size == 0)
    return 0;
  const fuzz::GoodPlan &good = fuzz::goodPlan(*data);
  const bool renumber = *data / 4 % 2; // number values again, so that other rules must find the fault
  size_t references = 0;
  std::vector<uint8_t> bytes = test::copyOf(good.bytes, {}, &references);
  for (++data, --size; size >= 4; data += 4, size -= 4) {
    const std::vector<test::PlanNumber> numbers = test::numbersOf(bytes);
    const size_t which = static_cast<size_t>(data[0] | data[1] << 8) % (numbers.size() + references);
    if (which < numbers.size()) {
      alterNumber(numbers[which], data[2], data[3]);
      if (numbers[which].field->base == reflection::UType)
        break; // the step is of another type than its table, which cannot be walked
      continue;
    }
    const auto change = static_cast<test::Change>(data[2] % static_cast<uint8_t>(test::Change::Count));
    const test::Alteration alteration{which - numbers.size(), change, data[3],
                                      static_cast<size_t>(data[2] / 4 + data[3] / 16)};
    bytes = test::copyOf(bytes, alteration, &references);
  }
  if (renumber)
    bytes = renumbered(bytes);
  fuzz::checkAndRun(sealPlan(bytes), good.ranks);
  return 0;
}
