// The plan checker: tables and structure first; values and messages only if the structure is valid.
#include "runtime/plan/check/Check.h"

#include "runtime/base/Error.h"
#include "runtime/plan/Text.h"
#include "runtime/plan/check/Defects.h"

namespace cleave {

namespace {

void checkStructureOf(const plan::Plan &plan, check::Defects &defects) {
  check::checkDeclared(plan, defects);
  if (defects.count() == 0)
    check::checkTables(plan, defects);
  if (defects.count() == 0)
    check::checkStructure(plan, defects);
  if (defects.count() == 0)
    check::checkRanks(plan, defects);
}

void throwIfAny(const std::vector<std::string> &errors, const std::string &name) {
  if (errors.empty())
    return;
  std::string text = fmt::format("plan '{}' is not sound: {}", name, errors[0]);
  for (size_t i = 1; i < errors.size(); ++i)
    text += "\n  " + errors[i];
  throw environmentError(text);
}

} // namespace

std::string check::placeOf(uint32_t program, const plan::Program &info, uint32_t segment, uint32_t step) {
  const plan::Segment *s = info.segments()->Get(segment);
  std::string name = text(s->name());
  return fmt::format("program {}, segment {}{}, step {} ({})", program, segment, name.empty() ? "" : " (" + name + ")",
                     step, EnumNameStepOp(s->steps()->Get(step)->op_type()));
}

std::vector<std::string> checkPlanStructure(const plan::Plan &plan, const CheckOptions &options) {
  check::Defects defects(options.maxErrors);
  checkStructureOf(plan, defects);
  return defects.take();
}

void checkPlanStructureOrThrow(const plan::Plan &plan, const std::string &name) {
  throwIfAny(checkPlanStructure(plan), name);
}

std::vector<std::string> checkPlan(const plan::Plan &plan, const CheckOptions &options) {
  check::Defects defects(options.maxErrors);
  checkStructureOf(plan, defects);
  if (defects.count() == 0) {
    check::checkValues(plan, defects);
    check::checkMemory(plan, options, defects);
    check::checkPartials(plan, defects);
    check::checkTraining(plan, defects);
    check::checkCommunication(plan, defects);
    check::checkStreams(plan, defects);
  }
  return defects.take();
}

void checkPlanOrThrow(const plan::Plan &plan, const std::string &name, const CheckOptions &options) {
  throwIfAny(checkPlan(plan, options), name);
}

} // namespace cleave
