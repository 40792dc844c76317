// The values that plan.fbs declares for each field (Fields.h). What other checks and all readers of plans may rely on:
// every index names an entry of its list, every enumeration has one of its values, sizes are in range.
// Texts must not contain control characters, which a terminal would interpret.
#include "runtime/base/Printable.h"
#include "runtime/plan/Fields.h"
#include "runtime/plan/check/Defects.h"

#include <optional>

namespace cleave::check {

namespace {

constexpr uint32_t mostDims = 12;

class DeclaredCheck : public FieldVisitor {
public:
  explicit DeclaredCheck(Defects &defects) : defects(defects) {}

  void number(const FieldWalk &at, const Number &number) override {
    if (number.allowed() || defects.full())
      return;
    Rule rule(defects, "N1");
    const FieldType &field = number.field;
    if (field.isReal())
      defects.add("{} is {}, must be {}", at.path(), number.real, field.declared);
    else if (field.bound == Bound::None)
      defects.add("{} is {}, must be {}", at.path(), number.value, field.declared);
    else
      defects.add("{} is {}, must be {}an index of {}, which has {}", at.path(), number.value,
                  field.low < 0 ? "-1 or " : "", field.declared, number.high + 1);
  }

  void text(const FieldWalk &at, const FieldType &field, std::string_view text) override {
    Rule rule(defects, "T8");
    if (const auto found = controlCharacter(text, field.lines); found && !defects.full())
      defects.add("{} has a control character at byte {}", at.path(), *found);
  }

  bool list(const FieldWalk &at, const FieldType &field, const uint8_t *data, uint32_t entries) override {
    if (field.shape)
      shape(at, data, entries);
    return field.element != reflection::UByte || !field.any; // of bytes that may be anything there may be many
  }

private:
  void shape(const FieldWalk &at, const uint8_t *data, uint32_t entries) {
    Rule rule(defects, "N1");
    if (entries > mostDims)
      return defects.add("{} has {} dimensions, at most {}", at.path(), entries, mostDims);
    int64_t all = 1;
    for (uint32_t i = 0; i < entries; ++i) {
      const auto size = flatbuffers::ReadScalar<int64_t>(data + i * sizeof(int64_t));
      if (!sane({size}))
        return; // reported as a number
      if (!sane({all, size}))
        return defects.add("{} has more than {} elements", at.path(), largest);
      all *= std::max<int64_t>(1, size);
    }
  }

  Defects &defects;
};

} // namespace

void checkDeclared(const plan::Plan &plan, Defects &defects) {
  DeclaredCheck check(defects);
  FieldWalk(plan, check).run();
}

} // namespace cleave::check
