// How parameters begin. Values are drawn by Philox keyed by (seed, module path, global element index), so they do not
// depend on how the parameter is split. Fan-in and fan-out are PyTorch's: weight [out, in, receptive field...].
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace cleave {

/// A distribution with its numbers filled in: `constant` a; `uniform` in [a, b); `normal` mean a, standard deviation b.
struct InitValues {
  std::string distribution;
  double a = 0, b = 0;
};

/// A rule that gives a parameter's distribution from its shape.
struct Init {
  enum class Kind : uint8_t { Constant, Uniform, Normal, KaimingUniform, KaimingNormal, XavierUniform, XavierNormal };
  Kind kind = Kind::Constant;
  double a = 0, b = 0;
  bool fanOut = false; ///< Kaiming: by fan-out, which keeps the gradients' variance, instead of fan-in

  InitValues resolve(const std::vector<int64_t> &shape) const;
};

namespace init {
Init constant(double value);
Init zeros();
Init ones();
Init uniform(double low, double high);
Init normal(double mean, double standardDeviation);
/// U(-bound, bound), bound = sqrt(6 / ((1 + a^2) fanIn)); He et al. 2015. sqrt(5) is PyTorch's default of linear and
/// conv.
Init kaimingUniform(double a = 0);
/// N(0, 2 / ((1 + a^2) fan)).
Init kaimingNormal(double a = 0, bool fanOut = false);
/// U(-bound, bound), bound = gain sqrt(6 / (fanIn + fanOut)); Glorot and Bengio 2010.
Init xavierUniform(double gain = 1);
Init xavierNormal(double gain = 1);
} // namespace init

} // namespace cleave
