// The numbers of each transform, with their names and limits: plans, checkpoints and checks follow from this one
// description.
#pragma once
#include "cleave/Transforms.h"

#include <array>
#include <cstddef>
#include <string>

namespace cleave {

/// By the index in the variant Transform.
constexpr std::array transformNames{"Resize",         "CenterCrop",  "RandomCrop", "RandomResizedCrop",
                                    "HorizontalFlip", "ColorJitter", "Normalize",  "RandomErasing"};
static_assert(transformNames.size() == std::variant_size_v<Transform>);

constexpr double mostEdge = 65535; ///< of a picture, as in JPEG

/// Calls f(name, number, least, most) for every number of a transform: an int64_t, a double or a Resampling. Limits are
/// included.
template <class T, class F> void eachNumber(T &transform, F f) {
  constexpr double any = 1e30, tiny = 1e-6;
  if constexpr (requires { transform.size; }) {
    f("size", transform.size, 1, mostEdge);
    f("width", transform.width, 0, mostEdge);
  }
  if constexpr (requires { transform.padding; })
    f("padding", transform.padding, 0, mostEdge);
  if constexpr (requires { transform.probability; })
    f("probability", transform.probability, 0, 1);
  if constexpr (requires { transform.leastArea; }) {
    f("least_area", transform.leastArea, tiny, 1);
    f("most_area", transform.mostArea, tiny, 1);
    f("least_ratio", transform.leastRatio, 1e-3, 1e3);
    f("most_ratio", transform.mostRatio, 1e-3, 1e3);
  }
  if constexpr (requires { transform.hue; }) {
    f("brightness", transform.brightness, 0, 100);
    f("contrast", transform.contrast, 0, 100);
    f("saturation", transform.saturation, 0, 100);
    f("hue", transform.hue, 0, 0.5);
  }
  if constexpr (requires { transform.mean; }) {
    constexpr std::array means{"mean_red", "mean_green", "mean_blue"};
    constexpr std::array deviations{"deviation_red", "deviation_green", "deviation_blue"};
    for (size_t c = 0; c < 3; ++c)
      f(means[c], transform.mean[c], -any, any);
    for (size_t c = 0; c < 3; ++c)
      f(deviations[c], transform.deviation[c], tiny, any);
  }
  if constexpr (requires { transform.value; })
    f("value", transform.value, -any, any);
  if constexpr (requires { transform.filter; })
    f("filter", transform.filter, 0, 1);
}

/// A transform of this kind, an index in the variant, with its defaults.
Transform transformOfKind(size_t kind);

/// "RandomCrop{size 32, width 0, padding 4}".
std::string describe(const Transform &transform);

/// Why the transforms cannot be: a number out of its limits, or an order that does not work; empty if they can.
std::string problemOf(const Transforms &transforms);

} // namespace cleave
