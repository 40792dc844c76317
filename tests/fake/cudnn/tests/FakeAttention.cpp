// Attention through the runtime's cuDNN and the fake library, against plain loops in double.
#include "runtime/base/Error.h"
#include "runtime/cuda/library/Cudnn.h"
#include "runtime/cuda/library/CudnnShapes.h"
#include "tests/fake/cudnn/tests/Numbers.h"
#include "tests/fake/cudnn/tests/Place.h"
#include "tests/support/CudnnDevices.h"

#include <catch2/catch.hpp>

#include <cmath>

using namespace cleave;
using namespace cleave::cuda;
using namespace cleave::test;
using plan::AttentionKind;

namespace {

/// Values of a tensor [batch, heads, rows, width].
using Tensor4 = std::vector<double>;

struct Problem {
  Problem(AttentionKind kind, plan::DType dtype, int64_t rows, int64_t keys, bool causal, bool lse = true)
      : a(attentionFields(kind, dtype, batch, heads, rows, keys, width, causal)), parts(rows == keys ? 3 : 1),
        fused(whole(keys, 3)), gradients(whole(keys, 3)), query(whole(rows, 1)), queryGradient(whole(rows, 1)),
        out(whole(rows, 1)), dout(whole(rows, 1)),
        stats(plan::DType::F32, {batch, heads, rows, 1}, {heads * rows, rows, 1, 1}) {
    a.lse = lse ? 0 : -1;
    if (parts == 1) { // q in its own buffer; k and v packed in another
      a.k->strides = a.v->strides = {keys * inner * 3, width, inner * 3, 1};
      if (kind == AttentionKind::Backward)
        a.dk->strides = a.dv->strides = a.k->strides;
    }
    fillUniform(fused, 1), fillUniform(query, 2), fillUniform(dout, 3);
  }

  Buffer whole(int64_t count, int64_t pieces) const {
    return {a.dtype, {batch, count, pieces, inner}, {count * pieces * inner, pieces * inner, inner, 1}};
  }
  std::byte *part(const Buffer &buffer, int64_t index) const {
    return static_cast<std::byte *>(buffer.data()) + index * inner * 2;
  }

  std::vector<void *> pointers() const {
    const bool own = parts == 1;
    void *q = own ? query.data() : fused.data(), *dq = own ? queryGradient.data() : gradients.data();
    void *k = part(fused, 1), *v = part(fused, 2);
    if (a.kind == AttentionKind::Forward)
      return a.lse >= 0 ? std::vector<void *>{q, k, v, out.data(), stats.data()}
                        : std::vector<void *>{q, k, v, out.data()};
    return {q, k, v, out.data(), dout.data(), stats.data(), dq, part(gradients, 1), part(gradients, 2)};
  }

  /// The values of an operand: piece `index` of a buffer [batch, rows, pieces, heads, width].
  Tensor4 numbers(const Buffer &buffer, int64_t index) const {
    Tensor4 result;
    for (int64_t b = 0; b < batch; ++b)
      for (int64_t h = 0; h < heads; ++h)
        for (int64_t r = 0; r < buffer.sizes[1]; ++r)
          for (int64_t w = 0; w < width; ++w)
            result.push_back(buffer(b, r, index, h * width + w));
    return result;
  }

  static constexpr int64_t batch = 2, heads = 3, width = 16, inner = heads * width;
  plan::AttentionT a;
  int64_t parts;
  Buffer fused, gradients, query, queryGradient, out, dout, stats;
};

struct Reference {
  Tensor4 out, lse, dq, dk, dv;
};

/// Computes one sample and head at a time; q, k, v, dout are [batch * heads, rows, width].
Reference reference(const Problem &p) {
  const int64_t rows = p.a.rows, keys = p.a.keys, width = Problem::width;
  const Tensor4 q = p.numbers(p.parts == 1 ? p.query : p.fused, 0), k = p.numbers(p.fused, 1),
                v = p.numbers(p.fused, 2), dout = p.numbers(p.dout, 0);
  Reference r{Tensor4(q.size()), {}, Tensor4(q.size()), Tensor4(k.size()), Tensor4(k.size())};
  const auto dot = [&](const Tensor4 &x, int64_t i, const Tensor4 &y, int64_t j) {
    double sum = 0;
    for (int64_t w = 0; w < width; ++w)
      sum += x[static_cast<size_t>(i * width + w)] * y[static_cast<size_t>(j * width + w)];
    return sum;
  };
  const auto add = [&](Tensor4 &to, int64_t i, double factor, const Tensor4 &from, int64_t j) {
    for (int64_t w = 0; w < width; ++w)
      to[static_cast<size_t>(i * width + w)] += factor * from[static_cast<size_t>(j * width + w)];
  };
  for (int64_t s = 0; s < Problem::batch * Problem::heads; ++s)
    for (int64_t i = 0; i < rows; ++i) {
      const int64_t seen = p.a.causal ? i + keys - rows + 1 : keys, row = s * rows + i;
      double sum = 0;
      for (int64_t j = 0; j < seen; ++j)
        sum += std::exp(p.a.scale * dot(q, row, k, s * keys + j));
      r.lse.push_back(std::log(sum));
      std::vector<double> weights(static_cast<size_t>(seen)), gradient(static_cast<size_t>(seen));
      double common = 0;
      for (int64_t j = 0; j < seen; ++j) {
        const auto at = static_cast<size_t>(j);
        weights[at] = std::exp(p.a.scale * dot(q, row, k, s * keys + j)) / sum;
        add(r.out, row, weights[at], v, s * keys + j);
        gradient[at] = dot(dout, row, v, s * keys + j);
        common += weights[at] * gradient[at];
      }
      for (int64_t j = 0; j < seen; ++j) {
        const auto at = static_cast<size_t>(j);
        const double score = p.a.scale * weights[at] * (gradient[at] - common);
        add(r.dq, row, score, k, s * keys + j);
        add(r.dk, s * keys + j, score, q, row);
        add(r.dv, s * keys + j, weights[at], dout, row);
      }
    }
  return r;
}

double farthest(const Tensor4 &found, const Tensor4 &expected) {
  REQUIRE(found.size() == expected.size());
  double distance = 0;
  for (size_t i = 0; i < found.size(); ++i)
    distance = std::max(distance, std::abs(found[i] - expected[i]));
  return distance;
}

void run(const Problem &p, bool deterministic = true) {
  CudnnOptions options;
  options.smVersion = 90;
  options.workspaceLimit = 1 << 24;
  options.deterministic = deterministic;
  const Written<plan::Attention> written(p.a);
  const auto handle = Cudnn::open().handle(place().stream());
  const auto graph = Cudnn::open().attention(handle.get(), *written, options);
  graph->run(*handle, p.pointers(), place().memory(graph->workspaceBytes()));
  place().finish();
}

void check(plan::DType dtype, int64_t rows, int64_t keys, bool causal, bool deterministic = true) {
  Problem p(AttentionKind::Forward, dtype, rows, keys, causal);
  INFO(describe(*Written<plan::Attention>(p.a)));
  run(p);
  const Reference expected = reference(p);
  const double tolerance = dtype == plan::DType::F16 ? 0.002 : 0.015;
  CHECK(farthest(p.numbers(p.out, 0), expected.out) < tolerance);
  Tensor4 lse;
  for (int64_t i = 0; i < p.stats.count(); ++i)
    lse.push_back(p.stats.get(i));
  CHECK(farthest(lse, expected.lse) < 1e-4);

  if (Cudnn::open().version() <= 91500 && !place().hasDriver())
    return; // the engine first fills scratch memory, which belongs to the driver
  auto back = Problem(AttentionKind::Backward, dtype, rows, keys, causal);
  for (int64_t i = 0; i < p.out.count(); ++i)
    back.out.set(i, p.out.get(i));
  for (int64_t i = 0; i < p.stats.count(); ++i)
    back.stats.set(i, p.stats.get(i));
  run(back, deterministic);
  const double loose = 4 * tolerance; // for sums over rows
  CHECK(farthest(back.numbers(back.parts == 1 ? back.queryGradient : back.gradients, 0), expected.dq) < loose);
  CHECK(farthest(back.numbers(back.gradients, 1), expected.dk) < loose);
  CHECK(farthest(back.numbers(back.gradients, 2), expected.dv) < loose);
}

} // namespace

TEST_CASE("fake cudnn: attention and its gradients") {
  for (plan::DType dtype : {plan::DType::BF16, plan::DType::F16})
    for (bool causal : {false, true}) {
      check(dtype, 16, 16, causal);
      check(dtype, 10, 10, causal);
      check(dtype, 4, 12, causal); // fewer queries than keys
    }
  check(plan::DType::F16, 16, 16, true, /*deterministic=*/false);
}

TEST_CASE("fake cudnn: attention whose statistics nobody wants") {
  Problem p(AttentionKind::Forward, plan::DType::F16, 8, 8, true, /*lse=*/false);
  run(p);
  CHECK(farthest(p.numbers(p.out, 0), reference(p).out) < 0.002);
}
