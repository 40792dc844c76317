// Lookups by index and their gradients. Gradients are parallel over columns, so each sum adds in the order of the
// indices.
#include "runtime/base/Error.h"
#include "runtime/device/HostDevice.h"
#include "runtime/device/Parallel.h"
#include "runtime/plan/DTypes.h"
#include "runtime/plan/plan_generated.h"

#include <fmt/format.h>

#include <cstring>

namespace cleave {

namespace {

constexpr int64_t parallelElements = 16 << 10;

struct F32 {
  using Element = float;
  static float add(float a, float b) { return a + b; }
};
struct Bf16 {
  using Element = uint16_t;
  static uint16_t add(uint16_t a, uint16_t b) { return floatToBf16(bf16ToFloat(a) + bf16ToFloat(b)); }
};
struct F16 {
  using Element = uint16_t;
  static uint16_t add(uint16_t a, uint16_t b) { return floatToF16(f16ToFloat(a) + f16ToFloat(b)); }
};

unsigned threadsFor(int64_t elements, unsigned threads) { return elements < parallelElements ? 1 : threads; }

class EmbeddingOp final : public Op {
public:
  EmbeddingOp(const plan::Embedding &e, SlotScope &scope, unsigned threads)
      : table{scope.local(e.table())}, ids{scope.local(e.ids())}, out{scope.local(e.out())}, rows(e.rows()),
        rowBytes(e.width() * static_cast<int64_t>(dtypeSize(e.dtype()))), count(e.count()),
        start(scope.scalar(e.start(), 0)), threads(threadsFor(e.count() * e.width(), threads)) {}

  void run(SlotTable slots, const RunContext &) override {
    const auto *index = reinterpret_cast<const int32_t *>(ids.at(slots));
    const std::byte *from = table.at(slots);
    std::byte *to = out.at(slots);
    parallelRange(threads, count, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        int64_t row = index[i] - start;
        if (row >= 0 && row < rows)
          std::memcpy(to + i * rowBytes, from + row * rowBytes, static_cast<size_t>(rowBytes));
        else
          std::memset(to + i * rowBytes, 0, static_cast<size_t>(rowBytes));
      }
    });
  }

private:
  StepOperand table, ids, out;
  int64_t rows, rowBytes, count, start;
  unsigned threads;
};

template <typename Format> class EmbeddingGradOp final : public Op {
  using T = typename Format::Element;

public:
  EmbeddingGradOp(const plan::EmbeddingGrad &e, SlotScope &scope, unsigned threads)
      : ids{scope.local(e.ids())}, grad{scope.local(e.grad())}, dtable{scope.local(e.dtable())}, rows(e.rows()),
        width(e.width()), count(e.count()), start(scope.scalar(e.start(), 0)), accumulate(e.accumulate()),
        threads(threadsFor(e.count() * e.width(), threads)) {}

  void run(SlotTable slots, const RunContext &) override {
    const auto *index = reinterpret_cast<const int32_t *>(ids.at(slots));
    const T *from = reinterpret_cast<const T *>(grad.at(slots));
    T *to = reinterpret_cast<T *>(dtable.at(slots));
    if (!accumulate)
      parallelRange(threads, rows, 64, [&](int64_t begin, int64_t end) {
        std::memset(to + begin * width, 0, static_cast<size_t>((end - begin) * width) * sizeof(T));
      });
    parallelRange(threads, width, 16, [&](int64_t begin, int64_t end) {
      for (int64_t i = 0; i < count; ++i) {
        int64_t row = index[i] - start;
        if (row < 0 || row >= rows)
          continue;
        const T *a = from + i * width;
        T *sum = to + row * width;
        for (int64_t c = begin; c < end; ++c)
          sum[c] = Format::add(sum[c], a[c]);
      }
    });
  }

private:
  StepOperand ids, grad, dtable;
  int64_t rows, width, count, start;
  bool accumulate;
  unsigned threads;
};

template <typename T> class GatherOp final : public Op {
public:
  GatherOp(const plan::Gather &g, SlotScope &scope, unsigned threads)
      : src{scope.local(g.src())}, index{scope.local(g.index())}, out{scope.local(g.out())},
        outer(g.inner() ? g.outer() : 0), extent(g.extent()), count(g.count()), inner(g.inner()),
        threads(threadsFor(g.outer() * g.count() * g.inner(), threads)) {}

  void run(SlotTable slots, const RunContext &) override {
    const T *from = reinterpret_cast<const T *>(src.at(slots));
    const auto *at = reinterpret_cast<const int32_t *>(index.at(slots));
    T *to = reinterpret_cast<T *>(out.at(slots));
    parallelRange(threads, outer * count, 64, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const T *block = from + row / count * extent * inner;
        for (int64_t i = 0; i < inner; ++i) {
          int64_t j = at[row * inner + i];
          to[row * inner + i] = j >= 0 && j < extent ? block[j * inner + i] : T{};
        }
      }
    });
  }

private:
  StepOperand src, index, out;
  int64_t outer, extent, count, inner;
  unsigned threads;
};

template <typename Format> class ScatterAddOp final : public Op {
  using T = typename Format::Element;

public:
  ScatterAddOp(const plan::ScatterAdd &s, SlotScope &scope, unsigned threads)
      : src{scope.local(s.src())}, index{scope.local(s.index())}, out{scope.local(s.out())},
        outer(s.inner() ? s.outer() : 0), extent(s.extent()), count(s.count()), inner(s.inner()),
        threads(threadsFor(s.outer() * (s.count() + s.extent()) * s.inner(), threads)) {}

  void run(SlotTable slots, const RunContext &) override {
    const T *from = reinterpret_cast<const T *>(src.at(slots));
    const auto *at = reinterpret_cast<const int32_t *>(index.at(slots));
    T *to = reinterpret_cast<T *>(out.at(slots));
    auto block = [&](int64_t o, int64_t begin, int64_t end) {
      for (int64_t e = 0; e < extent; ++e)
        std::memset(to + (o * extent + e) * inner + begin, 0, static_cast<size_t>(end - begin) * sizeof(T));
      for (int64_t j = 0; j < count; ++j)
        for (int64_t i = begin; i < end; ++i) {
          int64_t at_ = (o * count + j) * inner + i, e = at[at_];
          if (e >= 0 && e < extent) {
            T &sum = to[(o * extent + e) * inner + i];
            sum = Format::add(sum, from[at_]);
          }
        }
    };
    if (inner > outer)
      parallelRange(threads, inner, 16, [&](int64_t begin, int64_t end) {
        for (int64_t o = 0; o < outer; ++o)
          block(o, begin, end);
      });
    else
      parallelRange(threads, outer, 1, [&](int64_t begin, int64_t end) {
        for (int64_t o = begin; o < end; ++o)
          block(o, 0, inner);
      });
  }

private:
  StepOperand src, index, out;
  int64_t outer, extent, count, inner;
  unsigned threads;
};

/// An op that adds in the step's type.
template <template <typename> class Made, typename Step>
std::unique_ptr<Op> makeAdding(const char *what, const Step &op, SlotScope &scope, unsigned threads) {
  switch (op.dtype()) {
  case plan::DType::F32:
    return std::make_unique<Made<F32>>(op, scope, threads);
  case plan::DType::BF16:
    return std::make_unique<Made<Bf16>>(op, scope, threads);
  case plan::DType::F16:
    return std::make_unique<Made<F16>>(op, scope, threads);
  default:
    throw environmentError(fmt::format("plan: {} adds in f32, bf16 or f16, found {}", what, dtypeName(op.dtype())));
  }
}

} // namespace

std::unique_ptr<Op> makeHostOp(const plan::Embedding &op, SlotScope &scope, unsigned threads) {
  return std::make_unique<EmbeddingOp>(op, scope, threads);
}

std::unique_ptr<Op> makeHostOp(const plan::EmbeddingGrad &op, SlotScope &scope, unsigned threads) {
  return makeAdding<EmbeddingGradOp>("an embedding gradient", op, scope, threads);
}

std::unique_ptr<Op> makeHostOp(const plan::Gather &op, SlotScope &scope, unsigned threads) {
  switch (dtypeSize(op.dtype())) {
  case 1:
    return std::make_unique<GatherOp<uint8_t>>(op, scope, threads);
  case 2:
    return std::make_unique<GatherOp<uint16_t>>(op, scope, threads);
  case 4:
    return std::make_unique<GatherOp<uint32_t>>(op, scope, threads);
  default:
    return std::make_unique<GatherOp<uint64_t>>(op, scope, threads);
  }
}

std::unique_ptr<Op> makeHostOp(const plan::ScatterAdd &op, SlotScope &scope, unsigned threads) {
  return makeAdding<ScatterAddOp>("a scatter-add", op, scope, threads);
}

} // namespace cleave
