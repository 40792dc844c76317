// Kernels of the ops that move elements: broadcast, reduce, reshape, transpose, slice, pad, concat.
#include "ir/graph/Graph.h"
#include "ir/interpreter/Executable.h"

#include "llvm/ADT/TypeSwitch.h"

#include <algorithm>
#include <cmath>
#include <limits>

using namespace mlir;

namespace cleave::ir {

using Shape = std::vector<int64_t>;

/// Calls f(i, at) for every index of `shape` in row-major order: i counts up, at = start + sum of index * strides.
template <typename F> static void walk(const Shape &shape, const Shape &strides, int64_t start, F f) {
  int64_t count = elementCount(shape), rank = shape.size(), at = start;
  if (rank == 0)
    return f(int64_t{0}, at);
  Shape index(rank, 0);
  for (int64_t i = 0; i < count;) {
    for (int64_t j = 0; j < shape[rank - 1]; ++j, ++i)
      f(i, at + j * strides[rank - 1]);
    for (int64_t d = rank - 1; d-- > 0;) {
      at += strides[d];
      if (++index[d] < shape[d])
        break;
      at -= strides[d] * shape[d];
      index[d] = 0;
    }
  }
}

/// Reads the operand at start + index * strides for every index of the result.
static HostTensor gathered(const HostTensor &type, const HostTensor &in, const Shape &strides, int64_t start = 0) {
  HostTensor out = type;
  out.values.resize(elementCount(out.shape));
  walk(out.shape, strides, start, [&](int64_t i, int64_t at) { out.values[i] = in.values[at]; });
  return out;
}

static Kernel broadcast(BroadcastOp op) {
  return [type = emptyTensor(op.getType()), dims = Shape(op.getDims())](const Operands &in, Environment &) {
    Shape own = stridesOf(in[0]->shape), strides(type.shape.size(), 0);
    for (size_t i = 0; i < dims.size(); ++i)
      strides[dims[i]] = own[i];
    return one(gathered(type, *in[0], strides));
  };
}

static Kernel transpose(TransposeOp op) {
  return
      [type = emptyTensor(op.getType()), permutation = Shape(op.getPermutation())](const Operands &in, Environment &) {
        Shape own = stridesOf(in[0]->shape), strides;
        for (int64_t dim : permutation)
          strides.push_back(own[dim]);
        return one(gathered(type, *in[0], strides));
      };
}

static Kernel slice(SliceOp op) {
  return [type = emptyTensor(op.getType()), starts = Shape(op.getStarts())](const Operands &in, Environment &) {
    Shape strides = stridesOf(in[0]->shape);
    int64_t start = 0;
    for (size_t i = 0; i < starts.size(); ++i)
      start += starts[i] * strides[i];
    return one(gathered(type, *in[0], strides, start));
  };
}

static Kernel reduce(ReduceOp op) {
  return [type = emptyTensor(op.getType()), kind = op.getKind(), dims = Shape(op.getDims())](const Operands &in,
                                                                                             Environment &) {
    constexpr double infinity = std::numeric_limits<double>::infinity();
    HostTensor out = type;
    out.values.assign(elementCount(out.shape), kind == ReduceKind::Sum   ? 0
                                               : kind == ReduceKind::Max ? -infinity
                                                                         : infinity);
    Shape own = stridesOf(out.shape), strides(in[0]->shape.size(), 0);
    for (size_t i = 0, kept = 0; i < strides.size(); ++i)
      if (!std::binary_search(dims.begin(), dims.end(), int64_t(i)))
        strides[i] = own[kept++];
    std::vector<double> magnitudes(kind == ReduceKind::Sum && out.dtype == DType::F16 ? out.values.size() : 0);
    walk(in[0]->shape, strides, 0, [&](int64_t i, int64_t at) {
      double value = in[0]->values[i], &result = out.values[at];
      if (!magnitudes.empty())
        magnitudes[at] += std::abs(value);
      if (kind == ReduceKind::Sum)
        result += addend(value);
      else if (kind == ReduceKind::Max ? value > result || value != value : value < result || value != value)
        result = value;
    });
    if (!magnitudes.empty())
      noteHalfAddends(*std::max_element(magnitudes.begin(), magnitudes.end()));
    if (kind == ReduceKind::Sum) // max and min only select, so nothing is rounded
      out.round();
    return one(std::move(out));
  };
}

static Kernel pad(PadOp op) {
  return [type = emptyTensor(op.getType()), low = Shape(op.getLow())](const Operands &in, Environment &) {
    HostTensor out = type;
    out.values.assign(elementCount(out.shape), 0);
    Shape strides = stridesOf(out.shape);
    int64_t start = 0;
    for (size_t i = 0; i < low.size(); ++i)
      start += low[i] * strides[i];
    walk(in[0]->shape, strides, start, [&](int64_t i, int64_t at) { out.values[at] = in[0]->values[i]; });
    return one(std::move(out));
  };
}

static Kernel concat(ConcatOp op) {
  return [type = emptyTensor(op.getType()), dim = int64_t(op.getDim())](const Operands &in, Environment &) {
    HostTensor out = type;
    out.values.resize(elementCount(out.shape));
    Shape strides = stridesOf(out.shape);
    int64_t start = 0;
    for (const HostTensor *input : in) {
      walk(input->shape, strides, start, [&](int64_t i, int64_t at) { out.values[at] = input->values[i]; });
      start += input->shape[dim] * strides[dim];
    }
    return one(std::move(out));
  };
}

static Kernel reshape(ReshapeOp op) {
  return [type = emptyTensor(op.getType())](const Operands &in, Environment &) {
    HostTensor out = *in[0];
    out.shape = type.shape;
    return one(std::move(out));
  };
}

Kernel shapeKernel(Operation *op) {
  return llvm::TypeSwitch<Operation *, Kernel>(op)
      .Case([](BroadcastOp op) { return broadcast(op); })
      .Case([](ReduceOp op) { return reduce(op); })
      .Case([](ReshapeOp op) { return reshape(op); })
      .Case([](TransposeOp op) { return transpose(op); })
      .Case([](SliceOp op) { return slice(op); })
      .Case([](PadOp op) { return pad(op); })
      .Case([](ConcatOp op) { return concat(op); })
      .Default([](Operation *) { return Kernel(); });
}

} // namespace cleave::ir
