// cuBLASLt is column-major. A row-major c[m, n] is an n x m matrix for the library, so c = a b becomes c' = b' a', and
// a bias per column of c is a bias per row for the library. An epilogue (a bias, an activation, its gradient) is fused
// into the library's call if the documentation allows it. A kernel of the runtime runs after the product instead if the
// documentation does not allow it, if the library has no algorithm, or if measurements show that the separate kernel is
// faster.
//
// The gradient of a bias is computed together with that of the weight (BGRAD) only if the weight's gradient is f32: the
// library returns both in one type (cuBLAS documentation, table of supported types), so a half result would round the
// bias gradient to half.
#include "runtime/cuda/library/CublasLt.h"

#include "runtime/base/Error.h"
#include "runtime/cuda/driver/Library.h"
#include "runtime/cuda/driver/Measure.h"
#include "runtime/cuda/kernels/KernelTypes.h"
#include "runtime/device/MatmulShape.h"
#include "runtime/plan/DTypes.h"
#include "runtime/plan/plan_generated.h"

#include <cublasLt.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>

namespace cleave::cuda {

struct CublasLt::Functions {
  cublasLtHandle_t handle = nullptr;
  decltype(&::cublasLtCreate) create;
  decltype(&::cublasLtDestroy) destroy;
  decltype(&::cublasLtGetVersion) getVersion;
  decltype(&::cublasLtGetStatusString) getStatusString;
  decltype(&::cublasLtMatmulDescCreate) descCreate;
  decltype(&::cublasLtMatmulDescDestroy) descDestroy;
  decltype(&::cublasLtMatmulDescSetAttribute) descSet;
  decltype(&::cublasLtMatrixLayoutCreate) layoutCreate;
  decltype(&::cublasLtMatrixLayoutDestroy) layoutDestroy;
  decltype(&::cublasLtMatrixLayoutSetAttribute) layoutSet;
  decltype(&::cublasLtMatmulPreferenceCreate) preferenceCreate;
  decltype(&::cublasLtMatmulPreferenceDestroy) preferenceDestroy;
  decltype(&::cublasLtMatmulPreferenceSetAttribute) preferenceSet;
  decltype(&::cublasLtMatmulAlgoGetHeuristic) heuristic;
  decltype(&::cublasLtMatmul) matmul;

  void check(cublasStatus_t status, const char *what) const {
    if (status != CUBLAS_STATUS_SUCCESS)
      throw environmentError(fmt::format("cublasLt: {}: {}", what, getStatusString(status)));
  }
};

CublasLt::CublasLt() : functions(std::make_unique<Functions>()) {
  const Library library = Library::open({"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"});
  if (!library)
    throw environmentError(
        fmt::format("cuda: cuBLASLt is missing (libcublasLt.so.13); it comes with the CUDA toolkit: {}", library.why));
  Functions &f = *functions;
  library.bind(f.create, "cublasLtCreate");
  library.bind(f.destroy, "cublasLtDestroy");
  library.bind(f.getVersion, "cublasLtGetVersion");
  library.bind(f.getStatusString, "cublasLtGetStatusString");
  library.bind(f.descCreate, "cublasLtMatmulDescCreate");
  library.bind(f.descDestroy, "cublasLtMatmulDescDestroy");
  library.bind(f.descSet, "cublasLtMatmulDescSetAttribute");
  library.bind(f.layoutCreate, "cublasLtMatrixLayoutCreate");
  library.bind(f.layoutDestroy, "cublasLtMatrixLayoutDestroy");
  library.bind(f.layoutSet, "cublasLtMatrixLayoutSetAttribute");
  library.bind(f.preferenceCreate, "cublasLtMatmulPreferenceCreate");
  library.bind(f.preferenceDestroy, "cublasLtMatmulPreferenceDestroy");
  library.bind(f.preferenceSet, "cublasLtMatmulPreferenceSetAttribute");
  library.bind(f.heuristic, "cublasLtMatmulAlgoGetHeuristic");
  library.bind(f.matmul, "cublasLtMatmul");
  f.check(f.create(&f.handle), "cublasLtCreate");
}

CublasLt::~CublasLt() {
  if (functions->handle)
    functions->destroy(functions->handle);
}

std::string CublasLt::version() const {
  const size_t number = functions->getVersion();
  return fmt::format("{}.{}.{}", number / 10000, number / 100 % 100, number % 100);
}

namespace {

using Functions = CublasLt::Functions;

cudaDataType_t dataType(plan::DType dtype) {
  switch (dtype) {
  case plan::DType::F32:
    return CUDA_R_32F;
  case plan::DType::F16:
    return CUDA_R_16F;
  case plan::DType::BF16:
    return CUDA_R_16BF;
  default:
    throw environmentError(fmt::format("cuda: matrix products of type {} are not supported", dtypeName(dtype)));
  }
}

static_assert(int(plan::Epilogue::Relu) == int(EpilogueKind::Relu) &&
              int(plan::Epilogue::Gelu) == int(EpilogueKind::Gelu) &&
              int(plan::Epilogue::GeluGradient) == int(EpilogueKind::GeluGradient));

constexpr uint32_t slotAlignment = 64; // bytes

/// A product in the library's terms; the library is called once per combination of the outer batch dimensions.
struct Problem {
  MatmulShape shape;
  plan::DType aType, bType, cType, biasType;
  plan::Epilogue epilogue = plan::Epilogue::None;
  bool accumulate = false, hasBias = false, hasAux = false, hasRowSums = false;
  bool inLibrary = false;            ///< the library supports bias and epilogue
  int64_t auxRow = 0, auxColumn = 0; ///< strides of the auxiliary matrix along rows and columns of c
  int64_t batch = 1;                 ///< of one call
  int64_t aBatch = 0, bBatch = 0, cBatch = 0;
  std::vector<std::array<int64_t, 3>> calls;                             ///< offsets of a, b and c, in elements
  uint32_t alignment[3] = {slotAlignment, slotAlignment, slotAlignment}; ///< of a, b and c, in bytes
  uint32_t auxAlignment = slotAlignment;

  bool hasFollowers() const { return hasBias || epilogue != plan::Epilogue::None; }
  std::string text() const {
    const auto operand = [](const MatmulOperand &o, int64_t batch, plan::DType type) {
      return fmt::format("{} {}x{} b{}", dtypeName(type), o.row, o.column, batch);
    };
    const std::string after =
        epilogue == plan::Epilogue::None
            ? ""
            : fmt::format(" {}{}", EnumNameEpilogue(epilogue), hasAux ? fmt::format(" aux {}", auxRow) : "");
    return fmt::format("m{} n{} k{} batch{} a[{}] b[{}] c[{}]{}{}{}{} align {}", shape.m, shape.n, shape.k, batch,
                       operand(shape.a, aBatch, aType), operand(shape.b, bBatch, bType),
                       operand(shape.c, cBatch, cType), accumulate ? " accumulate" : "",
                       hasBias && inLibrary ? " bias" : "", hasRowSums ? " row sums" : "", after,
                       fmt::join(alignment, ","));
  }
};

/// The library's requirements (cublasLtEpilogue_t, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD): a bias per row of its matrix,
/// in the result's type; rows of the auxiliary matrix at multiples of 16 bytes.
bool libraryTakesFollowers(const Problem &p, int64_t auxOffset) {
  const bool bias = !p.hasBias || (!p.shape.exchanged && p.biasType == p.cType);
  const bool aux = !p.hasAux || (p.auxColumn == 1 && p.auxRow >= p.shape.n && p.auxRow % 8 == 0 && auxOffset % 16 == 0);
  return (p.hasFollowers() && bias && aux) || (p.hasRowSums && !p.shape.exchanged);
}

/// Only valid if inLibrary.
cublasLtEpilogue_t libraryEpilogue(const Problem &p) {
  if (p.hasRowSums)
    return CUBLASLT_EPILOGUE_BGRADB; // our a is the library's B
  switch (p.epilogue) {
  case plan::Epilogue::Relu:
    return p.hasBias ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_RELU;
  case plan::Epilogue::Gelu:
    if (p.hasAux)
      return p.hasBias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
    return p.hasBias ? CUBLASLT_EPILOGUE_GELU_BIAS : CUBLASLT_EPILOGUE_GELU;
  case plan::Epilogue::GeluGradient:
    return CUBLASLT_EPILOGUE_DGELU;
  default:
    return CUBLASLT_EPILOGUE_BIAS;
  }
}

/// Passes the largest batch dimension to the library; the others become separate calls.
void splitBatch(Problem &p) {
  const MatmulShape &s = p.shape;
  p.calls = {{0, 0, 0}};
  if (s.batch.empty())
    return;
  const auto chosen = static_cast<size_t>(std::ranges::max_element(s.batch) - s.batch.begin());
  p.batch = s.batch[chosen];
  p.aBatch = s.a.batch[chosen], p.bBatch = s.b.batch[chosen], p.cBatch = s.c.batch[chosen];
  for (size_t d = 0; d < s.batch.size(); ++d) {
    if (d == chosen)
      continue;
    std::vector<std::array<int64_t, 3>> more;
    for (const auto &[a, b, c] : p.calls)
      for (int64_t i = 0; i < s.batch[d]; ++i)
        more.push_back({a + i * s.a.batch[d], b + i * s.b.batch[d], c + i * s.c.batch[d]});
    p.calls = std::move(more);
  }
}

/// Alignment of an operand: slots are 64-byte aligned, minus the effect of view, call and batch offsets.
uint32_t alignmentOf(int64_t offsetBytes, size_t element, int64_t batchStride, const Problem &p, size_t which) {
  int64_t common = std::gcd(int64_t{slotAlignment}, offsetBytes);
  common = std::gcd(common, batchStride * static_cast<int64_t>(element));
  for (const auto &call : p.calls)
    common = std::gcd(common, call[which] * static_cast<int64_t>(element));
  return static_cast<uint32_t>(common);
}

/// RAII descriptors; `fused`: with bias and epilogue.
class Descriptors {
public:
  Descriptors(const Functions &f, const Problem &p, bool tf32, bool fused) : f(f) {
    const auto compute = p.aType == plan::DType::F32 && tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    f.check(f.descCreate(&product, compute, CUDA_R_32F), "cublasLtMatmulDescCreate");
    const MatmulShape &s = p.shape;
    const bool plainA = s.b.column == 1, plainB = s.a.column == 1; // the library's A is our b
    set(CUBLASLT_MATMUL_DESC_TRANSA, plainA ? CUBLAS_OP_N : CUBLAS_OP_T);
    set(CUBLASLT_MATMUL_DESC_TRANSB, plainB ? CUBLAS_OP_N : CUBLAS_OP_T);
    if (fused)
      set(CUBLASLT_MATMUL_DESC_EPILOGUE, libraryEpilogue(p));
    const auto aligned = [](uint32_t bytes) { return reinterpret_cast<void *>(uintptr_t{bytes}); };
    if (fused && (p.hasBias || p.hasRowSums)) {
      set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, dataType(p.hasBias ? p.biasType : p.cType));
      set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, aligned(slotAlignment)); // the heuristics examine pointers
    }
    if (fused && p.hasAux) {
      set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, p.auxRow);
      set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, aligned(p.auxAlignment));
    }
    a = layout(dataType(p.bType), plainA ? s.n : s.k, plainA ? s.k : s.n, plainA ? s.b.row : s.b.column, p.batch,
               p.bBatch);
    b = layout(dataType(p.aType), plainB ? s.k : s.m, plainB ? s.m : s.k, plainB ? s.a.row : s.a.column, p.batch,
               p.aBatch);
    c = layout(dataType(p.cType), s.n, s.m, s.c.row, p.batch, p.cBatch);
  }
  Descriptors(const Descriptors &) = delete;
  ~Descriptors() {
    for (cublasLtMatrixLayout_t layout : {a, b, c})
      if (layout)
        f.layoutDestroy(layout);
    if (product)
      f.descDestroy(product);
  }

  template <typename T> void set(cublasLtMatmulDescAttributes_t which, const T &value) {
    f.check(f.descSet(product, which, &value, sizeof value), "cublasLtMatmulDescSetAttribute");
  }

  cublasLtMatmulDesc_t product = nullptr;
  cublasLtMatrixLayout_t a = nullptr, b = nullptr, c = nullptr;

private:
  cublasLtMatrixLayout_t layout(cudaDataType_t type, int64_t rows, int64_t columns, int64_t leading, int64_t batch,
                                int64_t stride) {
    cublasLtMatrixLayout_t made = nullptr;
    f.check(f.layoutCreate(&made, type, static_cast<uint64_t>(rows), static_cast<uint64_t>(columns),
                           std::max(leading, rows)),
            "cublasLtMatrixLayoutCreate");
    if (batch > 1) {
      const auto count = static_cast<int32_t>(batch);
      f.check(f.layoutSet(made, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count), "batch count");
      f.check(f.layoutSet(made, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride, sizeof stride), "batch stride");
    }
    return made;
  }
  const Functions &f;
};

struct Choice {
  cublasLtMatmulAlgo_t algorithm;
  size_t workspace = 0;
  bool fused = false; ///< the library applies bias and epilogue

  /// As text for the tuning record. The library's documentation allows storing an algorithm as bytes for the same
  /// version. "apart": bias and epilogue are not fused although the library supports it.
  std::string text(const Problem &p) const {
    std::string out = fmt::format("{}{} ", p.inLibrary && !fused ? "apart " : "", workspace);
    for (uint64_t word : algorithm.data)
      out += fmt::format("{:016x}", word);
    return out;
  }
  static std::optional<Choice> parse(std::string text, const Problem &p) {
    Choice choice;
    const bool apart = text.starts_with("apart ");
    if (apart)
      text.erase(0, 6);
    choice.fused = p.inLibrary && !apart;
    const size_t space = text.find(' ');
    constexpr size_t words = std::size(decltype(choice.algorithm.data){});
    if (space == std::string::npos || text.size() != space + 1 + 16 * words ||
        text.find_first_not_of("0123456789abcdef ") != std::string::npos)
      return std::nullopt;
    choice.workspace = std::strtoull(text.c_str(), nullptr, 10);
    for (size_t i = 0; i < words; ++i)
      choice.algorithm.data[i] = std::strtoull(text.substr(space + 1 + 16 * i, 16).c_str(), nullptr, 16);
    return choice;
  }
};

/// The library's algorithms, best first; empty if it has none, with the reason in `status`.
std::vector<Choice> candidates(const Functions &f, const Problem &p, const Descriptors &d, size_t limit, bool fused,
                               cublasStatus_t &status) {
  cublasLtMatmulPreference_t preference = nullptr;
  f.check(f.preferenceCreate(&preference), "cublasLtMatmulPreferenceCreate");
  const auto set = [&](cublasLtMatmulPreferenceAttributes_t which, const auto &value) {
    f.check(f.preferenceSet(preference, which, &value, sizeof value), "cublasLtMatmulPreferenceSetAttribute");
  };
  uint64_t workspace = limit;
  set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, workspace);
  // Split-K partial results are added in f32, never in the half type of the result.
  set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, p.alignment[1]);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, p.alignment[0]);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, p.alignment[2]);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, p.alignment[2]);
  std::array<cublasLtMatmulHeuristicResult_t, 8> results{};
  int count = 0;
  status =
      f.heuristic(f.handle, d.product, d.a, d.b, d.c, d.c, preference, int(results.size()), results.data(), &count);
  f.preferenceDestroy(preference);
  std::vector<Choice> all;
  for (int i = 0; status == CUBLAS_STATUS_SUCCESS && i < count; ++i)
    if (results[static_cast<size_t>(i)].state == CUBLAS_STATUS_SUCCESS)
      all.push_back({results[static_cast<size_t>(i)].algo, results[static_cast<size_t>(i)].workspaceSize, fused});
  return all;
}

/// Arguments for the row sums of the plan's a, without addresses.
RowSumsArguments describeRowSums(const Problem &p) {
  const MatmulShape &s = p.shape;
  RowSumsArguments r{};
  r.rows = s.exchanged ? s.n : s.m;
  r.length = s.k;
  r.rowStride = s.exchanged ? s.b.column : s.a.row;
  r.columnStride = s.exchanged ? s.b.row : s.a.column;
  constexpr int64_t mostSlices = 64, leastLength = 64, mostPartials = 1 << 22; // 16 MiB of a workspace of 32
  r.slices =
      std::max<int64_t>(1, std::min({mostSlices, r.length / leastLength, mostPartials / std::max<int64_t>(r.rows, 1)}));
  return r;
}

class ProductOp final : public Op {
public:
  ProductOp(Problem problem, const Functions &f, const Queue &queue, bool tf32)
      : p(std::move(problem)), f(f), queue(queue), plain(f, p, tf32, false) {
    if (p.inLibrary)
      fused.emplace(f, p, tf32, true);
  }

  StepOperand a, b, c, bias, aux, rowSums;
  Choice choice{};

  void run(SlotTable slots, const RunContext &) override {
    multiply({a.at(slots), b.at(slots), c.at(slots), p.hasBias ? bias.at(slots) : nullptr,
              p.hasAux ? aux.at(slots) : nullptr, p.hasRowSums ? rowSums.at(slots) : nullptr},
             queue);
  }

  /// Bytes of scratch memory.
  size_t workspace() const { return workspaceOf(choice); }

  void chooseBy(Tuning &tuning, const std::string &key, size_t limit) {
    if (const auto kept = Choice::parse(tuning.find(key), p); kept && kept->workspace <= limit) {
      choice = *kept;
      return;
    }
    cublasStatus_t status = CUBLAS_STATUS_NOT_SUPPORTED;
    std::vector<Choice> all;
    if (fused)
      all = candidates(f, p, *fused, limit, true, status);
    // The library may be slower with a fused epilogue than with a separate kernel: measure both.
    if (all.empty() || ((p.epilogue != plan::Epilogue::None || p.hasRowSums) && tuning.measures()))
      for (const Choice &one : candidates(f, p, plain, limit, false, status))
        if (workspaceOf(one) <= limit)
          all.push_back(one);
    if (all.empty())
      throw environmentError(fmt::format("cublasLt: no algorithm for {} within {} bytes of workspace: {}", p.text(),
                                         limit, f.getStatusString(status)));
    choice = all.front();
    if (!tuning.measures())
      return;
    if (all.size() > 1)
      measureAll(all);
    tuning.put(key, choice.text(p));
  }

  CUfunction epilogueKernel = nullptr; ///< if there is an epilogue
  CUfunction rowSumsKernel = nullptr, rowSumsEnd = nullptr;

private:
  struct Addresses {
    std::byte *a, *b, *c, *bias, *aux, *rowSums;
  };

  size_t workspaceOf(const Choice &one) const {
    const RowSumsArguments r = describeRowSums(p);
    return std::max(one.workspace,
                    p.hasRowSums && !one.fused ? static_cast<size_t>(r.slices * r.rows) * sizeof(float) : size_t{0});
  }

  void multiply(const Addresses &at, const Queue &on) {
    Descriptors &d = choice.fused ? *fused : plain;
    if (choice.fused && p.hasBias)
      d.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, at.bias);
    if (choice.fused && p.hasAux)
      d.set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, at.aux);
    if (choice.fused && p.hasRowSums)
      d.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, at.rowSums);
    const float alpha = 1, beta = p.accumulate ? 1 : 0;
    for (const auto &[fromA, fromB, fromC] : p.calls) {
      std::byte *out = at.c + fromC * static_cast<int64_t>(dtypeSize(p.cType));
      f.check(f.matmul(f.handle, d.product, &alpha, at.b + fromB * static_cast<int64_t>(dtypeSize(p.bType)), d.a,
                       at.a + fromA * static_cast<int64_t>(dtypeSize(p.aType)), d.b, &beta, out, d.c, out, d.c,
                       &choice.algorithm, on.workspace, choice.workspace, reinterpret_cast<cudaStream_t>(on.stream)),
              "cublasLtMatmul");
      if (!choice.fused && p.hasFollowers())
        follow(out, at, on);
    }
    if (!choice.fused && p.hasRowSums)
      sumRows(at, on);
  }

  void sumRows(const Addresses &at, const Queue &on) const {
    RowSumsArguments arguments = describeRowSums(p);
    arguments.a = p.shape.exchanged ? at.b : at.a;
    arguments.partial = reinterpret_cast<float *>(on.workspace);
    arguments.sums = at.rowSums;
    OwnKernels::start(rowSumsKernel, on, arguments, arguments.slices * arguments.rows);
    OwnKernels::start(rowSumsEnd, on, arguments, arguments.rows);
  }

  void follow(std::byte *out, const Addresses &at, const Queue &on) const {
    const MatmulShape &s = p.shape;
    const EpilogueArguments arguments{out,      at.bias,     at.aux,      p.batch,
                                      s.m,      s.n,         p.cBatch,    s.c.row,
                                      p.auxRow, p.auxColumn, s.exchanged, static_cast<EpilogueKind>(p.epilogue)};
    OwnKernels::start(epilogueKernel, on, arguments, p.batch * s.m * s.n);
  }

  /// Bytes from the first element of an operand to the last.
  size_t bytesOf(const MatmulOperand &o, int64_t rows, int64_t columns, int64_t batch, size_t which, size_t element) {
    int64_t last = (rows - 1) * o.row + (columns - 1) * o.column + (p.batch - 1) * batch;
    for (const auto &call : p.calls)
      last = std::max(last, call[which] + (rows - 1) * o.row + (columns - 1) * o.column + (p.batch - 1) * batch);
    return static_cast<size_t>(last + 1) * element;
  }

  void measureAll(const std::vector<Choice> &all) {
    const MatmulShape &s = p.shape;
    size_t most = 0;
    for (const Choice &one : all)
      most = std::max(most, workspaceOf(one));
    const int64_t auxElements = p.hasAux ? (s.m - 1) * p.auxRow + (s.n - 1) * p.auxColumn + 1 : 0;
    const DeviceMemory a(bytesOf(s.a, s.m, s.k, p.aBatch, 0, dtypeSize(p.aType)), "measuring"),
        b(bytesOf(s.b, s.k, s.n, p.bBatch, 1, dtypeSize(p.bType)), "measuring"),
        c(bytesOf(s.c, s.m, s.n, p.cBatch, 2, dtypeSize(p.cType)), "measuring"), scratch(most, "measuring"),
        bias(static_cast<size_t>(std::max(s.m, s.n)) * 4, "measuring"),
        aux(static_cast<size_t>(auxElements) * dtypeSize(p.cType), "measuring"),
        rowSums(p.hasRowSums ? static_cast<size_t>(std::max(s.m, s.n)) * 4 : 0, "measuring");
    const Stream stream = Stream::make();
    for (const DeviceMemory *memory : {&a, &b, &c, &bias, &aux}) // 0x3c bytes are small numbers in every type
      if (memory->size())
        check(driver().memsetD8Async(devicePointer(memory->data()), 0x3c, memory->size(), stream.get()), "cuMemset");
    const Queue on{stream.get(), scratch.data(), nullptr};
    double best = 0;
    Choice chosen = all.front();
    for (const Choice &one : all) {
      choice = one;
      try {
        const double time = measure(stream.get(), [&] {
          multiply({a.data(), b.data(), c.data(), p.hasBias ? bias.data() : nullptr, p.hasAux ? aux.data() : nullptr,
                    rowSums.data()},
                   on);
        });
        if (best == 0 || time < best) {
          best = time;
          chosen = one;
        }
      } catch (const Error &) { // some algorithms of the heuristics do not run
        if (all.size() == 1)
          throw;
      }
    }
    choice = chosen;
  }

  Problem p;
  const Functions &f;
  const Queue &queue;
  Descriptors plain;
  std::optional<Descriptors> fused;
};

/// k = 0: writes zeros and applies the epilogue. c must be dense, because compilers emit no strided fills.
class EmptyProduct final : public Op {
public:
  EmptyProduct(StepOperand c, size_t bytes, const Queue &queue) : c(c), bytes(bytes), queue(queue) {}
  void run(SlotTable slots, const RunContext &) override {
    if (bytes)
      check(driver().memsetD8Async(devicePointer(c.at(slots)), 0, bytes, queue.stream), "cuMemsetD8Async");
    if (rowSumBytes)
      check(driver().memsetD8Async(devicePointer(rowSums.at(slots)), 0, rowSumBytes, queue.stream), "cuMemsetD8Async");
    if (!epilogueKernel)
      return;
    arguments.c = c.at(slots);
    arguments.bias = hasBias ? bias.at(slots) : nullptr;
    arguments.aux = hasAux ? aux.at(slots) : nullptr;
    OwnKernels::start(epilogueKernel, queue, arguments, arguments.rows * arguments.columns);
  }

  CUfunction epilogueKernel = nullptr;
  bool hasBias = false, hasAux = false;
  StepOperand bias, aux, rowSums;
  size_t rowSumBytes = 0;
  EpilogueArguments arguments{};

private:
  StepOperand c;
  size_t bytes;
  const Queue &queue;
};

std::string epilogueKernelName(const Problem &p) {
  return fmt::format("cleave_epilogue_{}_{}", elementSuffix(p.cType), elementSuffix(p.biasType));
}

std::unique_ptr<Op> emptyProduct(const plan::Matmul &op, const Problem &p, SlotScope &scope, const Queue &queue,
                                 OwnKernels &kernels) {
  const MatmulShape &s = p.shape;
  const int64_t rows = s.batches() * s.m;
  if (rows * s.n > 0 && (s.c.row != s.n || p.calls.size() > 1 || (p.hasBias && s.exchanged && !s.batch.empty())))
    throw environmentError("cuda: a matrix product over no elements into a window of a tensor is not supported");
  auto made = std::make_unique<EmptyProduct>(
      operandOf(*op.c(), scope), static_cast<size_t>(p.accumulate ? 0 : rows * s.n) * dtypeSize(p.cType), queue);
  if (p.hasRowSums) {
    const RowSumsArguments sums = describeRowSums(p);
    if (sums.rows * sums.length > 0)
      throw environmentError("cuda: row sums beside an empty result are not supported");
    made->rowSums = {scope.local(static_cast<uint32_t>(op.row_sums()))};
    made->rowSumBytes = static_cast<size_t>(sums.rows) * dtypeSize(p.cType);
  }
  if (!p.hasFollowers())
    return made;
  made->hasBias = p.hasBias, made->hasAux = p.hasAux;
  if (p.hasBias)
    made->bias = {scope.local(static_cast<uint32_t>(op.bias()))};
  if (p.hasAux)
    made->aux = operandOf(*op.aux(), scope);
  made->epilogueKernel = kernels.function(epilogueKernelName(p));
  made->arguments = {nullptr, nullptr, nullptr,  1,           rows,        s.n,
                     0,       s.n,     p.auxRow, p.auxColumn, s.exchanged, static_cast<EpilogueKind>(p.epilogue)};
  return made;
}

Problem problemOf(const plan::Matmul &op, SlotScope &scope) {
  Problem p;
  p.shape = matmulShape(op);
  const plan::View *aView = p.shape.exchanged ? op.b() : op.a(), *bView = p.shape.exchanged ? op.a() : op.b();
  p.aType = scope.slot(aView->slot()).dtype();
  p.bType = scope.slot(bView->slot()).dtype();
  p.cType = scope.slot(op.c()->slot()).dtype();
  p.accumulate = op.accumulate();
  p.hasBias = op.bias() >= 0;
  p.biasType = p.hasBias ? scope.slot(static_cast<uint32_t>(op.bias())).dtype() : p.cType;
  p.epilogue = op.epilogue();
  p.hasRowSums = op.row_sums() >= 0;
  if (op.aux()) {
    p.hasAux = true;
    p.auxRow = op.m() > 1 ? op.aux()->strides()->Get(0) : op.n(); // a single row may have any stride
    p.auxColumn = 1;
    p.auxAlignment = std::gcd(slotAlignment, static_cast<uint32_t>(op.aux()->offset() % slotAlignment));
    if (p.shape.exchanged)
      std::swap(p.auxRow, p.auxColumn);
  }
  p.inLibrary = libraryTakesFollowers(p, op.aux() ? static_cast<int64_t>(op.aux()->offset()) : 0);
  splitBatch(p);
  const auto align = [&](size_t which, const plan::View *view, plan::DType type, int64_t batch) {
    p.alignment[which] = alignmentOf(static_cast<int64_t>(view->offset()), dtypeSize(type), batch, p, which);
  };
  align(0, aView, p.aType, p.aBatch), align(1, bView, p.bType, p.bBatch), align(2, op.c(), p.cType, p.cBatch);
  return p;
}

} // namespace

std::unique_ptr<Op> CublasLt::product(const plan::Step &step, SlotScope &scope, const Context &context,
                                      const Queue &queue, OwnKernels &kernels, Tuning &tuning,
                                      const StepOptions &options, size_t &workspace) {
  const plan::Matmul &op = *step.op_as_Matmul();
  const Problem p = problemOf(op, scope);
  if (p.shape.batches() * p.shape.m * p.shape.n * p.shape.k == 0)
    return emptyProduct(op, p, scope, queue, kernels);
  auto made = std::make_unique<ProductOp>(p, *functions, queue, options.tf32);
  const plan::View *aView = p.shape.exchanged ? op.b() : op.a(), *bView = p.shape.exchanged ? op.a() : op.b();
  made->a = operandOf(*aView, scope), made->b = operandOf(*bView, scope), made->c = operandOf(*op.c(), scope);
  if (p.hasBias)
    made->bias = {scope.local(static_cast<uint32_t>(op.bias()))};
  if (p.hasAux)
    made->aux = operandOf(*op.aux(), scope);
  if (p.hasFollowers())
    made->epilogueKernel = kernels.function(epilogueKernelName(p));
  if (p.hasRowSums) {
    made->rowSums = {scope.local(static_cast<uint32_t>(op.row_sums()))};
    made->rowSumsKernel =
        kernels.function(fmt::format("cleave_row_sums_{}", elementSuffix(scope.slot(op.a()->slot()).dtype())));
    made->rowSumsEnd = kernels.function(fmt::format("cleave_row_sums_end_{}", elementSuffix(p.cType)));
  }
  made->chooseBy(tuning,
                 fmt::format("{} | cublasLt {} | {}{}", context.name(), version(), p.text(),
                             options.tf32 && p.aType == plan::DType::F32 ? " tf32" : ""),
                 options.workspaceLimit);
  workspace = made->workspace();
  return made;
}

} // namespace cleave::cuda
