// Normalises matrix products.
#include "runtime/device/MatmulShape.h"

#include "runtime/plan/plan_generated.h"

#include <utility>

namespace cleave {

namespace {

/// Sets the strides of dimensions of size 1, which are meaningless, to values that libraries accept.
void canonical(MatmulOperand &operand, int64_t rows, int64_t columns) {
  if (columns == 1 && operand.row != 1)
    operand.column = 1;
  if (rows == 1 && operand.column == 1)
    operand.row = columns;
  else if (rows == 1)
    operand.row = 1;
  if (columns == 1 && operand.row == 1)
    operand.column = rows == 1 ? 1 : rows;
  if (operand.column == 1 && rows == 1)
    operand.row = columns;
}

void joinBatch(MatmulShape &shape) {
  MatmulOperand *operands[] = {&shape.a, &shape.b, &shape.c};
  for (size_t d = shape.batch.size(); d-- > 0;)
    if (shape.batch[d] == 1) {
      shape.batch.erase(shape.batch.begin() + static_cast<std::ptrdiff_t>(d));
      for (MatmulOperand *operand : operands)
        operand->batch.erase(operand->batch.begin() + static_cast<std::ptrdiff_t>(d));
    }
  for (size_t d = shape.batch.size(); d-- > 1;) {
    bool joins = true;
    for (MatmulOperand *operand : operands)
      joins = joins && operand->batch[d - 1] == operand->batch[d] * shape.batch[d];
    if (!joins)
      continue;
    shape.batch[d - 1] *= shape.batch[d];
    shape.batch.erase(shape.batch.begin() + static_cast<std::ptrdiff_t>(d));
    for (MatmulOperand *operand : operands)
      operand->batch.erase(operand->batch.begin() + static_cast<std::ptrdiff_t>(d - 1));
  }
}

/// [batch, m, k] times a shared [k, n] becomes [batch * m, k] times [k, n].
void foldShared(MatmulShape &shape) {
  if (shape.batch.size() != 1 || shape.b.batch[0] != 0)
    return;
  if (shape.a.batch[0] != shape.m * shape.a.row || shape.c.batch[0] != shape.m * shape.c.row)
    return;
  shape.m *= shape.batch[0];
  shape.batch.clear();
  shape.a.batch.clear();
  shape.b.batch.clear();
  shape.c.batch.clear();
}

} // namespace

int64_t MatmulShape::batches() const {
  int64_t count = 1;
  for (int64_t size : batch)
    count *= size;
  return count;
}

MatmulShape matmulShape(const plan::Matmul &matmul) {
  MatmulShape shape;
  if (matmul.batch())
    shape.batch.assign(matmul.batch()->begin(), matmul.batch()->end());
  shape.m = matmul.m();
  shape.n = matmul.n();
  shape.k = matmul.k();
  auto read = [&](const plan::View *view) {
    MatmulOperand operand;
    auto rank = static_cast<uint32_t>(shape.batch.size());
    for (uint32_t d = 0; d < rank; ++d)
      operand.batch.push_back(view->strides()->Get(d));
    operand.row = view->strides()->Get(rank);
    operand.column = view->strides()->Get(rank + 1);
    return operand;
  };
  shape.a = read(matmul.a());
  shape.b = read(matmul.b());
  shape.c = read(matmul.c());
  joinBatch(shape);
  canonical(shape.a, shape.m, shape.k);
  canonical(shape.b, shape.k, shape.n);
  canonical(shape.c, shape.m, shape.n);
  foldShared(shape);
  if (shape.c.column != 1) {
    std::swap(shape.a, shape.b);
    std::swap(shape.m, shape.n);
    for (MatmulOperand *operand : {&shape.a, &shape.b, &shape.c})
      std::swap(operand->row, operand->column);
    shape.exchanged = true;
  }
  return shape;
}

bool isProduct(const plan::Conv &conv) {
  return conv.nhwc() && conv.kh() == 1 && conv.kw() == 1 && conv.stride_h() == 1 && conv.stride_w() == 1 &&
         conv.pad_top() == 0 && conv.pad_left() == 0 && conv.oh() == conv.ih() && conv.ow() == conv.iw() &&
         conv.groups() == 1;
}

MatmulShape matmulShape(const plan::Conv &conv) {
  const int64_t pixels = conv.n() * conv.oh() * conv.ow(), in = conv.ic(), out = conv.oc();
  const MatmulOperand src{{}, in, 1}, dst{{}, out, 1}, weights{{}, in, 1};
  const auto transposed = [](const MatmulOperand &operand) { return MatmulOperand{{}, operand.column, operand.row}; };
  MatmulShape shape;
  switch (conv.kind()) {
  case plan::ConvKind::Forward:
    shape = {{}, pixels, out, in, src, transposed(weights), dst};
    break;
  case plan::ConvKind::BackwardData:
    shape = {{}, pixels, in, out, dst, weights, src};
    break;
  case plan::ConvKind::BackwardWeights:
    shape = {{}, out, in, pixels, transposed(dst), src, weights};
    break;
  }
  canonical(shape.a, shape.m, shape.k);
  canonical(shape.b, shape.k, shape.n);
  canonical(shape.c, shape.m, shape.n);
  return shape;
}

} // namespace cleave
