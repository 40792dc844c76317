// Handles and descriptors.
#include "tests/fake/cublas/Types.h"

#include "tests/fake/cuda/Fake.h"

#include <cstddef>
#include <cstring>
#include <cuda.h>

using namespace cleave::fake;

namespace {

struct Field {
  int attribute;
  size_t offset, bytes;
};

constexpr Field layoutFields[] = {
    {CUBLASLT_MATRIX_LAYOUT_TYPE, offsetof(Layout, type), 4},
    {CUBLASLT_MATRIX_LAYOUT_ORDER, offsetof(Layout, order), 4},
    {CUBLASLT_MATRIX_LAYOUT_ROWS, offsetof(Layout, rows), 8},
    {CUBLASLT_MATRIX_LAYOUT_COLS, offsetof(Layout, cols), 8},
    {CUBLASLT_MATRIX_LAYOUT_LD, offsetof(Layout, ld), 8},
    {CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, offsetof(Layout, batch), 4},
    {CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, offsetof(Layout, stride), 8},
};
constexpr Field operationFields[] = {
    {CUBLASLT_MATMUL_DESC_COMPUTE_TYPE, offsetof(MatmulDescription, compute), 4},
    {CUBLASLT_MATMUL_DESC_SCALE_TYPE, offsetof(MatmulDescription, scale), 4},
    {CUBLASLT_MATMUL_DESC_POINTER_MODE, offsetof(MatmulDescription, pointerMode), 4},
    {CUBLASLT_MATMUL_DESC_TRANSA, offsetof(MatmulDescription, transA), 4},
    {CUBLASLT_MATMUL_DESC_TRANSB, offsetof(MatmulDescription, transB), 4},
    {CUBLASLT_MATMUL_DESC_TRANSC, offsetof(MatmulDescription, transC), 4},
    {CUBLASLT_MATMUL_DESC_EPILOGUE, offsetof(MatmulDescription, epilogue), 4},
    {CUBLASLT_MATMUL_DESC_BIAS_POINTER, offsetof(MatmulDescription, bias), 8},
    {CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE, offsetof(MatmulDescription, biasStride), 8},
    {CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, offsetof(MatmulDescription, aux), 8},
    {CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, offsetof(MatmulDescription, auxLd), 8},
    {CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE, offsetof(MatmulDescription, auxStride), 8},
    {CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET, offsetof(MatmulDescription, smTarget), 4},
    {CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE, offsetof(MatmulDescription, auxType), 4},
    {CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, offsetof(MatmulDescription, biasType), 4},
};
constexpr Field preferenceFields[] = {
    {CUBLASLT_MATMUL_PREF_SEARCH_MODE, offsetof(Preference, search), 4},
    {CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, offsetof(Preference, workspace), 8},
    {CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, offsetof(Preference, reductions), 4},
    {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, offsetof(Preference, alignA), 4},
    {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, offsetof(Preference, alignB), 4},
    {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, offsetof(Preference, alignC), 4},
    {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, offsetof(Preference, alignD), 4},
};
constexpr Field algoFields[] = {
    {CUBLASLT_ALGO_CONFIG_ID, offsetof(Algo, id), 4},
    {CUBLASLT_ALGO_CONFIG_TILE_ID, offsetof(Algo, tile), 4},
    {CUBLASLT_ALGO_CONFIG_SPLITK_NUM, offsetof(Algo, splits), 4},
};

template <size_t N> const Field *find(const Field (&fields)[N], int attribute) {
  for (const Field &f : fields)
    if (f.attribute == attribute)
      return &f;
  return nullptr;
}

template <size_t N>
cublasStatus_t set(const Field (&fields)[N], void *to, int attribute, const void *value, size_t bytes) {
  const Field *field = find(fields, attribute);
  if (!to || !value || !field || bytes != field->bytes)
    return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(static_cast<char *>(to) + field->offset, value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

template <size_t N>
cublasStatus_t get(const Field (&fields)[N], const void *from, int attribute, void *value, size_t bytes,
                   size_t *written) {
  const Field *field = find(fields, attribute);
  if (!from || !field || (bytes == 0 && !written))
    return CUBLAS_STATUS_INVALID_VALUE;
  if (written)
    *written = field->bytes;
  if (bytes == 0)
    return CUBLAS_STATUS_SUCCESS;
  if (!value || bytes < field->bytes)
    return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(value, static_cast<const char *>(from) + field->offset, field->bytes);
  return CUBLAS_STATUS_SUCCESS;
}

#define CLEAVE_FAKE_COUNT()                                                                                            \
  if (const int code = cleaveFakeCount(__func__))                                                                      \
  return static_cast<cublasStatus_t>(code)

/// Creates a descriptor on the heap that begins with `value`.
template <typename Opaque, typename T> cublasStatus_t create(Opaque **result, const T &value, const char *kind) {
  if (!result)
    return CUBLAS_STATUS_INVALID_VALUE;
  *result = new Opaque{};
  std::memcpy(static_cast<void *>(*result), &value, sizeof value);
  cleaveFakeObject(kind, 1);
  return CUBLAS_STATUS_SUCCESS;
}

template <typename Opaque> cublasStatus_t destroy(Opaque *object, const char *kind) {
  if (object)
    cleaveFakeObject(kind, -1);
  delete object;
  return CUBLAS_STATUS_SUCCESS;
}

} // namespace

cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle) {
  CLEAVE_FAKE_COUNT();
  CUcontext context = nullptr;
  CUdevice device = 0;
  if (!handle)
    return CUBLAS_STATUS_INVALID_VALUE;
  if (cuCtxGetCurrent(&context) != CUDA_SUCCESS || !context || cuCtxGetDevice(&device) != CUDA_SUCCESS)
    return CUBLAS_STATUS_NOT_INITIALIZED;
  *handle = new cublasLtContext{device};
  cleaveFakeObject("cuBLASLt handles", 1);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  CLEAVE_FAKE_COUNT();
  return handle ? destroy(handle, "cuBLASLt handles") : CUBLAS_STATUS_NOT_INITIALIZED;
}

size_t cublasLtGetVersion() { return CUBLAS_VERSION; }
size_t cublasLtGetCudartVersion() { return 13000; }

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *layout, cudaDataType type, uint64_t rows,
                                          uint64_t cols, int64_t ld) {
  CLEAVE_FAKE_COUNT();
  return create(layout, Layout{static_cast<uint32_t>(type), CUBLASLT_ORDER_COL, rows, cols, ld, 0, 1, 0},
                "matrix layouts");
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) { return destroy(layout, "matrix layouts"); }
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attribute, const void *value,
                                                size_t bytes) {
  CLEAVE_FAKE_COUNT();
  return set(layoutFields, layout, attribute, value, bytes);
}
cublasStatus_t cublasLtMatrixLayoutGetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attribute, void *value, size_t bytes,
                                                size_t *written) {
  return get(layoutFields, layout, attribute, value, bytes, written);
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *desc, cublasComputeType_t compute, cudaDataType_t scale) {
  CLEAVE_FAKE_COUNT();
  MatmulDescription op{};
  op.compute = compute;
  op.scale = scale;
  op.epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  op.biasType = op.auxType = -1;
  return create(desc, op, "matmul descriptors");
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc) { return destroy(desc, "matmul descriptors"); }
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attribute,
                                              const void *value, size_t bytes) {
  CLEAVE_FAKE_COUNT();
  return set(operationFields, desc, attribute, value, bytes);
}
cublasStatus_t cublasLtMatmulDescGetAttribute(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attribute,
                                              void *value, size_t bytes, size_t *written) {
  return get(operationFields, desc, attribute, value, bytes, written);
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *preference) {
  CLEAVE_FAKE_COUNT();
  return create(preference, Preference{0, 0, 0, 256, 256, 256, 256}, "matmul preferences");
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  return destroy(preference, "matmul preferences");
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute, const void *value,
                                                    size_t bytes) {
  CLEAVE_FAKE_COUNT();
  return set(preferenceFields, preference, attribute, value, bytes);
}
cublasStatus_t cublasLtMatmulPreferenceGetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute, void *value,
                                                    size_t bytes, size_t *written) {
  return get(preferenceFields, preference, attribute, value, bytes, written);
}

cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t *algo,
                                                    cublasLtMatmulAlgoConfigAttributes_t attribute, void *value,
                                                    size_t bytes, size_t *written) {
  return get(algoFields, algo, attribute, value, bytes, written);
}

const char *cublasLtGetStatusName(cublasStatus_t status) {
#define CLEAVE_FAKE_STATUS(code)                                                                                       \
  case code:                                                                                                           \
    return #code
  switch (status) {
    CLEAVE_FAKE_STATUS(CUBLAS_STATUS_SUCCESS);
    CLEAVE_FAKE_STATUS(CUBLAS_STATUS_NOT_INITIALIZED);
    CLEAVE_FAKE_STATUS(CUBLAS_STATUS_ALLOC_FAILED);
    CLEAVE_FAKE_STATUS(CUBLAS_STATUS_INVALID_VALUE);
    CLEAVE_FAKE_STATUS(CUBLAS_STATUS_ARCH_MISMATCH);
    CLEAVE_FAKE_STATUS(CUBLAS_STATUS_MAPPING_ERROR);
    CLEAVE_FAKE_STATUS(CUBLAS_STATUS_EXECUTION_FAILED);
    CLEAVE_FAKE_STATUS(CUBLAS_STATUS_INTERNAL_ERROR);
    CLEAVE_FAKE_STATUS(CUBLAS_STATUS_NOT_SUPPORTED);
    CLEAVE_FAKE_STATUS(CUBLAS_STATUS_LICENSE_ERROR);
  }
  return "CUBLAS_STATUS_UNKNOWN";
}

const char *cublasLtGetStatusString(cublasStatus_t status) {
  switch (status) {
  case CUBLAS_STATUS_SUCCESS:
    return "success";
  case CUBLAS_STATUS_INVALID_VALUE:
    return "an unsupported value or parameter was passed to the function";
  case CUBLAS_STATUS_NOT_SUPPORTED:
    return "the functionality requested is not supported";
  case CUBLAS_STATUS_EXECUTION_FAILED:
    return "the GPU program failed to execute";
  default:
    return cublasLtGetStatusName(status);
  }
}
