// Tensors of the reference interpreter: whole numbers and floats alike as doubles, always rounded to the element type.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace cleave::ir {

enum class DType { F32, F16, BF16, I32, I64, I1 };

/// "f32", "bf16", ...
const char *dtypeName(DType dtype);

/// The nearest value of the type: floats round to nearest even, integers truncate and wrap, i1 is whether it is not
/// zero. (i64 is exact up to 2^53.)
double roundTo(DType dtype, double value);

/// What becomes of floating-point results in a thread, for those who ask how much of a result is rounding. A distributed
/// run hands its caller's to its ranks.
struct Rounding {
  enum class Kind : uint8_t {
    ToType, ///< to the element type, as the graph says
    None,   ///< not at all: every float is a double
    Digits, ///< to `digits` significant bits, whatever the type
    Noise,  ///< to the type (or, if `ofDouble`, to 49 bits); what is not exact first times 1 + r, |r| <= `ulps` units of
          ///< the last bit, by chance
  };
  Kind kind = Kind::ToType;
  int digits = 53;
  double ulps = 0;
  bool ofDouble = false;
  DType addends = DType::F32; ///< Noise: the type in which sums may be added up, for addend()
  uint64_t state = 1;         ///< of the chance
  uint64_t sample = 1;        ///< of the chance of casts, where equal values have equal results
  double largest = 0;         ///< None: magnitude of what there was so far
};
/// Makes `rounding` the thread's during its life.
class RoundingScope {
public:
  explicit RoundingScope(const Rounding &rounding);
  ~RoundingScope();
  RoundingScope(const RoundingScope &) = delete;
  /// The thread's rounding as it is now.
  static const Rounding &now();

private:
  Rounding before;
};
const Rounding &currentRounding();
/// A number inside an op (an addend, a product, a statistic) that kernels round and the interpreter does not: changed by
/// Kind::Noise alone, so that a sum that cancels shows how large its addends are. Addends of at most 12 bits are left
/// alone: sums of small whole numbers are exact in any order.
double inside(DType dtype, double value);
double addend(double value);
/// roundTo, but under noise equal values have equal results, and what the type holds already is left alone: a cast that
/// is made twice, or there and back, gives one result.
double castTo(DType dtype, double value);

/// Row-major. `values` has the product of `shape` elements, each a value of `dtype`.
struct HostTensor {
  std::vector<int64_t> shape;
  DType dtype = DType::F32;
  std::vector<double> values;

  HostTensor() = default;
  /// Filled with one value.
  HostTensor(std::vector<int64_t> shape, DType dtype, double value = 0);
  /// `values` are rounded to the type. Their number must be the product of the shape.
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
/// For messages: tensor<4x8xf32>.
std::string typeText(const HostTensor &tensor);

/// Largest |x - y| / max(1, |x|, |y|) over all elements; infinite where shapes differ or only one side is NaN.
double largestError(const HostTensor &x, const HostTensor &y);

} // namespace cleave::ir
