// Stride arithmetic.
#include "ir/library/Strided.h"

#include <algorithm>
#include <cassert>

namespace cleave::library {

Strided Strided::contiguous(Sizes shape) {
  Strided view{shape, Sizes(shape.size(), 1), 0};
  for (size_t d = shape.size(); d-- > 1;)
    view.strides[d - 1] = view.strides[d] * std::max<int64_t>(shape[d], 1);
  return view;
}

bool Strided::isContiguous() const {
  int64_t expected = 1;
  for (size_t d = shape.size(); d-- > 0;) {
    if (shape[d] != 1 && strides[d] != expected)
      return false;
    expected *= shape[d];
  }
  return true;
}

Strided Strided::transposed(std::span<const int64_t> permutation) const {
  Strided view{{}, {}, offset};
  for (int64_t from : permutation) {
    view.shape.push_back(shape[static_cast<size_t>(from)]);
    view.strides.push_back(strides[static_cast<size_t>(from)]);
  }
  return view;
}

Strided Strided::beforeTranspose(std::span<const int64_t> permutation) const {
  Strided view{Sizes(shape.size()), Sizes(shape.size()), offset};
  for (size_t i = 0; i < permutation.size(); ++i) {
    view.shape[static_cast<size_t>(permutation[i])] = shape[i];
    view.strides[static_cast<size_t>(permutation[i])] = strides[i];
  }
  return view;
}

Strided Strided::sliced(std::span<const int64_t> starts, std::span<const int64_t> sizes) const {
  Strided view{Sizes(sizes.begin(), sizes.end()), strides, offset};
  for (size_t d = 0; d < starts.size(); ++d)
    view.offset += starts[d] * strides[d];
  return view;
}

Strided Strided::broadcast(std::span<const int64_t> dims, const Sizes &to) const {
  Strided view{to, Sizes(to.size(), 0), offset};
  for (size_t i = 0; i < dims.size(); ++i)
    view.strides[static_cast<size_t>(dims[i])] = strides[i];
  return view;
}

std::optional<Strided> Strided::reshaped(const Sizes &to) const {
  Sizes fromShape, fromStrides; // without dimensions of size 1
  for (size_t d = 0; d < shape.size(); ++d)
    if (shape[d] != 1)
      fromShape.push_back(shape[d]), fromStrides.push_back(strides[d]);
  Strided view{to, Sizes(to.size(), 1), offset};
  size_t from = 0, at = 0;
  while (from < fromShape.size() || at < to.size()) {
    // The shortest groups of dimensions on both sides with equal products.
    size_t fromEnd = from, atEnd = at;
    int64_t fromProduct = 1, toProduct = 1;
    if (fromEnd < fromShape.size())
      fromProduct = fromShape[fromEnd++];
    if (atEnd < to.size())
      toProduct = to[atEnd++];
    while (fromProduct != toProduct) {
      if (fromProduct < toProduct) {
        if (fromEnd == fromShape.size())
          return std::nullopt;
        fromProduct *= fromShape[fromEnd++];
      } else {
        if (atEnd == to.size())
          return std::nullopt;
        toProduct *= to[atEnd++];
      }
    }
    for (size_t d = from; d + 1 < fromEnd; ++d)
      if (fromStrides[d] != fromStrides[d + 1] * fromShape[d + 1])
        return std::nullopt;
    int64_t stride = fromEnd > from ? fromStrides[fromEnd - 1] : 1;
    for (size_t d = atEnd; d-- > at;) {
      view.strides[d] = stride;
      stride *= to[d];
    }
    from = fromEnd, at = atEnd;
  }
  return view;
}

namespace {

void dropBatch(Product &product, size_t d) {
  auto at = static_cast<std::ptrdiff_t>(d);
  product.batch.erase(product.batch.begin() + at);
  for (Strided *view : {&product.a, &product.b, &product.c}) {
    view->shape.erase(view->shape.begin() + at);
    view->strides.erase(view->strides.begin() + at);
  }
}

/// Whether dimensions d and d + 1 can be joined: the stride of d is the extent of d + 1.
bool joins(const Strided &view, size_t d) { return view.strides[d] == view.strides[d + 1] * view.shape[d + 1]; }

/// Joins dimension d into d + 1.
void join(Strided &view, size_t d) { view.shape[d + 1] *= view.shape[d]; }

bool joinNeighbours(Product &product) {
  for (size_t d = 0; d + 1 < product.batch.size(); ++d)
    if (joins(product.a, d) && joins(product.b, d) && joins(product.c, d)) {
      for (Strided *view : {&product.a, &product.b, &product.c})
        join(*view, d);
      product.batch[d + 1] *= product.batch[d];
      dropBatch(product, d);
      return true;
    }
  return false;
}

bool joinRows(Product &product) {
  if (product.batch.empty())
    return false;
  size_t d = product.batch.size() - 1;
  if (product.b.strides[d] != 0 || !joins(product.a, d) || !joins(product.c, d))
    return false;
  join(product.a, d), join(product.c, d);
  product.m *= product.batch[d];
  dropBatch(product, d);
  return true;
}

} // namespace

void Product::simplify() {
  for (size_t d = batch.size(); d-- > 0;)
    if (batch[d] == 1)
      dropBatch(*this, d);
  // The stride of a single row is arbitrary; set it so that the row joins with the last batch dimension.
  if (size_t r = a.shape.size(); m == 1 && r > 2 && !batch.empty())
    a.strides[r - 2] = a.strides[r - 3], c.strides[r - 2] = c.strides[r - 3];
  while (joinRows(*this) || joinNeighbours(*this)) {
  }
}

bool fitMatrix(Strided &view) {
  size_t r = view.shape.size();
  assert(r >= 2 && "a matrix has two dimensions");
  int64_t &rows = view.shape[r - 2], &columns = view.shape[r - 1];
  int64_t &rowStride = view.strides[r - 2], &columnStride = view.strides[r - 1];
  if (columns == 1 && rows == 1)
    rowStride = columnStride = 1;
  else if (columns == 1) {
    if (rowStride == 1)
      columnStride = rows; // a contiguous column is a transposed row
    else
      columnStride = 1;
  } else if (rows == 1) {
    if (columnStride == 1)
      rowStride = columns;
    else
      rowStride = 1;
  }
  return (columnStride == 1 && rowStride >= columns) || (rowStride == 1 && columnStride >= rows);
}

} // namespace cleave::library
