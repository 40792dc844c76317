// Texts must not contain control characters, which a terminal would interpret.
#include "runtime/plan/CheckParts.h"

#include <optional>

namespace cleave::check {

namespace {

/// The first control character: in ASCII, or U+0080 to U+009F in UTF-8. `lines`: newlines and tabs are allowed.
std::optional<size_t> controlCharacter(std::string_view text, bool lines) {
  for (size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<uint8_t>(text[i]);
    const bool line = lines && (c == '\n' || c == '\t');
    const bool wide = c == 0xc2 && i + 1 < text.size() && static_cast<uint8_t>(text[i + 1]) - 0x80u < 0x20u;
    if ((c < 0x20 && !line) || c == 0x7f || wide)
      return i;
  }
  return std::nullopt;
}

class TextCheck {
public:
  explicit TextCheck(Report &report) : report(report) {}

  void operator()(const char *what, const flatbuffers::String *text, bool lines = false) {
    if (!text)
      return;
    if (auto at = controlCharacter(text->string_view(), lines))
      report.add("{} has a control character at byte {}", what, *at);
  }

  template <typename T, typename Fn> void each(const flatbuffers::Vector<T> *list, Fn visit) {
    for (uint32_t i = 0; i < length(list); ++i)
      visit(list->Get(i));
  }

private:
  Report &report;
};

void checkProgram(const plan::Program &program, TextCheck &check) {
  check.each(program.slots(), [&](const auto *slot) { check("the name of a slot", slot->name()); });
  check.each(program.segments(), [&](const auto *segment) { check("the name of a segment", segment->name()); });
  check.each(program.inputs(), [&](const auto *input) { check("the name of an input", input->name()); });
  check.each(program.scalars(), [&](const auto *scalar) { check("the name of a scalar", scalar->name()); });
  check.each(program.metrics(), [&](const auto *metric) { check("the name of a metric", metric->name()); });
}

} // namespace

std::string printable(std::string text) {
  while (auto at = controlCharacter(text, false))
    text[*at] = '?';
  return text;
}

void checkTexts(const plan::Plan &plan, Report &report) {
  Rule rule(report, "T8");
  TextCheck check(report);
  check("the compiler's name", plan.compiler());
  check("the backend's name", plan.backend());
  check("the target's name", plan.target());
  check("the model's name", plan.model());
  check("the schedule's name", plan.schedule());
  check("the model's options", plan.options(), true);
  check("the strategy", plan.strategy(), true);
  if (plan.data())
    check.each(plan.data()->fields(), [&](const auto *field) { check("the name of a data field", field->name()); });
  check.each(plan.mesh(), [&](const auto *axis) { check("the name of a mesh axis", axis->name()); });
  check.each(plan.strings(), [&](const auto *text) { check("a path or location", text); });
  check.each(plan.tensors(), [&](const auto *tensor) { check("the name of a tensor", tensor->name()); });
  check.each(plan.groups(), [&](const auto *group) { check("the axis of a group", group->axis()); });
  check.each(plan.stages(), [&](const auto *stage) {
    check.each(stage->layers(), [&](const auto *layer) { check("the name of a layer", layer); });
  });
  check.each(plan.kernels(), [&](const auto *kernel) {
    check("the symbol of a kernel", kernel->symbol());
    check("the ops of a kernel", kernel->ops());
    check("the source of a kernel", kernel->source(), true);
  });
  check.each(plan.programs(), [&](const auto *program) { checkProgram(*program, check); });
}

} // namespace cleave::check
