// Plans: for any bytes in a sealed file, loading and checking ends with an Error, with defects, or without defects.
#include "runtime/base/Error.h"
#include "runtime/plan/PlanFile.h"
#include "runtime/plan/check/Check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  try {
    auto file = cleave::PlanFile::fromBytes(cleave::sealPlan({data, size}), "fuzz");
    cleave::checkPlan(file->plan());
  } catch (const cleave::Error &) {
  }
  try {
    cleave::PlanFile::fromBytes({data, data + size}, "fuzz");
  } catch (const cleave::Error &) {
  }
  return 0;
}
