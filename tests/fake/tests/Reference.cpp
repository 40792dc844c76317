// Access to elements of matrices.
#include "tests/fake/tests/Reference.h"

#include "tests/fake/Numbers.h"

#include <cmath>
#include <random>

namespace cleave::fake {

size_t bytesOf(cudaDataType_t type) { return type == CUDA_R_32F ? 4 : 2; }

double element(const void *base, cudaDataType_t type, size_t i) {
  if (type == CUDA_R_32F)
    return static_cast<const float *>(base)[i];
  const uint16_t bits = static_cast<const uint16_t *>(base)[i];
  return type == CUDA_R_16F ? fromHalf(bits) : fromBrain(bits);
}

void setElement(void *base, cudaDataType_t type, size_t i, double x) {
  const auto value = static_cast<float>(x);
  if (type == CUDA_R_32F)
    static_cast<float *>(base)[i] = value;
  else
    static_cast<uint16_t *>(base)[i] = type == CUDA_R_16F ? toHalf(value) : toBrain(value);
}

double referenceGelu(double x) { return 0.5 * x * (1 + std::tanh(0.7978845608028654 * (x + 0.044715 * x * x * x))); }
double referenceGeluSlope(double x) { return (referenceGelu(x + 1e-5) - referenceGelu(x - 1e-5)) / 2e-5; }

Matrix::Matrix(cudaDataType_t type, int32_t order, size_t rows, size_t cols, size_t pad, size_t batch, unsigned seed)
    : type(type), order(order), rows(rows), cols(cols), batch(batch) {
  ld = (order == CUBLASLT_ORDER_COL ? rows : cols) + pad;
  stride = ld * (order == CUBLASLT_ORDER_COL ? cols : rows) + 8;
  bytes.assign(batch * stride * bytesOf(type), 0xff);
  std::mt19937 random(seed);
  for (size_t b = 0; b < batch; ++b)
    for (size_t i = 0; i < rows; ++i)
      for (size_t j = 0; j < cols; ++j)
        setElement(bytes.data(), type, index(b, i, j), (static_cast<double>(random() % 33) - 16) / 8);
}

double Matrix::get(size_t b, size_t row, size_t col) const { return element(bytes.data(), type, index(b, row, col)); }

cublasLtMatrixLayout_t Matrix::layout() const {
  cublasLtMatrixLayout_t made = nullptr;
  cublasLtMatrixLayoutCreate(&made, type, rows, cols, static_cast<int64_t>(ld));
  const auto count = static_cast<int32_t>(batch);
  const auto offset = static_cast<int64_t>(stride);
  cublasLtMatrixLayoutSetAttribute(made, CUBLASLT_MATRIX_LAYOUT_ORDER, &order, sizeof order);
  cublasLtMatrixLayoutSetAttribute(made, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count);
  cublasLtMatrixLayoutSetAttribute(made, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &offset, sizeof offset);
  return made;
}

} // namespace cleave::fake
