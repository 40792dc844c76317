// cuBLASLt against plain loops: layouts, types, batches, scale factors, epilogues, algorithms, and refused calls.
#include "tests/fake/tests/Reference.h"
#include "tests/fake/tests/Support.h"
#include "tests/support/Worst.h"

#include <cmath>

using namespace cleave::fake;

namespace {

struct Case {
  cudaDataType_t in = CUDA_R_32F, out = CUDA_R_32F;
  cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
  cublasOperation_t transA = CUBLAS_OP_N, transB = CUBLAS_OP_N;
  int32_t orderA = CUBLASLT_ORDER_COL, orderB = CUBLASLT_ORDER_COL, orderD = CUBLASLT_ORDER_COL;
  size_t m = 24, n = 16, k = 8, pad = 0, batch = 1;
  float alpha = 1, beta = 0;
  uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  bool scalarsOnDevice = false, interleaved = false; ///< interleaved: the results of a batch lie side by side
};

bool has(uint32_t e, uint32_t bit) { return e < 256 && (e & bit); }
bool maskEpilogue(uint32_t e) { return has(e, 128) && (has(e, 2) || has(e, 8)); }
bool backward(uint32_t e) { return e >= 256 || has(e, 8) || has(e, 64); }

/// The matrices of a test case, on the host and on the device.
struct Run {
  Case c;
  Matrix a, b, in, out;
  size_t auxLd;
  std::vector<uint8_t> bias, aux;
  Array<uint8_t> da, db, dout, dbias, daux;
  cublasLtHandle_t handle = nullptr;
  cublasLtMatmulDesc_t desc = nullptr;
  cublasLtMatrixLayout_t la, lb, ld;

  explicit Run(const Case &c)
      : c(c), a(make(c, c.orderA, c.transA == CUBLAS_OP_N, c.m, c.k, 1)),
        b(make(c, c.orderB, c.transB == CUBLAS_OP_N, c.k, c.n, 2)), in(c.out, c.orderD, c.m, c.n, c.pad, c.batch, 3),
        out(in), auxLd((c.m + 127) / 128 * 128), bias(std::max(c.m, c.n) * bytesOf(c.out)), aux(auxLd * c.n * 4, 0),
        da(a.bytes), db(b.bytes), dout(out.bytes), dbias(fillBias()), daux(fillAux()), la(a.layout()), lb(b.layout()),
        ld(out.layout()) {
    REQUIRE(cublasLtCreate(&handle) == CUBLAS_STATUS_SUCCESS);
    if (c.interleaved) {
      const auto side = static_cast<int64_t>(out.stride = c.m);
      cublasLtMatrixLayoutSetAttribute(ld, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &side, sizeof side);
    }
    REQUIRE(cublasLtMatmulDescCreate(&desc, c.compute, CUDA_R_32F) == CUBLAS_STATUS_SUCCESS);
    set(CUBLASLT_MATMUL_DESC_TRANSA, static_cast<int32_t>(c.transA));
    set(CUBLASLT_MATMUL_DESC_TRANSB, static_cast<int32_t>(c.transB));
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, c.epilogue);
    set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, dbias.data());
    set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, daux.data());
    set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, static_cast<int64_t>(auxLd));
    if (c.scalarsOnDevice)
      set(CUBLASLT_MATMUL_DESC_POINTER_MODE, int32_t{CUBLASLT_POINTER_MODE_DEVICE});
  }
  ~Run() {
    for (cublasLtMatrixLayout_t layout : {la, lb, ld})
      cublasLtMatrixLayoutDestroy(layout);
    cublasLtMatmulDescDestroy(desc);
    cublasLtDestroy(handle);
  }
  static Matrix make(const Case &c, int32_t order, bool plain, size_t rows, size_t cols, unsigned seed) {
    return {c.in, order, plain ? rows : cols, plain ? cols : rows, c.pad, c.batch, seed};
  }
  template <typename T> void set(cublasLtMatmulDescAttributes_t attribute, T value) {
    REQUIRE(cublasLtMatmulDescSetAttribute(desc, attribute, &value, sizeof value) == CUBLAS_STATUS_SUCCESS);
  }
  const std::vector<uint8_t> &fillBias() {
    for (size_t i = 0; i < bias.size() / bytesOf(c.out); ++i)
      setElement(bias.data(), c.out, i, static_cast<double>(i % 7) - 3);
    return bias;
  }
  const std::vector<uint8_t> &fillAux() {
    for (size_t i = 0; i < auxLd * c.n; ++i)
      if (!maskEpilogue(c.epilogue))
        setElement(aux.data(), c.out, i, static_cast<double>(i % 11) / 4 - 1);
    for (size_t i = 0; maskEpilogue(c.epilogue) && i < auxLd * c.n / 8; ++i)
      aux[i] = static_cast<uint8_t>(i * 37);
    return aux;
  }

  cublasStatus_t call(CUstream stream, const cublasLtMatmulAlgo_t *algo = nullptr, void *workspace = nullptr,
                      size_t bytes = 0) {
    const Array<float> scalars(std::vector<float>{c.alpha, c.beta});
    const void *alpha = c.scalarsOnDevice ? static_cast<void *>(scalars.data()) : &c.alpha;
    const void *beta = c.scalarsOnDevice ? static_cast<void *>(scalars.data() + 1) : &c.beta;
    const cublasStatus_t status =
        cublasLtMatmul(handle, desc, alpha, da.data(), la, db.data(), lb, beta, dout.data(), ld, dout.data(), ld, algo,
                       workspace, bytes, reinterpret_cast<cudaStream_t>(stream));
    cuStreamSynchronize(stream);
    return status;
  }

  double product(size_t batch, size_t i, size_t j) const {
    double sum = 0;
    for (size_t l = 0; l < c.k; ++l)
      sum += (c.transA == CUBLAS_OP_N ? a.get(batch, i, l) : a.get(batch, l, i)) *
             (c.transB == CUBLAS_OP_N ? b.get(batch, l, j) : b.get(batch, j, l));
    return c.alpha * sum + (c.beta == 0 ? 0 : c.beta * in.get(batch, i, j));
  }

  bool maskBit(const std::vector<uint8_t> &words, size_t i, size_t j) const {
    const size_t bit = j * auxLd + i;
    return words[bit / 8] >> bit % 8 & 1;
  }

  /// The value x after the epilogue.
  double after(double x, size_t i, size_t j) const {
    const uint32_t e = c.epilogue;
    if (has(e, 4))
      x += element(bias.data(), c.out, i);
    if (has(e, 8))
      return maskBit(aux, i, j) ? x : 0;
    if (has(e, 64))
      return x * referenceGeluSlope(element(aux.data(), c.out, j * auxLd + i));
    return has(e, 2) ? std::max(x, 0.0) : has(e, 32) ? referenceGelu(x) : x;
  }

  void check() const {
    Matrix got = out;
    got.bytes = dout.read();
    const std::vector<uint8_t> gotBias = dbias.read(), gotAux = daux.read();
    const double tolerance = c.out == CUDA_R_32F ? 1e-4 : c.out == CUDA_R_16F ? 2e-3 : 2e-2;
    std::vector<double> rows(c.m);
    double worst = 0;
    for (size_t batch = 0; batch < c.batch; ++batch)
      for (size_t i = 0; i < c.m; ++i)
        for (size_t j = 0; j < c.n; ++j) {
          const double x = product(batch, i, j), want = after(x, i, j);
          rows[i] += want;
          worst = cleave::test::worseOf(worst, std::fabs(got.get(batch, i, j) - want) / (1 + std::fabs(want)));
          const double before = x + (has(c.epilogue, 4) ? element(bias.data(), c.out, i) : 0);
          if (has(c.epilogue, 128) && has(c.epilogue, 2))
            CHECK(maskBit(gotAux, i, j) == (before > 0));
          if (has(c.epilogue, 128) && has(c.epilogue, 32))
            CHECK(std::fabs(element(gotAux.data(), c.out, j * auxLd + i) - before) <=
                  tolerance * (1 + std::fabs(before)));
        }
    CHECK(worst < tolerance);
    checkBias(gotBias, rows, tolerance);
  }

  void checkBias(const std::vector<uint8_t> &got, const std::vector<double> &rows, double tolerance) const {
    const uint32_t e = c.epilogue;
    if (!has(e, 16) && e < 256) {
      CHECK(got == bias);
      return;
    }
    for (size_t i = 0; i < (e == CUBLASLT_EPILOGUE_BGRADB ? c.n : c.m); ++i) {
      double want = has(e, 16) ? rows[i] : 0;
      for (size_t l = 0; e >= 256 && l < c.k; ++l)
        want += e == CUBLASLT_EPILOGUE_BGRADA ? (c.transA == CUBLAS_OP_N ? a.get(0, i, l) : a.get(0, l, i))
                                              : (c.transB == CUBLAS_OP_N ? b.get(0, l, i) : b.get(0, i, l));
      CHECK(std::fabs(element(got.data(), c.out, i) - want) <= 4 * tolerance * (1 + std::fabs(want)));
    }
  }
};

void runAndCheck(const Case &c) {
  Stream stream;
  Run run(c);
  REQUIRE(run.call(stream) == CUBLAS_STATUS_SUCCESS);
  run.check();
}

cublasStatus_t statusOf(const Case &c) {
  Stream stream;
  Run run(c);
  return run.call(stream);
}

constexpr uint32_t epilogues[] = {1, 2, 130, 4, 6, 134, 136, 152, 32, 160, 36, 164, 192, 208, 256, 512};

} // namespace

TEST_CASE("fake: products in every layout") {
  Gpu gpu;
  for (int bits = 0; bits < 64; ++bits) {
    Case c;
    c.transA = bits & 1 ? CUBLAS_OP_T : CUBLAS_OP_N;
    c.transB = bits & 2 ? CUBLAS_OP_T : CUBLAS_OP_N;
    c.orderA = bits & 4 ? CUBLASLT_ORDER_ROW : CUBLASLT_ORDER_COL;
    c.orderB = bits & 8 ? CUBLASLT_ORDER_ROW : CUBLASLT_ORDER_COL;
    c.orderD = bits & 16 ? CUBLASLT_ORDER_ROW : CUBLASLT_ORDER_COL;
    c.batch = bits & 32 ? 3 : 1;
    c.pad = bits & 32 ? 3 : 0;
    c.m = bits & 32 ? 7 : 24;
    c.alpha = 0.5f;
    c.beta = bits & 1 ? 2.0f : 0.0f;
    c.scalarsOnDevice = bits & 2;
    runAndCheck(c);
  }
}

TEST_CASE("fake: products whose results lie side by side") {
  Gpu gpu;
  Case c;
  c.batch = 3;
  c.pad = 2 * c.m;
  c.interleaved = true;
  runAndCheck(c);
  c.pad = 2 * c.m - 8; // the results overlap
  CHECK(statusOf(c) == CUBLAS_STATUS_INVALID_VALUE);
}

TEST_CASE("fake: cuBLASLt fails when a test wants it, and says what is left") {
  Gpu gpu;
  Stream stream;
  {
    Run run{Case{}};
    cleaveFakeFail("cublasLtMatmul", 1, CUBLAS_STATUS_INTERNAL_ERROR);
    CHECK(run.call(stream) == CUBLAS_STATUS_INTERNAL_ERROR);
    CHECK(run.call(stream) == CUBLAS_STATUS_SUCCESS);
    CHECK(std::string(cleaveFakeLeaksText()).find("cuBLASLt handles") != std::string::npos);
  }
  CUcontext context = nullptr;
  CHECK_CUDA(cuCtxGetCurrent(&context));
  CHECK_CUDA(cuCtxSetCurrent(nullptr));
  cublasLtHandle_t handle = nullptr;
  CHECK(cublasLtCreate(&handle) == CUBLAS_STATUS_NOT_INITIALIZED);
  CHECK_CUDA(cuCtxSetCurrent(context));
}

TEST_CASE("fake: products of every type with every epilogue") {
  Gpu gpu;
  for (auto [in, out] :
       {std::pair{CUDA_R_32F, CUDA_R_32F}, std::pair{CUDA_R_16F, CUDA_R_16F}, std::pair{CUDA_R_16BF, CUDA_R_16BF},
        std::pair{CUDA_R_16F, CUDA_R_32F}, std::pair{CUDA_R_16BF, CUDA_R_32F}})
    for (uint32_t epilogue : epilogues)
      for (bool transposed : {false, true}) {
        Case c;
        c.in = in;
        c.out = out;
        c.epilogue = epilogue;
        c.transA = transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
        c.transB = transposed ? CUBLAS_OP_N : CUBLAS_OP_T;
        c.beta = transposed ? 1.0f : 0.0f;
        runAndCheck(c);
      }
}

TEST_CASE("fake: TF32 sees 10 bits of what it multiplies") {
  Gpu gpu;
  Stream stream;
  Array<float> a(std::vector<float>{1 + 1.0f / 4096}), b(std::vector<float>{1}), d(1);
  for (auto [compute, want] :
       {std::pair{CUBLAS_COMPUTE_32F, 1 + 1.0f / 4096}, std::pair{CUBLAS_COMPUTE_32F_FAST_TF32, 1.0f}}) {
    cublasLtHandle_t handle;
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t one;
    cublasLtCreate(&handle);
    cublasLtMatmulDescCreate(&desc, compute, CUDA_R_32F);
    cublasLtMatrixLayoutCreate(&one, CUDA_R_32F, 1, 1, 1);
    const float alpha = 1, beta = 0;
    CHECK(cublasLtMatmul(handle, desc, &alpha, a.data(), one, b.data(), one, &beta, d.data(), one, d.data(), one,
                         nullptr, nullptr, 0, reinterpret_cast<cudaStream_t>(stream.handle)) == CUBLAS_STATUS_SUCCESS);
    stream.wait();
    CHECK(d.read()[0] == want);
    cublasLtMatrixLayoutDestroy(one);
    cublasLtMatmulDescDestroy(desc);
    cublasLtDestroy(handle);
  }
}

TEST_CASE("fake: algorithms keep to the workspace and to what they were chosen for") {
  Gpu gpu;
  Stream stream;
  Case c;
  c.m = c.n = c.k = 32;
  Run run(c);
  cublasLtMatmulPreference_t preference;
  REQUIRE(cublasLtMatmulPreferenceCreate(&preference) == CUBLAS_STATUS_SUCCESS);
  cublasLtMatmulHeuristicResult_t results[8];
  int found = 0;
  const auto ask = [&](uint64_t limit) {
    cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &limit, sizeof limit);
    return cublasLtMatmulAlgoGetHeuristic(run.handle, run.desc, run.la, run.lb, run.ld, run.ld, preference, 8, results,
                                          &found);
  };
  REQUIRE(ask(0) == CUBLAS_STATUS_SUCCESS);
  CHECK(found == 2);
  REQUIRE(ask(8192) == CUBLAS_STATUS_SUCCESS);
  CHECK(found == 3);
  REQUIRE(ask(1 << 20) == CUBLAS_STATUS_SUCCESS);
  CHECK(found == 4);
  Array<uint8_t> workspace(1 << 20);
  for (int i = 0; i < found; ++i) {
    const size_t need = results[i].workspaceSize;
    CHECK(run.call(stream, &results[i].algo, workspace.data(), need) == CUBLAS_STATUS_SUCCESS);
    run.check();
    if (need > 0)
      CHECK(run.call(stream, &results[i].algo, workspace.data(), need - 16) == CUBLAS_STATUS_INVALID_VALUE);
  }
  run.set(CUBLASLT_MATMUL_DESC_TRANSA, int32_t{CUBLAS_OP_T}); // the algorithm was chosen for another product
  CHECK(run.call(stream, &results[0].algo, workspace.data(), 1 << 20) == CUBLAS_STATUS_NOT_SUPPORTED);
  cublasLtMatmulPreferenceDestroy(preference);
}

TEST_CASE("fake: products that cuBLASLt does not do") {
  Gpu gpu;
  const auto with = [](auto change) {
    Case c;
    change(c);
    return statusOf(c);
  };
  CHECK(with([](Case &c) { c.compute = CUBLAS_COMPUTE_64F; }) == CUBLAS_STATUS_NOT_SUPPORTED);
  CHECK(with([](Case &c) { c.in = CUDA_R_16F, c.out = CUDA_R_16BF; }) == CUBLAS_STATUS_NOT_SUPPORTED);
  CHECK(with([](Case &c) { c.in = c.out = CUDA_R_16F, c.compute = CUBLAS_COMPUTE_32F_FAST_TF32; }) ==
        CUBLAS_STATUS_NOT_SUPPORTED);
  CHECK(with([](Case &c) { c.epilogue = 77; }) == CUBLAS_STATUS_INVALID_VALUE);
  CHECK(with([](Case &c) { c.epilogue = CUBLASLT_EPILOGUE_DGELU, c.m = 23; }) == CUBLAS_STATUS_NOT_SUPPORTED);
  CHECK(with([](Case &c) { c.epilogue = CUBLASLT_EPILOGUE_BIAS, c.orderD = CUBLASLT_ORDER_ROW; }) ==
        CUBLAS_STATUS_NOT_SUPPORTED);
  Stream stream;
  Case c;
  c.epilogue = CUBLASLT_EPILOGUE_RELU_AUX_BIAS;
  Run run(c);
  run.set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, int64_t{64});
  CHECK(run.call(stream) == CUBLAS_STATUS_INVALID_VALUE);
  run.set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, int64_t{128});
  run.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, static_cast<void *>(nullptr));
  CHECK(run.call(stream) == CUBLAS_STATUS_INVALID_VALUE);
  const int64_t narrow = 8;
  run.set(CUBLASLT_MATMUL_DESC_EPILOGUE, uint32_t{CUBLASLT_EPILOGUE_DEFAULT});
  CHECK(run.call(stream) == CUBLAS_STATUS_SUCCESS);
  cublasLtMatrixLayoutSetAttribute(run.la, CUBLASLT_MATRIX_LAYOUT_LD, &narrow, sizeof narrow);
  CHECK(run.call(stream) == CUBLAS_STATUS_INVALID_VALUE);
}

TEST_CASE("fake: a library without activations") {
  Gpu gpu;
  const auto status = [](uint32_t epilogue) {
    Case c;
    c.epilogue = epilogue;
    return statusOf(c);
  };
  cleaveFakeSet("activations=0");
  CHECK(status(CUBLASLT_EPILOGUE_GELU_AUX_BIAS) == CUBLAS_STATUS_NOT_SUPPORTED);
  CHECK(status(CUBLASLT_EPILOGUE_RELU) == CUBLAS_STATUS_NOT_SUPPORTED);
  CHECK(status(CUBLASLT_EPILOGUE_DGELU) == CUBLAS_STATUS_NOT_SUPPORTED);
  CHECK(status(CUBLASLT_EPILOGUE_BIAS) == CUBLAS_STATUS_SUCCESS);
  cleaveFakeSet("activations=1");
  CHECK(status(CUBLASLT_EPILOGUE_DGELU) == CUBLAS_STATUS_SUCCESS);
}
