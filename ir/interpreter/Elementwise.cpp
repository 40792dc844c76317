// Kernels of the elementwise ops. The ops' definitions say what most of them compute.
#include "ir/graph/Graph.h"
#include "ir/interpreter/Executable.h"

#include "llvm/ADT/TypeSwitch.h"

#include <cmath>

using namespace mlir;

namespace cleave::ir {

/// `exact`: the op selects or moves values and never rounds, so no noise is added.
template <typename F> static Kernel unary(Operation *op, bool exact, F f) {
  return [type = emptyTensor(op->getResult(0).getType()), f, exact](const Operands &in, Environment &) {
    HostTensor out = type;
    out.values.resize(in[0]->values.size());
    for (size_t i = 0; i < out.values.size(); ++i)
      out.values[i] = f(in[0]->values[i]);
    if (!exact)
      out.round();
    return std::vector<HostTensor>{std::move(out)};
  };
}

template <typename F> static Kernel binary(Operation *op, bool exact, F f) {
  return [type = emptyTensor(op->getResult(0).getType()), f, exact](const Operands &in, Environment &) {
    HostTensor out = type;
    out.values.resize(in[0]->values.size());
    for (size_t i = 0; i < out.values.size(); ++i)
      out.values[i] = f(in[0]->values[i], in[1]->values[i]);
    if (!exact)
      out.round();
    return std::vector<HostTensor>{std::move(out)};
  };
}

static constexpr double root2OverPi = 0.79788456080286535588, cubic = 0.044715;

static double gelu(double x, bool tanh) {
  if (tanh)
    return 0.5 * x * (1 + std::tanh(root2OverPi * (x + cubic * x * x * x)));
  return 0.5 * x * std::erfc(-x * M_SQRT1_2);
}

/// Derivative of gelu; at infinity its limit.
static double geluSlope(double x, bool tanh) {
  if (std::isinf(x))
    return x > 0;
  if (tanh) {
    double t = std::tanh(root2OverPi * (x + cubic * x * x * x));
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * root2OverPi * (1 + 3 * cubic * x * x);
  }
  double density = std::exp(-0.5 * x * x) * root2OverPi / 2; // 1 / sqrt(2 pi)
  return 0.5 * std::erfc(-x * M_SQRT1_2) + x * density;
}

static bool compare(Predicate predicate, double x, double y) {
  switch (predicate) {
  case Predicate::Eq:
    return x == y;
  case Predicate::Ne:
    return x != y;
  case Predicate::Lt:
    return x < y;
  case Predicate::Le:
    return x <= y;
  case Predicate::Gt:
    return x > y;
  case Predicate::Ge:
    return x >= y;
  }
  return false;
}

static Kernel select(Operation *) {
  return [](const Operands &in, Environment &) {
    HostTensor out = *in[2];
    for (size_t i = 0; i < out.values.size(); ++i)
      if (in[0]->values[i] != 0)
        out.values[i] = in[1]->values[i];
    return std::vector<HostTensor>{std::move(out)};
  };
}

Kernel elementwiseKernel(Operation *op) {
  using Result = Kernel;
  if (isa<DivOp>(op) && !isa<FloatType>(tensorType(op->getResult(0)).getElementType()))
    return binary(op, false, [](double x, double y) { return y == 0 ? 0 : std::trunc(x / y); });
  return llvm::TypeSwitch<Operation *, Result>(op)
#define CLEAVE_UNARY(Name, mnemonic, exact, code, value)                                                               \
  .Case([](Name##Op op) { return unary(op, exact, [](double x) -> double { return value; }); })
#define CLEAVE_BINARY(Name, mnemonic, exact, code, value)                                                              \
  .Case([](Name##Op op) { return binary(op, exact, [](double x, double y) -> double { return value; }); })
#include "ir/graph/GraphElementwise.inc"
      .Case([](GeluOp op) { return unary(op, false, [t = op.getTanh()](double x) { return gelu(x, t); }); })
      .Case([](GeluGradOp op) {
        return binary(op, false, [t = op.getTanh()](double grad, double x) { return grad * geluSlope(x, t); });
      })
      .Case([](CompareOp op) {
        return binary(op, false, [p = op.getPredicate()](double x, double y) { return double(compare(p, x, y)); });
      })
      .Case([](SelectOp op) { return select(op); })
      .Case([](CastOp op) {
        const DType type = emptyTensor(op.getType()).dtype;
        return unary(op, true, [type](double x) { return castTo(type, x); });
      })
      .Case<DetachOp, ShardHintOp>([](auto op) { return unary(op, true, [](double x) { return x; }); })
      .Default([](Operation *) { return Kernel(); });
}

} // namespace cleave::ir
