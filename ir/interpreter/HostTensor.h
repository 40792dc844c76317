// Tensors of the reference interpreter. All values are stored as doubles and rounded to the element type.
#pragma once
#include "runtime/base/DType.h"

#include <string>
#include <vector>

namespace cleave::ir {

/// The nearest value of the type. Floats round to nearest even, integers truncate and wrap, i1 is value != 0. (i64 is
/// exact up to 2^53.)
double roundTo(DType dtype, double value);

/// How a thread rounds floating-point results. Tests change it to measure rounding errors. A distributed run copies
/// the caller's setting to its ranks.
struct Rounding {
  enum class Kind : uint8_t {
    ToType, ///< to the element type (the default)
    None,   ///< no rounding: every float is a double
    Digits, ///< to `digits` significant bits, whatever the type
    Noise,  ///< to the type (or, if `ofDouble`, to 49 bits); inexact results are first multiplied by 1 + r, with r
            ///< random and |r| at most `ulps` units of the last bit
  };
  Kind kind = Kind::ToType;
  int digits = 53;
  double ulps = 0;
  bool ofDouble = false;
  DType addends = DType::F32; ///< Noise: the type in which sums may be accumulated, for addend()
  bool tiles = false;         ///< Noise: convolutions may use Winograd's method, for mixInTiles()
  uint64_t state = 1;         ///< state of the random generator
  uint64_t sample = 1;        ///< seed for casts, in which equal values must have equal results
  double largest = 0;         ///< None: the largest magnitude seen so far
  double halfAddends = 0;     ///< ToType: the largest sum, seen so far, of the magnitudes that a sum in f16 adds
};
/// Sets the thread's rounding for the lifetime of this object.
class RoundingScope {
public:
  explicit RoundingScope(const Rounding &rounding);
  ~RoundingScope();
  RoundingScope(const RoundingScope &) = delete;
  /// The thread's current rounding.
  static const Rounding &now();

private:
  Rounding before;
};
const Rounding &currentRounding();
/// Adds noise (Kind::Noise only) to a value inside an op, such as a product or a statistic, that kernels round and the
/// interpreter does not.
double inside(DType dtype, double value);
/// Adds noise (Kind::Noise only) to an addend of a sum, so that a sum that cancels has an error relative to its
/// addends. Addends of at most 12 significant bits are not changed: sums of small whole numbers are exact in any order.
double addend(double value);
/// Adds noise (Kind::Noise with `tiles` only) to `count` neighbouring values of an image's channel or of a window.
/// Winograd's method computes with sums and differences of such neighbours, so their errors are relative to the largest.
void mixInTiles(double *values, int64_t count);
/// Records the magnitudes that a sum in f16 adds (Kind::ToType only). The partial sums of ranks may be as large.
void noteHalfAddends(double magnitudes);
/// Like roundTo, but under noise equal values have equal results, and values that the type can represent are unchanged.
/// Repeating a cast, or casting back, returns the same value.
double castTo(DType dtype, double value);

/// Row-major. `values.size()` is the product of `shape`; each value is representable in `dtype`.
struct HostTensor {
  std::vector<int64_t> shape;
  DType dtype = DType::F32;
  std::vector<double> values;

  HostTensor() = default;
  /// Filled with one value.
  HostTensor(std::vector<int64_t> shape, DType dtype, double value = 0);
  /// Rounds `values` to the type. Their number must be the product of the shape.
  HostTensor(std::vector<int64_t> shape, DType dtype, std::vector<double> values);

  int64_t rank() const { return static_cast<int64_t>(shape.size()); }
  int64_t size() const { return static_cast<int64_t>(values.size()); }
  /// Rounds every element to the type.
  void round();
  /// Equal shape, type and bits (NaN equals NaN; 0 and -0 are equal).
  bool operator==(const HostTensor &other) const;
};

/// Product of sizes, 1 for none.
int64_t elementCount(const std::vector<int64_t> &shape);
/// Row-major strides.
std::vector<int64_t> stridesOf(const std::vector<int64_t> &shape);
/// Type as text in messages: tensor<4x8xf32>.
std::string typeText(const HostTensor &tensor);

/// Largest |x - y| / max(1, |x|, |y|) over all elements; infinite if shapes differ or only one side is NaN.
double largestError(const HostTensor &x, const HostTensor &y);

} // namespace cleave::ir
