// The table of ops: functions of Pointwise.h, Create.h, Reduce.h, Rearrange.h, Convolution.h and Recurrent.h.
#include "runtime/base/Error.h"
#include "tests/random/Draws.h"

#include <algorithm>
#include <cmath>

namespace cleave::random_models {

namespace {

// ---- masks ----------------------------------------------------------------------------------------------------------

template <Tensor (*f)(Operand, Operand)> Tensor compared(const Call &c) {
  return c.in.size() > 1 ? f(c.in[0], c.in[1]) : f(c.in[0], c.r(0));
}

double threshold(Drawing &d) {
  return d.whole() ? d.chance.of<double>({-1, 0, 1}) : d.chance.of<double>({-0.3, 0, 0.25});
}

/// Draws a mask that broadcasts with x.
int drawMask(Drawing &d, int x) {
  const std::string name = d.chance.of<std::string>({"lt", "le", "gt", "ge", "eq", "ne"});
  switch (d.chance.weighted({4, 3, 0.5, 1, 1})) {
  case 0:
    return d.add(name + "Number", {x}, {}, {threshold(d)});
  case 1:
    return d.add(name, {x, secondOperand(d, x)});
  case 2:
    return d.add("isnan", {x});
  case 3:
    return d.add("logicalNot", {drawMask(d, x)});
  default:
    return d.add(d.chance.of<std::string>({"logicalAnd", "logicalOr", "logicalXor"}), {drawMask(d, x), drawMask(d, x)});
  }
}

bool drawWhere(Drawing &d, const OpKind &self) {
  const int x = d.pick(), mask = x < 0 ? -1 : drawMask(d, x);
  return mask >= 0 && d.add(self.name, {mask, x, secondOperand(d, x)}) >= 0;
}

bool drawMaskedFill(Drawing &d, const OpKind &self) {
  const int x = d.pick();
  return x >= 0 && d.add(self.name, {x, drawMask(d, x)}, {}, {d.whole() ? 2 : 0.5}) >= 0;
}

bool drawMaskAsNumbers(Drawing &d, const OpKind &) {
  const int x = d.pick();
  return x >= 0 && d.add("castFloat", {drawMask(d, x)}) >= 0;
}

bool drawClamp(Drawing &d, const OpKind &self) {
  const int x = d.pick();
  return x >= 0 && d.add(self.name, {x}, {}, {threshold(d) - 1, threshold(d) + 1}) >= 0;
}

bool drawClampBetween(Drawing &d, const OpKind &self) {
  const int x = d.pick();
  if (x < 0)
    return false;
  const int low = secondOperand(d, x);
  return low >= 0 && d.add(self.name, {x, low, secondOperand(d, x)}) >= 0;
}

/// Combines a detached value with a value that has a gradient.
bool drawDetach(Drawing &d, const OpKind &self) {
  const int x = d.pick();
  if (x < 0)
    return false;
  const int kept = d.add(self.name, {x}), other = secondOperand(d, x);
  return kept >= 0 && other >= 0 && d.add(d.chance.one(0.5) ? "mul" : "sub", {other, kept}) >= 0;
}

/// f(tanh(x))
bool drawOnUnit(Drawing &d, const OpKind &self) {
  const int x = d.pick();
  return x >= 0 && d.add(self.name, {d.add("tanh", {x})}) >= 0;
}

bool drawPow(Drawing &d, const OpKind &self) {
  const int x = d.pick();
  if (x < 0)
    return false;
  const int a = d.add("abs", {x}), b = d.add("addNumber", {a}, {}, {0.5});
  return d.add(self.name, {b}, {}, {d.chance.of<double>({0.5, 1.5, -1, 2})}) >= 0;
}

bool drawSlope(Drawing &d, const OpKind &self) {
  const int x = d.pick();
  return x >= 0 && d.add(self.name, {x}, {}, {d.chance.of<double>({0.2, 0.5, 1.5})}) >= 0;
}

// ---- created tensors ------------------------------------------------------------------------------------------------

bool drawConstant(Drawing &d, const OpKind &self) {
  const int x = d.pick(rankAtLeast(1));
  if (x < 0)
    return false;
  const Shape shape = d.shape(x), last(shape.end() - d.chance.whole(1, std::min<int64_t>(2, d.at(x).rank())), shape.end());
  if (elementsOf(last) > 40)
    return false;
  std::vector<double> numbers;
  for (int64_t i = 0; i < elementsOf(last); ++i)
    numbers.push_back(d.whole() ? static_cast<double>(d.chance.whole(-2, 2)) : 0.125 * static_cast<double>(d.chance.whole(-8, 8)));
  return d.add(d.chance.one(0.5) ? "mul" : "add", {x, d.add(self.name, {}, last, numbers)}) >= 0;
}

bool drawNoise(Drawing &d, const OpKind &self) {
  const int x = d.pick(rankAtLeast(1));
  if (x < 0)
    return false;
  const Shape shape = d.shape(x);
  const int noise = d.add(self.name, {}, d.chance.one(0.5) ? shape : Shape{shape.back()});
  return d.add("add", {x, d.add("timesNumber", {noise}, {}, {0.25})}) >= 0;
}

bool drawSteps(Drawing &d, const OpKind &self) {
  const int x = d.pick(rankAtLeast(1));
  if (x < 0)
    return false;
  const auto size = static_cast<double>(d.shape(x).back());
  const double step = d.chance.of<double>({0.25, -0.5, 1});
  return d.add("mul", {x, d.add(self.name, {}, {}, {1, 1 + size * step, step})}) >= 0;
}

/// One-hot rows for an integer field, or for the argmax or argmin of a value.
bool drawOneHot(Drawing &d, const OpKind &self) {
  const int ids = d.pickInteger([](Tensor t) { return t.rank() <= 3; });
  if (ids >= 0 && d.chance.one(0.5))
    return d.add("oneHotOrZero", {ids}, {d.chance.whole(2, 6)}) >= 0;
  const int x = d.pick([](Tensor t) { return t.rank() >= 1 && t.rank() <= 4; });
  if (x < 0)
    return false;
  if (d.chance.one(0.3)) // NaN instead of large numbers
    return d.add("mul", {x, d.add(self.name, {d.add("argmaxOfNan", {x}, {-1, 0}, {threshold(d)}), x})}) >= 0;
  const std::string best = d.chance.one(0.5) ? "argmax" : "argmin";
  if (d.chance.one(0.7))
    return d.add("mul", {x, d.add(self.name, {d.add(best, {x}, {-1, 0}), x})}) >= 0;
  return d.add("oneHotOrZero", {d.add(best, {x}, {dimOf(d, x), d.chance.one(0.5)})}, {d.chance.whole(2, 6)}) >= 0;
}

bool drawTriangle(Drawing &d, const OpKind &self) {
  const int x = d.pick(rankAtLeast(2));
  return x >= 0 && d.add(self.name, {x}, {d.chance.whole(-1, 2)}) >= 0;
}

// ---- reductions and sorting -----------------------------------------------------------------------------------------

bool drawProduct(Drawing &d, const OpKind &self) {
  const int x = d.pick([](Tensor t) { return t.rank() >= 1 && t.size(-1) <= 6; });
  return x >= 0 && d.add(self.name, {x}, {-1, d.chance.one(0.5)}) >= 0;
}

bool drawSort(Drawing &d, const OpKind &self) {
  const int x = d.pick(rankAtLeast(1));
  return x >= 0 && d.add(self.name, {x}, {dimOf(d, x), d.chance.one(0.5)}) >= 0;
}

bool drawTopk(Drawing &d, const OpKind &self) {
  const int x = d.pick(rankAtLeast(1));
  if (x < 0)
    return false;
  const int64_t dim = d.chance.one(0.85) ? d.at(x).rank() - 1 : 0;
  return d.add(self.name, {x}, {d.chance.whole(1, d.shape(x)[static_cast<size_t>(dim)]), dim, d.chance.one(0.6)}) >= 0;
}

/// Reorders one value by the sorted order of another.
bool drawSortedBy(Drawing &d, const OpKind &self) {
  const int x = d.pick(rankAtLeast(1));
  if (x < 0)
    return false;
  const Shape shape = d.shape(x);
  const int y = d.pick([&](Tensor t) { return t.shape() == shape; });
  return d.add(self.name, {x, y}, {dimOf(d, x)}) >= 0;
}

/// Elements of one value in the order of another that has NaN instead of large numbers.
bool drawOrderedByNan(Drawing &d, const OpKind &self) {
  const int x = d.pick(rankAtLeast(1));
  if (x < 0)
    return false;
  const Shape shape = d.shape(x);
  const int y = d.pick([&](Tensor t) { return t.shape() == shape; });
  const int64_t dim = dimOf(d, x), size = shape[static_cast<size_t>(dim < 0 ? dim + std::ssize(shape) : dim)];
  return d.add(self.name, {x, y}, {dim, d.chance.one(0.5), d.chance.whole(1, size)}, {threshold(d)}) >= 0;
}

/// Elements at fewer places than the value has along another dimension.
bool drawGatherFewer(Drawing &d, const OpKind &self) {
  const int x = d.pick(rankAtLeast(2));
  if (x < 0)
    return false;
  const int64_t other = d.at(x).rank() - 1;
  return d.add(self.name, {x}, {other - 1, other, d.chance.whole(1, d.shape(x)[static_cast<size_t>(other)])}) >= 0;
}

bool drawCumprod(Drawing &d, const OpKind &self) {
  const int x = d.pick([](Tensor t) { return t.rank() >= 1 && t.size(-1) <= 6; });
  return x >= 0 && d.add(self.name, {x}, {-1}) >= 0;
}

/// Whether any or every element exceeds a threshold, as numbers.
bool drawTruth(Drawing &d, const OpKind &self) {
  const int x = d.pick(rankAtLeast(1));
  if (x < 0)
    return false;
  const int found = d.add(self.name, {d.add("gtNumber", {x}, {}, {threshold(d)})}, {true, dimOf(d, x)});
  return found >= 0 && d.add("mul", {x, d.add("castFloat", {found})}) >= 0;
}

/// The maximum or minimum along a dimension, or another value at its place.
bool drawExtreme(Drawing &d, const OpKind &self) {
  const int x = d.pick(rankAtLeast(1));
  return x >= 0 && d.add(self.name, {x}, {dimOf(d, x), d.chance.one(0.5)}) >= 0;
}

// ---- rearranging ----------------------------------------------------------------------------------------------------

bool drawExpand(Drawing &d, const OpKind &self) {
  const int x = d.pick([](Tensor t) { return t.rank() >= 1 && t.rank() <= 4; });
  if (x < 0)
    return false;
  Shape shape = d.shape(x), to(shape.size(), -1);
  bool grows = false;
  for (size_t i = 0; i < shape.size(); ++i)
    if (shape[i] == 1) {
      to[i] = d.chance.whole(1, 4);
      grows = true;
    }
  if (!grows || d.chance.one(0.3))
    to.insert(to.begin(), d.chance.one(0.5) ? d.rows() : 2);
  return d.add(self.name, {x}, to) >= 0;
}

bool drawRepeat(Drawing &d, const OpKind &self) {
  const int x = d.pick(rankAtLeast(1));
  if (x < 0)
    return false;
  std::vector<int64_t> counts(static_cast<size_t>(d.at(x).rank()), 1);
  counts[static_cast<size_t>(d.chance.whole(counts.size() > 1 && d.chance.one(0.85) ? 1 : 0, d.at(x).rank() - 1))] =
      d.chance.whole(2, 3);
  if (counts.size() < 4 && d.chance.one(0.15))
    counts.insert(counts.begin(), 2);
  return d.add(self.name, {x}, counts) >= 0;
}

bool drawStack(Drawing &d, const OpKind &self) {
  const int x = d.pick([](Tensor t) { return t.rank() >= 1 && t.rank() <= 4; });
  if (x < 0)
    return false;
  const Shape shape = d.shape(x);
  std::vector<int> in{x};
  for (int64_t more = d.chance.whole(1, 2); more > 0; --more)
    in.push_back(d.pick([&](Tensor t) { return t.shape() == shape; }));
  return d.add(self.name, in, {d.chance.whole(d.chance.one(0.85) ? 1 : 0, d.at(x).rank())}) >= 0;
}

/// Draws a dimension to cut or flip, rarely the batch dimension.
int64_t cutDim(Drawing &d, int x) {
  return d.at(x).rank() > 1 && d.chance.one(0.85) ? d.chance.whole(1, d.at(x).rank() - 1) : 0;
}

bool drawSplit(Drawing &d, const OpKind &self) {
  const int x = d.pick(rankAtLeast(1));
  if (x < 0)
    return false;
  const int64_t dim = cutDim(d, x), n = d.shape(x)[static_cast<size_t>(dim)], size = d.chance.whole(1, n);
  return d.add(self.name, {x}, {size, dim, d.chance.whole(0, (n - 1) / size)}) >= 0;
}

/// Piece `i` of a split. A module that is called again with another shape may not have it: the error drops that call.
Tensor pieceOf(const std::vector<Tensor> &pieces, int64_t i) {
  if (i >= static_cast<int64_t>(pieces.size()))
    throw userError("there is no such piece");
  return pieces[static_cast<size_t>(i)];
}

bool drawSplitSizes(Drawing &d, const OpKind &self) {
  const int x = d.pick([](Tensor t) { return t.rank() >= 1 && t.size(-1) >= 3; });
  if (x < 0)
    return false;
  const int64_t n = d.shape(x).back(), a = d.chance.whole(1, n - 2), b = d.chance.whole(1, n - a - 1);
  return d.add(self.name, {x}, {-1, d.chance.whole(0, 2), a, b, n - a - b}) >= 0;
}

bool drawChunk(Drawing &d, const OpKind &self) {
  const int x = d.pick(rankAtLeast(1));
  if (x < 0)
    return false;
  const int64_t dim = cutDim(d, x), n = d.shape(x)[static_cast<size_t>(dim)], count = d.chance.whole(1, 4);
  const int64_t size = (n + count - 1) / count, pieces = (n + size - 1) / size;
  return d.add(self.name, {x}, {count, dim, d.chance.whole(0, pieces - 1)}) >= 0;
}

/// Cuts one linear product into two or three parts and combines them, as a gated unit does.
bool drawFusedProduct(Drawing &d, const OpKind &) {
  const int x = d.pick(rankAtLeast(2));
  if (x < 0)
    return false;
  const int64_t parts = d.chance.whole(2, 3), width = d.chance.whole(1, 6);
  const int product = d.add("linear", {x, d.parameter({parts * width, d.shape(x).back()})});
  if (product < 0)
    return false;
  const auto part = [&](int64_t i) { return d.add("chunk", {product}, {parts, -1, i}); };
  const int gated = d.add("mul", {d.add("relu", {part(0)}), part(1)});
  return gated >= 0 && (parts == 2 || d.add("add", {gated, part(2)}) >= 0);
}

bool drawPad(Drawing &d, const OpKind &self) {
  const int x = d.pick(rankAtLeast(1));
  if (x < 0)
    return false;
  std::vector<int64_t> amounts;
  for (int64_t dims = d.chance.whole(1, std::min<int64_t>(2, d.at(x).rank())); dims > 0; --dims)
    amounts.insert(amounts.end(), {d.chance.whole(-1, 2), d.chance.whole(-1, 2)});
  return d.add(self.name, {x}, amounts, {d.chance.one(0.7) ? 0.0 : 2.0}) >= 0;
}

/// Pads one or two dimensions by as much as every mode allows.
bool drawPadMode(Drawing &d, const OpKind &self) {
  const int x = d.pick(rankAtLeast(1));
  if (x < 0)
    return false;
  const Shape shape = d.shape(x);
  std::vector<int64_t> ints{d.chance.whole(0, 2)};
  for (size_t dims = static_cast<size_t>(d.chance.whole(1, std::min<int64_t>(2, d.at(x).rank()))), i = 1; i <= dims;
       ++i) {
    const int64_t most = std::min<int64_t>(2, shape[shape.size() - i] - 1);
    ints.insert(ints.end(), {d.chance.whole(0, most), d.chance.whole(0, most)});
  }
  return d.add(self.name, {x}, ints) >= 0;
}

bool drawRoll(Drawing &d, const OpKind &self) {
  const int x = d.pick(rankAtLeast(1));
  return x >= 0 && d.add(self.name, {x}, {d.chance.whole(-2, 5), cutDim(d, x)}) >= 0;
}

/// Places 0 to size - 1 (and rarely one outside) of a dimension of x, in any order, as constants.
int drawPlaces(Drawing &d, int64_t size, bool beyond) {
  std::vector<double> places;
  for (int64_t i = d.chance.whole(1, 5); i > 0; --i)
    places.push_back(static_cast<double>(d.chance.whole(0, beyond ? size : size - 1)));
  return d.add("places", {}, {static_cast<int64_t>(places.size())}, places);
}

bool drawIndexSelect(Drawing &d, const OpKind &self) {
  const int x = d.pick(rankAtLeast(1));
  if (x < 0)
    return false;
  const int64_t dim = cutDim(d, x);
  const bool beyond = d.chance.one(0.1);
  const int index = drawPlaces(d, d.shape(x)[static_cast<size_t>(dim)], beyond);
  return d.add(beyond ? "indexSelectOrZero" : self.name, {x, index}, {dim}) >= 0;
}

/// Adds slices of x, selected from it, back to it.
bool drawIndexAdd(Drawing &d, const OpKind &self) {
  const int x = d.pick(rankAtLeast(1));
  if (x < 0)
    return false;
  const int64_t dim = cutDim(d, x), size = d.shape(x)[static_cast<size_t>(dim)];
  const int index = drawPlaces(d, size, false), count = static_cast<int>(d.shape(index)[0]);
  if (count > size)
    return false;
  return d.add(self.name, {x, index, d.add("slice", {x}, {dim, 0, count})}, {dim}) >= 0;
}

/// Adds one value to another at the order of its elements.
bool drawScatterAdd(Drawing &d, const OpKind &self) {
  const int x = d.pick(rankAtLeast(1));
  if (x < 0)
    return false;
  const Shape shape = d.shape(x);
  const int y = d.pick([&](Tensor t) { return t.shape() == shape; });
  return d.add(self.name, {x, y}, {dimOf(d, x)}) >= 0;
}

bool drawFlip(Drawing &d, const OpKind &self) {
  const int x = d.pick(rankAtLeast(1));
  if (x < 0)
    return false;
  std::vector<int64_t> dims{cutDim(d, x)};
  if (dims[0] > 1 && d.chance.one(0.3))
    dims.push_back(1);
  return d.add(self.name, {x}, dims) >= 0;
}

bool drawEinsum(Drawing &d, const OpKind &self) {
  const int x = d.pick([](Tensor t) { return t.rank() >= 2 && t.rank() <= 4; });
  if (x < 0)
    return false;
  const Shape s = d.shape(x);
  const auto emit = [&](const std::string &text, std::vector<int> in) {
    return d.add(self.name, std::move(in), {}, {}, -1, {text}) >= 0;
  };
  const int64_t k = d.chance.whole(1, 5);
  if (d.chance.one(0.25))
    return emit("...j,kj->...k", {x, d.parameter({k, s.back()})});
  if (s.size() == 2)
    switch (d.chance.whole(0, 3)) {
    case 0:
      return emit("bi,ik->bk", {x, d.parameter({s[1], k})});
    case 1:
      return emit("bi,bi->b", {x, d.pick([&](Tensor t) { return t.shape() == s; })});
    case 2:
      return emit("bi,ijk->bjk", {x, d.parameter({s[1], 2, k})});
    default:
      return emit("bi,ci->bc", {x, x});
    }
  if (s.size() == 3)
    switch (d.chance.whole(0, 4)) {
    case 0:
      return emit("bij,jk->bik", {x, d.parameter({s[2], k})});
    case 1:
      return emit("bij,bkj->bik", {x, x});
    case 2:
      return emit("bij,bij->bi", {x, d.pick([&](Tensor t) { return t.shape() == s; })});
    case 3:
      return emit("bij,ijk->bik", {x, d.parameter({s[1], s[2], k})});
    default:
      return emit("bij->bj", {x});
    }
  return d.chance.one(0.5) ? emit("bcij,co->boij", {x, d.parameter({s[1], k})})
                           : emit("bcij,bcij->bij", {x, d.pick([&](Tensor t) { return t.shape() == s; })});
}

// ---- convolutions and image sizes -----------------------------------------------------------------------------------

bool drawConv1d(Drawing &d, const OpKind &self) {
  const int x = d.pick(rankIs(3));
  if (x < 0)
    return false;
  const Shape s = d.shape(x);
  const int64_t groups = s[1] % 2 == 0 && d.chance.one(0.3) ? 2 : 1, out = d.chance.whole(1, 3) * groups;
  std::vector<int> in{x, d.parameter({out, s[1] / groups, std::min<int64_t>(s[2], d.chance.whole(1, 3))})};
  if (d.chance.one(0.6))
    in.push_back(d.parameter({out}));
  return d.add(self.name, in, {d.chance.whole(1, 2), d.chance.whole(0, 1), d.chance.one(0.2) ? 2 : 1, groups}) >= 0;
}

bool drawConvTranspose(Drawing &d, const OpKind &self) {
  const int x = d.pick(rankIs(4));
  if (x < 0)
    return false;
  const Shape s = d.shape(x);
  const int64_t groups = s[1] % 2 == 0 && d.chance.one(0.3) ? 2 : 1, out = d.chance.whole(1, 3);
  const int64_t stride = d.chance.whole(1, 2);
  std::vector<int> in{x, d.parameter({s[1], out, d.chance.whole(1, 3), d.chance.whole(1, 3)})};
  if (d.chance.one(0.6))
    in.push_back(d.parameter({out * groups}));
  return d.add(self.name, in, {stride, d.chance.whole(0, 1), stride > 1 && d.chance.one(0.4), groups}) >= 0;
}

bool drawInterpolate(Drawing &d, const OpKind &self) {
  const int x = d.pick(rankIs(4));
  return x >= 0 && d.add(self.name, {x}, {d.chance.whole(1, 8), d.chance.whole(1, 8)}) >= 0;
}

bool drawAdaptive(Drawing &d, const OpKind &self) {
  const int x = d.pick(rankIs(4));
  return x >= 0 && d.add(self.name, {x}, {d.chance.whole(1, 4), d.chance.whole(1, 4)}) >= 0;
}

/// The angle between |x| + 0.5 and another value.
bool drawCosine(Drawing &d, const OpKind &self) {
  const int x = d.pick(rankAtLeast(1));
  if (x < 0)
    return false;
  const Shape shape = d.shape(x);
  const int y = d.pick([&](Tensor t) { return t.shape() == shape; });
  const int away = d.add("addNumber", {d.add("abs", {y})}, {}, {0.5});
  return d.add(self.name, {d.add("addNumber", {d.add("abs", {x})}, {}, {0.5}), away}, {dimOf(d, x)}) >= 0;
}

/// The options of a pooling, in two dimensions or one, that drawPoolOptions drew.
template <class Options> Options maximaOf(const Call &c) {
  return {.stride = c.i(1), .padding = c.i(2), .dilation = c.i(3), .ceilMode = c.i(4) != 0};
}
template <class Options> Options meansOf(const Call &c) {
  return {.stride = c.i(1), .padding = c.i(2), .ceilMode = c.i(4) != 0, .countIncludePad = c.i(5) != 0};
}

/// ints: kernel, stride, padding, dilation, ceilMode, countIncludePad.
bool drawPoolOptions(Drawing &d, const OpKind &self) {
  const bool lines = self.name.ends_with("1d");
  const int x =
      d.pick([&](Tensor t) { return t.rank() == (lines ? 3 : 4) && t.size(-1) >= 2 && t.size(-2) >= (lines ? 1 : 2); });
  return x >= 0 && d.add(self.name, {x},
                         {d.chance.whole(2, 3), d.chance.whole(1, 3), d.chance.whole(0, 1), d.chance.whole(1, 2),
                          d.chance.one(0.7), d.chance.one(0.4)}) >= 0;
}

// ---- recurrent states -----------------------------------------------------------------------------------------------

LSTM &lstm(const Call &c) { return static_cast<LSTM &>(c.self.module(c.node.member)); }
GRU &gru(const Call &c) { return static_cast<GRU &>(c.self.module(c.node.member)); }

/// Starts a recurrent layer on one sequence from its final state on another.
bool drawStates(Drawing &d, const OpKind &self) {
  const bool cells = self.name == "lstmStates";
  const int x = d.pick([](Tensor t) { return t.rank() == 3 && t.size(1) <= 4; });
  if (x < 0)
    return false;
  const Shape s = d.shape(x);
  const int y = d.pick([&](Tensor t) { return t.rank() == 3 && t.size(1) <= 4 && t.size(0) == s[0] && t.size(2) == s[2]; });
  const int member = d.declare({cells ? "LSTM" : "GRU",
                                d.newName("state"),
                                {s[2], d.chance.whole(1, 4), d.chance.one(0.3) ? 2 : 1, 1, d.chance.one(0.3)}});
  const int h = d.add(cells ? "lstmH" : "gruH", {x}, {}, {}, member);
  if (!cells)
    return d.add("gruFrom", {y, h}, {}, {}, member) >= 0;
  return d.add("lstmFrom", {y, h, d.add("lstmC", {x}, {}, {}, member)}, {}, {}, member) >= 0;
}

ConvTransposeOptions transposeOptions(const Call &c) {
  return {.stride = c.i(0), .padding = c.i(1), .outputPadding = c.i(2), .groups = c.i(3)};
}

} // namespace

std::vector<OpKind> functionKinds() {
  std::vector<OpKind> k;
  const auto op = [&](OpKind kind) { k.push_back(std::move(kind)); };
  // Masks: drawn only as operands of other ops.
  const auto compare = [&](const std::string &name, Tensor (*emit)(const Call &)) {
    op({name, 0, true, name + "($0, $1)", emit, nullptr});
    op({name + "Number", 0, true, name + "($0, $r0)", emit, nullptr});
  };
  compare("lt", compared<lt>);
  compare("le", compared<le>);
  compare("gt", compared<gt>);
  compare("ge", compared<ge>);
  compare("eq", compared<eq>);
  compare("ne", compared<ne>);
  op({"isnan", 0, true, "isnan($0)", [](const Call &c) { return cleave::isnan(c.in[0]); }, nullptr});
  op({"logicalNot", 0, true, "logicalNot($0)", [](const Call &c) { return logicalNot(c.in[0]); }, nullptr});
  op({"logicalAnd", 0, true, "logicalAnd($0, $1)", [](const Call &c) { return logicalAnd(c.in[0], c.in[1]); }, nullptr});
  op({"logicalOr", 0, true, "logicalOr($0, $1)", [](const Call &c) { return logicalOr(c.in[0], c.in[1]); }, nullptr});
  op({"logicalXor", 0, true, "logicalXor($0, $1)", [](const Call &c) { return logicalXor(c.in[0], c.in[1]); }, nullptr});
  // Selection.
  op({"where", 2, true, "where($0, $1, $2)", [](const Call &c) { return where(c.in[0], c.in[1], c.in[2]); }, drawWhere});
  op({"maskedFill", 1.5, true, "maskedFill($0, $1, $r0)",
      [](const Call &c) { return maskedFill(c.in[0], c.in[1], c.r(0)); }, drawMaskedFill});
  op({"maskAsNumbers", 0.5, true, "", nullptr, drawMaskAsNumbers});
  op({"clamp", 1, true, "clamp($0, $r0, $r1)", [](const Call &c) { return clamp(c.in[0], c.r(0), c.r(1)); }, drawClamp});
  // Not exact: where x equals a bound, both get half of the gradient.
  op({"clampBetween", 1, false, "clamp($0, $1, $2)", [](const Call &c) { return clamp(c.in[0], c.in[1], c.in[2]); },
      drawClampBetween});
  op({"detach", 1, true, "detach($0)", [](const Call &c) { return detach(c.in[0]); }, drawDetach});
  // Functions.
  op({"sin", 1, false, "sin($0)", [](const Call &c) { return cleave::sin(c.in[0]); }, drawUnary});
  op({"cos", 1, false, "cos($0)", [](const Call &c) { return cleave::cos(c.in[0]); }, drawUnary});
  op({"expm1", 0.5, false, "expm1($0)", [](const Call &c) { return expm1(c.in[0]); }, drawOnUnit});
  op({"sinh", 0.5, false, "sinh($0)", [](const Call &c) { return sinh(c.in[0]); }, drawOnUnit});
  op({"tan", 0.5, false, "tan($0)", [](const Call &c) { return cleave::tan(c.in[0]); }, drawOnUnit});
  op({"floor", 0.4, true, "floor($0)", [](const Call &c) { return floor(c.in[0]); }, drawUnary});
  op({"ceil", 0.4, true, "ceil($0)", [](const Call &c) { return ceil(c.in[0]); }, drawUnary});
  op({"round", 0.4, true, "round($0)", [](const Call &c) { return round(c.in[0]); }, drawUnary});
  op({"pow", 0.7, false, "pow($0, $r0)", [](const Call &c) { return pow(c.in[0], c.r(0)); }, drawPow});
  op({"sign", 0.5, true, "sign($0)", [](const Call &c) { return sign(c.in[0]); }, drawUnary});
  op({"softplus", 0.7, false, "softplus($0, $r0)", [](const Call &c) { return softplus(c.in[0], c.r(0)); }, drawSlope});
  op({"leakyRelu", 1, false, "leakyRelu($0, $r0)", [](const Call &c) { return leakyRelu(c.in[0], c.r(0)); }, drawSlope});
  op({"elu", 0.7, false, "elu($0, $r0)", [](const Call &c) { return elu(c.in[0], c.r(0)); }, drawSlope});
  op({"selu", 0.5, false, "selu($0)", [](const Call &c) { return selu(c.in[0]); }, drawUnary});
  op({"relu6", 0.5, true, "relu6($0)", [](const Call &c) { return relu6(c.in[0]); }, drawUnary});
  op({"hardSwish", 0.5, false, "hardSwish($0)", [](const Call &c) { return hardSwish(c.in[0]); }, drawUnary});
  op({"mish", 0.5, false, "mish($0)", [](const Call &c) { return mish(c.in[0]); }, drawUnary});
  op({"logSigmoid", 0.5, false, "logSigmoid($0)", [](const Call &c) { return logSigmoid(c.in[0]); }, drawUnary});
  // Created tensors.
  op({"constant", 1, true, "constant($I, $R)",
      [](const Call &c) {
        return constant(c.node.ints, std::vector<float>(c.node.reals.begin(), c.node.reals.end()));
      },
      drawConstant});
  op({"rand", 0.7, false, "cleave::rand($I)", [](const Call &c) { return cleave::rand(c.node.ints); }, drawNoise});
  op({"randn", 0.7, false, "randn($I)", [](const Call &c) { return randn(c.node.ints); }, drawNoise});
  op({"arangeSteps", 0.5, true, "arange($r0, $r1, $r2)",
      [](const Call &c) { return arange(c.r(0), c.r(1), c.r(2)); }, drawSteps});
  op({"argmax", 0, true, "argmax($0, $i0, $i1)", [](const Call &c) { return argmax(c.in[0], c.i(0), c.i(1)); }, nullptr});
  op({"argmaxOfNan", 0, true, "argmax(maskedFill($0, $0 > $r0, NAN), $i0, $i1)",
      [](const Call &c) { return argmax(maskedFill(c.in[0], c.in[0] > c.r(0), NAN), c.i(0), c.i(1)); }, nullptr});
  op({"argmin", 0, true, "argmin($0, $i0, $i1)", [](const Call &c) { return argmin(c.in[0], c.i(0), c.i(1)); }, nullptr});
  op({"oneHot", 1.5, true, "oneHot($0, $1.size(-1), DType::F32)", // the module may be called again with other sizes
      [](const Call &c) { return oneHot(c.in[0], c.in[1].size(-1), DType::F32); }, drawOneHot});
  op({"oneHotOrZero", 0, true, "oneHot($0, $i0, DType::F32, Outside::Zero)",
      [](const Call &c) { return oneHot(c.in[0], c.i(0), DType::F32, Outside::Zero); }, nullptr});
  op({"tril", 0.7, true, "tril($0, $i0)", [](const Call &c) { return tril(c.in[0], c.i(0)); }, drawTriangle});
  op({"triu", 0.7, true, "triu($0, $i0)", [](const Call &c) { return triu(c.in[0], c.i(0)); }, drawTriangle});
  // Reductions and sorting.
  op({"var", 1, false, "var($0, $J, {.keepDim = bool($i0)})",
      [](const Call &c) { return var(c.in[0], tail(c), {.keepDim = c.i(0) != 0}); }, drawReduce});
  op({"stddev", 0.7, false, "stddev($0, $J, {.correction = 0, .keepDim = bool($i0)})",
      [](const Call &c) { return stddev(c.in[0], tail(c), {.correction = 0, .keepDim = c.i(0) != 0}); }, drawReduce});
  op({"norm1", 0.5, true, "norm($0, 1, $J, $i0)", [](const Call &c) { return norm(c.in[0], 1, tail(c), c.i(0)); }, drawReduce});
  op({"norm2", 0.7, false, "norm($0, 2, $J, $i0)", [](const Call &c) { return norm(c.in[0], 2, tail(c), c.i(0)); }, drawReduce});
  op({"norm3", 0.3, false, "norm($0, 3, $J, $i0)", [](const Call &c) { return norm(c.in[0], 3, tail(c), c.i(0)); }, drawReduce});
  op({"normMax", 0.3, false, "norm($0, INFINITY, $J, $i0)",
      [](const Call &c) { return norm(c.in[0], INFINITY, tail(c), c.i(0)); }, drawReduce});
  op({"logsumexp", 1, false, "logsumexp($0, $J, $i0)",
      [](const Call &c) { return logsumexp(c.in[0], tail(c), c.i(0)); }, drawReduce});
  op({"prod", 0.7, false, "prod($0, $i0, $i1)", [](const Call &c) { return prod(c.in[0], c.i(0), c.i(1)); }, drawProduct});
  op({"cumsum", 1.5, true, "cumsum($0, $i0)", [](const Call &c) { return cumsum(c.in[0], c.i(0)); }, drawAlong});
  op({"cumprod", 0.7, false, "cumprod($0, $i0)", [](const Call &c) { return cumprod(c.in[0], c.i(0)); }, drawCumprod});
  op({"any", 0.5, true, "any($0, $J, $i0)", [](const Call &c) { return any(c.in[0], tail(c), c.i(0)); }, drawTruth});
  op({"all", 0.5, true, "all($0, $J, $i0)", [](const Call &c) { return all(c.in[0], tail(c), c.i(0)); }, drawTruth});
  op({"maxWithIndices", 0.7, true, "maxWithIndices($0, $i0, $i1).values",
      [](const Call &c) { return maxWithIndices(c.in[0], c.i(0), c.i(1)).values; }, drawExtreme});
  op({"minWithIndices", 0.7, true, "cast(minWithIndices($0, $i0, $i1).indices, DType::F32)",
      [](const Call &c) { return cast(minWithIndices(c.in[0], c.i(0), c.i(1)).indices, DType::F32); }, drawExtreme});
  op({"sort", 1, true, "sort($0, $i0, $i1).values",
      [](const Call &c) { return sort(c.in[0], c.i(0), c.i(1)).values; }, drawSort});
  op({"topk", 1, true, "topk($0, $i0, $i1, $i2).values",
      [](const Call &c) { return topk(c.in[0], c.i(0), c.i(1), c.i(2)).values; }, drawTopk});
  op({"sortedBy", 0.7, true, "gather($0, $i0, sort($1, $i0).indices)",
      [](const Call &c) { return gather(c.in[0], c.i(0), sort(c.in[1], c.i(0)).indices); }, drawSortedBy});
  op({"sortedByNan", 0.5, true, "gather($0, $i0, sort(maskedFill($1, $1 > $r0, NAN), $i0, $i1).indices)",
      [](const Call &c) {
        Tensor keys = maskedFill(c.in[1], c.in[1] > c.r(0), NAN);
        return gather(c.in[0], c.i(0), sort(keys, c.i(0), c.i(1)).indices);
      },
      drawOrderedByNan});
  op({"topkOfNan", 0.5, true, "gather($0, $i0, topk(maskedFill($1, $1 > $r0, NAN), $i2, $i0, $i1).indices)",
      [](const Call &c) {
        Tensor keys = maskedFill(c.in[1], c.in[1] > c.r(0), NAN);
        return gather(c.in[0], c.i(0), topk(keys, c.i(2), c.i(0), c.i(1)).indices);
      },
      drawOrderedByNan});
  op({"gatherFewer", 0.5, true, "gather($0, $i0, slice(sort($0, $i0).indices, $i1, 0, $i2))",
      [](const Call &c) {
        return gather(c.in[0], c.i(0), slice(sort(c.in[0], c.i(0)).indices, c.i(1), 0, c.i(2)));
      },
      drawGatherFewer});
  // Rearranging.
  op({"expand", 1, true, "expand($0, $I)", [](const Call &c) { return expand(c.in[0], c.node.ints); }, drawExpand});
  op({"repeat", 1, true, "repeat($0, $I)", [](const Call &c) { return repeat(c.in[0], c.node.ints); }, drawRepeat});
  op({"stack", 1, true, "stack({$*}, $i0)", [](const Call &c) { return stack(c.in, c.i(0)); }, drawStack});
  op({"split", 1, true, "split($0, $i0, $i1)[$i2]",
      [](const Call &c) { return pieceOf(split(c.in[0], c.i(0), c.i(1)), c.i(2)); }, drawSplit});
  op({"splitSizes", 0.7, true, "split($0, std::vector<int64_t>$K, $i0)[$i1]",
      [](const Call &c) {
        return split(c.in[0], std::vector<int64_t>(c.node.ints.begin() + 2, c.node.ints.end()),
                     c.i(0))[static_cast<size_t>(c.i(1))];
      },
      drawSplitSizes});
  op({"chunk", 1, true, "chunk($0, $i0, $i1)[$i2]",
      [](const Call &c) { return pieceOf(chunk(c.in[0], c.i(0), c.i(1)), c.i(2)); }, drawChunk});
  op({"fusedProduct", 1.5, true, "", nullptr, drawFusedProduct});
  op({"pad", 1.5, true, "pad($0, $I, $r0)", [](const Call &c) { return pad(c.in[0], c.node.ints, c.r(0)); }, drawPad});
  op({"padMode", 1, true, "pad($0, $J, PadMode($i0))",
      [](const Call &c) { return pad(c.in[0], tail(c), PadMode(c.i(0))); }, drawPadMode});
  op({"roll", 1, true, "roll($0, {$i0}, {$i1})", [](const Call &c) { return roll(c.in[0], {c.i(0)}, {c.i(1)}); },
      drawRoll});
  op({"places", 0, true, "constant($I, std::vector<int32_t>$R)",
      [](const Call &c) {
        return constant(c.node.ints, std::vector<int32_t>(c.node.reals.begin(), c.node.reals.end()));
      },
      nullptr});
  op({"indexSelect", 1, true, "indexSelect($0, $i0, $1)",
      [](const Call &c) { return indexSelect(c.in[0], c.i(0), c.in[1]); }, drawIndexSelect});
  op({"indexSelectOrZero", 0, true, "indexSelect($0, $i0, $1, Outside::Zero)",
      [](const Call &c) { return indexSelect(c.in[0], c.i(0), c.in[1], Outside::Zero); }, nullptr});
  op({"indexAdd", 0.7, true, "indexAdd($0, $i0, $1, $2)",
      [](const Call &c) { return indexAdd(c.in[0], c.i(0), c.in[1], c.in[2]); }, drawIndexAdd});
  op({"scatterAdd", 0.7, true, "scatterAdd($0, $i0, sort($1, $i0).indices, $1)",
      [](const Call &c) { return scatterAdd(c.in[0], c.i(0), sort(c.in[1], c.i(0)).indices, c.in[1]); },
      drawScatterAdd});
  op({"flip", 1, true, "flip($0, $I)", [](const Call &c) { return flip(c.in[0], c.node.ints); }, drawFlip});
  op({"einsum", 2.5, true, "einsum($w0, {$*})", [](const Call &c) { return einsum(c.node.words[0], c.in); }, drawEinsum});
  // Convolutions and image sizes.
  op({"conv1d", 1.5, true, "conv1d($0, $1, $2, {.stride = $i0, .padding = $i1, .dilation = $i2, .groups = $i3})",
      [](const Call &c) {
        return conv1d(c.in[0], c.in[1], c.in.size() > 2 ? c.in[2] : Tensor(),
                      {.stride = c.i(0), .padding = c.i(1), .dilation = c.i(2), .groups = c.i(3)});
      },
      drawConv1d});
  op({"convTranspose2d", 2, true,
      "convTranspose2d($0, $1, $2, {.stride = $i0, .padding = $i1, .outputPadding = $i2, .groups = $i3})",
      [](const Call &c) {
        return convTranspose2d(c.in[0], c.in[1], c.in.size() > 2 ? c.in[2] : Tensor(), transposeOptions(c));
      },
      drawConvTranspose});
  op({"nearest", 1, true, "interpolate($0, {.size = {$i0, $i1}})",
      [](const Call &c) { return interpolate(c.in[0], {.size = {c.i(0), c.i(1)}}); }, drawInterpolate});
  op({"bilinear", 1, false, "interpolate($0, {.size = {$i0, $i1}, .mode = Interpolation::Bilinear})",
      [](const Call &c) {
        return interpolate(c.in[0], {.size = {c.i(0), c.i(1)}, .mode = Interpolation::Bilinear});
      },
      drawInterpolate});
  op({"bilinearCorners", 0.5, false,
      "interpolate($0, {.size = {$i0, $i1}, .mode = Interpolation::Bilinear, .alignCorners = true})",
      [](const Call &c) {
        return interpolate(c.in[0],
                           {.size = {c.i(0), c.i(1)}, .mode = Interpolation::Bilinear, .alignCorners = true});
      },
      drawInterpolate});
  op({"adaptiveAvgPool2d", 0.7, false, "adaptiveAvgPool2d($0, {$i0, $i1})",
      [](const Call &c) { return adaptiveAvgPool2d(c.in[0], {c.i(0), c.i(1)}); }, drawAdaptive});
  op({"adaptiveMaxPool2d", 0.7, false, "adaptiveMaxPool2d($0, {$i0, $i1})",
      [](const Call &c) { return adaptiveMaxPool2d(c.in[0], {c.i(0), c.i(1)}); }, drawAdaptive});
  op({"maxPoolOptions", 0.7, true,
      "maxPool2d($0, $i0, {.stride = $i1, .padding = $i2, .dilation = $i3, .ceilMode = $i4})",
      [](const Call &c) { return maxPool2d(c.in[0], c.i(0), maximaOf<MaxPoolOptions>(c)); }, drawPoolOptions});
  op({"avgPoolOptions", 0.7, false,
      "avgPool2d($0, $i0, {.stride = $i1, .padding = $i2, .ceilMode = $i4, .countIncludePad = $i5})",
      [](const Call &c) { return avgPool2d(c.in[0], c.i(0), meansOf<AvgPoolOptions>(c)); }, drawPoolOptions});
  op({"maxPool1d", 0.5, true, "maxPool1d($0, $i0, {.stride = $i1, .padding = $i2, .dilation = $i3, .ceilMode = $i4})",
      [](const Call &c) { return maxPool1d(c.in[0], c.i(0), maximaOf<MaxPool1dOptions>(c)); }, drawPoolOptions});
  op({"avgPool1d", 0.5, false,
      "avgPool1d($0, $i0, {.stride = $i1, .padding = $i2, .ceilMode = $i4, .countIncludePad = $i5})",
      [](const Call &c) { return avgPool1d(c.in[0], c.i(0), meansOf<AvgPool1dOptions>(c)); }, drawPoolOptions});
  op({"cosineSimilarity", 0.7, false, "cosineSimilarity($0, $1, $i0)",
      [](const Call &c) { return cosineSimilarity(c.in[0], c.in[1], c.i(0)); }, drawCosine});
  // Recurrent states.
  op({"lstmH", 0, false, "$m($0).state.h", [](const Call &c) { return lstm(c)(c.in[0]).state.h; }, nullptr});
  op({"lstmC", 0, false, "$m($0).state.c", [](const Call &c) { return lstm(c)(c.in[0]).state.c; }, nullptr});
  op({"lstmFrom", 0, false, "$m($0, LstmState{$1, $2}).output",
      [](const Call &c) { return lstm(c)(c.in[0], LstmState{c.in[1], c.in[2]}).output; }, nullptr});
  op({"lstmStates", 0.6, false, "", nullptr, drawStates});
  op({"gruH", 0, false, "$m($0).h", [](const Call &c) { return gru(c)(c.in[0]).h; }, nullptr});
  op({"gruFrom", 0, false, "$m($0, $1).output", [](const Call &c) { return gru(c)(c.in[0], c.in[1]).output; }, nullptr});
  op({"gruStates", 0.6, false, "", nullptr, drawStates});
  return k;
}

} // namespace cleave::random_models
