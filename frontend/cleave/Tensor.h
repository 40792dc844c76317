// A symbolic tensor: a handle to a value of the graph being traced. It has a shape and an element type but no data;
// arithmetic on it adds ops to the graph. Handles are as cheap to copy as pointers and are valid until the trace ends.
#pragma once
#include "cleave/DType.h"

#include <concepts>
#include <cstdint>
#include <source_location>
#include <string>
#include <type_traits>
#include <vector>

namespace cleave {

/// Source location of an op in the user's program: the last parameter of every function that creates one.
using Where = std::source_location;

using Shape = std::vector<int64_t>;

/// What an index does that no element has: the run ends with an error that names it, or the result has zeros there (a
/// sum gets nothing).
enum class Outside : uint8_t { Error, Zero };

class Parameter;

class Tensor {
public:
  /// An empty handle: an omitted argument, for example a bias.
  Tensor() = default;
  /// Whether the handle refers to a tensor.
  bool defined() const { return handle != nullptr; }
  /// A tensor is not a condition of C++: `if (x > 0)`, `while`, `?:`, `!x`, `x && y` and `x || y` do not compile.
  template <std::same_as<bool> B> explicit operator B() const {
    static_assert(!std::same_as<B, bool>,
                  "the values of a Tensor are not known while the model is traced, so they cannot decide an if, while, "
                  "?:, !, && or ||: choose values with where(condition, a, b), combine conditions with logicalAnd, "
                  "logicalOr and logicalNot; tensor.defined() tells whether a handle refers to a tensor");
    return false;
  }

  // Calling these functions on an empty handle is a user error, and so is passing an empty handle to a function that
  // needs a tensor. The same holds for a tensor kept from an earlier trace: forward runs once for training and once for
  // evaluation.

  /// Static sizes. Dimension 0 of the model's inputs is the microbatch: batch / microbatches rows.
  Shape shape(Where where = Where::current()) const;
  int64_t rank(Where where = Where::current()) const;
  /// Size of a dimension; negative dimensions count from the end. Throws a user error if the dimension does not exist.
  int64_t size(int64_t dim, Where where = Where::current()) const;
  int64_t elements(Where where = Where::current()) const;
  DType dtype(Where where = Where::current()) const;
  /// The type as text, for example "tensor<128x784xf32>"; "nothing" for an empty handle.
  std::string str() const;

  /// For internal use: a tensor of the current trace from its handle.
  static Tensor fromHandle(const void *handle);
  const void *opaque() const { return handle; }
  uint64_t traceNumber() const { return trace; }

private:
  const void *handle = nullptr;
  uint64_t trace = 0; ///< number of the trace that this tensor belongs to
};

namespace internal {
/// Returns `tensor`; throws a user error if it is empty or belongs to an earlier trace.
Tensor held(Tensor tensor, Where where);
} // namespace internal

/// An operand of an arithmetic operator: a tensor, a parameter or a number, with the source location of the operator.
struct Operand {
  Operand(Tensor tensor, Where where = Where::current()) : tensor(internal::held(tensor, where)), where(where) {}
  Operand(const Parameter &parameter, Where where = Where::current());
  template <class T, class = std::enable_if_t<std::is_arithmetic_v<T>>>
  Operand(T number, Where where = Where::current()) : number(static_cast<double>(number)), where(where) {}

  Tensor tensor; ///< empty: use `number`
  double number = 0;
  Where where;
};

/// Arithmetic with NumPy's broadcasting: shapes are aligned at the last dimension, and sizes agree or one is 1. The
/// division of integers truncates. C1: element types agree. C2: shapes can be broadcast.
Tensor operator+(Operand a, Operand b);
Tensor operator-(Operand a, Operand b);
Tensor operator*(Operand a, Operand b);
Tensor operator/(Operand a, Operand b);
Tensor operator-(Operand a);
Tensor &operator+=(Tensor &a, Operand b);
Tensor &operator-=(Tensor &a, Operand b);
Tensor &operator*=(Tensor &a, Operand b);
Tensor &operator/=(Tensor &a, Operand b);

} // namespace cleave
