// A symbolic tensor: a handle to a value of the graph that is being traced. It has a shape and an element type and no
// numbers; arithmetic on it adds ops to the graph. Handles are as cheap as pointers and live as long as the trace.
#pragma once
#include <cstdint>
#include <source_location>
#include <string>
#include <type_traits>
#include <vector>

namespace cleave {

/// Where in the user's program an op was written: the last parameter of every function that makes one.
using Where = std::source_location;

using Shape = std::vector<int64_t>;

enum class DType : uint8_t { F32, F16, BF16, I32, I64, I1 };

class Parameter;

class Tensor {
public:
  /// No tensor: an argument left out, for example a bias.
  Tensor() = default;
  explicit operator bool() const { return handle != nullptr; }

  // Asking for any of these of no tensor is a user error, as it is to give none to a function that needs one. So is a
  // tensor that was kept from an earlier trace: forward runs once for training and once for evaluation.
  /// Static sizes. Dimension 0 of what a model is given is the microbatch: batch / microbatches rows.
  Shape shape(Where where = Where::current()) const;
  int64_t rank(Where where = Where::current()) const;
  /// Size of a dimension; negative counts from the end. Throws a user error when there is no such dimension.
  int64_t size(int64_t dim, Where where = Where::current()) const;
  int64_t elements(Where where = Where::current()) const;
  DType dtype(Where where = Where::current()) const;
  /// "tensor<128x784xf32>"
  std::string str() const;

  /// Of the trace at hand.
  static Tensor fromHandle(const void *handle);
  const void *opaque() const { return handle; }
  uint64_t traceNumber() const { return trace; }

private:
  const void *handle = nullptr;
  uint64_t trace = 0; ///< the trace it belongs to
};

namespace detail {
/// `tensor`; a user error where it is none, or of an earlier trace.
Tensor held(Tensor tensor, Where where);
} // namespace detail

/// A side of an arithmetic operator: a tensor, a parameter or a number. It also remembers where the operator stands.
struct Operand {
  Operand(Tensor tensor, Where where = Where::current()) : tensor(detail::held(tensor, where)), where(where) {}
  Operand(const Parameter &parameter, Where where = Where::current());
  template <class T, class = std::enable_if_t<std::is_arithmetic_v<T>>>
  Operand(T number, Where where = Where::current()) : number(static_cast<double>(number)), where(where) {}

  Tensor tensor; ///< none: `number`
  double number = 0;
  Where where;
};

/// Arithmetic with NumPy's broadcasting: shapes are aligned at the last dimension, and sizes agree or one of them is 1.
/// Element types agree (rule C1), shapes can be broadcast (rule C2).
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
