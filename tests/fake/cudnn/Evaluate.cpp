// Evaluates operations on whole tensors, one after another. Virtual tensors are rounded to their type too.
#include "tests/fake/cudnn/OperationGraph.h"

#include "runtime/plan/DTypes.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <unordered_map>

namespace cleave::fake {

namespace {

float roundToTf32(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  return (bits & 0x7f800000) == 0x7f800000 ? x : std::bit_cast<float>((bits + 0x1000) & 0xffffe000);
}

/// Offset of the element with linear number `index` (in the order of `dims`), by `strides`. A dimension of size 1 in
/// `from` is broadcast.
int64_t offsetOf(int64_t index, const std::vector<int64_t> &dims, const std::vector<int64_t> &from,
                 const std::vector<int64_t> &strides) {
  int64_t offset = 0;
  const size_t missing = dims.size() - from.size();
  for (size_t d = dims.size(); d-- > 0;) {
    const int64_t place = index % dims[d];
    index /= dims[d];
    if (d >= missing && from[d - missing] != 1)
      offset += place * strides[d - missing];
  }
  return offset;
}

std::vector<int64_t> packed(const std::vector<int64_t> &dims) {
  std::vector<int64_t> strides(dims.size(), 1);
  for (size_t d = dims.size(); d-- > 1;)
    strides[d - 1] = strides[d] * dims[d];
  return strides;
}

/// The offset of the element with number `index`.
int64_t place(int64_t index, const Tensor &t, bool dense) {
  return dense ? index : offsetOf(index, t.dims, t.dims, t.strides);
}

float apply(int mode, float x, float b, float t) {
  switch (mode) {
  case CUDNN_POINTWISE_ADD:
    return x + b;
  case CUDNN_POINTWISE_SUB:
    return x - b;
  case CUDNN_POINTWISE_MUL:
    return x * b;
  case CUDNN_POINTWISE_DIV:
    return x / b;
  case CUDNN_POINTWISE_MAX:
    return std::max(x, b);
  case CUDNN_POINTWISE_MIN:
    return std::min(x, b);
  case CUDNN_POINTWISE_IDENTITY:
    return x;
  case CUDNN_POINTWISE_EXP:
    return std::exp(x);
  case CUDNN_POINTWISE_LOG:
    return std::log(x);
  case CUDNN_POINTWISE_SQRT:
    return std::sqrt(x);
  case CUDNN_POINTWISE_NEG:
    return -x;
  case CUDNN_POINTWISE_RELU_FWD:
    return std::max(x, 0.0f);
  case CUDNN_POINTWISE_CMP_EQ:
    return x == b;
  case CUDNN_POINTWISE_CMP_NEQ:
    return x != b;
  case CUDNN_POINTWISE_CMP_GT:
    return x > b;
  case CUDNN_POINTWISE_CMP_GE:
    return x >= b;
  case CUDNN_POINTWISE_CMP_LT:
    return x < b;
  case CUDNN_POINTWISE_CMP_LE:
    return x <= b;
  case CUDNN_POINTWISE_LOGICAL_AND:
    return x != 0 && b != 0;
  case CUDNN_POINTWISE_LOGICAL_OR:
    return x != 0 || b != 0;
  case CUDNN_POINTWISE_LOGICAL_NOT:
    return x == 0;
  case CUDNN_POINTWISE_BINARY_SELECT:
    return t != 0 ? x : b;
  default:
    throw std::runtime_error("fake cudnn: a pointwise operation that is not known: " + std::to_string(mode));
  }
}

class Evaluation {
public:
  Evaluation(const Bindings &bindings, bool tf32) : bindings(bindings), tf32(tf32) {}

  void run(const Operation &op) {
    switch (op.kind) {
    case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR:
      return write(op.output, matmul(op));
    case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR:
      return write(op.output, pointwise(op));
    case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR:
      return write(op.output, reduce(op));
    case CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR:
      return write(op.output, reshape(op));
    default:
      write(op.output, convolve(op, factor(op.inputs[0]), factor(op.inputs[1]),
                                op.convolution.beta != 0 ? read(op.output) : Values{}));
    }
  }

private:
  Values read(const Tensor &t) const {
    if (const auto found = computed.find(t.uid); found != computed.end())
      return found->second;
    if (t.byValue)
      return Values(static_cast<size_t>(t.elements()), bindings.scalars.at(t.uid));
    const void *address = bindings.addresses.at(t.uid);
    Values values(static_cast<size_t>(t.elements()));
    const bool dense = t.strides == packed(t.dims);
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = loadValue(address, place(static_cast<int64_t>(i), t, dense), t.type);
    return values;
  }

  Values factor(const Tensor &t) const {
    Values values = read(t);
    for (float &v : values)
      v = tf32 ? roundToTf32(v) : v;
    return values;
  }

  void write(const Tensor &t, Values values) {
    alignas(8) std::byte rounded[8];
    void *address = t.isVirtual ? nullptr : bindings.addresses.at(t.uid);
    const bool dense = t.strides == packed(t.dims);
    for (size_t i = 0; i < values.size(); ++i) {
      storeValue(rounded, 0, t.type, values[i]);
      values[i] = loadValue(rounded, 0, t.type);
      if (address)
        storeValue(address, place(static_cast<int64_t>(i), t, dense), t.type, values[i]);
    }
    computed[t.uid] = std::move(values);
  }

  Values matmul(const Operation &op) const {
    const Tensor &a = op.inputs[0], &b = op.inputs[1];
    const Values left = factor(a), right = factor(b);
    const size_t rank = a.dims.size();
    const int64_t m = a.dims[rank - 2], k = a.dims[rank - 1], n = b.dims[rank - 1];
    Values result(static_cast<size_t>(op.output.elements()));
    const std::vector<int64_t> batch(op.output.dims.begin(), op.output.dims.end() - 2);
    const auto base = [&](int64_t index, const Tensor &t) {
      const std::vector<int64_t> dims(t.dims.begin(), t.dims.end() - 2), all = packed(t.dims);
      return offsetOf(index, batch, dims, {all.begin(), all.end() - 2});
    };
    for (int64_t i = 0; i * m * n < op.output.elements(); ++i) {
      const float *from = left.data() + base(i, a), *with = right.data() + base(i, b);
      for (int64_t row = 0; row < m; ++row)
        for (int64_t column = 0; column < n; ++column) {
          float sum = 0;
          for (int64_t j = 0; j < k; ++j)
            sum += from[row * k + j] * with[j * n + column];
          result[static_cast<size_t>((i * m + row) * n + column)] = sum;
        }
    }
    return result;
  }

  Values pointwise(const Operation &op) const {
    const std::vector<int64_t> &dims = op.output.dims;
    Values result(static_cast<size_t>(op.output.elements()));
    if (op.mode == CUDNN_POINTWISE_GEN_INDEX) {
      int64_t inner = 1;
      for (size_t d = static_cast<size_t>(op.axis) + 1; d < dims.size(); ++d)
        inner *= dims[d];
      for (size_t i = 0; i < result.size(); ++i)
        result[i] = static_cast<float>(static_cast<int64_t>(i) / inner % dims[static_cast<size_t>(op.axis)]);
      return result;
    }
    struct Operand {
      Values values;
      std::vector<int64_t> dims, strides;
      bool whole; ///< has the result's size, so nothing is broadcast
    };
    std::vector<Operand> operands;
    for (const Tensor &t : op.inputs)
      operands.push_back({read(t), t.dims, packed(t.dims), t.dims == dims});
    for (size_t i = 0; i < result.size(); ++i) {
      float at[3] = {};
      for (size_t j = 0; j < operands.size(); ++j) {
        const Operand &o = operands[j];
        at[j] = o.whole ? o.values[i]
                : o.values.size() == 1
                    ? o.values[0]
                    : o.values[static_cast<size_t>(offsetOf(static_cast<int64_t>(i), dims, o.dims, o.strides))];
      }
      result[i] = apply(op.mode, at[0], at[1], at[2]);
    }
    return result;
  }

  Values reduce(const Operation &op) const {
    const Tensor &x = op.inputs[0];
    const Values values = read(x);
    const bool sum = op.mode == CUDNN_REDUCE_TENSOR_ADD;
    Values result(static_cast<size_t>(op.output.elements()), sum ? 0 : -std::numeric_limits<float>::infinity());
    for (size_t i = 0; i < values.size(); ++i) {
      float &to = result[static_cast<size_t>(
          offsetOf(static_cast<int64_t>(i), x.dims, op.output.dims, packed(op.output.dims)))];
      to = sum ? to + values[i] : std::max(to, values[i]);
    }
    return result;
  }

  /// The same values under other dimensions and strides.
  Values reshape(const Operation &op) const {
    const Tensor &x = op.inputs[0], &y = op.output;
    const Values values = read(x);
    std::unordered_map<int64_t, float> memory;
    for (size_t i = 0; i < values.size(); ++i)
      memory[offsetOf(static_cast<int64_t>(i), x.dims, x.dims, x.strides)] = values[i];
    Values result(static_cast<size_t>(y.elements()));
    for (size_t i = 0; i < result.size(); ++i)
      result[i] = memory.at(offsetOf(static_cast<int64_t>(i), y.dims, y.dims, y.strides));
    return result;
  }

  const Bindings &bindings;
  bool tf32;
  std::map<int64_t, Values> computed;
};

} // namespace

size_t dataBytes(cudnnDataType_t type) {
  switch (type) {
  case CUDNN_DATA_HALF:
  case CUDNN_DATA_BFLOAT16:
    return 2;
  case CUDNN_DATA_BOOLEAN:
    return 1;
  case CUDNN_DATA_INT64:
    return 8;
  default:
    return 4;
  }
}

float loadValue(const void *address, int64_t index, cudnnDataType_t type) {
  const auto at = [&](auto value) {
    std::memcpy(&value, static_cast<const std::byte *>(address) + index * static_cast<int64_t>(sizeof value),
                sizeof value);
    return value;
  };
  switch (type) {
  case CUDNN_DATA_FLOAT:
    return at(float{});
  case CUDNN_DATA_HALF:
    return f16ToFloat(at(uint16_t{}));
  case CUDNN_DATA_BFLOAT16:
    return bf16ToFloat(at(uint16_t{}));
  case CUDNN_DATA_INT32:
    return static_cast<float>(at(int32_t{}));
  case CUDNN_DATA_INT64:
    return static_cast<float>(at(int64_t{}));
  case CUDNN_DATA_BOOLEAN:
    return at(uint8_t{}) != 0;
  default:
    throw std::runtime_error("fake cudnn: a type that is not known: " + std::to_string(type));
  }
}

void storeValue(void *address, int64_t index, cudnnDataType_t type, float value) {
  const auto put = [&](auto v) {
    std::memcpy(static_cast<std::byte *>(address) + index * static_cast<int64_t>(sizeof v), &v, sizeof v);
  };
  switch (type) {
  case CUDNN_DATA_FLOAT:
    return put(value);
  case CUDNN_DATA_HALF:
    return put(floatToF16(value));
  case CUDNN_DATA_BFLOAT16:
    return put(floatToBf16(value));
  case CUDNN_DATA_INT32:
    return put(static_cast<int32_t>(value));
  case CUDNN_DATA_INT64:
    return put(static_cast<int64_t>(value));
  case CUDNN_DATA_BOOLEAN:
    return put(static_cast<uint8_t>(value != 0));
  default:
    throw std::runtime_error("fake cudnn: a type that is not known: " + std::to_string(type));
  }
}

void evaluate(const Program &program, const Bindings &bindings, bool tf32) {
  Evaluation evaluation(bindings, tf32);
  for (const Operation &op : program.operations)
    evaluation.run(op);
}

} // namespace cleave::fake
