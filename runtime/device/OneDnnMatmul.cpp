// Matrix products, computed in one of three ways:
//   one matrix                            our own product (Gemm.h), one primitive, or in f32 dnnl_sgemm, which packs
//   and
//                                         divides long sums: by rule or by measurement (`makeFastest`)
//   supported by oneDNN's fast primitive  one primitive, including batches
//   other batches                         a single-threaded primitive per matrix, batches in parallel
#include "runtime/base/Error.h"
#include "runtime/device/Epilogue.h"
#include "runtime/device/Gemm.h"
#include "runtime/device/MatmulShape.h"
#include "runtime/device/OneDnn.h"
#include "runtime/device/Parallel.h"
#include "runtime/plan/DTypes.h"
#include "runtime/plan/plan_generated.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <string_view>

namespace cleave {

namespace {

using dnnl::memory;

/// Adds a bias that the library does not support: per row, or (exchanged) per column. A single addition, so double is
/// not needed.
void addBias(const MatmulPlan &p, SlotTable slots) {
  std::byte *c = p.c.at(slots), *bias = p.bias.at(slots);
  int64_t batches = p.shape.batches();
  for (int64_t i = 0; i < batches; ++i) {
    int64_t base = 0, rest = i;
    for (size_t d = p.shape.batch.size(); d-- > 0; rest /= p.shape.batch[d])
      base += rest % p.shape.batch[d] * p.shape.c.batch[d];
    for (int64_t row = 0; row < p.shape.m; ++row)
      for (int64_t column = 0; column < p.shape.n; ++column) {
        int64_t at = base + row * p.shape.c.row + column * p.shape.c.column;
        double add = loadElement(bias, p.shape.exchanged ? row : column, p.biasType);
        storeElement(c, at, p.cType, loadElement(c, at, p.cType) + add);
      }
  }
}

/// An empty sum or an empty result.
class EmptyMatmul final : public Op {
public:
  explicit EmptyMatmul(MatmulPlan p) : p(std::move(p)) {}
  void run(SlotTable slots, const RunContext &) override {
    int64_t batches = p.shape.batches();
    for (int64_t i = 0; !p.accumulate && i < batches; ++i) {
      int64_t base = 0, rest = i;
      for (size_t d = p.shape.batch.size(); d-- > 0; rest /= p.shape.batch[d])
        base += rest % p.shape.batch[d] * p.shape.c.batch[d];
      for (int64_t row = 0; row < p.shape.m; ++row)
        for (int64_t column = 0; column < p.shape.n; ++column)
          storeElement(p.c.at(slots), base + row * p.shape.c.row + column * p.shape.c.column, p.cType, 0);
    }
    if (p.hasBias)
      addBias(p, slots);
  }

private:
  MatmulPlan p;
};

class SgemmOp final : public Op {
public:
  SgemmOp(MatmulPlan plan, unsigned threads) : p(std::move(plan)), threads(threads) {}
  void run(SlotTable slots, const RunContext &) override {
    const MatmulShape &s = p.shape;
    auto *c = reinterpret_cast<float *>(p.c.at(slots));
    if (p.hasBias && !p.accumulate)
      fillBias(c, reinterpret_cast<const float *>(p.bias.at(slots)));
    else if (p.hasBias)
      addBias(p, slots);
    bool ta = s.a.column != 1, tb = s.b.column != 1;
    dnnl_status_t status =
        dnnl_sgemm(ta ? 'T' : 'N', tb ? 'T' : 'N', s.m, s.n, s.k, 1.0f, reinterpret_cast<const float *>(p.a.at(slots)),
                   ta ? s.a.column : s.a.row, reinterpret_cast<const float *>(p.b.at(slots)), tb ? s.b.column : s.b.row,
                   p.accumulate || p.hasBias ? 1.0f : 0.0f, c, s.c.row);
    if (status != dnnl_success)
      throw environmentError("onednn: sgemm failed");
  }

private:
  void fillBias(float *c, const float *bias) const {
    parallelRange(threads, p.shape.m, 64, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row)
        if (p.shape.exchanged)
          std::fill_n(c + row * p.shape.c.row, p.shape.n, bias[row]);
        else
          std::memcpy(c + row * p.shape.c.row, bias, static_cast<size_t>(p.shape.n) * sizeof(float));
    });
  }

  MatmulPlan p;
  unsigned threads;
};

memory::desc describe(const MatmulOperand &operand, const std::vector<int64_t> &batch, int64_t rows, int64_t columns,
                      plan::DType dtype, bool withBatch) {
  memory::dims dims, strides;
  if (withBatch)
    for (size_t d = 0; d < batch.size(); ++d) {
      dims.push_back(operand.batch[d] == 0 ? 1 : batch[d]);
      strides.push_back(operand.batch[d] == 0 ? rows * columns : operand.batch[d]);
    }
  dims.insert(dims.end(), {rows, columns});
  strides.insert(strides.end(), {operand.row, operand.column});
  return {dims, oneDnnType(dtype), strides};
}

struct MatmulDescs {
  memory::desc a, b, c, bias;
  dnnl::matmul::primitive_desc primitive;
};

MatmulDescs makeDescs(const MatmulPlan &p, OneDnnContext &context, bool withBatch) {
  const MatmulShape &s = p.shape;
  MatmulDescs descs;
  descs.a = describe(s.a, s.batch, s.m, s.k, p.aType, withBatch);
  descs.b = describe(s.b, s.batch, s.k, s.n, p.bType, withBatch);
  descs.c = describe(s.c, s.batch, s.m, s.n, p.cType, withBatch);
  bool bias = p.hasBias && !s.exchanged;
  if (bias) {
    memory::dims dims(descs.c.dims().size(), 1), strides(dims.size(), s.n);
    dims.back() = s.n;
    strides.back() = 1;
    descs.bias = {dims, oneDnnType(p.biasType), strides};
  }
  auto desc =
      bias ? dnnl::matmul::desc(descs.a, descs.b, descs.bias, descs.c) : dnnl::matmul::desc(descs.a, descs.b, descs.c);
  descs.primitive = {desc, userScratchpad(p.accumulate), context.engine};
  return descs;
}

/// Binds slot arguments in the order a, b, c, bias.
BoundPrimitive bind(const MatmulPlan &p, const MatmulDescs &descs, OneDnnContext &context) {
  BoundPrimitive bound(context, dnnl::matmul(descs.primitive));
  bound.bindSlot(DNNL_ARG_SRC, descs.a, p.a);
  bound.bindSlot(DNNL_ARG_WEIGHTS, descs.b, p.b);
  bound.bindSlot(DNNL_ARG_DST, descs.c, p.c);
  if (p.hasBias && !p.shape.exchanged)
    bound.bindSlot(DNNL_ARG_BIAS, descs.bias, p.bias);
  bound.bindWorkspace(DNNL_ARG_SCRATCHPAD, descs.primitive.scratchpad_desc(), 0);
  return bound;
}

class PrimitiveMatmul final : public Op {
public:
  PrimitiveMatmul(MatmulPlan plan, const MatmulDescs &descs, OneDnnContext &context)
      : p(std::move(plan)), primitive(bind(p, descs, context)) {
    size_t used = 0;
    context.workspace.reserve(used, descs.primitive.scratchpad_desc().get_size());
  }
  void run(SlotTable slots, const RunContext &) override {
    primitive.run(slots);
    if (p.hasBias && p.shape.exchanged)
      addBias(p, slots);
  }

private:
  MatmulPlan p;
  BoundPrimitive primitive;
};

/// Batches matrix by matrix, with one primitive per thread.
class BatchedMatmul final : public Op {
public:
  BatchedMatmul(MatmulPlan plan, OneDnnContext &context) : p(std::move(plan)) {
    const MatmulShape &s = p.shape;
    int64_t batches = s.batches();
    // With fewer matrices than threads: one matrix at a time, by all threads.
    parallel = batches >= context.threads;
    threads = parallel ? context.threads : 1;
    setThreads(parallel ? 1 : context.threads);
    MatmulDescs descs = makeDescs(p, context, false);
    for (unsigned thread = 0; thread < threads; ++thread)
      primitives.push_back(bind(p, descs, context));
    setThreads(context.threads);
    scratch = (descs.primitive.scratchpad_desc().get_size() + 63) / 64 * 64;
    size_t used = 0;
    context.workspace.reserve(used, scratch * threads);
    auto bytes = [](plan::DType type) { return static_cast<int64_t>(dtypeSize(type)); };
    for (int64_t i = 0; i < batches; ++i) {
      std::array<int64_t, 4> shift{};
      int64_t rest = i;
      for (size_t d = s.batch.size(); d-- > 0; rest /= s.batch[d]) {
        shift[0] += rest % s.batch[d] * s.a.batch[d] * bytes(p.aType);
        shift[1] += rest % s.batch[d] * s.b.batch[d] * bytes(p.bType);
        shift[2] += rest % s.batch[d] * s.c.batch[d] * bytes(p.cType);
      }
      shifts.push_back(shift);
    }
  }

  void run(SlotTable slots, const RunContext &) override {
    auto count = static_cast<int64_t>(shifts.size());
    parallelFor(threads, [&](unsigned thread) {
      for (int64_t i = count * thread / threads; i < count * (thread + 1) / threads; ++i)
        primitives[thread].run(slots, shifts[static_cast<size_t>(i)].data(), scratch * thread);
    });
    if (p.hasBias && p.shape.exchanged)
      addBias(p, slots);
  }

private:
  MatmulPlan p;
  std::vector<BoundPrimitive> primitives;
  std::vector<std::array<int64_t, 4>> shifts; ///< in bytes, per matrix
  size_t scratch = 0;
  unsigned threads = 1;
  bool parallel = true;
};

bool isFast(const MatmulDescs &descs) {
  return std::string_view(descs.primitive.impl_info_str()).substr(0, 3) == "brg";
}

/// Whether packing is faster; measured with AVX-512, one and two threads.
bool prefersSgemm(const MatmulShape &s) {
  bool plain = s.a.column == 1 && s.b.column == 1, turned = s.a.column != 1 && s.b.column == 1;
  return (s.m >= 1024 && s.n >= 1024) || (plain && s.n >= 1024 && s.k >= 1024) ||
         (turned && s.k >= 4 * std::max(s.m, s.n));
}

/// A product followed by its epilogue, element by element. Not used by CPU plans, whose compiler fuses epilogues into
/// kernels.
class EpilogueOp final : public Op {
public:
  EpilogueOp(const plan::Matmul &op, SlotScope &scope, std::unique_ptr<Op> product, unsigned threads)
      : op(op), product(std::move(product)), threads(threads) {
    c = operandOf(*op.c(), scope);
    if (op.aux())
      aux = operandOf(*op.aux(), scope);
    type = scope.slot(op.c()->slot()).dtype();
  }
  void run(SlotTable slots, const RunContext &context) override {
    product->run(slots, context);
    std::byte *result = c.at(slots), *beside = op.aux() ? aux.at(slots) : nullptr;
    const auto *strides = op.c()->strides(), *auxStrides = op.aux() ? op.aux()->strides() : nullptr;
    parallelRange(threads, op.m(), 16, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row)
        for (int64_t column = 0; column < op.n(); ++column) {
          const int64_t at = row * strides->Get(0) + column * strides->Get(1);
          const int64_t atAux = beside ? row * auxStrides->Get(0) + column * auxStrides->Get(1) : 0;
          const double x = loadElement(result, at, type);
          if (beside && op.epilogue() == plan::Epilogue::Gelu)
            storeElement(beside, atAux, type, x);
          storeElement(result, at, type, epilogueOf(op.epilogue(), x, beside ? loadElement(beside, atAux, type) : 0));
        }
    });
  }

private:
  const plan::Matmul &op;
  std::unique_ptr<Op> product;
  unsigned threads;
  StepOperand c, aux;
  plan::DType type = plan::DType::F32;
};

/// A product and the sums of its rows. Not used by CPU plans, for the same reason.
class RowSumsOp final : public Op {
public:
  RowSumsOp(const plan::Matmul &op, SlotScope &scope, std::unique_ptr<Op> product, unsigned threads)
      : op(op), product(std::move(product)), threads(threads),
        a(operandOf(*op.a(), scope)), sums{scope.local(static_cast<uint32_t>(op.row_sums()))},
        aType(scope.slot(op.a()->slot()).dtype()), type(scope.slot(static_cast<uint32_t>(op.row_sums())).dtype()) {}
  void run(SlotTable slots, const RunContext &context) override {
    product->run(slots, context);
    const std::byte *from = a.at(slots);
    const auto *strides = op.a()->strides();
    parallelRange(threads, op.m(), 16, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        double sum = 0;
        for (int64_t k = 0; k < op.k(); ++k)
          sum += loadElement(from, row * strides->Get(0) + k * strides->Get(1), aType);
        storeElement(sums.at(slots), row, type, sum);
      }
    });
  }

private:
  const plan::Matmul &op;
  std::unique_ptr<Op> product;
  unsigned threads;
  StepOperand a, sums;
  plan::DType aType, type;
};

/// `slot` -1: there is none.
void setBias(MatmulPlan &p, int32_t slot, SlotScope &scope) {
  p.hasBias = slot >= 0;
  p.biasType = p.hasBias ? scope.slot(static_cast<uint32_t>(slot)).dtype() : p.cType;
  if (p.hasBias)
    p.bias = {scope.local(static_cast<uint32_t>(slot)), 0};
}

MatmulPlan describePlan(const plan::Matmul &op, SlotScope &scope) {
  MatmulPlan p;
  p.shape = matmulShape(op);
  p.accumulate = op.accumulate();
  p.a = operandOf(*op.a(), scope);
  p.b = operandOf(*op.b(), scope);
  p.c = operandOf(*op.c(), scope);
  p.aType = scope.slot(op.a()->slot()).dtype();
  p.bType = scope.slot(op.b()->slot()).dtype();
  p.cType = scope.slot(op.c()->slot()).dtype();
  if (p.shape.exchanged) {
    std::swap(p.a, p.b);
    std::swap(p.aType, p.bType);
  }
  p.bSlot = (p.shape.exchanged ? op.a() : op.b())->slot();
  setBias(p, op.bias(), scope);
  return p;
}

/// The ways to compute one matrix that is not empty, the first by rule.
std::vector<Method> methodsOf(const MatmulPlan &p, SlotScope &scope, OneDnnContext &context) {
  std::vector<Method> methods{{"primitive", [p, &context]() -> std::unique_ptr<Op> {
                                 return std::make_unique<PrimitiveMatmul>(p, makeDescs(p, context, false), context);
                               }}};
  const bool f32 = p.aType == plan::DType::F32 && p.bType == plan::DType::F32 && p.cType == plan::DType::F32 &&
                   (!p.hasBias || p.biasType == plan::DType::F32);
  if (f32)
    methods.insert(
        prefersSgemm(p.shape) ? methods.begin() : methods.end(),
        {"sgemm", [p, &context]() -> std::unique_ptr<Op> { return std::make_unique<SgemmOp>(p, context.threads); }});
  // The library is faster in f32 with AVX2, unless a matrix is packed for several products, and in bf16 with AMX.
  const auto isa = dnnl::get_effective_cpu_isa();
  const bool first =
      f32 ? isa >= dnnl::cpu_isa::avx512_core || context.packed.keeps(p, scope) : isa != dnnl::cpu_isa::avx512_core_amx;
  methods.insert(first ? methods.begin() : methods.end(), {"gemm", [p, &scope, &context] {
                                                             return makeGemm(p, scope, context.packed,
                                                                             context.workspace, context.threads);
                                                           }});
  return methods;
}

std::string textOf(const MatmulPlan &p) {
  const auto operand = [](const MatmulOperand &o, plan::DType type) {
    return fmt::format("{} {}x{}", dtypeName(type), o.row, o.column);
  };
  const MatmulShape &s = p.shape;
  return fmt::format("product m{} n{} k{} a[{}] b[{}] c[{}]{}{}", s.m, s.n, s.k, operand(s.a, p.aType),
                     operand(s.b, p.bType), operand(s.c, p.cType), p.accumulate ? " accumulate" : "",
                     p.hasBias ? " bias" : "");
}

std::unique_ptr<Op> makeProduct(const plan::Matmul &op, SlotScope &scope, OneDnnContext &context) {
  MatmulPlan p = describePlan(op, scope);
  const MatmulShape &s = p.shape;
  if (s.batches() == 0 || s.m == 0 || s.n == 0 || s.k == 0)
    return std::make_unique<EmptyMatmul>(std::move(p));
  if (s.batch.empty()) {
    std::vector<uint32_t> slots{op.a()->slot(), op.b()->slot(), op.c()->slot()};
    if (op.bias() >= 0)
      slots.push_back(static_cast<uint32_t>(op.bias()));
    const double operations = 2.0 * static_cast<double>(s.m) * static_cast<double>(s.n) * static_cast<double>(s.k);
    return makeFastest(methodsOf(p, scope, context), textOf(p), operations, slots, scope, context);
  }
  try {
    MatmulDescs descs = makeDescs(p, context, true);
    if (isFast(descs))
      return std::make_unique<PrimitiveMatmul>(std::move(p), descs, context);
  } catch (const dnnl::error &) {
    // The batched primitive does not support the strides: use the fallback below.
  }
  return std::make_unique<BatchedMatmul>(std::move(p), context);
}

MatmulPlan describePlan(const plan::Conv &op, SlotScope &scope) {
  const StepOperand src{scope.local(op.src())}, dst{scope.local(op.dst())}, weights{scope.local(op.weights())};
  const plan::DType srcType = scope.slot(op.src()).dtype(), dstType = scope.slot(op.dst()).dtype(),
                    weightType = scope.slot(op.weights()).dtype();
  MatmulPlan p;
  p.shape = matmulShape(op);
  p.accumulate = op.accumulate();
  switch (op.kind()) {
  case plan::ConvKind::Forward:
    p.bSlot = op.weights(), p.a = src, p.b = weights, p.c = dst, p.aType = srcType, p.bType = weightType,
    p.cType = dstType;
    break;
  case plan::ConvKind::BackwardData:
    p.bSlot = op.weights(), p.a = dst, p.b = weights, p.c = src, p.aType = dstType, p.bType = weightType,
    p.cType = srcType;
    break;
  case plan::ConvKind::BackwardWeights:
    p.bSlot = op.src(), p.a = dst, p.b = src, p.c = weights, p.aType = dstType, p.bType = srcType, p.cType = weightType;
    break;
  }
  setBias(p, op.kind() == plan::ConvKind::Forward ? op.bias() : -1, scope);
  return p;
}

} // namespace

ProductMethods productMethods(const plan::Conv &op, SlotScope &scope, OneDnnContext &context) {
  const MatmulPlan p = describePlan(op, scope);
  try {
    return {methodsOf(p, scope, context), isFast(makeDescs(p, context, false))};
  } catch (const dnnl::error &) {
    return {}; // no primitive for these types
  }
}

std::unique_ptr<Op> makeOneDnnMatmul(const plan::Step &step, SlotScope &scope, OneDnnContext &context) {
  const plan::Matmul &op = *step.op_as_Matmul();
  auto product = makeProduct(op, scope, context);
  if (op.epilogue() != plan::Epilogue::None)
    return std::make_unique<EpilogueOp>(op, scope, std::move(product), context.threads);
  if (op.row_sums() >= 0)
    return std::make_unique<RowSumsOp>(op, scope, std::move(product), context.threads);
  return product;
}

} // namespace cleave
