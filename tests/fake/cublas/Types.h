// The contents of cuBLASLt's opaque descriptors.
#pragma once
#pragma GCC visibility push(default)
#include <cublasLt.h>
#pragma GCC visibility pop

#include <cstdint>

namespace cleave::fake {

struct Layout {
  uint32_t type;
  int32_t order;
  uint64_t rows, cols;
  int64_t ld, stride;
  int32_t batch, reserved;
};
static_assert(sizeof(Layout) <= sizeof(cublasLtMatrixLayoutOpaque_t));

struct MatmulDescription {
  int32_t compute, scale, pointerMode, transA, transB, transC;
  uint32_t epilogue;
  int32_t biasType, auxType, smTarget;
  void *bias, *aux;
  int64_t biasStride, auxLd, auxStride;
};
static_assert(sizeof(MatmulDescription) <= sizeof(cublasLtMatmulDescOpaque_t));

struct Preference {
  uint64_t workspace;
  uint32_t search, reductions, alignA, alignB, alignC, alignD;
};
static_assert(sizeof(Preference) <= sizeof(cublasLtMatmulPreferenceOpaque_t));

struct Algo {
  uint64_t magic, problem; ///< hash of the problem that it was chosen for, without the sizes
  uint64_t workspace;
  int32_t id, alignment; ///< required of all matrices, in bytes
  int32_t splits, tile;
};
static_assert(sizeof(Algo) <= sizeof(cublasLtMatmulAlgo_t));
constexpr uint64_t algoMagic = 0x636c65617665616cULL;

inline const Layout &of(cublasLtMatrixLayout_t l) { return *reinterpret_cast<const Layout *>(l); }
inline const MatmulDescription &of(cublasLtMatmulDesc_t d) { return *reinterpret_cast<const MatmulDescription *>(d); }

/// A product as the caller describes it.
struct Problem {
  MatmulDescription op;
  Layout a, b, c, d;
  uint64_t m() const { return d.rows; }
  uint64_t n() const { return d.cols; }
  uint64_t k() const { return op.transA == CUBLAS_OP_N ? a.cols : a.rows; }
  uint64_t hash() const;
};

size_t sizeOf(uint32_t type);
inline bool takesBias(uint32_t e) { return e >= 256 || (e & 16) || (e & 4); }
inline bool takesAux(uint32_t e) { return e & 128; }
inline bool isActivation(uint32_t e) { return e < 256 && (e & (2 | 8 | 32 | 64)); }
inline bool isBackward(uint32_t e) { return e >= 256 || (e & (8 | 64)); }

/// Whether cuBLASLt supports this product: INVALID_VALUE if the descriptors contradict one another, NOT_SUPPORTED if
/// there is no kernel.
cublasStatus_t judge(const Problem &p);
/// The largest power of two up to 256 that divides every leading dimension (and batch stride) in bytes.
uint64_t alignmentOf(const Problem &p);
/// Writes the algorithms for a problem, best first, within the limits of workspace and pointer alignment. Returns their
/// number.
int choose(const Problem &p, uint64_t workspace, uint64_t alignment, int most, Algo *algos);

} // namespace cleave::fake

struct cublasLtContext {
  int device;
};
