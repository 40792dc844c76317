// The current trace: the function being built, the current module path, and how ops are added. Internal to the
// frontend; users see Tensor and free functions. There is one trace per thread at a time (TraceScope). Functions that
// create ops find it through Trace::current, so a Tensor is only a handle.
#pragma once
#include "cleave/Functional.h"
#include "cleave/Module.h"
#include "frontend/trace/Diagnose.h"
#include "ir/graph/Graph.h"
#include "mlir/IR/Builders.h"

#include <map>
#include <optional>

namespace cleave {

/// Throws a user error unless `tensor` holds a value of the current trace. The error names `what` at `where`. Without
/// these arguments, it names the function that last requested the trace: the one that received the tensor.
void requireHeld(Tensor tensor);
void requireHeld(Tensor tensor, const char *what, Where where);

/// The value of an operand; every function must use this to read its operands.
inline mlir::Value valueOf(Tensor tensor) {
  requireHeld(tensor);
  return mlir::Value::getFromOpaquePointer(tensor.opaque());
}
inline Tensor tensorOf(mlir::Value value) { return Tensor::fromHandle(value.getAsOpaquePointer()); }
inline mlir::RankedTensorType typeOf(Tensor tensor) {
  return llvm::cast<mlir::RankedTensorType>(valueOf(tensor).getType());
}

/// Values of i32 elements.
struct Interval {
  int64_t least, most;
};

/// A field of the data.
struct TracedInput {
  std::string name;
  Shape shape;                      ///< of one sample
  std::optional<Interval> declared; ///< what the data set says of its values
};

class Trace {
public:
  enum class Mode : uint8_t { Train, Eval };

  /// Appends ops to `body`.
  Trace(mlir::Block *body, Mode mode);

  /// The trace of this thread. Throws a user error that names `what` if there is none.
  static Trace &current(const char *what, Where where);
  static Trace *active();

  bool training() const { return mode == Mode::Train; }

  /// Gives a new op the module path and the stage, and checks its size and the number of ops.
  void created(mlir::Operation *op, Where where);
  mlir::Location location(Where where);
  mlir::RankedTensorType type(const Shape &shape, mlir::Type element);
  mlir::Type element(DType type) { return ir::elementType(builder.getContext(), type); }

  std::string path() const;
  /// Number of earlier calls with `key`; used to number the dropouts of a path.
  int64_t occurrence(const std::string &key) { return counts[key]++; }

  // The current position in the model.
  void enter(std::string path, Where where);
  void leave();
  Where callSite() const;
  /// Location of the innermost module call that is in the user's program; without one, `root`.
  Where userSite() const;
  std::optional<int64_t> stage;
  double batchShare = 1;  ///< the microbatch's part of the batch of training
  int perMicrobatch = 0;  ///< > 0: ops combine the samples of a microbatch on purpose
  Where root{};           ///< location of the TrainConfig
  bool inForward = false; ///< the model's forward is running: it makes no modules, parameters or buffers
  const uint64_t number;  ///< unique within this process

  // Random tensors by name, and the number of samples of a microbatch.
  using Draws = std::map<std::string, Shape>;
  Draws draws;
  int64_t rows = 1;
  /// Those of the same function with twice as many samples; null: not known.
  const Draws *drawsOfMoreRows = nullptr;
  /// Records a random tensor. Returns samplesOf() of it.
  std::optional<size_t> draw(const std::string &name, const Shape &shape);
  /// The dimension of a random tensor that has the samples; nullopt: all samples share the tensor. If the shape with
  /// twice as many samples is not known, it is dimension 0 if its size is a multiple of their number (of a vector:
  /// their number).
  static std::optional<size_t> samplesOf(const Shape &shape, int64_t rows, const Shape *ofMoreRows);

  // Current values of parameters and buffers, by the address of the Parameter or Buffer.
  std::map<const void *, mlir::Value> state;
  /// Paths of the values of parameters and buffers, such as "fc1.weight".
  std::map<void *, std::string> names;
  /// Buffers that were set, in the order of their first change.
  std::vector<const Buffer *> changed;

  // For Indices.h, by value: the function's inputs, and what is known of values that no rule derives.
  std::map<void *, TracedInput> inputs;
  std::map<void *, Interval> ranges;
  /// What functions read as indices: by field, which values these may have; and by reader, the number of computed
  /// indices that are invalid.
  std::map<std::string, std::vector<mlir::Attribute>> indicesOf;
  std::map<std::string, mlir::Value> invalid;

  mlir::OpBuilder builder;

private:
  /// Rejects sizes that exceed any memory, before anything computes with them.
  void checkSize(mlir::Operation *op, Where where);
  struct Frame {
    std::string path;
    Where where;
  };
  std::vector<Frame> frames;
  std::map<std::string, int64_t> counts;
  int64_t ops = 0;
  Mode mode;
};

/// Makes a trace the thread's current trace for the lifetime of this object.
class TraceScope {
public:
  explicit TraceScope(Trace &trace);
  ~TraceScope();
  TraceScope(const TraceScope &) = delete;

private:
  Trace *before;
};

/// Sets the module path on all ops created during the lifetime of this object.
class PathScope {
public:
  PathScope(Trace &trace, std::string path, Where where) : trace(trace) { trace.enter(std::move(path), where); }
  ~PathScope() { trace.leave(); }
  PathScope(const PathScope &) = delete;

private:
  Trace &trace;
};

/// `dim` counted from the start; fails with rule `rule` unless it lies in [-rank, rank).
int64_t normalDim(const char *op, int rule, Tensor x, int64_t dim, Where where);

} // namespace cleave
