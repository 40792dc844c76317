// Converts between transforms and the lists of numbers that plans hold.
#include "runtime/plan/StoredTransforms.h"
#include "runtime/base/Error.h"
#include "runtime/base/TransformFields.h"
#include "runtime/plan/plan_generated.h"

#include <fmt/format.h>

namespace cleave {

StoredTransforms storedTransforms(const Transforms &transforms) {
  static_assert(static_cast<size_t>(plan::TransformKind::MAX) + 1 == transformNames.size());
  StoredTransforms stored;
  for (const Transform &transform : transforms) {
    auto &entry = stored.emplace_back(std::make_unique<plan::TransformT>());
    entry->kind = static_cast<plan::TransformKind>(transform.index()); // the enumeration has the variant's order
    const auto add = [&](const char *, const auto &number, double, double) {
      entry->numbers.push_back(static_cast<double>(number));
    };
    std::visit([&](const auto &each) { eachNumber(each, add); }, transform);
  }
  return stored;
}

Transforms transformsOf(const StoredTransforms &stored) {
  Transforms transforms;
  for (const auto &entry : stored) {
    Transform &transform = transforms.emplace_back(transformOfKind(static_cast<size_t>(entry->kind)));
    size_t next = 0;
    const auto take = [&](const char *, auto &number, double least, double most) {
      const double value = next < entry->numbers.size() ? entry->numbers[next] : least - 1;
      ++next;
      if (value >= least && value <= most) // a conversion of others may be undefined
        number = static_cast<std::remove_reference_t<decltype(number)>>(value);
      else
        next = entry->numbers.size() + 1; // refused below
    };
    std::visit([&](auto &each) { eachNumber(each, take); }, transform);
    if (next != entry->numbers.size())
      throw environmentError(fmt::format("data: the numbers of transform {} are not those that it has",
                                         transformNames[transform.index()]));
  }
  if (const std::string problem = problemOf(transforms); !problem.empty())
    throw environmentError("data: " + problem);
  return transforms;
}

} // namespace cleave
