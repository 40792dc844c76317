// Matrix products and attention.
#pragma once
#include "runtime/base/Flops.h"
#include "runtime/plan/steps/Describe.h"

namespace cleave::steps {

// ---- Matmul -------------------------------------------------------------------------------------------------------

/// Requires valid views of a, b and c.
inline std::string epilogueProblem(const plan::Matmul &op, const Context &c) {
  const plan::Epilogue epilogue = op.epilogue();
  const bool gradient = epilogue == plan::Epilogue::GeluGradient;
  const char *name = EnumNameEpilogue(epilogue);
  if (op.aux() && epilogue != plan::Epilogue::Gelu && !gradient)
    return fmt::format("epilogue {} takes no auxiliary matrix", name);
  if (epilogue == plan::Epilogue::None)
    return "";
  if (gradient && !op.aux())
    return fmt::format("epilogue {} needs an auxiliary matrix", name);
  if (length(op.batch()) > 0 || op.accumulate() || (gradient && op.bias() >= 0))
    return fmt::format("epilogue {} with {}", name,
                       length(op.batch()) > 0 ? "batch dimensions"
                       : op.accumulate()      ? "accumulation"
                                              : "a bias");
  for (const plan::View *view : {op.c(), op.aux()}) {
    if (!view)
      continue;
    if (std::string problem = viewProblem(view, 2); !problem.empty())
      return problem;
    if ((op.n() > 1 && view->strides()->Get(1) != 1) || (op.m() > 1 && view->strides()->Get(0) < op.n()))
      return fmt::format("epilogue {} on rows of {} with strides {} and {}", name, op.n(), view->strides()->Get(0),
                         view->strides()->Get(1));
  }
  return op.aux() ? typeProblem(c, c.slot(op.c()->slot()).dtype(), {op.aux()->slot()}) : "";
}

inline Defect problem(const plan::Matmul &op, const Context &c) {
  int64_t batches = 1;
  for (uint32_t i = 0; i < length(op.batch()); ++i)
    batches *= op.batch()->Get(i);
  if (!sane({batches, op.m(), op.n()}) || !sane({batches, op.m(), op.k()}) || !sane({batches, op.k(), op.n()}))
    return fmt::format("sizes {} x {} x {}", op.m(), op.n(), op.k());
  const uint32_t last = length(op.batch());
  for (const plan::View *view : {op.a(), op.b(), op.c()})
    if (std::string problem = viewProblem(view, last + 2); !problem.empty())
      return problem;
  if (std::string problem = productTypeProblem(c, op.a()->slot(), op.b()->slot(), op.c()->slot(), op.dtype());
      !problem.empty())
    return problem;
  auto unit = [&](const plan::View *view, int64_t rows, int64_t columns) {
    return rows <= 1 || columns <= 1 || view->strides()->Get(last) == 1 || view->strides()->Get(last + 1) == 1;
  };
  if (!unit(op.a(), op.m(), op.k()) || !unit(op.b(), op.k(), op.n()) || !unit(op.c(), op.m(), op.n()))
    return "one of the last two strides of each view must be 1";
  // stride 0 is allowed only in batch dimensions
  auto walks = [&](const plan::View *view, int64_t rows, int64_t columns) {
    return (rows <= 1 || view->strides()->Get(last) > 0) && (columns <= 1 || view->strides()->Get(last + 1) > 0);
  };
  if (!walks(op.a(), op.m(), op.k()) || !walks(op.b(), op.k(), op.n()))
    return "a stride of 0 in a matrix dimension";
  if (std::string problem = epilogueProblem(op, c); !problem.empty() || op.row_sums() < 0)
    return problem;
  if (length(op.batch()) > 0 || op.bias() >= 0 || op.epilogue() != plan::Epilogue::None)
    return fmt::format("row sums with {}", length(op.batch()) > 0 ? "batch dimensions"
                                           : op.bias() >= 0       ? "a bias"
                                                                  : "an epilogue");
  return typeProblem(c, c.slot(op.c()->slot()).dtype(), {op.row_sums()});
}

inline void accesses(const plan::Matmul &op, const Accesses &a) {
  const auto window = [&](Access::Kind kind, const plan::View *view, int64_t rows, int64_t columns, bool adds = false) {
    std::vector<int64_t> sizes = listOf(op.batch());
    sizes.insert(sizes.end(), {rows, columns});
    a.window(kind, view, sizes, a.elementBytes(view->slot()), adds);
  };
  window(Access::Read, op.a(), op.m(), op.k());
  window(Access::Read, op.b(), op.k(), op.n());
  if (op.bias() >= 0)
    a.read(op.bias(), static_cast<uint64_t>(op.n()));
  window(Access::Write, op.c(), op.m(), op.n(), op.accumulate());
  if (op.aux())
    window(op.epilogue() == plan::Epilogue::Gelu ? Access::Write : Access::Read, op.aux(), op.m(), op.n());
  if (op.row_sums() >= 0)
    a.write(op.row_sums(), static_cast<uint64_t>(op.m()));
}

/// The epilogue of a gradient multiplies each sum by a factor.
inline bool isLinear(const plan::Matmul &op) {
  return op.epilogue() == plan::Epilogue::None || op.epilogue() == plan::Epilogue::GeluGradient;
}

inline double flops(const plan::Matmul &op) {
  double flops = product({op.m(), op.n(), op.k()}, 2);
  for (uint32_t d = 0; d < length(op.batch()); ++d)
    flops *= static_cast<double>(op.batch()->Get(d));
  return flops;
}

/// The elements of a view that are in different places.
inline double windowElements(const plan::View &view, const std::vector<int64_t> &sizes) {
  double all = 1;
  for (uint32_t d = 0; d < sizes.size(); ++d)
    if (view.strides()->Get(d) != 0) // otherwise shared
      all *= static_cast<double>(sizes[d]);
  return all;
}

inline Work work(const plan::Matmul &op, const Context &c) {
  Work work;
  work.kind = WorkClass::Product;
  work.m = op.m(), work.n = op.n(), work.k = op.k();
  for (uint32_t d = 0; d < length(op.batch()); ++d)
    work.batch *= op.batch()->Get(d);
  work.flops = flops(op);
  work.factors = c.slot(op.a()->slot()).dtype();
  const auto bytes = [&](const plan::View &view, int64_t rows, int64_t columns) {
    std::vector<int64_t> sizes = listOf(op.batch());
    sizes.insert(sizes.end(), {rows, columns});
    return windowElements(view, sizes) * sizeOf(c.slot(view.slot()).dtype());
  };
  const double result = bytes(*op.c(), op.m(), op.n());
  work.bytes = bytes(*op.a(), op.m(), op.k()) + bytes(*op.b(), op.k(), op.n()) + result * (op.accumulate() ? 2 : 1);
  if (op.aux())
    work.bytes += bytes(*op.aux(), op.m(), op.n());
  return work;
}

inline OnGpu onGpu(const plan::Matmul &) { return {.library = OnGpu::CublasLt, .workspace = usualWorkspace}; }

inline std::string text(const plan::Matmul &op, const plan::Plan &) {
  const bool gelu = op.epilogue() == plan::Epilogue::Gelu;
  return fmt::format("matmul {} x {} {}{} m {} n {} k {}{}{}{}{}{}", viewText(op.a()), viewText(op.b()),
                     op.accumulate() ? "+> " : "-> ", viewText(op.c()), op.m(), op.n(), op.k(),
                     length(op.batch()) ? fmt::format(" batch [{}]", fmt::join(*op.batch(), ", ")) : "",
                     biasText(op.bias()), epilogueText(op.epilogue()),
                     op.aux() ? (gelu ? " aux -> " : " aux ") + viewText(op.aux()) : "",
                     op.row_sums() >= 0 ? fmt::format(" row sums -> %{}", op.row_sums()) : "");
}

// ---- Attention ----------------------------------------------------------------------------------------------------

inline std::string headsProblem(const plan::View *view, plan::DType type, const Context &c) {
  if (std::string problem = viewProblem(view, 4); !problem.empty())
    return problem;
  if (view->strides()->Get(3) != 1)
    return fmt::format("the last stride of a view must be 1, found {}", view->strides()->Get(3));
  return typeProblem(c, type, {view->slot()});
}

inline Defect problem(const plan::Attention &op, const Context &c) {
  if (!sane({op.batch(), op.heads(), op.rows(), op.width()}) || !sane({op.batch(), op.heads(), op.keys(), op.width()}))
    return "a size is out of range";
  if (op.causal() && op.keys() < op.rows())
    return fmt::format("causal attention of {} rows to {} keys", op.rows(), op.keys());
  const bool backward = op.kind() == plan::AttentionKind::Backward;
  if (backward && op.lse() < 0)
    return "the gradient of attention needs the logarithms of its denominators";
  if (!(op.dropout() >= 0 && op.dropout() < 1) || (op.dropout() > 0) != (op.keep() != nullptr))
    return fmt::format("attention with dropout {} and {} mask of it", op.dropout(), op.keep() ? "a" : "no");
  std::vector<const plan::View *> views{op.q(), op.k(), op.v(), op.out()};
  if (backward)
    views.insert(views.end(), {op.dout(), op.dq(), op.dk(), op.dv()});
  for (const plan::View *view : views)
    if (std::string problem = headsProblem(view, op.dtype(), c); !problem.empty())
      return problem;
  for (const auto &[view, type] : {std::pair(op.bias(), plan::DType::F32), std::pair(op.keep(), plan::DType::I1)})
    if (std::string problem = view ? headsProblem(view, type, c) : ""; !problem.empty())
      return problem;
  return op.lse() < 0 ? "" : typeProblem(c, plan::DType::F32, {op.lse()});
}

inline void accesses(const plan::Attention &op, const Accesses &a) {
  const std::vector<int64_t> queries{op.batch(), op.heads(), op.rows(), op.width()},
      keys{op.batch(), op.heads(), op.keys(), op.width()}, scores{op.batch(), op.heads(), op.rows(), op.keys()};
  const uint64_t sums = elements({op.batch(), op.heads(), op.rows()}), element = dtypeSize(op.dtype());
  a.window(Access::Read, op.q(), queries, element);
  a.window(Access::Read, op.k(), keys, element);
  a.window(Access::Read, op.v(), keys, element);
  for (const plan::View *view : {op.bias(), op.keep()})
    if (view)
      a.window(Access::Read, view, scores, a.elementBytes(view->slot()));
  if (op.kind() == plan::AttentionKind::Forward) {
    a.window(Access::Write, op.out(), queries, element);
    if (op.lse() >= 0)
      a.write(op.lse(), sums);
    return;
  }
  a.window(Access::Read, op.out(), queries, element);
  a.window(Access::Read, op.dout(), queries, element);
  a.read(op.lse(), sums);
  a.window(Access::Write, op.dq(), queries, element);
  a.window(Access::Write, op.dk(), keys, element);
  a.window(Access::Write, op.dv(), keys, element);
}

inline bool isLinear(const plan::Attention &) { return false; }

inline double flops(const plan::Attention &op) {
  const int products = op.kind() == plan::AttentionKind::Backward ? 5 : 2;
  return attentionFlops(op.batch(), op.heads(), op.rows(), op.keys(), op.width(), products, op.causal());
}

inline Work work(const plan::Attention &op, const Context &c) {
  Work work;
  work.kind = WorkClass::Attention;
  work.backward = op.kind() == plan::AttentionKind::Backward;
  work.flops = flops(op);
  work.m = op.rows(), work.n = op.keys(), work.k = op.width(), work.batch = op.batch() * op.heads();
  work.factors = op.dtype();
  const double size = sizeOf(op.dtype());
  const double rows = product({op.batch(), op.heads(), op.rows(), op.width()}) * size,
               keys = product({op.batch(), op.heads(), op.keys(), op.width()}) * size;
  work.bytes = work.backward ? 4 * rows + 4 * keys : 2 * rows + 2 * keys;
  for (const plan::View *view : {op.bias(), op.keep()})
    if (view)
      work.bytes +=
          windowElements(*view, {op.batch(), op.heads(), op.rows(), op.keys()}) * sizeOf(c.slot(view->slot()).dtype());
  work.scoreBytes = product({op.batch(), op.heads(), op.rows(), op.keys()}) * size;
  return work;
}

/// The deterministic gradient of the queries stores the scores' gradient in a half type.
inline OnGpu onGpu(const plan::Attention &op) {
  const bool backward = op.kind() == plan::AttentionKind::Backward;
  const uint64_t scores = backward ? elements({op.batch(), op.heads(), op.rows(), op.keys()}) : 0;
  return {.library = OnGpu::Cudnn, .workspace = usualWorkspace + 2 * scores};
}

inline std::string text(const plan::Attention &op, const plan::Plan &) {
  const bool forward = op.kind() == plan::AttentionKind::Forward;
  const std::string inputs = fmt::format("{} {} {}", viewText(op.q()), viewText(op.k()), viewText(op.v()));
  const std::string extras = (op.bias() ? " bias " + viewText(op.bias()) : "") +
                             (op.keep() ? fmt::format(" keep {} dropout {}", viewText(op.keep()), op.dropout()) : "");
  return fmt::format("attention {} {}{}{} -> {} {}x{} rows {} keys {} width {}{}", EnumNameAttentionKind(op.kind()),
                     inputs, forward ? "" : " " + viewText(op.dout()), extras,
                     forward ? viewText(op.out())
                             : fmt::format("{} {} {}", viewText(op.dq()), viewText(op.dk()), viewText(op.dv())),
                     op.batch(), op.heads(), op.rows(), op.keys(), op.width(), op.causal() ? " causal" : "");
}

} // namespace cleave::steps
