// The current trace, and the functions of Tensor that read the graph.
#include "frontend/trace/Trace.h"
#include "frontend/trace/Diagnose.h"

#include "llvm/Support/raw_ostream.h"
#include <atomic>
#include <fmt/format.h>

namespace cleave {

static thread_local Trace *activeTrace = nullptr;
/// The function that last requested the trace.
static thread_local struct {
  const char *what = "a function";
  Where where{};
} lastCall;

Trace *Trace::active() { return activeTrace; }

Trace &Trace::current(const char *what, Where where) {
  lastCall = {what, where};
  if (!activeTrace)
    failAt(fmt::format("{}: called outside a trace; ops can only be created in a module's forward", what), {}, where);
  return *activeTrace;
}

static std::atomic<uint64_t> traces{0};

Trace::Trace(mlir::Block *body, Mode mode) : number(++traces), builder(mlir::OpBuilder::atBlockEnd(body)), mode(mode) {}

TraceScope::TraceScope(Trace &trace) : before(activeTrace) { activeTrace = &trace; }
TraceScope::~TraceScope() { activeTrace = before; }

mlir::Location Trace::location(Where where) {
  where = userPlace(where);
  return mlir::FileLineColLoc::get(builder.getStringAttr(where.file_name()), where.line(), where.column());
}

std::optional<size_t> Trace::samplesOf(const Shape &shape, int64_t rows, const Shape *ofMoreRows) {
  if (!ofMoreRows || ofMoreRows->size() != shape.size()) {
    const bool some = !shape.empty() && (shape.size() == 1 ? shape[0] == rows : shape[0] % rows == 0);
    return some ? std::optional<size_t>(0) : std::nullopt;
  }
  for (size_t d = 0; d < shape.size(); ++d)
    if (shape[d] != (*ofMoreRows)[d])
      return d;
  return std::nullopt;
}

std::optional<size_t> Trace::draw(const std::string &name, const Shape &shape) {
  draws[name] = shape;
  const Shape *ofMoreRows = nullptr;
  if (drawsOfMoreRows)
    if (const auto found = drawsOfMoreRows->find(name); found != drawsOfMoreRows->end())
      ofMoreRows = &found->second;
  return samplesOf(shape, rows, ofMoreRows);
}

void Trace::checkSize(mlir::Operation *op, Where where) {
  for (mlir::Type type : op->getResultTypes()) {
    int64_t elements = 1;
    for (int64_t size : llvm::cast<mlir::RankedTensorType>(type).getShape())
      if (__builtin_mul_overflow(elements, size, &elements) || elements > mostElements)
        failAt(fmt::format("{}: the result would have more than 2^40 elements", lastCall.what),
               {{"result", shapeText(Shape(llvm::cast<mlir::RankedTensorType>(type).getShape()))}}, where);
  }
}

void Trace::created(mlir::Operation *op, Where where) {
  op->setAttr(ir::attr::path, builder.getStringAttr(path()));
  if (stage)
    op->setAttr(ir::attr::stage, builder.getI64IntegerAttr(*stage));
  if (perMicrobatch > 0)
    op->setAttr(ir::attr::perMicrobatch, builder.getUnitAttr());
  checkSize(op, where);
  if (++ops > mostOps)
    failAt(fmt::format("{}: one pass over the model may have at most {} ops, and this op exceeds that", lastCall.what,
                       mostOps),
           {}, where);
}

std::string Trace::path() const { return frames.empty() ? "" : frames.back().path; }
void Trace::enter(std::string path, Where where) { frames.push_back({std::move(path), where}); }
void Trace::leave() { frames.pop_back(); }
Where Trace::callSite() const { return frames.empty() ? Where() : frames.back().where; }
Where Trace::userSite() const {
  for (auto frame = frames.rbegin(); frame != frames.rend(); ++frame)
    if (isUsersPlace(frame->where))
      return frame->where;
  return root;
}
Where callSite() { return activeTrace ? activeTrace->callSite() : Where(); }

mlir::RankedTensorType Trace::type(const Shape &shape, mlir::Type element) {
  return mlir::RankedTensorType::get(shape, element);
}

// ---- Tensor -------------------------------------------------------------------------------------------------------

void requireHeld(Tensor tensor, const char *what, Where where) {
  if (!tensor.defined())
    failAt(fmt::format("{}: the Tensor is empty", what), {}, where);
  if (!activeTrace || tensor.traceNumber() != activeTrace->number)
    failAt(fmt::format("{}: the tensor belongs to an earlier trace; forward runs once for training and once for "
                       "evaluation: create the tensor again in each run, or keep its value in a Buffer",
                       what),
           {}, where);
}

void requireHeld(Tensor tensor) {
  if (!tensor.defined() || !activeTrace || tensor.traceNumber() != activeTrace->number)
    requireHeld(tensor, lastCall.what, lastCall.where);
}

/// As requireHeld. If `where` is in Cleave, because one of its functions queries a shape, the error names the function
/// that the user called.
static void requireHeldBy(Tensor tensor, const char *what, Where where) {
  isUsersPlace(where) ? requireHeld(tensor, what, where) : requireHeld(tensor);
}

Tensor internal::held(Tensor tensor, Where where) {
  requireHeldBy(tensor, "an operator", where);
  return tensor;
}

Tensor Tensor::fromHandle(const void *handle) {
  Tensor tensor;
  tensor.handle = handle;
  tensor.trace = activeTrace ? activeTrace->number : 0;
  return tensor;
}

Shape Tensor::shape(Where where) const {
  requireHeldBy(*this, "shape", where);
  auto shape = typeOf(*this).getShape();
  return Shape(shape.begin(), shape.end());
}

int64_t Tensor::rank(Where where) const {
  requireHeldBy(*this, "rank", where);
  return typeOf(*this).getRank();
}

int64_t Tensor::elements(Where where) const {
  requireHeldBy(*this, "elements", where);
  return typeOf(*this).getNumElements();
}

int64_t Tensor::size(int64_t dim, Where where) const {
  requireHeldBy(*this, "size", where);
  return typeOf(*this).getDimSize(normalDim("size", 1, *this, dim, where));
}

DType Tensor::dtype(Where where) const {
  requireHeldBy(*this, "dtype", where);
  return ir::dtypeOf(typeOf(*this));
}

std::string Tensor::str() const {
  if (!defined())
    return "nothing";
  std::string text;
  llvm::raw_string_ostream out(text);
  out << typeOf(*this);
  return text;
}

int64_t normalDim(const char *op, int rule, Tensor x, int64_t dim, Where where) {
  const int64_t rank = x.rank(), found = dim < 0 ? dim + rank : dim;
  if (found < 0 || found >= rank)
    failRule(op, rule, fmt::format("dimension {} does not exist, the input's rank is {}", dim, rank),
             {fact(x, "input")}, where);
  return found;
}

} // namespace cleave
