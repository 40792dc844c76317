// The table of ops: functions of Functional.h, members, modules and markers.
#include "tests/random/Draws.h"

#include <algorithm>
#include <stdexcept>

namespace cleave::random_models {

using cleave::exp, cleave::log, cleave::pow, cleave::sqrt, cleave::abs, cleave::tanh, cleave::erf;

// ---- functions that the tables share --------------------------------------------------------------------------------

int64_t elementsOf(const Shape &shape) {
  int64_t count = 1;
  for (int64_t size : shape)
    count *= size;
  return count;
}

Drawing::Test rankAtLeast(int64_t rank) {
  return [rank](Tensor x) { return x.rank() >= rank; };
}
Drawing::Test rankIs(int64_t rank) {
  return [rank](Tensor x) { return x.rank() == rank; };
}
int64_t dimOf(Drawing &d, int x) {
  const int64_t rank = d.at(x).rank(), dim = d.chance.whole(0, rank - 1);
  return d.chance.one(0.3) ? dim - rank : dim;
}

bool drawUnary(Drawing &d, const OpKind &self) {
  const int x = d.pick();
  return x >= 0 && d.add(self.name, {x}) >= 0;
}

bool drawReduce(Drawing &d, const OpKind &self) {
  const int x = d.pick(rankAtLeast(1));
  if (x < 0)
    return false;
  const int64_t rank = d.at(x).rank();
  std::vector<int64_t> ints{d.chance.one(0.5)};
  for (int64_t dim = 0; dim < rank; ++dim)
    if (d.chance.one(dim == 0 ? 0.15 : 0.45))
      ints.push_back(d.chance.one(0.3) ? dim - rank : dim);
  if (ints.size() == 1 && !d.chance.one(0.15)) // no dimensions: reduce over all
    ints.push_back(rank - 1);
  return d.add(self.name, {x}, ints) >= 0;
}
std::vector<int64_t> tail(const Call &c) { return {c.node.ints.begin() + 1, c.node.ints.end()}; }

bool drawAlong(Drawing &d, const OpKind &self) {
  const int x = d.pick(rankAtLeast(1));
  return x >= 0 && d.add(self.name, {x}, {dimOf(d, x)}) >= 0;
}

bool canBroadcast(const Shape &a, const Shape &b) {
  for (size_t i = 1; i <= std::min(a.size(), b.size()); ++i)
    if (a[a.size() - i] != b[b.size() - i] && a[a.size() - i] != 1 && b[b.size() - i] != 1)
      return false;
  return true;
}

int secondOperand(Drawing &d, int x) {
  const Shape shape = d.shape(x);
  const size_t choice = d.chance.weighted({4, 3, 1});
  if (choice == 0) {
    const int y = d.pick([&](Tensor t) {
      return canBroadcast(shape, t.shape()) && std::max(t.elements(), elementsOf(shape)) <= mostElements;
    });
    return y;
  }
  if (choice == 1 && !shape.empty()) {
    const int64_t dim = d.chance.whole(d.chance.one(0.9) && shape.size() > 1 ? 1 : 0, static_cast<int64_t>(shape.size()) - 1);
    const int p = d.parameter({shape[static_cast<size_t>(dim)]});
    Shape seen(shape.size() - static_cast<size_t>(dim), 1);
    seen[0] = shape[static_cast<size_t>(dim)];
    return seen.size() == 1 ? p : d.add("reshape", {p}, seen);
  }
  if (shape.empty())
    return -1;
  return d.add(d.whole() ? "sum" : "mean", {x}, {1, dimOf(d, x)});
}

namespace {

// ---- elementwise --------------------------------------------------------------------------------------------------

/// f(|x| + 0.5), for an f that is defined only for positive numbers.
bool drawOnPositive(Drawing &d, const OpKind &self) {
  const int x = d.pick();
  if (x < 0)
    return false;
  const int a = d.add("abs", {x}), b = d.add("addNumber", {a}, {}, {0.5});
  return d.add(self.name, {b}) >= 0;
}

/// f(min(x, 1))
bool drawOnSmall(Drawing &d, const OpKind &self) {
  const int x = d.pick();
  return x >= 0 && d.add(self.name, {d.add("minimumNumber", {x}, {}, {1})}) >= 0;
}

bool drawBinary(Drawing &d, const OpKind &self) {
  const int x = d.pick(), y = x < 0 ? -1 : secondOperand(d, x);
  if (y < 0)
    return false;
  return d.add(self.name, d.chance.one(0.5) ? std::vector{x, y} : std::vector{y, x}) >= 0;
}

bool drawResidual(Drawing &d, const OpKind &) {
  const int x = d.pick();
  if (x < 0)
    return false;
  const Shape shape = d.shape(x);
  const int y = d.pick([&](Tensor t) { return t.shape() == shape; });
  return y >= 0 && d.add("add", {x, y}) >= 0;
}

bool drawDivide(Drawing &d, const OpKind &self) {
  const int x = d.pick(), y = x < 0 ? -1 : secondOperand(d, x);
  if (y < 0)
    return false;
  return d.add(self.name, {x, d.add("addNumber", {d.add("abs", {y})}, {}, {1})}) >= 0;
}

bool drawNumber(Drawing &d, const OpKind &self) {
  const int x = d.pick();
  const double number = d.whole() ? d.chance.of<double>({-2, -1, 2, 3}) : d.chance.of<double>({-0.7, 0.3, 0.5, 1.3});
  return x >= 0 && d.add(self.name, {x}, {}, {number}) >= 0;
}

bool drawDropout(Drawing &d, const OpKind &self) {
  const int x = d.pick();
  return x >= 0 && d.add(self.name, {x}, {}, {d.whole() ? 0.5 : d.chance.of<double>({0.1, 0.25, 0.5})}) >= 0;
}

// ---- reductions and shapes ------------------------------------------------------------------------------------------

/// Reshapes a value: merges or splits dimensions, swaps two sizes, or regroups the elements.
bool drawReshape(Drawing &d, const OpKind &self) {
  const int x = d.pick(rankAtLeast(2));
  if (x < 0)
    return false;
  Shape shape = d.shape(x), to;
  const size_t kind = d.chance.weighted({2, 3, 2, 3, 1});
  const size_t at = static_cast<size_t>(d.chance.whole(shape.size() > 2 ? 1 : 0, static_cast<int64_t>(shape.size()) - 2));
  if (kind == 0) { // merge two adjacent dimensions
    to = shape;
    to[at] *= to[at + 1];
    to.erase(to.begin() + static_cast<long>(at) + 1);
  } else if (kind == 1) { // split one dimension
    const size_t dim = static_cast<size_t>(d.chance.whole(d.chance.one(0.9) ? 1 : 0, static_cast<int64_t>(shape.size()) - 1));
    std::vector<int64_t> divisors;
    for (int64_t k = 2; k < shape[dim]; ++k)
      if (shape[dim] % k == 0)
        divisors.push_back(k);
    if (divisors.empty() || shape.size() > 4)
      return false;
    const int64_t major = d.chance.of(divisors);
    to = shape;
    to[dim] /= major;
    to.insert(to.begin() + static_cast<long>(dim), major);
  } else if (kind == 2) { // swap two sizes without moving elements: [b, 6, 4] to [b, 4, 6]
    to = shape;
    std::swap(to[at], to[at + 1]);
  } else if (kind == 3) { // regroup all dimensions but the first
    const int64_t rest = elementsOf(shape) / shape[0];
    std::vector<int64_t> divisors;
    for (int64_t k = 2; k <= rest; ++k)
      if (rest % k == 0)
        divisors.push_back(k);
    if (divisors.empty())
      return false;
    const int64_t k = d.chance.of(divisors);
    to = {shape[0], k, rest / k};
  } else { // regroup all dimensions
    const int64_t all = elementsOf(shape);
    std::vector<int64_t> divisors;
    for (int64_t k = 2; k < all; ++k)
      if (all % k == 0)
        divisors.push_back(k);
    if (divisors.empty())
      return false;
    const int64_t k = d.chance.of(divisors);
    to = {k, all / k};
  }
  return d.add(self.name, {x}, to) >= 0;
}

bool drawFlatten(Drawing &d, const OpKind &self) {
  const int x = d.pick(rankAtLeast(2));
  if (x < 0)
    return false;
  const int64_t rank = d.at(x).rank(), start = d.chance.whole(d.chance.one(0.8) ? 1 : 0, rank - 1);
  return d.add(self.name, {x}, {start, d.chance.whole(start, rank - 1)}) >= 0;
}

bool drawTranspose(Drawing &d, const OpKind &self) {
  const int x = d.pick(rankAtLeast(2));
  return x >= 0 && d.add(self.name, {x}, {dimOf(d, x), dimOf(d, x)}) >= 0;
}

bool drawPermute(Drawing &d, const OpKind &self) {
  const int x = d.pick(rankAtLeast(2));
  if (x < 0)
    return false;
  std::vector<int64_t> dims;
  for (int64_t i = 0; i < d.at(x).rank(); ++i)
    dims.insert(dims.begin() + d.chance.whole(0, i), i);
  return d.add(self.name, {x}, dims) >= 0;
}

/// Transposes two dimensions and reshapes back to the old shape, one to three times.
bool drawShuffle(Drawing &d, const OpKind &) {
  int x = d.pick(rankAtLeast(3));
  for (int64_t i = d.chance.whole(1, 3); i > 0 && x >= 0; --i) {
    const int64_t rank = d.at(x).rank(), at = d.chance.whole(rank > 2 ? 1 : 0, rank - 2);
    Shape shape = d.shape(x);
    x = d.add("transpose", {x}, {at, at + 1});
    x = x < 0 ? x : d.add("reshape", {x}, shape);
  }
  return x >= 0;
}

bool drawSlice(Drawing &d, const OpKind &self) {
  const int x = d.pick(rankAtLeast(1));
  if (x < 0)
    return false;
  const int64_t dim = d.chance.one(0.85) && d.at(x).rank() > 1 ? d.chance.whole(1, d.at(x).rank() - 1) : 0;
  const int64_t size = d.shape(x)[static_cast<size_t>(dim)];
  const int64_t start = d.chance.whole(0, size - 1), end = d.chance.whole(start + 1, size);
  return d.add(self.name, {x}, {dim, start, end < size && d.chance.one(0.3) ? end - size : end}) >= 0;
}

bool drawSelect(Drawing &d, const OpKind &self) {
  const int x = d.pick(rankAtLeast(2));
  if (x < 0)
    return false;
  const int64_t dim = d.chance.one(0.85) ? d.chance.whole(1, d.at(x).rank() - 1) : 0;
  return d.add(self.name, {x}, {dim, d.chance.whole(0, d.shape(x)[static_cast<size_t>(dim)] - 1)}) >= 0;
}

bool drawConcat(Drawing &d, const OpKind &self) {
  const int x = d.pick(rankAtLeast(1));
  if (x < 0)
    return false;
  const int64_t dim = d.chance.one(0.85) && d.at(x).rank() > 1 ? d.chance.whole(1, d.at(x).rank() - 1) : 0;
  const Shape shape = d.shape(x);
  std::vector<int> in{x};
  for (int64_t more = d.chance.whole(1, 2); more > 0; --more) {
    const int y = d.pick([&](Tensor t) {
      Shape other = t.shape();
      if (other.size() != shape.size())
        return false;
      other[static_cast<size_t>(dim)] = shape[static_cast<size_t>(dim)];
      return other == shape;
    });
    if (y >= 0)
      in.push_back(y);
  }
  return in.size() > 1 && d.add(self.name, in, {dim}) >= 0;
}

/// Cuts a value in two and multiplies the pieces or concatenates them in reverse order: one value has several uses.
bool drawPieces(Drawing &d, const OpKind &) {
  const int x = d.pick([](Tensor t) { return t.rank() >= 2 && t.size(-1) >= 2; });
  if (x < 0)
    return false;
  const int64_t dim = d.chance.whole(1, d.at(x).rank() - 1), size = d.shape(x)[static_cast<size_t>(dim)];
  if (size < 2)
    return false;
  const int64_t cut = d.chance.whole(1, size - 1);
  const int a = d.add("slice", {x}, {dim, 0, cut}), b = d.add("slice", {x}, {dim, cut, size});
  if (d.chance.one(0.5) && cut * 2 == size)
    return d.add("mul", {a, b}) >= 0;
  return d.add("concat", {b, d.chance.one(0.5) ? d.add("relu", {a}) : a}, {dim}) >= 0;
}

bool drawUnsqueeze(Drawing &d, const OpKind &self) {
  const int x = d.pick([](Tensor t) { return t.rank() <= 3; });
  return x >= 0 && d.add(self.name, {x}, {d.chance.whole(0, d.at(x).rank())}) >= 0;
}

bool drawSqueeze(Drawing &d, const OpKind &self) {
  const int x = d.pick([](Tensor t) {
    const Shape shape = t.shape();
    return std::find(shape.begin(), shape.end(), 1) != shape.end();
  });
  if (x < 0)
    return false;
  const Shape shape = d.shape(x);
  return d.add(self.name, {x}, {std::find(shape.begin(), shape.end(), 1) - shape.begin()}) >= 0;
}

/// Gathers from x by an integer field or by consecutive numbers.
bool drawGather(Drawing &d, const OpKind &self) {
  const int x = d.pick(rankAtLeast(2));
  if (x < 0)
    return false;
  const Shape shape = d.shape(x);
  const int given = d.pickInteger([&](Tensor t) {
    return t.rank() == 2 && shape.size() == 2 && t.size(0) == shape[0] && shape[1] >= 5; // ids lie in [0, 5)
  });
  if (given >= 0 && d.chance.one(0.7))
    return d.add(self.name, {x, given}, {1}) >= 0;
  const int64_t dim = d.chance.whole(0, static_cast<int64_t>(shape.size()) - 1), size = shape[static_cast<size_t>(dim)];
  const int64_t others = elementsOf(shape) / size;
  if (others > size)
    return false;
  Shape index = shape;
  index[static_cast<size_t>(dim)] = std::max<int64_t>(1, size / others);
  const int count = d.add("arange", {}, {elementsOf(index)});
  return d.add(self.name, {x, d.add("reshapeWhole", {count}, index)}, {dim}) >= 0;
}

/// Adds scaled positions 0, 1, 2, ... along the last dimension of a value.
bool drawPositions(Drawing &d, const OpKind &) {
  const int x = d.pick(rankAtLeast(1));
  if (x < 0)
    return false;
  const int n = d.add("arange", {}, {d.shape(x).back()});
  const int f = d.add("castFloat", {n});
  return d.add("add", {x, d.add("timesNumber", {f}, {}, {d.whole() ? 1.0 : 0.125})}) >= 0;
}

bool drawFull(Drawing &d, const OpKind &self) {
  const int x = d.pick(rankAtLeast(1));
  if (x < 0)
    return false;
  Shape shape = d.shape(x);
  if (d.chance.one(0.5))
    shape = {shape.back()};
  const int c = d.add(self.name, {}, shape, {d.whole() ? 2.0 : 0.75});
  return d.add(d.chance.one(0.5) ? "mul" : "maximum", {x, c}) >= 0;
}

bool drawHalf(Drawing &d, const OpKind &self) {
  const int x = d.pick();
  return x >= 0 && d.add(self.name, {x}, {d.chance.one(0.5)}) >= 0;
}

// ---- linear algebra ----------------------------------------------------------------------------------------------

bool drawMatmul(Drawing &d, const OpKind &self) {
  const int x = d.pick(rankAtLeast(2));
  if (x < 0)
    return false;
  const Shape shape = d.shape(x);
  const size_t kind = d.chance.weighted({3, 3, 3});
  if (kind == 0) // multiply by a parameter that all samples share
    return d.add(self.name, {x, d.parameter({shape.back(), d.chance.whole(1, 7)})}) >= 0;
  int y = -1;
  if (kind == 1) { // multiply by another value
    y = d.pick([&](Tensor t) {
      const Shape other = t.shape();
      return other.size() >= 2 && other[other.size() - 2] == shape.back() &&
             (other.size() == 2 || shape.size() == 2 ||
              canBroadcast({other.begin(), other.end() - 2}, {shape.begin(), shape.end() - 2}));
    });
  } else if (shape.size() >= 3) // multiply by its own transpose
    y = d.add("transpose", {x}, {-1, -2});
  const int product = y < 0 ? -1 : d.add(self.name, {x, y});
  if (product < 0)
    return false;
  return d.whole() || d.add("timesNumber", {product}, {}, {0.5}) >= 0;
}

bool drawLinear(Drawing &d, const OpKind &self) {
  const int x = d.pick(rankAtLeast(2));
  if (x < 0)
    return false;
  const int64_t out = d.chance.whole(2, 9);
  std::vector<int> in{x, d.parameter({out, d.shape(x).back()})};
  if (d.chance.one(0.7))
    in.push_back(d.parameter({out}));
  return d.add(self.name, in) >= 0;
}

bool drawConv(Drawing &d, const OpKind &self) {
  const int x = d.pick(rankIs(4));
  if (x < 0)
    return false;
  const Shape s = d.shape(x);
  const int64_t groups = s[1] % 2 == 0 && d.chance.one(0.3) ? 2 : 1, out = d.chance.whole(1, 3) * groups;
  const int64_t k = std::min<int64_t>({s[2], s[3], d.chance.whole(1, 3)});
  std::vector<int> in{x, d.parameter({out, s[1] / groups, k, k})};
  if (d.chance.one(0.6))
    in.push_back(d.parameter({out}));
  return d.add(self.name, in, {d.chance.whole(1, 2), d.chance.whole(0, 1), 1, groups}) >= 0;
}

bool drawPool(Drawing &d, const OpKind &self) {
  const int x = d.pick([](Tensor t) { return t.rank() == 4 && t.size(2) >= 2 && t.size(3) >= 2; });
  if (x < 0)
    return false;
  return d.add(self.name, {x}, {2, d.chance.one(0.3) ? 1 : 2, d.chance.one(0.2) ? 1 : 0}) >= 0;
}

bool drawGlobalPool(Drawing &d, const OpKind &self) {
  const int x = d.pick(rankIs(4));
  return x >= 0 && d.add(self.name, {x}) >= 0;
}

/// Projects [b, t, w] to heads, applies attention, and merges the heads; ints of the attention: causal, lower right.
bool drawAttention(Drawing &d, const OpKind &self) {
  const int x = d.pick([](Tensor t) { return t.rank() == 3 && t.size(1) <= 8; });
  if (x < 0)
    return false;
  const Shape s = d.shape(x);
  const int64_t heads = d.chance.whole(1, 4), width = d.chance.whole(1, 4), causal = d.chance.one(0.5);
  const int64_t lowerRight = d.chance.one(0.5);
  if (d.chance.one(0.5)) { // one product computes queries, keys and values
    const int qkv = d.add("linear", {x, d.parameter({3 * heads * width, s[2]})});
    const int cut = d.add("reshape", {qkv}, {s[0], s[1], 3, heads, width});
    std::vector<int> parts;
    for (int64_t i = 0; i < 3; ++i)
      parts.push_back(d.add("transpose", {d.add("select", {cut}, {2, i})}, {1, 2}));
    const int out = d.add(self.name, parts, {causal, lowerRight});
    return out >= 0 && d.add("reshape", {d.add("transpose", {out}, {1, 2})}, {s[0], s[1], heads * width}) >= 0;
  }
  // sometimes fewer queries than keys, or fewer keys than queries
  const int64_t fewer = s[1] > 1 && d.chance.one(0.4) ? d.chance.whole(1, s[1] - 1) : s[1];
  const int some = fewer < s[1] ? d.add("slice", {x}, {1, 0, fewer}) : x;
  const bool queries = d.chance.one(0.5);
  std::vector<int> parts;
  for (int64_t i = 0; i < 3; ++i) {
    const bool cut = (i == 0) == queries;
    const int p = d.add("linear", {cut ? some : x, d.parameter({heads * width, s[2]})});
    parts.push_back(d.add("transpose", {d.add("reshape", {p}, {s[0], cut ? fewer : s[1], heads, width})}, {1, 2}));
  }
  const int out = d.add(self.name, parts, {causal, lowerRight});
  return out >= 0 && d.add("reshape", {d.add("transpose", {out}, {1, 2})}, {s[0], queries ? fewer : s[1], heads * width}) >= 0;
}

/// Grouped-query attention, sometimes with fewer queries, with rotary embeddings, with a parameter as mask or its signs,
/// or with dropout.
bool drawGroupedAttention(Drawing &d, const OpKind &self) {
  const int x = d.pick([](Tensor t) { return t.rank() == 3 && t.size(1) <= 8; });
  if (x < 0)
    return false;
  const Shape s = d.shape(x);
  const int64_t kvHeads = d.chance.whole(1, 2), heads = kvHeads * d.chance.whole(1, 3), width = 2 * d.chance.whole(1, 2);
  const bool turned = d.chance.one(0.6), boolean = d.chance.one(0.3);
  const int64_t rows = s[1] > 1 && d.chance.one(0.3) ? d.chance.whole(1, s[1] - 1) : s[1];
  const int some = rows < s[1] ? d.add("slice", {x}, {1, 0, rows}) : x;
  const auto part = [&](int64_t count, bool turn, bool query = false) {
    const int p = d.add("linear", {query ? some : x, d.parameter({count * width, s[2]})});
    const int h = d.add("transpose", {d.add("reshape", {p}, {s[0], query ? rows : s[1], count, width})}, {1, 2});
    return turn && turned ? d.add("rotaryEmbedding", {h}, {d.chance.whole(0, 2)}) : h;
  };
  std::vector<int> in{part(heads, true, true), part(kvHeads, true), part(kvHeads, false)};
  if (boolean || d.chance.one(0.4))
    in.push_back(d.parameter(d.chance.one(0.5) ? Shape{rows, s[1]} : Shape{heads, 1, s[1]}));
  const int out = d.add(boolean ? "maskedAttention" : self.name, in, {d.chance.one(0.5)}, {d.chance.one(0.3) ? 0.25 : 0.0});
  return out >= 0 && d.add("reshape", {d.add("transpose", {out}, {1, 2})}, {s[0], rows, heads * width}) >= 0;
}

bool drawRotary(Drawing &d, const OpKind &self) {
  const int x = d.pick([](Tensor t) { return t.rank() >= 2 && t.size(-1) % 2 == 0; });
  return x >= 0 && d.add(self.name, {x}, {d.chance.whole(0, 3)}) >= 0;
}

bool drawAttentionOfValues(Drawing &d, const OpKind &) {
  const int q = d.pick(rankIs(4));
  return q >= 0 && d.add("attention", {q, q, q}, {d.chance.one(0.5), 0}) >= 0;
}

bool drawEmbedding(Drawing &d, const OpKind &self) {
  const int ids = d.pickInteger([](Tensor t) { return t.rank() <= 2; });
  if (ids < 0)
    return false;
  return d.add(self.name, {ids, d.parameter({d.chance.whole(5, 9), d.chance.whole(2, 8)})}) >= 0;
}

// ---- norms ---------------------------------------------------------------------------------------------------------

bool drawLayerNorm(Drawing &d, const OpKind &self) {
  const int x = d.pick([](Tensor t) { return t.rank() >= 1 && t.size(-1) >= 3; });
  if (x < 0)
    return false;
  const int64_t c = d.shape(x).back();
  return d.add(self.name, {x, d.parameter({c}), d.parameter({c})}) >= 0;
}

bool drawRmsNorm(Drawing &d, const OpKind &self) {
  const int x = d.pick([](Tensor t) { return t.rank() >= 1 && t.size(-1) >= 2; });
  return x >= 0 && d.add(self.name, {x, d.parameter({d.shape(x).back()})}) >= 0;
}

bool drawGroupNorm(Drawing &d, const OpKind &self) {
  const int x = d.pick([](Tensor t) { return t.rank() >= 2 && t.elements() / t.size(0) / t.size(1) >= 3; });
  if (x < 0)
    return false;
  const int64_t c = d.shape(x)[1], groups = c % 2 == 0 && d.chance.one(0.5) ? 2 : d.chance.one(0.5) ? c : 1;
  std::vector<int> in{x};
  if (d.chance.one(0.7))
    in.insert(in.end(), {d.parameter({c}), d.parameter({c})});
  return d.add(self.name, in, {groups}) >= 0;
}

int channelBuffer(Drawing &d, int64_t channels, double value) {
  return d.declare({"Buffer", d.newName("stat"), {channels}, {value}});
}

/// Buffers: `member` is the mean; ints: group, index of the variance.
bool drawBatchNorm(Drawing &d, const OpKind &self) {
  const int x = d.pick([](Tensor t) { return t.rank() >= 2 && t.elements() / t.size(1) >= 4; });
  if (x < 0)
    return false;
  const int64_t c = d.shape(x)[1], rows = d.shape(x)[0];
  const int64_t group = rows % 2 == 0 && d.at(x).elements() / c / rows > 1 && d.chance.one(0.3) ? 2 : 0;
  const int mean = channelBuffer(d, c, 0), variance = channelBuffer(d, c, 1);
  return d.add(self.name, {x, d.parameter({c}), d.parameter({c})}, {group, variance}, {}, mean) >= 0;
}

// ---- members --------------------------------------------------------------------------------------------------------

bool drawParameter(Drawing &d, const OpKind &) {
  const int x = d.pick(rankAtLeast(1));
  if (x < 0)
    return false;
  Shape shape = d.shape(x);
  shape.erase(shape.begin(), shape.begin() + d.chance.whole(0, d.at(x).rank() - 1) * (d.chance.one(0.9) || shape.size() > 1));
  if (shape.size() == static_cast<size_t>(d.at(x).rank()))
    shape[0] = 1;
  return d.add(d.chance.one(0.5) ? "add" : "mul", {x, d.parameter(shape)}) >= 0;
}

/// A buffer that is read and then mostly updated towards the mean of a value (of whole numbers: the sum); or one read before.
bool drawOwnBuffer(Drawing &d, const OpKind &) {
  const int x = d.pick(rankAtLeast(2));
  if (x < 0)
    return false;
  const Shape s = d.shape(x);
  for (size_t m = 0; m < d.cls().members.size() && d.chance.one(0.8); ++m)
    if (d.cls().members[m].kind == "Buffer" && d.cls().members[m].ints == Shape{s.back()})
      return d.add(d.chance.one(0.5) ? "add" : "mul", {x, d.add("buffer", {}, {}, {}, static_cast<int>(m))}) >= 0;
  const int buffer = d.declare({"Buffer", d.newName("running"), {s.back()}, {d.whole() ? 1.0 : 0.25}});
  const int before = d.add("buffer", {}, {}, {}, buffer);
  const int used = d.add(d.chance.one(0.5) ? "add" : "mul", {x, before});
  if (d.chance.one(0.2))
    return used >= 0;
  std::vector<int64_t> dims{0};
  for (int64_t i = 0; i + 1 < static_cast<int64_t>(s.size()); ++i)
    dims.push_back(i);
  const int mean = d.add(d.whole() ? "sum" : "mean", {x}, dims);
  if (used < 0 || mean < 0)
    return false;
  const int next = d.add("add", {d.add("timesNumber", {before}, {}, {0.5}), d.add("timesNumber", {mean}, {}, {0.5})});
  d.add("setBuffer", {next}, {}, {}, buffer);
  return true;
}

/// Uses the weight or bias of a layer in another op (tied weights).
bool drawTied(Drawing &d, const OpKind &) {
  const int x = d.pick(rankAtLeast(2));
  if (x < 0)
    return false;
  const int64_t last = d.shape(x).back();
  for (size_t m = 0; m < d.cls().members.size(); ++m) {
    const Part &member = d.cls().members[m];
    if ((member.kind == "Linear" && member.ints[0] == last) || (member.kind == "Embedding" && member.ints[1] == last))
      return d.add("linear", {x, d.add("memberOf", {}, {}, {}, static_cast<int>(m), {"weight"})}) >= 0;
    if (member.kind == "LayerNorm" && member.ints[0] == last && d.chance.one(0.5))
      return d.add("mul", {x, d.add("memberOf", {}, {}, {}, static_cast<int>(m), {"weight"})}) >= 0;
    if (member.kind == "Linear" && member.ints[1] == last && member.ints[2] && d.chance.one(0.5))
      return d.add("add", {x, d.add("memberOf", {}, {}, {}, static_cast<int>(m), {"bias"})}) >= 0;
  }
  return false;
}

/// Calls an existing member once more; ints of the call: index in a list, or -1.
bool drawAgain(Drawing &d, const OpKind &) {
  std::vector<int> members;
  for (size_t m = 0; m < d.cls().members.size(); ++m)
    if (d.cls().members[m].kind != "Parameter" && d.cls().members[m].kind != "Buffer")
      members.push_back(static_cast<int>(m));
  if (members.empty())
    return false;
  const int member = d.chance.of(members);
  for (int tries = 0; tries < 6; ++tries) {
    const int x = d.pick();
    const Part &m = d.cls().members[static_cast<size_t>(member)];
    const int64_t place = m.kind == "List" && d.chance.one(0.5) ? d.chance.whole(0, m.ints[0] - 1) : -1;
    std::vector<int> in{x};
    if (m.cls >= 0 && d.recipe.classes[static_cast<size_t>(m.cls)].body.inputs > 1)
      in.push_back(d.pick());
    if (d.add("call", in, {place}, {}, member) >= 0)
      return true;
  }
  return false;
}

bool drawLayer(Drawing &d, const OpKind &) {
  std::vector<double> weights;
  for (const LayerKind &kind : layerKinds())
    weights.push_back(d.whole() && !kind.exact ? 0 : kind.weight);
  const LayerKind &kind = layerKinds()[d.chance.weighted(weights)];
  const bool ids = kind.name == "Embedding";
  Part member{kind.name, "", {}, {}, {}, -1, d.chance.one(0.08)};
  int x = -1;
  for (int tries = 0; tries < 5 && x < 0; ++tries) {
    x = ids ? d.pickInteger([](Tensor t) { return t.rank() <= 2; }) : d.pick(rankAtLeast(2));
    if (x >= 0 && !kind.fit(d, d.at(x), member))
      x = -1;
  }
  if (x < 0)
    return false;
  member.name = d.newName(kind.name == "Linear" ? "fc" : kind.name == "Conv2d" ? "conv" : "layer");
  return d.add("call", {x}, {-1}, {}, d.declare(member)) >= 0;
}

bool drawModule(Drawing &d, const OpKind &self) {
  if (d.depth >= 2)
    return false;
  const int x = d.pick(rankAtLeast(2));
  const bool list = self.name == "list";
  const int y = list || d.chance.one(0.6) ? -1 : d.pick(rankAtLeast(1));
  return x >= 0 && d.newModule(x, y, list) >= 0;
}

// ---- calls ----------------------------------------------------------------------------------------------------------

Tensor emitMember(const Call &c) {
  Module &module = c.self.module(c.node.member);
  for (Parameter *parameter : module.parameters())
    if (parameter->name() == c.node.words.at(0))
      return *parameter;
  throw std::logic_error("no parameter " + c.node.words.at(0));
}

ConvOptions convOptions(const Call &c) {
  return {.stride = c.i(0), .padding = c.i(1), .dilation = c.i(2), .groups = c.i(3)};
}

std::vector<OpKind> makeKinds() {
  std::vector<OpKind> k;
  const auto op = [&](OpKind kind) { k.push_back(std::move(kind)); };
  // Elementwise.
  op({"relu", 3, true, "relu($0)", [](const Call &c) { return relu(c.in[0]); }, drawUnary});
  op({"abs", 1, true, "abs($0)", [](const Call &c) { return abs(c.in[0]); }, drawUnary});
  op({"neg", 1, true, "-$0", [](const Call &c) { return -c.in[0]; }, drawUnary});
  op({"gelu", 1, false, "gelu($0)", [](const Call &c) { return gelu(c.in[0]); }, drawUnary});
  op({"geluTanh", 1, false, "gelu($0, Gelu::Tanh)", [](const Call &c) { return gelu(c.in[0], Gelu::Tanh); }, drawUnary});
  op({"silu", 1, false, "silu($0)", [](const Call &c) { return silu(c.in[0]); }, drawUnary});
  op({"tanh", 2, false, "tanh($0)", [](const Call &c) { return tanh(c.in[0]); }, drawUnary});
  op({"sigmoid", 1, false, "sigmoid($0)", [](const Call &c) { return sigmoid(c.in[0]); }, drawUnary});
  op({"erf", 0.5, false, "erf($0)", [](const Call &c) { return erf(c.in[0]); }, drawUnary});
  op({"exp", 1, false, "exp($0)", [](const Call &c) { return exp(c.in[0]); }, drawOnSmall});
  op({"log", 0.7, false, "log($0)", [](const Call &c) { return log(c.in[0]); }, drawOnPositive});
  op({"sqrt", 0.7, false, "sqrt($0)", [](const Call &c) { return sqrt(c.in[0]); }, drawOnPositive});
  op({"rsqrt", 0.7, false, "rsqrt($0)", [](const Call &c) { return rsqrt(c.in[0]); }, drawOnPositive});
  op({"log1p", 0.5, false, "log1p($0)", [](const Call &c) { return log1p(c.in[0]); }, drawOnPositive});
  op({"atan2", 0.5, false, "atan2($0, $1)", [](const Call &c) { return atan2(c.in[0], c.in[1]); }, drawDivide});
  op({"remainder", 0.4, false, "remainder($0, $1)", [](const Call &c) { return remainder(c.in[0], c.in[1]); },
      drawDivide});
  op({"add", 4, true, "$0 + $1", [](const Call &c) { return c.in[0] + c.in[1]; }, drawBinary});
  op({"residual", 4, true, "", nullptr, drawResidual});
  op({"sub", 2, true, "$0 - $1", [](const Call &c) { return c.in[0] - c.in[1]; }, drawBinary});
  op({"mul", 3, true, "$0 * $1", [](const Call &c) { return c.in[0] * c.in[1]; }, drawBinary});
  op({"divide", 1, false, "$0 / $1", [](const Call &c) { return c.in[0] / c.in[1]; }, drawDivide});
  op({"maximum", 1, true, "maximum($0, $1)", [](const Call &c) { return maximum(c.in[0], c.in[1]); }, drawBinary});
  op({"minimum", 1, true, "minimum($0, $1)", [](const Call &c) { return minimum(c.in[0], c.in[1]); }, drawBinary});
  op({"addNumber", 0.5, true, "$0 + $r0", [](const Call &c) { return c.in[0] + c.r(0); }, drawNumber});
  op({"timesNumber", 1, true, "$0 * $r0", [](const Call &c) { return c.in[0] * c.r(0); }, drawNumber});
  op({"numberMinus", 0.5, true, "$r0 - $0", [](const Call &c) { return c.r(0) - c.in[0]; }, drawNumber});
  op({"minimumNumber", 0.3, true, "minimum($0, $r0)", [](const Call &c) { return minimum(c.in[0], c.r(0)); }, drawNumber});
  op({"castHalf", 0.4, false, "cast(cast($0, DType($i0 ? 1 : 2)), DType::F32)",
      [](const Call &c) { return cast(cast(c.in[0], c.i(0) ? DType::F16 : DType::BF16), DType::F32); }, drawHalf});
  op({"softmax", 2, false, "softmax($0, $i0)", [](const Call &c) { return softmax(c.in[0], c.i(0)); }, drawAlong});
  op({"logSoftmax", 1, false, "logSoftmax($0, $i0)", [](const Call &c) { return logSoftmax(c.in[0], c.i(0)); }, drawAlong});
  op({"dropout", 1.5, true, "dropout($0, $r0)", [](const Call &c) { return dropout(c.in[0], c.r(0)); }, drawDropout});
  // Reductions.
  op({"sum", 2, true, "sum($0, $J, $i0)", [](const Call &c) { return sum(c.in[0], tail(c), c.i(0)); }, drawReduce});
  op({"mean", 2, true, "mean($0, $J, $i0)", [](const Call &c) { return mean(c.in[0], tail(c), c.i(0)); }, drawReduce});
  // Not exact: equal maxima share the gradient, and thirds are rounded.
  op({"max", 1, false, "max($0, $J, $i0)", [](const Call &c) { return max(c.in[0], tail(c), c.i(0)); }, drawReduce});
  op({"min", 1, false, "min($0, $J, $i0)", [](const Call &c) { return min(c.in[0], tail(c), c.i(0)); }, drawReduce});
  // Shapes.
  op({"reshape", 5, true, "reshape($0, $I)", [](const Call &c) { return reshape(c.in[0], c.node.ints); }, drawReshape});
  op({"reshapeWhole", 0, true, "reshape($0, $I)", [](const Call &c) { return reshape(c.in[0], c.node.ints); }, nullptr});
  op({"shuffle", 2, true, "", nullptr, drawShuffle});
  op({"flatten", 2, true, "flatten($0, $i0, $i1)", [](const Call &c) { return flatten(c.in[0], c.i(0), c.i(1)); },
      drawFlatten});
  op({"transpose", 3, true, "transpose($0, $i0, $i1)", [](const Call &c) { return transpose(c.in[0], c.i(0), c.i(1)); },
      drawTranspose});
  op({"permute", 2, true, "permute($0, $I)", [](const Call &c) { return permute(c.in[0], c.node.ints); }, drawPermute});
  op({"slice", 2, true, "slice($0, $i0, $i1, $i2)",
      [](const Call &c) { return slice(c.in[0], c.i(0), c.i(1), c.i(2)); }, drawSlice});
  op({"select", 1.5, true, "select($0, $i0, $i1)", [](const Call &c) { return select(c.in[0], c.i(0), c.i(1)); },
      drawSelect});
  op({"concat", 2.5, true, "concat({$*}, $i0)", [](const Call &c) { return concat(c.in, c.i(0)); }, drawConcat});
  op({"pieces", 2, true, "", nullptr, drawPieces});
  op({"unsqueeze", 0.7, true, "unsqueeze($0, $i0)", [](const Call &c) { return unsqueeze(c.in[0], c.i(0)); },
      drawUnsqueeze});
  op({"squeeze", 1, true, "squeeze($0, $i0)", [](const Call &c) { return squeeze(c.in[0], c.i(0)); }, drawSqueeze});
  op({"gather", 1.5, true, "gather($0, $i0, $1)", [](const Call &c) { return gather(c.in[0], c.i(0), c.in[1]); },
      drawGather});
  op({"arange", 0, true, "arange($i0)", [](const Call &c) { return arange(c.i(0)); }, nullptr});
  op({"castFloat", 0, true, "cast($0, DType::F32)", [](const Call &c) { return cast(c.in[0], DType::F32); }, nullptr});
  op({"positions", 0.7, true, "", nullptr, drawPositions});
  op({"full", 0.7, true, "full($I, $r0)", [](const Call &c) { return full(c.node.ints, c.r(0)); }, drawFull});
  // Linear algebra.
  op({"matmul", 4, true, "matmul($0, $1)", [](const Call &c) { return matmul(c.in[0], c.in[1]); }, drawMatmul});
  op({"linear", 3, true, "linear($*)",
      [](const Call &c) { return linear(c.in[0], c.in[1], c.in.size() > 2 ? c.in[2] : Tensor()); }, drawLinear});
  op({"conv2d", 3, true, "conv2d($0, $1, $2, {.stride = $i0, .padding = $i1, .dilation = $i2, .groups = $i3})",
      [](const Call &c) { return conv2d(c.in[0], c.in[1], c.in.size() > 2 ? c.in[2] : Tensor(), convOptions(c)); }, drawConv});
  op({"maxPool2d", 1.5, true, "maxPool2d($0, $i0, {.stride = $i1, .padding = $i2})",
      [](const Call &c) { return maxPool2d(c.in[0], c.i(0), {.stride = c.i(1), .padding = c.i(2)}); }, drawPool});
  op({"avgPool2d", 1.5, true, "avgPool2d($0, $i0, {.stride = $i1, .padding = $i2})",
      [](const Call &c) { return avgPool2d(c.in[0], c.i(0), {.stride = c.i(1), .padding = c.i(2)}); }, drawPool});
  op({"globalAvgPool", 1, true, "globalAvgPool($0)", [](const Call &c) { return globalAvgPool(c.in[0]); }, drawGlobalPool});
  op({"attention", 3, false, "scaledDotProductAttention($0, $1, $2, {.causal = $i0, .alignment = CausalAlignment($i1)})",
      [](const Call &c) {
        return scaledDotProductAttention(c.in[0], c.in[1], c.in[2], {.causal = c.i(0) != 0, .alignment = CausalAlignment(c.i(1))});
      },
      drawAttention});
  op({"groupedAttention", 2.5, false,
      "scaledDotProductAttention($0, $1, $2, {.causal = $i0, .mask = $3, .dropout = $r0})",
      [](const Call &c) {
        return scaledDotProductAttention(c.in[0], c.in[1], c.in[2],
                                         {.causal = c.i(0) != 0, .mask = c.in.size() > 3 ? c.in[3] : Tensor(), .dropout = c.r(0)});
      },
      drawGroupedAttention});
  op({"maskedAttention", 0, false, "scaledDotProductAttention($0, $1, $2, {.causal = $i0, .mask = $3 > 0, .dropout = $r0})",
      [](const Call &c) { return scaledDotProductAttention(c.in[0], c.in[1], c.in[2], {.causal = c.i(0) != 0, .mask = c.in[3] > 0, .dropout = c.r(0)}); }, nullptr});
  op({"rotaryEmbedding", 0.7, false, "rotaryEmbedding($0, {.start = $i0})",
      [](const Call &c) { return rotaryEmbedding(c.in[0], {.start = c.i(0)}); }, drawRotary});
  op({"selfAttention", 0.7, false, "", nullptr, drawAttentionOfValues});
  op({"embedding", 2, true, "embedding($0, $1)", [](const Call &c) { return embedding(c.in[0], c.in[1]); }, drawEmbedding});
  op({"computedIds", 0.5, true, "embedding($0 * 2 - $0, $1)",
      [](const Call &c) { return embedding(c.in[0] * 2 - c.in[0], c.in[1]); }, drawEmbedding});
  // Norms.
  op({"layerNorm", 1.5, false, "layerNorm($0, $1, $2)", [](const Call &c) { return layerNorm(c.in[0], c.in[1], c.in[2]); },
      drawLayerNorm});
  op({"batchNorm", 1.5, false, "batchNorm2d($0, $1, $2, $m, $M1, {.group = $i0})",
      [](const Call &c) {
        return batchNorm2d(c.in[0], c.in[1], c.in[2], c.self.buffer(c.node.member), c.self.buffer(static_cast<int>(c.i(1))),
                           {.group = c.i(0)});
      },
      drawBatchNorm});
  op({"rmsNorm", 1, false, "rmsNorm($0, $1)", [](const Call &c) { return rmsNorm(c.in[0], c.in[1]); }, drawRmsNorm});
  op({"groupNorm", 1, false, "groupNorm($0, $i0, $1, $2)",
      [](const Call &c) {
        return c.in.size() > 1 ? groupNorm(c.in[0], c.i(0), c.in[1], c.in[2]) : groupNorm(c.in[0], c.i(0));
      },
      drawGroupNorm});
  op({"instanceNorm", 1, false, "instanceNorm($0)", [](const Call &c) { return instanceNorm(c.in[0]); },
      [](Drawing &d, const OpKind &self) {
        const int x = d.pick([](Tensor t) { return t.rank() >= 3 && t.elements() / t.size(0) / t.size(1) >= 3; });
        return x >= 0 && d.add(self.name, {x}) >= 0;
      }});
  for (OpKind &kind : functionKinds())
    op(std::move(kind));
  // Members.
  op({"parameter", 2, true, "$m.tensor()", [](const Call &c) { return c.self.parameter(c.node.member).tensor(); },
      drawParameter});
  op({"buffer", 1.2, true, "$m.tensor()", [](const Call &c) { return c.self.buffer(c.node.member).tensor(); },
      drawOwnBuffer});
  op({"setBuffer", 0, true, "$m.set($0)",
      [](const Call &c) {
        c.self.buffer(c.node.member).set(c.in[0]);
        return Tensor();
      },
      nullptr});
  op({"memberOf", 4, true, "$P", emitMember, drawTied});
  op({"call", 8, true, "$m$A($*)", [](const Call &c) { return callModule(c.self.module(c.node.member, c.i(0)), c.in); },
      drawLayer});
  op({"again", 6, true, "", nullptr, drawAgain});
  op({"module", 2.5, true, "", nullptr, drawModule});
  op({"list", 2, true, "", nullptr, drawModule});
  // Marks.
  op({"withSharding", 0, true, "withSharding($0, $W)",
      [](const Call &c) { return c.self.marked() ? withSharding(c.in[0], c.node.words) : c.in[0]; }, nullptr});
  op({"stage", 0, true, "stage($i0)",
      [](const Call &c) {
        if (c.self.marked())
          stage(c.i(0));
        return Tensor();
      },
      nullptr});
  return k;
}

} // namespace

const std::vector<OpKind> &opKinds() {
  static const std::vector<OpKind> kinds = makeKinds();
  return kinds;
}

const OpKind &opKind(const std::string &name) {
  for (const OpKind &kind : opKinds())
    if (kind.name == name)
      return kind;
  throw std::logic_error("no op " + name);
}

} // namespace cleave::random_models
