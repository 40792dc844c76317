// A good plan with some bytes altered, then sealed again: the checker finds a defect, or it runs. The input is a byte
// that says which plan, and a list of (offset, value) pairs: two bytes, little endian, and one.
#include "runtime/base/Error.h"
#include "runtime/comm/LocalWorld.h"
#include "runtime/executor/Executor.h"
#include "runtime/plan/Check.h"
#include "tests/unit/runtime/KernelCalls.h"
#include "tests/unit/runtime/TwoRanks.h"

using namespace cleave;

static bool small(const plan::Plan &plan) {
  for (const plan::Program *program : *plan.programs())
    if (program->peak_bytes() > 16 << 20)
      return false;
  return true;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static const std::vector<uint8_t> good[] = {test::flatbuffer(test::twoRanks()),
                                              test::flatbuffer(test::twoRanksWithEpilogue(plan::Epilogue::Gelu)),
                                              test::flatbuffer(test::KernelCalls("cpu").plan)}; // without code: refused
  if (size == 0)
    return 0;
  const size_t which = *data % 3, ranks = which < 2 ? 2 : 1;
  std::vector<uint8_t> bytes = good[which];
  for (++data, --size; size >= 3; data += 3, size -= 3)
    bytes[(data[0] | data[1] << 8) % bytes.size()] = data[2];
  try {
    auto file = PlanFile::fromBytes(sealPlan(bytes), "fuzz");
    if (!checkPlan(file->plan()).empty() || !small(file->plan()) || file->plan().ranks()->size() != ranks)
      return 0;
    LocalWorld world(ranks);
    runRanks(world, [&](unsigned rank) {
      Executor executor(file, rank, world[rank], {.device = "reference"});
      executor.initialise();
      executor.train(1, 0);
    });
  } catch (const Error &) {
  }
  return 0;
}
