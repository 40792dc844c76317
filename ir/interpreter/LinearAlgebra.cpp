// Kernels of matrix products and convolutions. A convolution is a product with its unfolded windows (im2col). Sums
// are accumulated in double and rounded once.
#include "ir/graph/Graph.h"
#include "ir/interpreter/Executable.h"

#include "llvm/ADT/TypeSwitch.h"

#include <algorithm>

using namespace mlir;

namespace cleave::ir {

/// The result of a product or convolution, rounded once.
static std::vector<HostTensor> rounded(HostTensor tensor) {
  tensor.round();
  return one(std::move(tensor));
}

/// out[m, n] += a[m, k] * b[k, n], all row-major; sums run over k in order.
static void multiply(const double *a, const double *b, double *out, int64_t m, int64_t k, int64_t n) {
  const bool noise = currentRounding().kind == Rounding::Kind::Noise;
  for (int64_t i = 0; i < m; ++i)
    for (int64_t x = 0; x < k; ++x) {
      double factor = a[i * k + x];
      const double *row = b + x * n;
      double *to = out + i * n;
      for (int64_t j = 0; j < n; ++j)
        to[j] += noise ? addend(factor * row[j]) : factor * row[j];
    }
}

/// The transpose of a [rows, columns] matrix.
static std::vector<double> transposed(const double *from, int64_t rows, int64_t columns) {
  std::vector<double> to(rows * columns);
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j)
      to[j * rows + i] = from[i * columns + j];
  return to;
}

static Kernel matmul(MatmulOp op) {
  return [type = emptyTensor(op.getType()), transA = op.getTransA(), transB = op.getTransB()](const Operands &in,
                                                                                              Environment &) {
    const HostTensor &a = *in[0], &b = *in[1];
    HostTensor out = type;
    out.values.assign(elementCount(out.shape), 0);
    int64_t rank = out.rank(), m = out.shape[rank - 2], n = out.shape[rank - 1];
    int64_t k = a.shape[a.rank() - (transA ? 2 : 1)];
    int64_t batches = m * n ? out.size() / (m * n) : 0;
    bool shared = b.rank() == 2;
    std::vector<double> sharedB;
    if (shared && transB)
      sharedB = transposed(b.values.data(), n, k);
    for (int64_t batch = 0; batch < batches; ++batch) {
      const double *aPart = a.values.data() + batch * m * k, *bPart = b.values.data() + (shared ? 0 : batch * k * n);
      std::vector<double> aTurned, bTurned;
      if (transA)
        aPart = (aTurned = transposed(aPart, k, m)).data();
      if (transB)
        bPart = shared ? sharedB.data() : (bTurned = transposed(bPart, n, k)).data();
      multiply(aPart, bPart, out.values.data() + batch * m * n, m, k, n);
    }
    return rounded(std::move(out));
  };
}

// ---- convolution ---------------------------------------------------------------------------------------------------

namespace {

/// One convolution: sizes for one sample and one group.
struct Convolution {
  std::vector<int64_t> stride, padding, dilation;
  int64_t groups;
  int64_t n, channels, h, w;       // input; channels of one group
  int64_t outputs, kh, kw, oh, ow; // outputs of one group

  /// Elements per window, windows per sample.
  int64_t window() const { return channels * kh * kw; }
  int64_t windows() const { return oh * ow; }

  Convolution set(const std::vector<int64_t> &input, const std::vector<int64_t> &weight,
                  const std::vector<int64_t> &result) const {
    Convolution c = *this;
    c.n = input[0], c.channels = weight[1], c.h = input[2], c.w = input[3];
    c.outputs = weight[0] / groups, c.kh = weight[2], c.kw = weight[3];
    c.oh = result[2], c.ow = result[3];
    return c;
  }

  /// Calls f(position in [window, windows], position in the group's [channels, h, w]) for every pair inside the input.
  template <typename F> void unfold(F f) const {
    for (int64_t c = 0, row = 0; c < channels; ++c)
      for (int64_t y = 0; y < kh; ++y)
        for (int64_t x = 0; x < kw; ++x, ++row)
          for (int64_t i = 0; i < oh; ++i) {
            int64_t iy = i * stride[0] - padding[0] + y * dilation[0];
            if (iy < 0 || iy >= h)
              continue;
            for (int64_t j = 0; j < ow; ++j) {
              int64_t ix = j * stride[1] - padding[1] + x * dilation[1];
              if (ix >= 0 && ix < w)
                f(row * windows() + i * ow + j, (c * h + iy) * w + ix);
            }
          }
  }

  /// Calls f(input, weight, output offsets) for every sample and group.
  template <typename F> void each(F f) const {
    for (int64_t s = 0; s < n; ++s)
      for (int64_t g = 0; g < groups; ++g)
        f((s * groups + g) * channels * h * w, g * outputs * window(), (s * groups + g) * outputs * windows());
  }
};

} // namespace

template <typename Op> static Convolution convolutionOf(Op op) {
  Convolution c{};
  c.stride = op.getStride().vec(), c.padding = op.getPadding().vec(), c.dilation = op.getDilation().vec();
  c.groups = op.getGroups();
  return c;
}

/// The operands of a convolution by Winograd's method and its result, with noise.
namespace {
struct Mixed {
  bool on;
  std::vector<double> operands[2];

  Mixed(const Convolution &c, const HostTensor &a, const HostTensor &b)
      : on(currentRounding().tiles && (c.kh == 3 || c.kh == 5) && c.kw == c.kh && c.groups == 1 &&
           c.stride == std::vector<int64_t>{1, 1} && c.dilation == std::vector<int64_t>{1, 1} &&
           a.dtype != DType::F16) {
    for (int i = 0; i < 2 && on; ++i) {
      const HostTensor &from = i ? b : a;
      operands[i] = from.values;
      mix(operands[i], from.shape);
    }
  }
  static void mix(std::vector<double> &values, const std::vector<int64_t> &shape) {
    const int64_t plane = shape[2] * shape[3];
    for (size_t at = 0; plane && at < values.size(); at += static_cast<size_t>(plane))
      mixInTiles(&values[at], plane);
  }
  const std::vector<double> &operand(int i, const HostTensor &from) const { return on ? operands[i] : from.values; }
  std::vector<HostTensor> result(HostTensor out) const {
    if (on)
      mix(out.values, out.shape);
    return rounded(std::move(out));
  }
};
} // namespace

static Kernel conv2d(Conv2dOp op) {
  return [type = emptyTensor(op.getType()), open = convolutionOf(op)](const Operands &in, Environment &) {
    HostTensor out = type;
    out.values.assign(elementCount(out.shape), 0);
    Convolution c = open.set(in[0]->shape, in[1]->shape, out.shape);
    const Mixed mixed(c, *in[0], *in[1]);
    const std::vector<double> &first = mixed.operand(0, *in[0]), &second = mixed.operand(1, *in[1]);
    std::vector<double> columns(c.window() * c.windows());
    c.each([&](int64_t input, int64_t weight, int64_t output) {
      std::fill(columns.begin(), columns.end(), 0);
      c.unfold([&](int64_t column, int64_t pixel) { columns[column] = first[input + pixel]; });
      multiply(&second[weight], columns.data(), &out.values[output], c.outputs, c.window(), c.windows());
    });
    return mixed.result(std::move(out));
  };
}

static Kernel conv2dInputGrad(Conv2dInputGradOp op) {
  return [type = emptyTensor(op.getType()), open = convolutionOf(op)](const Operands &in, Environment &) {
    HostTensor out = type;
    out.values.assign(elementCount(out.shape), 0);
    Convolution c = open.set(out.shape, in[1]->shape, in[0]->shape);
    const Mixed mixed(c, *in[0], *in[1]);
    const std::vector<double> &first = mixed.operand(0, *in[0]), &second = mixed.operand(1, *in[1]);
    std::vector<double> columns(c.window() * c.windows());
    c.each([&](int64_t input, int64_t weight, int64_t output) {
      std::fill(columns.begin(), columns.end(), 0);
      auto turned = transposed(&second[weight], c.outputs, c.window());
      multiply(turned.data(), &first[output], columns.data(), c.window(), c.outputs, c.windows());
      c.unfold([&](int64_t column, int64_t pixel) { out.values[input + pixel] += columns[column]; });
    });
    return mixed.result(std::move(out));
  };
}

static Kernel conv2dWeightGrad(Conv2dWeightGradOp op) {
  return [type = emptyTensor(op.getType()), open = convolutionOf(op)](const Operands &in, Environment &) {
    HostTensor out = type;
    out.values.assign(elementCount(out.shape), 0);
    Convolution c = open.set(in[1]->shape, out.shape, in[0]->shape);
    const Mixed mixed(c, *in[0], *in[1]);
    const std::vector<double> &first = mixed.operand(0, *in[0]), &second = mixed.operand(1, *in[1]);
    std::vector<double> rows(c.windows() * c.window()); // unfolded and transposed: [windows, window]
    c.each([&](int64_t input, int64_t weight, int64_t output) {
      std::fill(rows.begin(), rows.end(), 0);
      c.unfold([&](int64_t column, int64_t pixel) {
        rows[column % c.windows() * c.window() + column / c.windows()] = second[input + pixel];
      });
      multiply(&first[output], rows.data(), &out.values[weight], c.outputs, c.windows(), c.window());
    });
    return mixed.result(std::move(out));
  };
}

Kernel linearAlgebraKernel(Operation *op) {
  return llvm::TypeSwitch<Operation *, Kernel>(op)
      .Case([](MatmulOp op) { return matmul(op); })
      .Case([](Conv2dOp op) { return conv2d(op); })
      .Case([](Conv2dInputGradOp op) { return conv2dInputGrad(op); })
      .Case([](Conv2dWeightGradOp op) { return conv2dWeightGrad(op); })
      .Default([](Operation *) { return Kernel(); });
}

} // namespace cleave::ir
