// Reductions of elements. 16-bit numbers are rounded at every addition, as between the GPUs of a ring.
#include "tests/fake/nccl/Comm.h"

#include "tests/fake/Numbers.h"

#include <algorithm>
#include <type_traits>

namespace cleave::fake {

namespace {

template <typename T> T reduceTwo(T a, T b, ncclRedOp_t reduce) {
  switch (reduce) {
  case ncclProd:
    return static_cast<T>(a * b);
  case ncclMax:
    return std::max(a, b);
  case ncclMin:
    return std::min(a, b);
  default:
    if constexpr (std::is_integral_v<T>) // wraps around
      return static_cast<T>(static_cast<std::make_unsigned_t<T>>(a) + static_cast<std::make_unsigned_t<T>>(b));
    else
      return a + b;
  }
}

template <typename T> void combineAs(void *out, const void *in, size_t count, ncclRedOp_t reduce) {
  for (size_t i = 0; i < count; ++i)
    static_cast<T *>(out)[i] = reduceTwo(static_cast<T *>(out)[i], static_cast<const T *>(in)[i], reduce);
}

template <float (*from)(uint16_t), uint16_t (*to)(float)>
void combineSmall(void *out, const void *in, size_t count, ncclRedOp_t reduce) {
  for (size_t i = 0; i < count; ++i) {
    uint16_t &at = static_cast<uint16_t *>(out)[i];
    at = to(reduceTwo(from(at), from(static_cast<const uint16_t *>(in)[i]), reduce));
  }
}

template <typename T> void divideAs(void *out, size_t count, uint32_t by) {
  for (size_t i = 0; i < count; ++i)
    static_cast<T *>(out)[i] = static_cast<T>(static_cast<T *>(out)[i] / static_cast<T>(by));
}

} // namespace

size_t elementBytes(ncclDataType_t type) {
  switch (type) {
  case ncclInt8:
  case ncclUint8:
    return 1;
  case ncclFloat16:
  case ncclBfloat16:
    return 2;
  case ncclInt32:
  case ncclUint32:
  case ncclFloat32:
    return 4;
  case ncclInt64:
  case ncclUint64:
  case ncclFloat64:
    return 8;
  default:
    return 0; // eight-bit floating point is not implemented
  }
}

void combine(void *out, const void *in, size_t count, ncclDataType_t type, ncclRedOp_t reduce) {
  switch (type) {
  case ncclInt8:
    return combineAs<int8_t>(out, in, count, reduce);
  case ncclUint8:
    return combineAs<uint8_t>(out, in, count, reduce);
  case ncclInt32:
    return combineAs<int32_t>(out, in, count, reduce);
  case ncclUint32:
    return combineAs<uint32_t>(out, in, count, reduce);
  case ncclInt64:
    return combineAs<int64_t>(out, in, count, reduce);
  case ncclUint64:
    return combineAs<uint64_t>(out, in, count, reduce);
  case ncclFloat32:
    return combineAs<float>(out, in, count, reduce);
  case ncclFloat64:
    return combineAs<double>(out, in, count, reduce);
  case ncclFloat16:
    return combineSmall<fromHalf, toHalf>(out, in, count, reduce);
  case ncclBfloat16:
    return combineSmall<fromBrain, toBrain>(out, in, count, reduce);
  default:
    return;
  }
}

void divide(void *out, size_t count, ncclDataType_t type, uint32_t by) {
  switch (type) {
  case ncclInt32:
    return divideAs<int32_t>(out, count, by);
  case ncclInt64:
    return divideAs<int64_t>(out, count, by);
  case ncclFloat32:
    return divideAs<float>(out, count, by);
  case ncclFloat64:
    return divideAs<double>(out, count, by);
  case ncclFloat16:
    for (size_t i = 0; i < count; ++i)
      static_cast<uint16_t *>(out)[i] = toHalf(fromHalf(static_cast<uint16_t *>(out)[i]) / static_cast<float>(by));
    return;
  case ncclBfloat16:
    for (size_t i = 0; i < count; ++i)
      static_cast<uint16_t *>(out)[i] = toBrain(fromBrain(static_cast<uint16_t *>(out)[i]) / static_cast<float>(by));
    return;
  default:
    return;
  }
}

} // namespace cleave::fake
