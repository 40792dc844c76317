// All steps except generated kernels, element by element, as specified in the schema's comments.
#include "runtime/device/ReferenceDevice.h"

#include "runtime/base/Error.h"
#include "runtime/device/Epilogue.h"
#include "runtime/device/HostDevice.h"
#include "runtime/plan/DTypes.h"
#include "runtime/plan/plan_generated.h"

#include <fmt/format.h>

#include <cmath>
#include <functional>
#include <limits>
#include <optional>
#include <vector>

namespace cleave {

namespace {

/// A slot's memory as elements of its type.
struct Elements {
  std::byte *data;
  plan::DType dtype;
  double load(int64_t i) const { return loadElement(data, i, dtype); }
  void store(int64_t i, double value) const { storeElement(data, i, dtype, value); }
};

/// An Op that calls a function.
class FunctionOp final : public Op {
public:
  explicit FunctionOp(std::function<void(SlotTable)> fn) : fn(std::move(fn)) {}
  void run(SlotTable slots, const RunContext &) override { fn(slots); }

private:
  std::function<void(SlotTable)> fn;
};

/// Accesses a slot (at a byte offset) as elements.
std::function<Elements(SlotTable)> reach(SlotScope &scope, uint32_t slot, uint64_t offset = 0) {
  StepOperand operand{scope.local(slot), static_cast<int64_t>(offset)};
  plan::DType dtype = scope.slot(slot).dtype();
  return [operand, dtype](SlotTable table) { return Elements{operand.at(table), dtype}; };
}

template <typename Fn> std::unique_ptr<Op> makeOp(Fn fn) { return std::make_unique<FunctionOp>(std::move(fn)); }

std::unique_ptr<Op> matmul(const plan::Matmul &op, SlotScope &scope) {
  auto a = reach(scope, op.a()->slot(), op.a()->offset()), b = reach(scope, op.b()->slot(), op.b()->offset()),
       c = reach(scope, op.c()->slot(), op.c()->offset());
  bool hasBias = op.bias() >= 0;
  auto bias = hasBias ? reach(scope, static_cast<uint32_t>(op.bias())) : nullptr;
  auto aux = op.aux() ? reach(scope, op.aux()->slot(), op.aux()->offset()) : nullptr;
  auto rowSums = op.row_sums() >= 0 ? reach(scope, static_cast<uint32_t>(op.row_sums())) : nullptr;
  return makeOp([&op, a, b, c, bias, hasBias, aux, rowSums](SlotTable t) {
    uint32_t rank = op.batch() ? op.batch()->size() : 0;
    int64_t batches = op.m() && op.n() ? 1 : 0;
    for (uint32_t d = 0; d < rank; ++d)
      batches *= op.batch()->Get(d);
    auto base = [&](const plan::View *view, int64_t index) {
      int64_t at = 0;
      for (uint32_t d = rank; d-- > 0; index /= op.batch()->Get(d))
        at += index % op.batch()->Get(d) * view->strides()->Get(d);
      return at;
    };
    Elements ea = a(t), eb = b(t), ec = c(t);
    const auto *sa = op.a()->strides(), *sb = op.b()->strides(), *sc = op.c()->strides();
    for (int64_t i = 0; i < batches; ++i) {
      int64_t atA = base(op.a(), i), atB = base(op.b(), i), atC = base(op.c(), i);
      for (int64_t m = 0; m < op.m(); ++m)
        for (int64_t n = 0; n < op.n(); ++n) {
          double sum = hasBias ? bias(t).load(n) : 0;
          for (int64_t k = 0; k < op.k(); ++k)
            sum += ea.load(atA + m * sa->Get(rank) + k * sa->Get(rank + 1)) *
                   eb.load(atB + k * sb->Get(rank) + n * sb->Get(rank + 1));
          int64_t at = atC + m * sc->Get(rank) + n * sc->Get(rank + 1);
          const int64_t atAux = op.aux() ? m * op.aux()->strides()->Get(0) + n * op.aux()->strides()->Get(1) : 0;
          if (op.aux() && op.epilogue() == plan::Epilogue::Gelu)
            aux(t).store(atAux, sum);
          const double made =
              epilogueOf(op.epilogue(), sum, op.epilogue() == plan::Epilogue::GeluGradient ? aux(t).load(atAux) : 0);
          ec.store(at, op.accumulate() ? ec.load(at) + made : made);
        }
    }
    for (int64_t m = 0; rowSums && m < op.m(); ++m) {
      double sum = 0;
      for (int64_t k = 0; k < op.k(); ++k)
        sum += ea.load(m * sa->Get(0) + k * sa->Get(1));
      rowSums(t).store(m, sum);
    }
  });
}

/// Index of an element of activations, or of a convolution's weights.
struct Images {
  int64_t c, h, w;
  bool nhwc;
  int64_t at(int64_t n, int64_t ci, int64_t y, int64_t x) const {
    return nhwc ? ((n * h + y) * w + x) * c + ci : ((n * c + ci) * h + y) * w + x;
  }
};

/// Calls fn(src element, weight element, dst element) for every product of a convolution.
template <typename Fn> void forEachProduct(const plan::Conv &op, Fn fn) {
  Images src{op.ic(), op.ih(), op.iw(), op.nhwc()}, dst{op.oc(), op.oh(), op.ow(), op.nhwc()};
  int64_t icg = op.ic() / op.groups(), ocg = op.oc() / op.groups();
  Images kernel{icg, op.kh(), op.kw(), op.nhwc()};
  for (int64_t n = 0; n < op.n(); ++n)
    for (int64_t oc = 0; oc < op.oc(); ++oc)
      for (int64_t oy = 0; oy < op.oh(); ++oy)
        for (int64_t ox = 0; ox < op.ow(); ++ox)
          for (int64_t i = 0; i < icg; ++i)
            for (int64_t ky = 0; ky < op.kh(); ++ky)
              for (int64_t kx = 0; kx < op.kw(); ++kx) {
                int64_t y = oy * op.stride_h() - op.pad_top() + ky * op.dilation_h();
                int64_t x = ox * op.stride_w() - op.pad_left() + kx * op.dilation_w();
                if (y < 0 || y >= op.ih() || x < 0 || x >= op.iw())
                  continue;
                fn(src.at(n, oc / ocg * icg + i, y, x), kernel.at(oc, i, ky, kx), dst.at(n, oc, oy, ox));
              }
}

std::unique_ptr<Op> convolution(const plan::Conv &op, SlotScope &scope) {
  auto src = reach(scope, op.src()), weights = reach(scope, op.weights()), dst = reach(scope, op.dst());
  bool hasBias = op.bias() >= 0;
  auto bias = hasBias ? reach(scope, static_cast<uint32_t>(op.bias())) : nullptr;
  int64_t srcCount = op.n() * op.ic() * op.ih() * op.iw(), dstCount = op.n() * op.oc() * op.oh() * op.ow();
  int64_t weightCount = op.oc() * op.ic() / op.groups() * op.kh() * op.kw();
  return makeOp([=, &op](SlotTable t) {
    Elements s = src(t), w = weights(t), d = dst(t), target = d;
    std::vector<double> sum(static_cast<size_t>(dstCount));
    if (op.kind() == plan::ConvKind::Forward) {
      forEachProduct(op, [&](int64_t a, int64_t b, int64_t c) { sum[c] += s.load(a) * w.load(b); });
      if (hasBias)
        for (int64_t i = 0; i < dstCount; ++i)
          sum[i] += bias(t).load(op.nhwc() ? i % op.oc() : i / (op.oh() * op.ow()) % op.oc());
      for (double &each : sum)
        each = epilogueOf(op.epilogue(), each, 0);
    } else if (op.kind() == plan::ConvKind::BackwardData) {
      sum.assign(static_cast<size_t>(srcCount), 0);
      target = s;
      forEachProduct(op, [&](int64_t a, int64_t b, int64_t c) { sum[a] += d.load(c) * w.load(b); });
    } else {
      sum.assign(static_cast<size_t>(weightCount), 0);
      target = w;
      forEachProduct(op, [&](int64_t a, int64_t b, int64_t c) { sum[b] += s.load(a) * d.load(c); });
    }
    for (size_t i = 0; i < sum.size(); ++i)
      target.store(i, op.accumulate() ? target.load(i) + sum[i] : sum[i]);
  });
}

/// Calls fn(dst element, window) for each output. `window(visit)` visits the window's source elements in row order and
/// returns the divisor of an average.
template <typename Fn> void forEachWindow(const plan::Pool &op, Fn fn) {
  Images src{op.c(), op.ih(), op.iw(), op.nhwc()}, dst{op.c(), op.oh(), op.ow(), op.nhwc()};
  for (int64_t n = 0; n < op.n(); ++n)
    for (int64_t c = 0; c < op.c(); ++c)
      for (int64_t oy = 0; oy < op.oh(); ++oy)
        for (int64_t ox = 0; ox < op.ow(); ++ox)
          fn(dst.at(n, c, oy, ox), [&, n, c, oy, ox](auto visit) {
            int64_t inside = 0;
            for (int64_t ky = 0; ky < op.kh(); ++ky)
              for (int64_t kx = 0; kx < op.kw(); ++kx) {
                int64_t y = oy * op.stride_h() - op.pad_top() + ky, x = ox * op.stride_w() - op.pad_left() + kx;
                if (y < 0 || y >= op.ih() || x < 0 || x >= op.iw())
                  continue;
                ++inside;
                visit(src.at(n, c, y, x), ky * op.kw() + kx);
              }
            return op.include_padding() ? op.kh() * op.kw() : inside;
          });
}

void poolForward(const plan::Pool &op, Elements s, Elements d, std::byte *workspace) {
  bool max = op.kind() == plan::PoolKind::MaxForward;
  forEachWindow(op, [&](int64_t out, auto window) {
    double best = -std::numeric_limits<double>::infinity(), sum = 0;
    int64_t place = 0;
    bool any = false;
    int64_t divisor = window([&](int64_t at, int64_t k) {
      double value = s.load(at);
      sum += value;
      if (!any || value > best || value != value)
        best = value, place = k, any = true;
    });
    d.store(out, max ? best : sum / static_cast<double>(divisor));
    if (max && workspace)
      reinterpret_cast<int32_t *>(workspace)[out] = static_cast<int32_t>(place);
  });
}

void poolBackward(const plan::Pool &op, Elements s, Elements d, const std::byte *workspace) {
  std::vector<double> sum(static_cast<size_t>(op.n() * op.c() * op.ih() * op.iw()));
  forEachWindow(op, [&](int64_t out, auto window) {
    double gradient = d.load(out);
    if (op.kind() == plan::PoolKind::MaxBackward) {
      int32_t place = reinterpret_cast<const int32_t *>(workspace)[out];
      window([&](int64_t at, int64_t k) { sum[at] += k == place ? gradient : 0; });
    } else {
      int64_t divisor = window([](int64_t, int64_t) {});
      window([&](int64_t at, int64_t) { sum[at] += gradient / static_cast<double>(divisor); });
    }
  });
  for (size_t i = 0; i < sum.size(); ++i)
    s.store(i, sum[i]);
}

std::unique_ptr<Op> pooling(const plan::Pool &op, SlotScope &scope) {
  auto src = reach(scope, op.src()), dst = reach(scope, op.dst());
  bool hasWorkspace = op.workspace() >= 0;
  auto workspace = hasWorkspace ? reach(scope, static_cast<uint32_t>(op.workspace())) : nullptr;
  bool forward = op.kind() == plan::PoolKind::MaxForward || op.kind() == plan::PoolKind::AverageForward;
  return makeOp([=, &op](SlotTable t) {
    std::byte *memory = hasWorkspace ? workspace(t).data : nullptr;
    forward ? poolForward(op, src(t), dst(t), memory) : poolBackward(op, src(t), dst(t), memory);
  });
}

std::unique_ptr<Op> copy(const plan::Copy &op, SlotScope &scope) {
  auto src = reach(scope, op.src()->slot(), op.src()->offset()),
       dst = reach(scope, op.dst()->slot(), op.dst()->offset());
  int64_t start = scope.scalar(op.src_offset_scalar(), 0);
  return makeOp([=, &op](SlotTable t) {
    Elements s = src(t), d = dst(t);
    auto size = static_cast<int64_t>(dtypeSize(op.dtype()));
    uint32_t rank = op.shape() ? op.shape()->size() : 0;
    int64_t count = 1;
    for (uint32_t i = 0; i < rank; ++i)
      count *= op.shape()->Get(i);
    for (int64_t i = 0; i < count; ++i) {
      int64_t rest = i, from = start, to = 0;
      for (uint32_t k = rank; k-- > 0; rest /= op.shape()->Get(k)) {
        from += rest % op.shape()->Get(k) * op.src()->strides()->Get(k);
        to += rest % op.shape()->Get(k) * op.dst()->strides()->Get(k);
      }
      std::copy_n(s.data + from * size, size, d.data + to * size);
    }
  });
}

std::unique_ptr<Op> embeddingGrad(const plan::EmbeddingGrad &op, SlotScope &scope) {
  auto ids = reach(scope, op.ids()), grad = reach(scope, op.grad()), table = reach(scope, op.dtable());
  int64_t start = scope.scalar(op.start(), 0);
  return makeOp([=, &op](SlotTable t) {
    std::vector<double> sum(static_cast<size_t>(op.rows() * op.width()));
    for (int64_t i = 0; i < op.count(); ++i) {
      auto row = static_cast<int64_t>(ids(t).load(i)) - start;
      for (int64_t c = 0; row >= 0 && row < op.rows() && c < op.width(); ++c)
        sum[row * op.width() + c] += grad(t).load(i * op.width() + c);
    }
    for (size_t i = 0; i < sum.size(); ++i)
      table(t).store(i, op.accumulate() ? table(t).load(i) + sum[i] : sum[i]);
  });
}

std::unique_ptr<Op> scatterAdd(const plan::ScatterAdd &op, SlotScope &scope) {
  auto src = reach(scope, op.src()), index = reach(scope, op.index()), out = reach(scope, op.out());
  return makeOp([=, &op](SlotTable t) {
    std::vector<double> sum(static_cast<size_t>(op.outer() * op.extent() * op.inner()));
    for (int64_t at = 0; at < op.outer() * op.count() * op.inner(); ++at) {
      int64_t o = at / (op.count() * op.inner()), i = at % op.inner();
      auto e = static_cast<int64_t>(index(t).load(at));
      if (e >= 0 && e < op.extent())
        sum[(o * op.extent() + e) * op.inner() + i] += src(t).load(at);
    }
    for (size_t i = 0; i < sum.size(); ++i)
      out(t).store(i, sum[i]);
  });
}

/// A row of the scores of one sample and head, in double.
struct ScoreRow {
  ScoreRow(const plan::Attention &op, SlotScope &scope)
      : op(op), q(of(op.q(), scope)), k(of(op.k(), scope)), bias(of(op.bias(), scope)), keep(of(op.keep(), scope)) {}

  const plan::Attention &op;
  std::function<Elements(SlotTable)> q, k, bias, keep; ///< null: absent
  std::vector<double> probabilities, kept; ///< of the keys that the row attends to, before and after dropout

  static std::function<Elements(SlotTable)> of(const plan::View *view, SlotScope &scope) {
    return view ? reach(scope, view->slot(), view->offset()) : nullptr;
  }
  /// Computes exp(score - lse) for row i; returns lse. `begin`: where the sample and head begin in a view.
  template <typename Begin> double compute(SlotTable t, Begin begin, int64_t i, std::optional<double> lse) {
    constexpr double infinity = std::numeric_limits<double>::infinity();
    const auto at = [&](const plan::View *view, int64_t row, int64_t column) {
      return begin(view) + row * view->strides()->Get(2) + column;
    };
    const int64_t seen = op.causal() ? i + op.keys() - op.rows() + 1 : op.keys();
    probabilities.assign(static_cast<size_t>(seen), 0);
    double most = -infinity, sum = 0;
    for (int64_t j = 0; j < seen; ++j) {
      double score = 0;
      for (int64_t w = 0; w < op.width(); ++w)
        score += q(t).load(at(op.q(), i, w)) * k(t).load(at(op.k(), j, w));
      score = score * op.scale() + (bias ? bias(t).load(at(op.bias(), i, j)) : 0);
      most = std::max(most, probabilities[static_cast<size_t>(j)] = score);
    }
    for (double score : probabilities)
      sum += std::exp(score - most);
    const bool hidden = bias && most == -infinity;
    const double denominator = lse ? *lse : hidden ? infinity : most + std::log(sum);
    for (double &score : probabilities)
      score = std::exp(score - denominator);
    kept = probabilities;
    for (int64_t j = 0; keep && j < seen; ++j)
      kept[static_cast<size_t>(j)] *= factor(t, begin, i, j);
    return denominator;
  }
  /// The factor of an element of the softmax.
  template <typename Begin> double factor(SlotTable t, Begin begin, int64_t i, int64_t j) const {
    if (!keep)
      return 1;
    return keep(t).load(begin(op.keep()) + i * op.keep()->strides()->Get(2) + j) != 0 ? 1 / (1 - op.dropout()) : 0;
  }
};

template <typename Fn> void forEachHead(const plan::Attention &op, Fn fn) {
  for (int64_t b = 0; b < op.batch(); ++b)
    for (int64_t h = 0; h < op.heads(); ++h)
      fn([=](const plan::View *view) { return b * view->strides()->Get(0) + h * view->strides()->Get(1); },
         (b * op.heads() + h) * op.rows());
}

std::unique_ptr<Op> attentionForward(const plan::Attention &op, SlotScope &scope) {
  auto of = [&](const plan::View *view) { return reach(scope, view->slot(), view->offset()); };
  auto v = of(op.v()), out = of(op.out());
  auto lse = op.lse() >= 0 ? reach(scope, static_cast<uint32_t>(op.lse())) : nullptr;
  return makeOp([=, &op, scores = ScoreRow(op, scope)](SlotTable t) {
    ScoreRow row = scores;
    forEachHead(op, [&](auto begin, int64_t sums) {
      for (int64_t i = 0; i < op.rows(); ++i) {
        const double denominator = row.compute(t, begin, i, std::nullopt);
        for (int64_t w = 0; w < op.width(); ++w) {
          double sum = 0;
          for (size_t j = 0; j < row.kept.size(); ++j)
            sum += row.kept[j] * v(t).load(begin(op.v()) + static_cast<int64_t>(j) * op.v()->strides()->Get(2) + w);
          out(t).store(begin(op.out()) + i * op.out()->strides()->Get(2) + w, sum);
        }
        if (lse)
          lse(t).store(sums + i, denominator);
      }
    });
  });
}

/// Dao et al. 2022 (FlashAttention), algorithm 4, without tiling.
std::unique_ptr<Op> attentionBackward(const plan::Attention &op, SlotScope &scope) {
  auto of = [&](const plan::View *view) { return reach(scope, view->slot(), view->offset()); };
  auto q = of(op.q()), k = of(op.k()), v = of(op.v()), out = of(op.out()), dout = of(op.dout()), dq = of(op.dq()),
       dk = of(op.dk()), dv = of(op.dv()), lse = reach(scope, static_cast<uint32_t>(op.lse()));
  return makeOp([=, &op, scores = ScoreRow(op, scope)](SlotTable t) {
    ScoreRow row = scores;
    forEachHead(op, [&](auto begin, int64_t sums) {
      const auto at = [&](const plan::View *view, int64_t row, int64_t w) {
        return begin(view) + row * view->strides()->Get(2) + w;
      };
      std::vector<double> keys(static_cast<size_t>(op.keys() * op.width())), values(keys);
      for (int64_t i = 0; i < op.rows(); ++i) {
        row.compute(t, begin, i, lse(t).load(sums + i));
        double correction = 0;
        for (int64_t w = 0; w < op.width(); ++w)
          correction += dout(t).load(at(op.dout(), i, w)) * out(t).load(at(op.out(), i, w));
        std::vector<double> query(static_cast<size_t>(op.width()));
        for (size_t j = 0; j < row.kept.size(); ++j) {
          const auto key = static_cast<int64_t>(j);
          double product = 0;
          for (int64_t w = 0; w < op.width(); ++w)
            product += dout(t).load(at(op.dout(), i, w)) * v(t).load(at(op.v(), key, w));
          const double ds = row.probabilities[j] * (row.factor(t, begin, i, key) * product - correction) * op.scale();
          for (int64_t w = 0; w < op.width(); ++w) {
            query[static_cast<size_t>(w)] += ds * k(t).load(at(op.k(), key, w));
            keys[static_cast<size_t>(key * op.width() + w)] += ds * q(t).load(at(op.q(), i, w));
            values[static_cast<size_t>(key * op.width() + w)] += row.kept[j] * dout(t).load(at(op.dout(), i, w));
          }
        }
        for (int64_t w = 0; w < op.width(); ++w)
          dq(t).store(at(op.dq(), i, w), query[static_cast<size_t>(w)]);
      }
      for (int64_t j = 0; j < op.keys(); ++j)
        for (int64_t w = 0; w < op.width(); ++w) {
          dk(t).store(at(op.dk(), j, w), keys[static_cast<size_t>(j * op.width() + w)]);
          dv(t).store(at(op.dv(), j, w), values[static_cast<size_t>(j * op.width() + w)]);
        }
    });
  });
}

class ReferenceDevice final : public HostDevice {
public:
  ReferenceDevice() : HostDevice(1) {}
  std::unique_ptr<Op> prepare(const plan::Step &step, SlotScope &scope, const KernelTable &kernels) override {
    if (const auto *op = step.op_as_Copy())
      return copy(*op, scope);
    if (const auto *op = step.op_as_EmbeddingGrad())
      return embeddingGrad(*op, scope);
    if (const auto *op = step.op_as_ScatterAdd())
      return scatterAdd(*op, scope);
    return HostDevice::prepare(step, scope, kernels);
  }

protected:
  std::unique_ptr<Op> prepareLibrary(const plan::Step &step, SlotScope &scope) override {
    if (const auto *op = step.op_as_Matmul())
      return matmul(*op, scope);
    if (const auto *op = step.op_as_Conv())
      return convolution(*op, scope);
    if (const auto *op = step.op_as_Attention())
      return op->kind() == plan::AttentionKind::Forward ? attentionForward(*op, scope) : attentionBackward(*op, scope);
    return pooling(*step.op_as_Pool(), scope);
  }
};

} // namespace

std::unique_ptr<Device> makeReferenceDevice() { return std::make_unique<ReferenceDevice>(); }

} // namespace cleave
