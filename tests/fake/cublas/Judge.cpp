// Which calls cuBLASLt accepts (cuBLAS library documentation, cublasLtMatmul, tables of supported types;
// cublasLtEpilogue_t), and which algorithms it offers. Where the documentation is ambiguous, the stricter reading
// applies.
#include "tests/fake/cublas/Types.h"

#include "tests/fake/cuda/Fake.h"

#include <algorithm>
#include <cstring>

using namespace cleave::fake;

namespace cleave::fake {

namespace {

bool good(const Layout &l) {
  if (l.rows == 0 || l.cols == 0 || l.batch < 1)
    return false;
  if (l.order != CUBLASLT_ORDER_COL && l.order != CUBLASLT_ORDER_ROW)
    return false;
  return l.ld >= static_cast<int64_t>(l.order == CUBLASLT_ORDER_COL ? l.rows : l.cols);
}

bool knownEpilogue(uint32_t e) {
  for (uint32_t known : {1u, 2u, 130u, 4u, 6u, 134u, 136u, 152u, 32u, 160u, 36u, 164u, 192u, 208u, 256u, 512u})
    if (e == known)
      return true;
  return false;
}

bool sizesAgree(const Problem &p) {
  const auto rows = [](const Layout &l, int trans) { return trans == CUBLAS_OP_N ? l.rows : l.cols; };
  const auto cols = [](const Layout &l, int trans) { return trans == CUBLAS_OP_N ? l.cols : l.rows; };
  return rows(p.a, p.op.transA) == p.m() && cols(p.b, p.op.transB) == p.n() &&
         cols(p.a, p.op.transA) == rows(p.b, p.op.transB) && p.c.rows == p.m() && p.c.cols == p.n();
}

bool batchesAgree(const Problem &p) {
  if (p.a.batch != p.d.batch || p.b.batch != p.d.batch || p.c.batch != p.d.batch)
    return false;
  const bool columns = p.d.order == CUBLASLT_ORDER_COL;
  const auto run = static_cast<int64_t>(columns ? p.d.rows : p.d.cols);
  const auto whole = static_cast<int64_t>(columns ? p.d.cols : p.d.rows) * p.d.ld;
  // The results of a batch do not overlap: they follow one another, or lie side by side in the rows (heads of one
  // projection).
  return p.d.batch == 1 || p.d.stride >= whole || (p.d.stride >= run && (p.d.batch - 1) * p.d.stride + run <= p.d.ld);
}

bool typesSupported(const Problem &p) {
  const uint32_t in = p.a.type, out = p.d.type;
  if (p.b.type != in || p.c.type != out || p.op.scale != CUDA_R_32F)
    return false;
  switch (p.op.compute) {
  case CUBLAS_COMPUTE_32F:
  case CUBLAS_COMPUTE_32F_PEDANTIC:
    return (in == CUDA_R_32F && out == CUDA_R_32F) ||
           ((in == CUDA_R_16F || in == CUDA_R_16BF) && (out == in || out == CUDA_R_32F));
  case CUBLAS_COMPUTE_32F_FAST_16F:
  case CUBLAS_COMPUTE_32F_FAST_16BF:
  case CUBLAS_COMPUTE_32F_FAST_TF32:
    return in == CUDA_R_32F && out == CUDA_R_32F;
  default:
    return false;
  }
}

cublasStatus_t judgeEpilogue(const Problem &p) {
  const uint32_t e = p.op.epilogue;
  if (!knownEpilogue(e))
    return CUBLAS_STATUS_INVALID_VALUE;
  if (takesBias(e) && !p.op.bias)
    return CUBLAS_STATUS_INVALID_VALUE;
  if (takesBias(e) && p.op.biasType >= 0 && static_cast<uint32_t>(p.op.biasType) != p.d.type)
    return CUBLAS_STATUS_NOT_SUPPORTED;
  if (takesBias(e) && reinterpret_cast<uintptr_t>(p.op.bias) % sizeOf(p.d.type))
    return CUBLAS_STATUS_NOT_SUPPORTED;
  if (takesAux(e)) {
    const bool mask = (e & 2) || (e & 8);
    if (!p.op.aux || p.op.auxLd < static_cast<int64_t>(p.m()) || p.op.auxLd % (mask ? 128 : 8))
      return CUBLAS_STATUS_INVALID_VALUE;
    if (reinterpret_cast<uintptr_t>(p.op.aux) % 16)
      return CUBLAS_STATUS_NOT_SUPPORTED;
    if (!mask && p.op.auxType >= 0 && static_cast<uint32_t>(p.op.auxType) != p.d.type)
      return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  if (p.d.order == CUBLASLT_ORDER_ROW && (takesBias(e) || takesAux(e)))
    return CUBLAS_STATUS_NOT_SUPPORTED;
  if (isBackward(e) && alignmentOf(p) < 16) // only kernels for tensor cores have it
    return CUBLAS_STATUS_NOT_SUPPORTED;
  return CUBLAS_STATUS_SUCCESS;
}

} // namespace

size_t sizeOf(uint32_t type) { return type == CUDA_R_32F ? 4 : 2; }

uint64_t Problem::hash() const {
  uint64_t h = 1469598103934665603ULL;
  for (uint64_t part :
       {uint64_t(op.compute), uint64_t(op.transA), uint64_t(op.transB), uint64_t(op.epilogue), uint64_t(a.type),
        uint64_t(d.type), uint64_t(a.order), uint64_t(b.order), uint64_t(c.order), uint64_t(d.order)})
    h = (h ^ part) * 1099511628211ULL;
  return h;
}

uint64_t alignmentOf(const Problem &p) {
  uint64_t all = 256;
  for (const Layout *l : {&p.a, &p.b, &p.c, &p.d}) {
    all |= static_cast<uint64_t>(l->ld) * sizeOf(l->type);
    if (l->batch > 1)
      all |= static_cast<uint64_t>(l->stride) * sizeOf(l->type);
  }
  return all & (~all + 1);
}

cublasStatus_t judge(const Problem &p) {
  for (const Layout *l : {&p.a, &p.b, &p.c, &p.d})
    if (!good(*l))
      return CUBLAS_STATUS_INVALID_VALUE;
  for (int trans : {p.op.transA, p.op.transB})
    if (trans != CUBLAS_OP_N && trans != CUBLAS_OP_T && trans != CUBLAS_OP_C)
      return CUBLAS_STATUS_INVALID_VALUE;
  if (!sizesAgree(p) || !batchesAgree(p))
    return CUBLAS_STATUS_INVALID_VALUE;
  if (p.op.pointerMode != CUBLASLT_POINTER_MODE_HOST && p.op.pointerMode != CUBLASLT_POINTER_MODE_DEVICE)
    return CUBLAS_STATUS_NOT_SUPPORTED;
  if (p.op.transC != CUBLAS_OP_N || p.c.order != p.d.order || !typesSupported(p))
    return CUBLAS_STATUS_NOT_SUPPORTED;
  return judgeEpilogue(p);
}

int choose(const Problem &p, uint64_t workspace, uint64_t alignment, int most, Algo *algos) {
  if ((isActivation(p.op.epilogue) || p.op.epilogue >= 256) && !cleaveFakeActivations())
    return 0;
  const bool aligned = std::min(alignmentOf(p), alignment) >= 16;
  const uint64_t partial = p.m() * p.n() * 4 * static_cast<uint64_t>(p.d.batch);
  const Algo offered[] = {
      {algoMagic, p.hash(), 2 * partial, 66, 16, 2, CUBLASLT_MATMUL_TILE_128x128},
      {algoMagic, p.hash(), 0, 66, 16, 1, CUBLASLT_MATMUL_TILE_128x256},
      {algoMagic, p.hash(), 4 * partial + 1024, 67, 16, 4, CUBLASLT_MATMUL_TILE_64x64},
      {algoMagic, p.hash(), 0, 1, static_cast<int32_t>(sizeOf(p.a.type)), 1, CUBLASLT_MATMUL_TILE_32x32},
  };
  int count = 0;
  for (const Algo &algo : offered) {
    const bool fits = algo.workspace <= workspace && (aligned || algo.alignment < 16);
    const bool simple = algo.alignment<16, splits = algo.splits> 1;
    if (!fits || count == most || (simple && isBackward(p.op.epilogue)) ||
        (splits && (takesAux(p.op.epilogue) || p.k() < static_cast<uint64_t>(algo.splits))))
      continue;
    algos[count++] = algo;
  }
  return count;
}

} // namespace cleave::fake

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t op,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int requested,
                                              cublasLtMatmulHeuristicResult_t results[], int *found) {
  if (const int code = cleaveFakeCount(__func__))
    return static_cast<cublasStatus_t>(code);
  if (!handle)
    return CUBLAS_STATUS_NOT_INITIALIZED;
  if (!op || !a || !b || !c || !d || !preference || requested <= 0 || !results || !found)
    return CUBLAS_STATUS_INVALID_VALUE;
  *found = 0;
  const Problem problem{of(op), of(a), of(b), of(c), of(d)};
  if (const cublasStatus_t bad = judge(problem); bad != CUBLAS_STATUS_SUCCESS)
    return bad;
  const auto &p = *reinterpret_cast<const Preference *>(preference);
  const uint64_t alignment = std::min(std::min(p.alignA, p.alignB), std::min(p.alignC, p.alignD));
  Algo algos[4];
  *found = choose(problem, p.workspace, alignment, std::min(requested, 4), algos);
  for (int i = 0; i < *found; ++i) {
    results[i] = {};
    std::memcpy(&results[i].algo, &algos[i], sizeof algos[i]);
    results[i].workspaceSize = algos[i].workspace;
    results[i].state = CUBLAS_STATUS_SUCCESS;
    results[i].wavesCount = 1;
  }
  return *found ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t handle, cublasLtMatmulDesc_t op, cublasLtMatrixLayout_t a,
                                       cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                       const cublasLtMatmulAlgo_t *algo, cublasLtMatmulHeuristicResult_t *result) {
  if (!handle)
    return CUBLAS_STATUS_NOT_INITIALIZED;
  if (!op || !a || !b || !c || !d || !algo || !result)
    return CUBLAS_STATUS_INVALID_VALUE;
  const Problem problem{of(op), of(a), of(b), of(c), of(d)};
  if (const cublasStatus_t bad = judge(problem); bad != CUBLAS_STATUS_SUCCESS)
    return bad;
  Algo wanted, algos[4];
  std::memcpy(&wanted, algo, sizeof wanted);
  const int count = choose(problem, UINT64_MAX, 256, 4, algos);
  for (int i = 0; i < count; ++i)
    if (wanted.magic == algoMagic && wanted.problem == problem.hash() && algos[i].id == wanted.id &&
        algos[i].splits == wanted.splits) {
      *result = {};
      std::memcpy(&result->algo, &algos[i], sizeof algos[i]);
      result->workspaceSize = algos[i].workspace;
      result->wavesCount = 1;
      return CUBLAS_STATUS_SUCCESS;
    }
  return CUBLAS_STATUS_NOT_SUPPORTED;
}
