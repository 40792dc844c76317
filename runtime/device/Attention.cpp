// Blocks, memory and threads of attention; the loops inside are in AttentionKernels.inc.
#include "runtime/device/Attention.h"

#include "runtime/device/AttentionKernels.h"
#include "runtime/device/Parallel.h"
#include "runtime/device/VectorLoops.h"
#include "runtime/device/Workspace.h"
#include "runtime/plan/DTypes.h"
#include "runtime/plan/plan_generated.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

namespace cleave {

namespace {

/// A tensor [batch, heads, rows, width].
struct Heads {
  StepOperand start;
  int64_t batch, head, row; ///< strides, in elements
  Heads(const plan::View &view, SlotScope &scope)
      : start(operandOf(view, scope)), batch(view.strides()->Get(0)), head(view.strides()->Get(1)),
        row(view.strides()->Get(2)) {}
};

/// Divides the memory of a thread.
struct Layout {
  int64_t used = 0;
  int64_t take(int64_t floats) {
    const int64_t at = used;
    used += roundUp(floats, lineFloats);
    return at;
  }
};

class AttentionOp : public Op {
public:
  AttentionOp(const plan::Attention &op, SlotScope &scope, Workspace &workspace, unsigned threads,
              const AttentionKernels &kernels)
      : op(op), kernels(kernels), half(op.dtype() == plan::DType::BF16), workspace(workspace), threads(threads),
        q(*op.q(), scope), k(*op.k(), scope), v(*op.v(), scope), out(*op.out(), scope),
        bias(optional(op.bias(), scope)), keep(optional(op.keep(), scope)),
        kept(static_cast<float>(1 / (1 - op.dropout()))), width(roundUp(op.width(), kernels.lanes * kernels.pairs)),
        units(width / kernels.pairs), keys(roundUp(op.keys(), kernels.panel)), scoreStride(keys + lineFloats),
        scale(static_cast<float>(op.scale())) {
    if (op.lse() >= 0)
      lse = {scope.local(static_cast<uint32_t>(op.lse()))};
  }

protected:
  static constexpr int64_t rowsAtATime = 48; ///< a multiple of the kernels' rows (measured)

  void reserve(const Layout &layout) {
    perThread = layout.used;
    size_t used = 0;
    workspace.reserve(used, static_cast<size_t>(perThread) * threads * sizeof(float));
  }
  float *scratch(unsigned thread) const { return reinterpret_cast<float *>(workspace.memory) + thread * perThread; }
  /// What pairs of rows need of this much memory: nothing if units are single numbers.
  int64_t ifPairs(int64_t floats) const { return kernels.pairRows ? floats : 0; }
  int64_t unitsOf(int64_t numbers) const { return (numbers + kernels.pairs - 1) / kernels.pairs; }

  static std::optional<Heads> optional(const plan::View *view, SlotScope &scope) {
    return view ? std::optional(Heads(*view, scope)) : std::nullopt;
  }

  /// Row `row` of head `index` of all the samples' heads.
  std::byte *at(const Heads &heads, SlotTable slots, int64_t index, int64_t row, int64_t bytes) const {
    const int64_t elements = index / op.heads() * heads.batch + index % op.heads() * heads.head + row * heads.row;
    return heads.start.at(slots) + elements * bytes;
  }
  std::byte *at(const Heads &heads, SlotTable slots, int64_t index, int64_t row) const {
    return at(heads, slots, index, row, elementBytes());
  }
  ScoreExtras extras(SlotTable slots, int64_t index, int64_t row) const {
    return {bias ? reinterpret_cast<const float *>(at(*bias, slots, index, row, sizeof(float))) : nullptr,
            keep ? reinterpret_cast<const unsigned char *>(at(*keep, slots, index, row, 1)) : nullptr, kept};
  }
  /// Brings rows of a head into the cache, from row `first` on, one with each call of next(): between other work, which
  /// hides the time that memory takes. Nothing if there is no such head.
  class Ahead {
  public:
    Ahead(const AttentionOp &of, const Heads &heads, SlotTable slots, int64_t index, int64_t first, int64_t rows)
        : step(heads.row * of.elementBytes()), bytes(of.op.width() * of.elementBytes()) {
      if (index < of.op.batch() * of.op.heads() && first < rows)
        row = of.at(heads, slots, index, first), left = rows - first;
    }
    void next() {
      if (left == 0)
        return;
      for (int64_t byte = 0; byte < bytes; byte += 64)
        __builtin_prefetch(row + byte, 0, 2);
      row += step, --left;
    }

  private:
    const std::byte *row = nullptr;
    int64_t step, bytes, left = 0;
  };
  int64_t elementBytes() const { return half ? 2 : 4; }
  void load(const Heads &heads, SlotTable slots, int64_t index, int64_t first, int64_t rows, float *to) const {
    kernels.load[half](at(heads, slots, index, first), heads.row, rows, op.width(), to, units);
  }
  void store(const float *from, const float *factors, const Heads &heads, SlotTable slots, int64_t index, int64_t first,
             int64_t rows) const {
    kernels.store[half](from, width, rows, op.width(), factors, at(heads, slots, index, first), heads.row);
  }
  /// All keys, or values, of a head, and zeros for those that fill the last panel.
  void loadKeys(const Heads &heads, SlotTable slots, int64_t index, float *to) const {
    load(heads, slots, index, 0, op.keys(), to);
    std::fill(to + op.keys() * units, to + keys * units, 0.0f);
  }
  /// Rows as the right factor of a product over rows: themselves, or pairs of rows in `paired`, `columns` apart.
  const float *overRows(const float *rows, int64_t stride, int64_t count, int64_t columns, float *paired) const {
    if (!kernels.pairRows)
      return rows;
    kernels.pairRows(rows, stride, count, columns, paired, columns);
    return paired;
  }
  /// The number of keys that a row sees.
  int64_t seen(int64_t row) const { return op.causal() ? row + op.keys() - op.rows() + 1 : op.keys(); }
  /// Calls fn(i, rows, seen) for rows that are multiplied together: all `count` rows from `first` on, or, if they see
  /// different numbers of keys, as many as a product has.
  template <typename Fn> void forGroups(int64_t first, int64_t count, Fn fn) const {
    const int64_t most = op.causal() ? kernels.rows : roundUp(count, kernels.rows);
    for (int64_t i = 0; i < count; i += most)
      fn(i, most, seen(std::min(first + i + most, first + count) - 1));
  }
  /// The products of rows with `turned` keys or values [keys / panel][units][panel], as far as the rows see them.
  void multiplyKeys(const float *rows, int64_t first, int64_t count, const float *turned, float *to) const {
    forGroups(first, count, [&](int64_t i, int64_t group, int64_t seen) {
      kernels.multiply(group, roundUp(seen, kernels.lanes), units, rows + i * units, units, turned, kernels.panel,
                       units * kernels.panel, to + i * scoreStride, scoreStride);
    });
  }
  /// The sums over the keys that the rows see, weighted by scores.
  void addKeys(const float *scores, int64_t first, int64_t count, const float *rows, float *to) const {
    forGroups(first, count, [&](int64_t i, int64_t group, int64_t seen) {
      kernels.multiply(group, width, unitsOf(seen), scores + i * scoreStride, scoreStride, rows, width, kernels.panel,
                       to + i * width, width);
    });
  }

  const plan::Attention &op;
  const AttentionKernels &kernels;
  bool half; ///< bf16, otherwise f32
  Workspace &workspace;
  unsigned threads;
  Heads q, k, v, out;
  std::optional<Heads> bias, keep;
  float kept; ///< factor of the elements that dropout keeps
  StepOperand lse;
  int64_t width, units;      ///< of a row: numbers, whole vectors of units; units
  int64_t keys, scoreStride; ///< whole panels; floats from one row of scores to the next
  float scale;

private:
  int64_t perThread = 0;
};

class AttentionForward final : public AttentionOp {
public:
  AttentionForward(const plan::Attention &op, SlotScope &scope, Workspace &workspace, unsigned threads,
                   const AttentionKernels &kernels)
      : AttentionOp(op, scope, workspace, threads, kernels) {
    Layout layout;
    turnedAt = layout.take(keys * units), rowAt = layout.take(keys * units),
    pairAt = layout.take(ifPairs(keys * units));
    queryAt = layout.take(rowsAtATime * units), resultAt = layout.take(rowsAtATime * width);
    scoreAt = layout.take(rowsAtATime * scoreStride), factorAt = layout.take(rowsAtATime);
    reserve(layout);
    const int64_t heads = op.batch() * op.heads(), blocks = (op.rows() + rowsAtATime - 1) / rowsAtATime;
    parts = std::clamp<int64_t>(heads ? int64_t{4} * threads / heads : 1, 1, std::max<int64_t>(1, blocks));
  }

  void run(SlotTable slots, const RunContext &) override {
    const int64_t all = op.batch() * op.heads() * parts;
    parallelFor(threads, [&](unsigned thread) {
      for (int64_t one = thread; one < all; one += threads)
        part(slots, scratch(thread), one / parts, one % parts, (one + threads) / parts);
    });
  }

private:
  /// Every `parts`-th block of rows of a head. `next`: the head that follows in this thread.
  void part(SlotTable slots, float *memory, int64_t head, int64_t first, int64_t next) const {
    loadKeys(k, slots, head, memory + rowAt);
    kernels.transpose(memory + rowAt, keys, units, memory + turnedAt);
    loadKeys(v, slots, head, memory + rowAt);
    const float *values = overRows(memory + rowAt, units, keys, width, memory + pairAt);
    for (int64_t row = first * rowsAtATime; row < op.rows(); row += parts * rowsAtATime)
      block(slots, memory, values, head, row, std::min(rowsAtATime, op.rows() - row), next);
  }

  void block(SlotTable slots, float *memory, const float *values, int64_t head, int64_t first, int64_t count,
             int64_t next) const {
    float *query = memory + queryAt, *scores = memory + scoreAt, *result = memory + resultAt,
          *factors = memory + factorAt;
    const int64_t last = first + count - 1, reached = roundUp(seen(last), kernels.lanes);
    load(q, slots, head, first, count, query);
    multiplyKeys(query, first, count, memory + turnedAt, scores);
    Ahead ahead[]{{*this, q, slots, next, first, op.rows()},
                  {*this, k, slots, next, first, op.keys()},
                  {*this, v, slots, next, first, op.keys()},
                  {*this, out, slots, head, first, op.rows()}};
    for (int64_t row = 0; row < count; ++row) {
      for (Ahead &rows : ahead)
        rows.next();
      float largest = 0;
      const float sum = kernels.exponentials(scores + row * scoreStride, seen(first + row), reached, scale,
                                             extras(slots, head, first + row), &largest);
      factors[row] = sum != 0 ? 1 / sum : 0; // it is 0 without keys, and if the bias hides all of them
      if (op.lse() >= 0)
        reinterpret_cast<float *>(lse.at(slots))[head * op.rows() + first + row] =
            sum != 0 ? largest + std::log(sum) : std::numeric_limits<float>::infinity();
    }
    addKeys(scores, first, count, values, result);
    store(result, factors, out, slots, head, first, count);
  }

  int64_t parts; ///< of a head, for several threads
  int64_t turnedAt, rowAt, pairAt, queryAt, resultAt, scoreAt, factorAt;
};

/// Algorithm 4 of the paper: the probabilities are computed again from `lse`. A thread computes a whole head, whose
/// gradients of keys and values are sums over all rows.
class AttentionBackward final : public AttentionOp {
public:
  AttentionBackward(const plan::Attention &op, SlotScope &scope, Workspace &workspace, unsigned threads,
                    const AttentionKernels &kernels)
      : AttentionOp(op, scope, workspace, threads, kernels), dout(*op.dout(), scope), dq(*op.dq(), scope),
        dk(*op.dk(), scope), dv(*op.dv(), scope) {
    Layout layout;
    for (int64_t *one : {&rowAt, &turnedKeyAt, &turnedValueAt})
      *one = layout.take(keys * units);
    pairAt = layout.take(ifPairs(keys * units));
    for (int64_t *one : {&keyGradientAt, &valueGradientAt})
      *one = layout.take(keys * width);
    for (int64_t *one : {&queryAt, &gradientAt})
      *one = layout.take(rowsAtATime * units);
    for (int64_t *one : {&queryPairAt, &gradientPairAt})
      *one = layout.take(ifPairs(rowsAtATime * units));
    for (int64_t *one : {&scoreAt, &scoreGradientAt})
      *one = layout.take(rowsAtATime * scoreStride);
    scorePairAt = layout.take(ifPairs(rowsAtATime * scoreStride));
    resultAt = layout.take(rowsAtATime * width);
    reserve(layout);
  }

  void run(SlotTable slots, const RunContext &) override {
    parallelFor(threads, [&](unsigned thread) {
      for (int64_t head = thread; head < op.batch() * op.heads(); head += threads)
        wholeHead(slots, scratch(thread), head, head + threads);
    });
  }

private:
  void wholeHead(SlotTable slots, float *memory, int64_t head, int64_t next) const {
    loadKeys(v, slots, head, memory + rowAt);
    kernels.transpose(memory + rowAt, keys, units, memory + turnedValueAt);
    loadKeys(k, slots, head, memory + rowAt);
    kernels.transpose(memory + rowAt, keys, units, memory + turnedKeyAt);
    const float *keyRows = overRows(memory + rowAt, units, keys, width, memory + pairAt);
    std::fill_n(memory + keyGradientAt, keys * width, 0.0f);
    std::fill_n(memory + valueGradientAt, keys * width, 0.0f);
    for (int64_t row = 0; row < op.rows(); row += rowsAtATime)
      block(slots, memory, keyRows, head, row, std::min(rowsAtATime, op.rows() - row), next);
    store(memory + keyGradientAt, nullptr, dk, slots, head, 0, op.keys());
    store(memory + valueGradientAt, nullptr, dv, slots, head, 0, op.keys());
  }

  void block(SlotTable slots, float *memory, const float *keyRows, int64_t head, int64_t first, int64_t count,
             int64_t next) const {
    float *query = memory + queryAt, *gradient = memory + gradientAt, *scores = memory + scoreAt,
          *scoreGradients = memory + scoreGradientAt, *result = memory + resultAt;
    const int64_t last = first + count - 1, reached = roundUp(seen(last), kernels.lanes);
    load(q, slots, head, first, count, query);
    load(dout, slots, head, first, count, gradient);
    multiplyKeys(query, first, count, memory + turnedKeyAt, scores);
    multiplyKeys(gradient, first, count, memory + turnedValueAt, scoreGradients);
    const float *sums = reinterpret_cast<const float *>(lse.at(slots)) + head * op.rows() + first;
    Ahead ahead[]{{*this, q, slots, next, first, op.rows()},    {*this, k, slots, next, first, op.keys()},
                  {*this, v, slots, next, first, op.keys()},    {*this, out, slots, next, first, op.rows()},
                  {*this, dout, slots, next, first, op.rows()}, {*this, dq, slots, head, first, op.rows()},
                  {*this, dk, slots, head, first, op.keys()},   {*this, dv, slots, head, first, op.keys()}};
    for (int64_t row = 0; row < count; ++row) {
      for (Ahead &rows : ahead)
        rows.next();
      kernels.scoreGradients(
          scores + row * scoreStride, scoreGradients + row * scoreStride, seen(first + row), reached, scale,
          extras(slots, head, first + row), sums[row],
          kernels.dot[half](at(dout, slots, head, first + row), at(out, slots, head, first + row), op.width()));
    }
    addRows(scores, first, count, reached, overRows(gradient, units, count, width, memory + gradientPairAt), memory,
            valueGradientAt);
    addRows(scoreGradients, first, count, reached, overRows(query, units, count, width, memory + queryPairAt), memory,
            keyGradientAt);
    addKeys(scoreGradients, first, count, keyRows, result);
    store(result, nullptr, dq, slots, head, first, count);
  }

  /// Adds to the first `reached` gradients of keys or values the rows, weighted by scores.
  void addRows(const float *scores, int64_t first, int64_t count, int64_t reached, const float *rows, float *memory,
               int64_t to) const {
    const float *weights = overRows(scores, scoreStride, count, reached, memory + scorePairAt);
    const int64_t stride = kernels.pairRows ? reached : scoreStride;
    // All rows see the first keys. Those behind are seen by the last rows alone.
    const int64_t common = std::max<int64_t>(0, seen(first)) / kernels.lanes * kernels.lanes;
    for (int64_t key = 0, next; key < reached; key = next) {
      next = key < common ? common : key + kernels.lanes;
      const int64_t unseen = std::max<int64_t>(0, key + 1 - seen(first)) / kernels.pairs;
      kernels.addTransposed(next - key, width, unitsOf(count) - unseen, weights + unseen * stride + key, stride,
                            rows + unseen * width, width, memory + to + key * width, width);
    }
  }

  Heads dout, dq, dk, dv;
  int64_t rowAt, pairAt, turnedKeyAt, turnedValueAt, keyGradientAt, valueGradientAt, queryAt, queryPairAt, gradientAt,
      gradientPairAt, scoreAt, scoreGradientAt, scorePairAt, resultAt;
};

} // namespace

std::unique_ptr<Op> makeAttention(const plan::Attention &op, SlotScope &scope, Workspace &workspace, unsigned threads) {
  const bool half = op.dtype() == plan::DType::BF16;
  const AttentionKernels *kernels = loopsFor(scope.plan, half, attentionAvx2, attentionAvx512, attentionBf16);
  if (!kernels || (!half && op.dtype() != plan::DType::F32))
    return nullptr;
  if (op.kind() == plan::AttentionKind::Forward)
    return std::make_unique<AttentionForward>(op, scope, workspace, threads, *kernels);
  return std::make_unique<AttentionBackward>(op, scope, workspace, threads, *kernels);
}

} // namespace cleave
