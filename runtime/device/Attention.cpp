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
#include <vector>

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
        width(roundUp(op.width(), kernels.lanes)), keys(roundUp(op.keys(), kernels.panel)),
        scoreStride(keys + lineFloats), hasLse(op.lse() >= 0) {
    if (hasLse)
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

  /// Row `row` of head `index` of all the samples' heads.
  std::byte *at(const Heads &heads, SlotTable slots, int64_t index, int64_t row) const {
    const int64_t elements = index / op.heads() * heads.batch + index % op.heads() * heads.head + row * heads.row;
    return heads.start.at(slots) + elements * (half ? 2 : 4);
  }
  void load(const Heads &heads, SlotTable slots, int64_t index, int64_t first, int64_t rows, float scale,
            float *to) const {
    kernels.load[half](at(heads, slots, index, first), heads.row, rows, op.width(), scale, to, width);
  }
  void store(const float *from, const float *factors, const Heads &heads, SlotTable slots, int64_t index, int64_t first,
             int64_t rows) const {
    kernels.store[half](from, width, rows, op.width(), factors, at(heads, slots, index, first), heads.row);
  }
  /// All keys, or values, of a head, and zeros for those that fill the last panel.
  void loadKeys(const Heads &heads, SlotTable slots, int64_t index, float *to) const {
    load(heads, slots, index, 0, op.keys(), 1, to);
    std::fill(to + op.keys() * width, to + keys * width, 0.0f);
  }
  /// The number of keys that a row sees.
  int64_t seen(int64_t row) const { return op.causal() ? row + op.keys() - op.rows() + 1 : op.keys(); }
  /// The products of rows [.., width] with `turned` keys or values [keys / panel][width][panel], as far as the last row
  /// sees them.
  void multiplyKeys(const float *rows, int64_t count, int64_t last, const float *turned, float *to) const {
    kernels.multiply(roundUp(count, kernels.rows), roundUp(seen(last), kernels.lanes), width, rows, width, turned,
                     kernels.panel, width * kernels.panel, to, scoreStride);
  }
  /// The sums over the keys that the last row sees, weighted by scores.
  void addKeys(const float *scores, int64_t count, int64_t last, const float *rows, float *to) const {
    kernels.multiply(roundUp(count, kernels.rows), width, seen(last), scores, scoreStride, rows, width, kernels.panel,
                     to, width);
  }

  const plan::Attention &op;
  const AttentionKernels &kernels;
  bool half; ///< bf16, otherwise f32
  Workspace &workspace;
  unsigned threads;
  Heads q, k, v, out;
  StepOperand lse;
  int64_t width, keys, scoreStride; ///< whole vectors; whole panels; floats from one row of scores to the next
  bool hasLse;

private:
  int64_t perThread = 0;
};

class AttentionForward final : public AttentionOp {
public:
  AttentionForward(const plan::Attention &op, SlotScope &scope, Workspace &workspace, unsigned threads,
                   const AttentionKernels &kernels)
      : AttentionOp(op, scope, workspace, threads, kernels) {
    Layout layout;
    turnedAt = layout.take(keys * width), valueAt = layout.take(keys * width);
    queryAt = layout.take(rowsAtATime * width), resultAt = layout.take(rowsAtATime * width);
    scoreAt = layout.take(rowsAtATime * scoreStride), factorAt = layout.take(rowsAtATime);
    reserve(layout);
    const int64_t heads = op.batch() * op.heads(), blocks = (op.rows() + rowsAtATime - 1) / rowsAtATime;
    parts = std::clamp<int64_t>(heads ? 4 * threads / heads : 1, 1, std::max<int64_t>(1, blocks));
  }

  void run(SlotTable slots, const RunContext &) override {
    const int64_t units = op.batch() * op.heads() * parts;
    parallelFor(threads, [&](unsigned thread) {
      for (int64_t unit = thread; unit < units; unit += threads)
        part(slots, scratch(thread), unit / parts, unit % parts);
    });
  }

private:
  /// Every `parts`-th block of rows of a head.
  void part(SlotTable slots, float *memory, int64_t head, int64_t first) const {
    float *turned = memory + turnedAt, *values = memory + valueAt;
    loadKeys(k, slots, head, values);
    kernels.transpose(values, keys, width, turned);
    loadKeys(v, slots, head, values);
    for (int64_t row = first * rowsAtATime; row < op.rows(); row += parts * rowsAtATime)
      block(slots, memory, head, row, std::min(rowsAtATime, op.rows() - row));
  }

  void block(SlotTable slots, float *memory, int64_t head, int64_t first, int64_t count) const {
    float *query = memory + queryAt, *scores = memory + scoreAt, *result = memory + resultAt,
          *factors = memory + factorAt;
    const int64_t last = first + count - 1;
    load(q, slots, head, first, count, static_cast<float>(op.scale()), query);
    multiplyKeys(query, count, last, memory + turnedAt, scores);
    for (int64_t row = 0; row < count; ++row) {
      float largest = 0;
      const float sum = kernels.exponentials(scores + row * scoreStride, seen(first + row),
                                             roundUp(seen(last), kernels.lanes), &largest);
      factors[row] = op.keys() ? 1 / sum : 0;
      if (hasLse)
        reinterpret_cast<float *>(lse.at(slots))[head * op.rows() + first + row] = largest + std::log(sum);
    }
    addKeys(scores, count, last, memory + valueAt, result);
    store(result, factors, out, slots, head, first, count);
  }

  int64_t parts; ///< of a head, for several threads
  int64_t turnedAt, valueAt, queryAt, resultAt, scoreAt, factorAt;
};

/// Algorithm 4 of the paper: the probabilities are computed again from `lse`. A thread computes a whole head, whose
/// gradients of keys and values are sums over all rows.
class AttentionBackward final : public AttentionOp {
public:
  AttentionBackward(const plan::Attention &op, SlotScope &scope, Workspace &workspace, unsigned threads,
                    const AttentionKernels &kernels)
      : AttentionOp(op, scope, workspace, threads, kernels), dout(*op.dout(), scope), dq(*op.dq(), scope),
        dk(*op.dk(), scope), dv(*op.dv(), scope), factors(rowsAtATime, static_cast<float>(op.scale())) {
    Layout layout;
    for (int64_t *one : {&keyAt, &turnedKeyAt, &turnedValueAt, &keyGradientAt, &valueGradientAt})
      *one = layout.take(keys * width);
    for (int64_t *one : {&queryAt, &resultAt, &gradientAt})
      *one = layout.take(rowsAtATime * width);
    for (int64_t *one : {&scoreAt, &scoreGradientAt})
      *one = layout.take(rowsAtATime * scoreStride);
    reserve(layout);
  }

  void run(SlotTable slots, const RunContext &) override {
    parallelFor(threads, [&](unsigned thread) {
      for (int64_t head = thread; head < op.batch() * op.heads(); head += threads)
        wholeHead(slots, scratch(thread), head);
    });
  }

private:
  void wholeHead(SlotTable slots, float *memory, int64_t head) const {
    loadKeys(v, slots, head, memory + keyAt);
    kernels.transpose(memory + keyAt, keys, width, memory + turnedValueAt);
    loadKeys(k, slots, head, memory + keyAt);
    kernels.transpose(memory + keyAt, keys, width, memory + turnedKeyAt);
    std::fill_n(memory + keyGradientAt, keys * width, 0.0f);
    std::fill_n(memory + valueGradientAt, keys * width, 0.0f);
    for (int64_t row = 0; row < op.rows(); row += rowsAtATime)
      block(slots, memory, head, row, std::min(rowsAtATime, op.rows() - row));
    store(memory + keyGradientAt, nullptr, dk, slots, head, 0, op.keys());
    store(memory + valueGradientAt, nullptr, dv, slots, head, 0, op.keys());
  }

  void block(SlotTable slots, float *memory, int64_t head, int64_t first, int64_t count) const {
    float *query = memory + queryAt, *result = memory + resultAt, *gradient = memory + gradientAt,
          *scores = memory + scoreAt, *scoreGradients = memory + scoreGradientAt;
    const int64_t last = first + count - 1, reached = roundUp(seen(last), kernels.lanes);
    load(q, slots, head, first, count, static_cast<float>(op.scale()), query);
    load(out, slots, head, first, count, 1, result);
    load(dout, slots, head, first, count, 1, gradient);
    multiplyKeys(query, count, last, memory + turnedKeyAt, scores);
    multiplyKeys(gradient, count, last, memory + turnedValueAt, scoreGradients);
    const float *sums = reinterpret_cast<const float *>(lse.at(slots)) + head * op.rows() + first;
    for (int64_t row = 0; row < count; ++row)
      kernels.scoreGradients(scores + row * scoreStride, scoreGradients + row * scoreStride, seen(first + row), reached,
                             sums[row], kernels.dot(gradient + row * width, result + row * width, width));
    kernels.addTransposed(reached, width, count, scores, scoreStride, gradient, width, memory + valueGradientAt, width);
    kernels.addTransposed(reached, width, count, scoreGradients, scoreStride, query, width, memory + keyGradientAt,
                          width);
    addKeys(scoreGradients, count, last, memory + keyAt, result);
    store(result, factors.data(), dq, slots, head, first, count);
  }

  Heads dout, dq, dk, dv;
  std::vector<float> factors; ///< the scale of the scores
  int64_t keyAt, turnedKeyAt, turnedValueAt, keyGradientAt, valueGradientAt, queryAt, resultAt, gradientAt, scoreAt,
      scoreGradientAt;
};

} // namespace

std::unique_ptr<Op> makeAttention(const plan::Attention &op, SlotScope &scope, Workspace &workspace, unsigned threads) {
  const AttentionKernels *kernels = loopsFor(scope.plan, attentionAvx2, attentionAvx512);
  if (!kernels || (op.dtype() != plan::DType::F32 && op.dtype() != plan::DType::BF16))
    return nullptr;
  if (op.kind() == plan::AttentionKind::Forward)
    return std::make_unique<AttentionForward>(op, scope, workspace, threads, *kernels);
  return std::make_unique<AttentionBackward>(op, scope, workspace, threads, *kernels);
}

} // namespace cleave
