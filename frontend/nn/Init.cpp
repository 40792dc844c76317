// Initialisation of parameters.
#include "cleave/Init.h"

#include <cmath>

namespace cleave {

namespace init {
Init constant(double value) { return {Init::Kind::Constant, value, 0}; }
Init zeros() { return constant(0); }
Init ones() { return constant(1); }
Init uniform(double low, double high) { return {Init::Kind::Uniform, low, high}; }
Init normal(double mean, double standardDeviation) { return {Init::Kind::Normal, mean, standardDeviation}; }
Init kaimingUniform(double a) { return {Init::Kind::KaimingUniform, a, 0}; }
Init kaimingNormal(double a, bool fanOut) { return {Init::Kind::KaimingNormal, a, 0, fanOut}; }
Init xavierUniform(double gain) { return {Init::Kind::XavierUniform, gain, 0}; }
Init xavierNormal(double gain) { return {Init::Kind::XavierNormal, gain, 0}; }
} // namespace init

InitValues Init::resolve(const std::vector<int64_t> &shape) const {
  double field = 1; // receptive field of a convolution's kernel
  for (size_t i = 2; i < shape.size(); ++i)
    field *= static_cast<double>(shape[i]);
  const double outward = (shape.empty() ? 1 : static_cast<double>(shape[0])) * field;
  const double fanIn = shape.size() < 2 ? outward : static_cast<double>(shape[1]) * field;
  const double fan = fanOut ? outward : fanIn;
  const auto around = [](double bound) { return InitValues{"uniform", -bound, bound}; };
  switch (kind) {
  case Kind::Constant:
    return {"constant", a, 0};
  case Kind::Uniform:
    return {"uniform", a, b};
  case Kind::Normal:
    return {"normal", a, b};
  case Kind::KaimingUniform:
    return around(std::sqrt(6 / ((1 + a * a) * fan)));
  case Kind::KaimingNormal:
    return {"normal", 0, std::sqrt(2 / ((1 + a * a) * fan))};
  case Kind::XavierUniform:
    return around(a * std::sqrt(6 / (fanIn + outward)));
  case Kind::XavierNormal:
    return {"normal", 0, a * std::sqrt(2 / (fanIn + outward))};
  }
  return {};
}

} // namespace cleave
