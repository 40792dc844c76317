// How far rounding alone may move a result: the reference runs once in double, and then several times with noise of a
// few units in the last place. The change of an element under noise shows how large its addends are, so a gradient
// whose addends cancel has the tolerance of its addends. Used by PROGRAM check and by the tests with random models.
#pragma once
#include "ir/interpreter/Distributed.h"

#include <functional>
#include <optional>

namespace cleave::ir {

/// The results of one or more training steps, under the thread's current rounding.
using Run = std::function<std::vector<Slots>()>;

struct Bounds {
  std::vector<Slots> exact; ///< per step
  std::vector<Slots>
      spread;         ///< of each element, its largest change under noise; NaN or infinite if noise gives no bound
  double largest = 0; ///< largest magnitude of any intermediate value; sums with it lose smaller addends

  bool tiles = false; ///< whether convolutions may use Winograd's method

  /// The exact results, and their changes under so many samples of noise of a double's last bits.
  static Bounds ofDouble(const Run &run, int samples, bool tiles = false);
  /// Widens the changes by more samples of such noise.
  void widenOfDouble(const Run &run);

  /// The results of a run with such noise. Every op is wrong by other bits, also of two ops that compute the same.
  static std::vector<Slots> noisyInDouble(const Run &run);

  /// What follows is for results in the types of the graph. `coarse`: how many units of the last bit an op may be
  /// wrong, as multiples of those of its type (2^13 for products in TF32).
  struct Types {
    DType addends = DType::F32; ///< type in which sums may be accumulated
    double coarse = 1;
  };
  /// The same results; the changes are scaled to those of f32.
  Bounds inTypes(const Types &types) const;
  /// Widens the changes by samples of noise in the types, which are expensive: at first a few, then more. Returns false
  /// if it has done both.
  bool widenInTypes(const Run &run, const Types &types);
  /// Whether the graph itself leaves the range of its types up to this step, or changes its loss scale, so that results
  /// are not comparable. With sums in f16, gradients must stay below an eighth of its range, and the magnitudes
  /// that a reduction adds within it, because the partial sums of ranks may be larger than the total.
  bool leavesRange(const Run &run, const Types &types, size_t step) const;

private:
  void widen(const Run &run, int samples, Rounding noise, uint64_t seed);
  int widened = 0; ///< calls of widenInTypes
};

/// An element that is outside of its bound.
struct Outside {
  int64_t index; ///< in the whole tensor
  double got, want, bound;
};

/// The first of the elements `indices` whose value is not within 8 times its spread plus twice the largest spread of
/// its tensor. Elements that noise gives no bound are skipped. Without `spread`, values must be equal.
std::optional<Outside> firstOutside(const HostTensor &expected, const HostTensor *spread,
                                    const std::vector<int64_t> &indices, const std::vector<double> &values);

/// The place of an element as text: "[1, 0]".
std::string placeText(int64_t index, const std::vector<int64_t> &shape);

} // namespace cleave::ir
