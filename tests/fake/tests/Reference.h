// Matrix products by plain loops, in double.
#pragma once
#include <cublasLt.h>

#include <cstdint>
#include <vector>

namespace cleave::fake {

/// A matrix of the given type and layout, and its contents.
struct Matrix {
  cudaDataType_t type = CUDA_R_32F;
  int32_t order = CUBLASLT_ORDER_COL;
  size_t rows = 1, cols = 1, ld = 1, batch = 1, stride = 0;
  std::vector<uint8_t> bytes;

  Matrix(cudaDataType_t type, int32_t order, size_t rows, size_t cols, size_t pad, size_t batch, unsigned seed);
  double get(size_t b, size_t row, size_t col) const;
  size_t index(size_t b, size_t row, size_t col) const {
    return b * stride + (order == CUBLASLT_ORDER_COL ? row + col * ld : row * ld + col);
  }
  cublasLtMatrixLayout_t layout() const;
};

size_t bytesOf(cudaDataType_t type);
double element(const void *base, cudaDataType_t type, size_t i);
void setElement(void *base, cudaDataType_t type, size_t i, double x);
double referenceGelu(double x);
double referenceGeluSlope(double x);

} // namespace cleave::fake
