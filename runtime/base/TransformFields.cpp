// Checks transforms, and writes them for people.
#include "runtime/base/TransformFields.h"

#include <fmt/format.h>

namespace cleave {

Transform transformOfKind(size_t kind) {
  static const Transforms each{Resize{1},        CenterCrop{1}, RandomCrop{1}, RandomResizedCrop{1},
                               HorizontalFlip{}, ColorJitter{}, Normalize{},   RandomErasing{}};
  return each.at(kind);
}

std::string describe(const Transform &transform) {
  std::string text;
  const auto add = [&](const char *name, const auto &number, double, double) {
    text += fmt::format("{}{} {:g}", text.empty() ? "" : ", ", name, static_cast<double>(number));
  };
  std::visit([&](const auto &each) { eachNumber(each, add); }, transform);
  return fmt::format("{}{{{}}}", transformNames[transform.index()], text);
}

std::string problemOf(const Transforms &transforms) {
  std::string problem;
  bool normal = false;
  for (const Transform &transform : transforms) {
    const std::string name = transformNames[transform.index()];
    const auto check = [&](const char *of, const auto &number, double least, double most) {
      const auto value = static_cast<double>(number);
      if (problem.empty() && !(value >= least && value <= most))
        problem = fmt::format("{}: {} must lie in [{:g}, {:g}], found {:g}", name, of, least, most, value);
    };
    std::visit(
        [&](const auto &each) {
          eachNumber(each, check);
          if constexpr (requires { each.leastArea; })
            if (problem.empty() && (each.leastArea > each.mostArea || each.leastRatio > each.mostRatio))
              problem = fmt::format("{}: the least area and ratio must not be above the most", name);
        },
        transform);
    if (!problem.empty())
      return problem;
    if (normal && !std::holds_alternative<RandomErasing>(transform))
      return fmt::format("{}: only RandomErasing may follow Normalize", name);
    normal = normal || std::holds_alternative<Normalize>(transform) || std::holds_alternative<RandomErasing>(transform);
  }
  return "";
}

} // namespace cleave
