// The trace at hand: the function that is being built, where in the model we are, and how ops are added to it. Internal
// to the frontend; users see Tensor and free functions. One trace at a time per thread (TraceScope); functions that
// make ops find it through Trace::current, so a Tensor is no more than a value.
#pragma once
#include "cleave/Functional.h"
#include "cleave/Module.h"
#include "frontend/trace/Diagnose.h"
#include "ir/graph/Graph.h"
#include "mlir/IR/Builders.h"

#include <map>

namespace cleave {

/// Throws a user error unless `tensor` holds a value of the trace at hand. It names `what` at `where`; without them the
/// function that asked for the trace last, which is the one that was given the tensor.
void requireHeld(Tensor tensor);
void requireHeld(Tensor tensor, const char *what, Where where);

/// Every function comes to its operands through here.
inline mlir::Value valueOf(Tensor tensor) {
  requireHeld(tensor);
  return mlir::Value::getFromOpaquePointer(tensor.opaque());
}
inline Tensor tensorOf(mlir::Value value) { return Tensor::fromHandle(value.getAsOpaquePointer()); }
inline mlir::RankedTensorType typeOf(Tensor tensor) {
  return llvm::cast<mlir::RankedTensorType>(valueOf(tensor).getType());
}

class Trace {
public:
  enum class Mode : uint8_t { Train, Eval };

  /// Ops go to `body`'s end.
  Trace(mlir::Block *body, Mode mode);

  /// The trace of this thread. Throws a user error naming `what` where there is none.
  static Trace &current(const char *what, Where where);
  static Trace *active();

  bool training() const { return mode == Mode::Train; }

  /// Adds an op with the user's line, the module path and the stage.
  template <class Op, class... Args> Op make(Where where, Args &&...args) {
    Op op = Op::create(builder, location(where), std::forward<Args>(args)...);
    mark(op);
    checkSize(op, where);
    if (++ops > mostOps)
      tooManyOps(where);
    return op;
  }

  mlir::Location location(Where where);
  mlir::RankedTensorType type(const Shape &shape, mlir::Type element);
  mlir::Type element(DType type);
  /// A constant of one value.
  mlir::Value splat(Where where, mlir::RankedTensorType type, double value);

  std::string path() const;
  /// How often `key` was asked for before; numbers the dropouts of a path.
  int64_t occurrence(const std::string &key) { return counts[key]++; }

  // Where we are.
  void enter(std::string path, Where where);
  void leave();
  Where callSite() const;
  /// The innermost place in the user's program: of a module's call, or of the TrainConfig.
  Where userSite() const;
  std::optional<int64_t> stage;
  Where root{};          ///< of the TrainConfig
  const uint64_t number; ///< no other trace of this process has it

  // Parameters and buffers of the function.
  std::map<const void *, mlir::Value> state;
  /// Name of a parameter's value, "fc1.weight"; empty for any other value.
  std::map<void *, std::string> names;
  /// Buffers in the order of their first change.
  std::vector<const Buffer *> changed;

  mlir::OpBuilder builder;

private:
  void mark(mlir::Operation *op);
  /// Sizes that no memory can hold are refused before anything computes with them.
  void checkSize(mlir::Operation *op, Where where);
  [[noreturn]] static void tooManyOps(Where where);
  struct Frame {
    std::string path;
    Where where;
  };
  std::vector<Frame> frames;
  std::map<std::string, int64_t> counts;
  int64_t ops = 0;
  Mode mode;
};

/// Makes a trace the thread's current one.
class TraceScope {
public:
  explicit TraceScope(Trace &trace);
  ~TraceScope();
  TraceScope(const TraceScope &) = delete;

private:
  Trace *before;
};

/// A path on every op made during its life.
class PathScope {
public:
  PathScope(Trace &trace, std::string path, Where where) : trace(trace) { trace.enter(std::move(path), where); }
  ~PathScope() { trace.leave(); }
  PathScope(const PathScope &) = delete;

private:
  Trace &trace;
};

/// `dim` counted from the end where negative; fails with rule `rule` unless it lies in [0, rank).
int64_t normalDim(const char *op, int rule, Tensor x, int64_t dim, Where where);

} // namespace cleave
