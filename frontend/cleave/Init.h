// Initialisation of parameters. Values are drawn by Philox keyed by (seed, module path, global element index), so they
// do not depend on how the parameter is split. Fan-in and fan-out are defined as in PyTorch: weight [out, in, receptive
// field...].
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace cleave {

/// A distribution and its parameters: `constant` value a; `uniform` in [a, b); `normal` with mean a and standard
/// deviation b.
struct InitValues {
  std::string distribution;
  double a = 0, b = 0;
};

/// Computes a parameter's distribution from its shape.
struct Init {
  enum class Kind : uint8_t { Constant, Uniform, Normal, KaimingUniform, KaimingNormal, XavierUniform, XavierNormal };
  Kind kind = Kind::Constant;
  double a = 0, b = 0; ///< arguments of the function in namespace init that creates this kind
  bool fanOut = false; ///< Kaiming: use fan-out, which preserves the variance of gradients, instead of fan-in

  InitValues resolve(const std::vector<int64_t> &shape) const;
};

namespace init {
Init constant(double value);
Init zeros();
Init ones();
Init uniform(double low, double high);
Init normal(double mean, double standardDeviation);
/// U(-bound, bound), bound = sqrt(6 / ((1 + a^2) fanIn)) (He et al. 2015). PyTorch's linear and convolution layers use
/// a = sqrt(5).
Init kaimingUniform(double a = 0);
/// Mean 0, variance 2 / ((1 + a^2) fan); fan is fan-out if `fanOut`, otherwise fan-in.
Init kaimingNormal(double a = 0, bool fanOut = false);
/// U(-bound, bound), bound = gain sqrt(6 / (fanIn + fanOut)) (Glorot and Bengio 2010).
Init xavierUniform(double gain = 1);
/// Mean 0, variance gain^2 2 / (fanIn + fanOut).
Init xavierNormal(double gain = 1);
} // namespace init

} // namespace cleave
