// The plan checker: tables and structure first; values and messages only if the structure is valid.
#include "runtime/plan/Check.h"

#include "runtime/base/Error.h"
#include "runtime/plan/CheckParts.h"

namespace cleave {

namespace {

void checkStructureOf(const plan::Plan &plan, check::Report &report) {
  check::checkDeclared(plan, report);
  if (report.count() == 0)
    check::checkTables(plan, report);
  if (report.count() == 0)
    check::checkStructure(plan, report);
  if (report.count() == 0)
    check::checkRanks(plan, report);
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
  std::string name = s->name() ? s->name()->str() : "";
  return fmt::format("program {}, segment {}{}, step {} ({})", program, segment, name.empty() ? "" : " (" + name + ")",
                     step, EnumNameStepOp(s->steps()->Get(step)->op_type()));
}

std::vector<std::string> checkPlanStructure(const plan::Plan &plan, const CheckOptions &options) {
  check::Report report(options.maxErrors);
  checkStructureOf(plan, report);
  return report.take();
}

void checkPlanStructureOrThrow(const plan::Plan &plan, const std::string &name) {
  throwIfAny(checkPlanStructure(plan), name);
}

std::vector<std::string> checkPlan(const plan::Plan &plan, const CheckOptions &options) {
  check::Report report(options.maxErrors);
  checkStructureOf(plan, report);
  if (report.count() == 0) {
    check::checkValues(plan, report);
    check::checkMemory(plan, options, report);
    check::checkPartials(plan, report);
    check::checkTraining(plan, report);
    check::checkCommunication(plan, report);
    check::checkStreams(plan, report);
  }
  return report.take();
}

void checkPlanOrThrow(const plan::Plan &plan, const std::string &name, const CheckOptions &options) {
  throwIfAny(checkPlan(plan, options), name);
}

} // namespace cleave
