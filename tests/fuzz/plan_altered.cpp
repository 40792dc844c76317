// A valid plan with some bytes modified, sealed again: the checker finds a defect, or the plan runs. The input is a
// byte that selects the plan, then modifications of three bytes: the offset (two bytes, little endian) and the new
// value.
#include "tests/fuzz/RunPlan.h"

using namespace cleave;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size == 0)
    return 0;
  const fuzz::GoodPlan &good = fuzz::goodPlan(*data);
  std::vector<uint8_t> bytes = good.bytes;
  for (++data, --size; size >= 3; data += 3, size -= 3)
    bytes[(data[0] | data[1] << 8) % bytes.size()] = data[2];
  fuzz::checkAndRun(sealPlan(bytes), good.ranks);
  return 0;
}
