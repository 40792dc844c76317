// The product, computed when the stream reaches it: sums in f32 over k, in as many parts as the algorithm splits k
// into.
#include "tests/fake/cublas/Types.h"

#include "tests/fake/Numbers.h"
#include "tests/fake/cuda/Fake.h"

#include <cmath>
#include <cstring>
#include <cuda.h>
#include <memory>
#include <vector>

using namespace cleave::fake;

namespace {

float load(const void *base, uint32_t type, size_t i) {
  if (type == CUDA_R_32F)
    return static_cast<const float *>(base)[i];
  const uint16_t bits = static_cast<const uint16_t *>(base)[i];
  return type == CUDA_R_16F ? fromHalf(bits) : fromBrain(bits);
}

void store(void *base, uint32_t type, size_t i, float x) {
  if (type == CUDA_R_32F)
    static_cast<float *>(base)[i] = x;
  else
    static_cast<uint16_t *>(base)[i] = type == CUDA_R_16F ? toHalf(x) : toBrain(x);
}

float asComputed(float x, int compute) {
  switch (compute) {
  case CUBLAS_COMPUTE_32F_FAST_TF32:
    return roundToTf32(x);
  case CUBLAS_COMPUTE_32F_FAST_16F:
    return fromHalf(toHalf(x));
  case CUBLAS_COMPUTE_32F_FAST_16BF:
    return fromBrain(toBrain(x));
  default:
    return x;
  }
}

size_t at(const Layout &l, size_t row, size_t col) {
  const auto ld = static_cast<size_t>(l.ld);
  return l.order == CUBLASLT_ORDER_COL ? row + col * ld : row * ld + col;
}

float gelu(float x) { return 0.5f * x * (1 + std::tanh(0.7978845608f * (x + 0.044715f * x * x * x))); }
float geluSlope(float x) {
  const float t = std::tanh(0.7978845608f * (x + 0.044715f * x * x * x));
  return 0.5f * (1 + t) + 0.5f * x * (1 - t * t) * 0.7978845608f * (1 + 3 * 0.044715f * x * x);
}

struct Product {
  Problem p;
  Algo algo;
  const void *a, *b, *c;
  void *d, *workspace;
  const void *alphaAt, *betaAt; ///< addresses on the device, or null
  float alpha, beta;

  int run();
  void runBatch(size_t batch);
  void readOperands(size_t batch, std::vector<float> &left, std::vector<float> &right) const;
  void finish(size_t batch, std::vector<float> &x);
  void sumOperand(size_t batch, const std::vector<float> &left, const std::vector<float> &right) const;
  void sumRows(size_t batch, const std::vector<float> &x) const;
  float epilogue(float x, size_t row, size_t col, size_t batch);
  bool valid() const;
  const void *offset(const void *base, const Layout &l, size_t batch) const {
    return static_cast<const char *>(base) +
           static_cast<int64_t>(batch) * l.stride * static_cast<int64_t>(sizeOf(l.type));
  }
  void storeBias(size_t batch, size_t i, float x) const {
    store(p.op.bias, p.d.type, batch * static_cast<size_t>(p.op.biasStride) + i, x);
  }
};

/// Reads the rows of op(A) and of op(B).
void Product::readOperands(size_t batch, std::vector<float> &left, std::vector<float> &right) const {
  const size_t m = p.m(), n = p.n(), k = p.k();
  const void *fromA = offset(a, p.a, batch), *fromB = offset(b, p.b, batch);
  left.resize(m * k);
  right.resize(k * n);
  for (size_t i = 0; i < m; ++i)
    for (size_t l = 0; l < k; ++l)
      left[i * k + l] = load(fromA, p.a.type, p.op.transA == CUBLAS_OP_N ? at(p.a, i, l) : at(p.a, l, i));
  for (size_t l = 0; l < k; ++l)
    for (size_t j = 0; j < n; ++j)
      right[l * n + j] = load(fromB, p.b.type, p.op.transB == CUBLAS_OP_N ? at(p.b, l, j) : at(p.b, j, l));
}

void Product::sumOperand(size_t batch, const std::vector<float> &left, const std::vector<float> &right) const {
  const size_t m = p.m(), n = p.n(), k = p.k();
  const bool ofA = p.op.epilogue == CUBLASLT_EPILOGUE_BGRADA;
  for (size_t i = 0; i < (ofA ? m : n); ++i) {
    float sum = 0;
    for (size_t l = 0; l < k; ++l)
      sum += ofA ? left[i * k + l] : right[l * n + i];
    storeBias(batch, i, sum);
  }
}

void Product::sumRows(size_t batch, const std::vector<float> &x) const {
  for (size_t i = 0; i < p.m(); ++i) {
    float sum = 0;
    for (size_t j = 0; j < p.n(); ++j)
      sum += x[i * p.n() + j];
    storeBias(batch, i, sum);
  }
}

float Product::epilogue(float x, size_t row, size_t col, size_t batch) {
  const uint32_t e = p.op.epilogue;
  if (e < 256 && (e & 4))
    x += load(p.op.bias, p.d.type, batch * static_cast<size_t>(p.op.biasStride) + row);
  const size_t place = batch * static_cast<size_t>(p.op.auxStride) + col * static_cast<size_t>(p.op.auxLd) + row;
  auto *bits = static_cast<uint8_t *>(p.op.aux);
  if (e == CUBLASLT_EPILOGUE_DRELU || e == CUBLASLT_EPILOGUE_DRELU_BGRAD)
    return bits[place / 8] >> place % 8 & 1 ? x : 0;
  if (e == CUBLASLT_EPILOGUE_DGELU || e == CUBLASLT_EPILOGUE_DGELU_BGRAD)
    return x * geluSlope(load(p.op.aux, p.d.type, place));
  if (e < 256 && (e & 2)) {
    if (takesAux(e))
      bits[place / 8] = static_cast<uint8_t>((bits[place / 8] & ~(1u << place % 8)) | (x > 0 ? 1u << place % 8 : 0));
    return x > 0 || std::isnan(x) ? x : 0;
  }
  if (e < 256 && (e & 32)) {
    if (takesAux(e))
      store(p.op.aux, p.d.type, place, x);
    return gelu(x);
  }
  return x;
}

void Product::finish(size_t batch, std::vector<float> &x) {
  const size_t m = p.m(), n = p.n();
  const void *fromC = offset(c, p.c, batch);
  void *toD = const_cast<void *>(offset(d, p.d, batch));
  for (size_t i = 0; i < m; ++i)
    for (size_t j = 0; j < n; ++j) {
      float value = alpha * x[i * n + j];
      if (beta != 0) // with beta = 0, C is not read
        value += beta * load(fromC, p.c.type, at(p.c, i, j));
      x[i * n + j] = epilogue(value, i, j, batch);
    }
  for (size_t i = 0; i < m; ++i)
    for (size_t j = 0; j < n; ++j)
      store(toD, p.d.type, at(p.d, i, j), x[i * n + j]);
  if (p.op.epilogue < 256 && (p.op.epilogue & 16))
    sumRows(batch, x);
}

void multiply(const float *left, const float *right, float *out, size_t m, size_t n, size_t k, size_t begin,
              size_t end) {
  for (size_t i = 0; i < m; ++i)
    for (size_t l = begin; l < end; ++l) {
      const float x = left[i * k + l];
      const float *from = right + l * n;
      float *to = out + i * n;
      for (size_t j = 0; j < n; ++j)
        to[j] += x * from[j];
    }
}

void Product::runBatch(size_t batch) {
  const size_t m = p.m(), n = p.n(), k = p.k();
  std::vector<float> left, right, sum(m * n), part;
  readOperands(batch, left, right);
  if (p.op.epilogue >= 256)
    sumOperand(batch, left, right);
  for (std::vector<float> *operand : {&left, &right})
    if (p.op.compute != CUBLAS_COMPUTE_32F && p.op.compute != CUBLAS_COMPUTE_32F_PEDANTIC)
      for (float &x : *operand)
        x = asComputed(x, p.op.compute);
  const auto splits = static_cast<size_t>(algo.splits);
  for (size_t s = 0; s < splits; ++s) {
    part.assign(m * n, 0);
    multiply(left.data(), right.data(), part.data(), m, n, k, k * s / splits, k * (s + 1) / splits);
    for (size_t i = 0; i < part.size(); ++i)
      sum[i] += part[i];
  }
  finish(batch, sum);
}

size_t extent(const Layout &l) {
  const uint64_t outer = l.order == CUBLASLT_ORDER_COL ? l.cols : l.rows,
                 inner = l.order == CUBLASLT_ORDER_COL ? l.rows : l.cols;
  return ((outer - 1) * static_cast<uint64_t>(l.ld) + inner +
          static_cast<uint64_t>(l.batch - 1) * static_cast<uint64_t>(l.stride)) *
         sizeOf(l.type);
}

std::vector<CleaveFakeRange> rangesOf(const Product &x) {
  const Problem &p = x.p;
  std::vector<CleaveFakeRange> ranges = {{x.a, extent(p.a), 0}, {x.b, extent(p.b), 0}, {x.d, extent(p.d), 1}};
  if (x.betaAt || x.beta != 0)
    ranges.push_back({x.c, extent(p.c), 0});
  if (x.algo.workspace)
    ranges.push_back({x.workspace, x.algo.workspace, 1});
  const uint32_t e = p.op.epilogue;
  const auto last = static_cast<uint64_t>(p.d.batch - 1);
  if (takesBias(e)) {
    const uint64_t count =
        (e == CUBLASLT_EPILOGUE_BGRADB ? p.n() : p.m()) + last * static_cast<uint64_t>(p.op.biasStride);
    ranges.push_back({p.op.bias, count * sizeOf(p.d.type), isBackward(e)});
  }
  if (takesAux(e)) {
    const bool mask = (e & 2) || (e & 8);
    const uint64_t count =
        last * static_cast<uint64_t>(p.op.auxStride) + (p.n() - 1) * static_cast<uint64_t>(p.op.auxLd) + p.m();
    ranges.push_back({p.op.aux, mask ? (count + 7) / 8 : count * sizeOf(p.d.type), !isBackward(e)});
  }
  return ranges;
}

bool Product::valid() const {
  for (const CleaveFakeRange &r : rangesOf(*this))
    if (cleaveFakeDeviceOf(r.begin, r.bytes) < 0)
      return false;
  return true;
}

int Product::run() {
  if (!valid())
    return CUDA_ERROR_ILLEGAL_ADDRESS;
  if (alphaAt)
    std::memcpy(&alpha, alphaAt, sizeof alpha);
  if (betaAt)
    std::memcpy(&beta, betaAt, sizeof beta);
  if (algo.workspace) // exposes concurrent users of the same workspace
    std::memset(workspace, 0xff, algo.workspace);
  for (size_t batch = 0; batch < static_cast<size_t>(p.d.batch); ++batch)
    runBatch(batch);
  return 0;
}

/// Selects the algorithm: the given one if it is valid for the problem, otherwise the best.
cublasStatus_t pick(const Problem &p, const cublasLtMatmulAlgo_t *given, size_t workspace, uint64_t alignment,
                    Algo &algo) {
  Algo algos[4];
  if (!given) {
    if (choose(p, workspace, alignment, 1, &algo) != 1)
      return CUBLAS_STATUS_NOT_SUPPORTED;
    return CUBLAS_STATUS_SUCCESS;
  }
  std::memcpy(&algo, given, sizeof algo);
  if (algo.magic != algoMagic)
    return CUBLAS_STATUS_INVALID_VALUE;
  if (algo.problem != p.hash())
    return CUBLAS_STATUS_NOT_SUPPORTED;
  const int count = choose(p, UINT64_MAX, 256, 4, algos);
  for (int i = 0; i < count; ++i)
    if (algos[i].id == algo.id && algos[i].splits == algo.splits) {
      algo = algos[i]; // takes the workspace for these sizes
      return algo.workspace > workspace || alignment < static_cast<uint64_t>(algo.alignment)
                 ? CUBLAS_STATUS_INVALID_VALUE
                 : CUBLAS_STATUS_SUCCESS;
    }
  return CUBLAS_STATUS_NOT_SUPPORTED;
}

} // namespace

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t op, const void *alpha, const void *a,
                              cublasLtMatrixLayout_t aLayout, const void *b, cublasLtMatrixLayout_t bLayout,
                              const void *beta, const void *c, cublasLtMatrixLayout_t cLayout, void *d,
                              cublasLtMatrixLayout_t dLayout, const cublasLtMatmulAlgo_t *algo, void *workspace,
                              size_t workspaceBytes, cudaStream_t stream) {
  if (const int code = cleaveFakeCount(__func__))
    return static_cast<cublasStatus_t>(code);
  if (!handle)
    return CUBLAS_STATUS_NOT_INITIALIZED;
  if (!op || !alpha || !a || !aLayout || !b || !bLayout || !beta || !c || !cLayout || !d || !dLayout)
    return CUBLAS_STATUS_INVALID_VALUE;
  auto product = std::make_unique<Product>();
  product->p = {of(op), of(aLayout), of(bLayout), of(cLayout), of(dLayout)};
  if (const cublasStatus_t bad = judge(product->p); bad != CUBLAS_STATUS_SUCCESS)
    return bad;
  if (c == d && std::memcmp(&product->p.c, &product->p.d, sizeof(Layout)) != 0)
    return CUBLAS_STATUS_INVALID_VALUE;
  uint64_t all = 256;
  for (const void *pointer : {a, b, c, static_cast<const void *>(d)})
    all |= reinterpret_cast<uintptr_t>(pointer);
  if (workspaceBytes && (!workspace || reinterpret_cast<uintptr_t>(workspace) % 16))
    return CUBLAS_STATUS_INVALID_VALUE;
  if (const cublasStatus_t bad = pick(product->p, algo, workspaceBytes, all & (~all + 1), product->algo);
      bad != CUBLAS_STATUS_SUCCESS)
    return bad;
  const bool onDevice = product->p.op.pointerMode == CUBLASLT_POINTER_MODE_DEVICE;
  product->a = a, product->b = b, product->c = c, product->d = d, product->workspace = workspace;
  product->alphaAt = onDevice ? alpha : nullptr;
  product->betaAt = onDevice ? beta : nullptr;
  product->alpha = onDevice ? 1 : *static_cast<const float *>(alpha);
  product->beta = onDevice ? 0 : *static_cast<const float *>(beta);
  if (cleaveFakeStreamDevice(stream) != handle->device)
    return CUBLAS_STATUS_INVALID_VALUE;
  const std::vector<CleaveFakeRange> ranges = rangesOf(*product);
  const CleaveFakeWork work{"cublasLtMatmul",
                            [](void *data) { return static_cast<Product *>(data)->run(); },
                            [](void *data) { delete static_cast<Product *>(data); },
                            product.get(),
                            ranges.data(),
                            ranges.size()};
  if (cleaveFakeEnqueueWork(stream, &work) != 0)
    return CUBLAS_STATUS_EXECUTION_FAILED;
  product.release();
  return CUBLAS_STATUS_SUCCESS;
}
