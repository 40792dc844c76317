// A kernel before code generation: loops, values with affine addresses, and stores. `loopNestOf` builds it from a
// KernelGraph and decides whether a graph can be one kernel; fusion asks it before merging. No LLVM here.
//
// The iteration space is a list of loops: *kept* (parallel) and *reduced* ones. A value is computed at the current
// index of the loops that it depends on, and hoisted out of the others. Reductions are evaluated per kept index ("row")
// in sweeps. Sweep s runs the reduced loops once, computes the reductions that need only results of earlier sweeps, and
// stores the results that are then available. The vector loop advances by `width` elements:
//
//   map       no reduced loops; the vector loop is innermost
//   rows      the vector loop is reduced: lanes are combined at the end of a sweep
//   columns   the vector loop is kept: each lane is a separate row
#pragma once
#include "passes/codegen/nest/KernelGraph.h"

#include <array>
#include <optional>

namespace cleave::passes::kernel {

inline constexpr int maxLoops = 10;
/// Scratch memory for values that are the same in every row of a map.
inline constexpr int64_t hoistedFloats = 8192;

/// constant + sum of coef[l] * index of loop l.
struct Expr {
  std::array<int64_t, maxLoops> coef{};
  int64_t constant = 0;
  auto operator<=>(const Expr &) const = default;
};

/// low <= expr < high.
struct Condition {
  Expr expr;
  int64_t low = 0, high = 0;
  auto operator<=>(const Condition &) const = default;
};

enum class ValueKind : uint8_t { Load, Scalar, Constant, Index, Op, Guarded, Reduce };

/// Load: element `expr` of buffer `buffer` (of table `-1 - buffer` if negative) if all `conditions` hold, else 0.
/// Scalar: scalars[buffer]. Constant: `constant`. Index: the value of `expr`, i32. Op: `op` of the operands. Guarded:
/// operand 0 if all conditions hold, else operand 1. Reduce: operand 0 combined over the reduced loops.
struct LoopValue {
  ValueKind kind = ValueKind::Constant;
  NodeKind op = NodeKind::Input;
  DType type = DType::F32;
  std::vector<int> operands;
  Expr expr;
  int buffer = 0;
  double constant = 0;
  std::vector<Condition> conditions;
  ReduceKind combine{};
  Predicate relation{};
  bool tanh = false;
  auto operator<=>(const LoopValue &) const = default;
};

/// Whether a value computed in f32 must be rounded to its type: it has a half type and does not merely select among
/// values of that type.
bool needsRounding(const LoopValue &value);

/// Properties that follow from a value's position in the loop nest.
struct Placement {
  uint32_t loops = 0;  // bit l: depends on loop l
  bool row = false;    // depends on a reduction, so it is not available when the row begins
  int sweep = 0;       // earliest sweep that can compute it; for Reduce: the sweep after the one that does
  int scratch = -1;    // slot of the row's scratch memory that stores it for later sweeps
  int scratchFrom = 0; // the sweep that fills the scratch; -1: before the first row, for all rows
};

struct Store {
  int value = 0;
  int buffer = 0; // inputs first, then outputs
  Expr expr;
  int sweep = 0; // -1: at the end of the row
};

struct Loop {
  int64_t extent = 1;
  bool reduced = false;
};

enum class Shape : uint8_t { Map, Rows, Columns };

/// How GPU threads divide a loop nest of width 1 (ThreadPlan.cpp). The vector loop is divided into chunks.
struct ThreadPlan {
  int block = 128;   ///< threads per block
  int chunk = 1;     ///< adjacent elements per access; divides the vector loop (except for flat maps)
  int passes = 1;    ///< chunks (columns: reduced positions) in flight per thread, `group` (maps: `block`) apart
  int group = 1;     ///< threads that share a row (a warp or the block) or a chunk of columns
  bool held = false; ///< rows: `passes` cover the whole row, which stays in registers between sweeps
};

class Sizes;

struct LoopNest {
  Shape shape = Shape::Map;
  std::vector<Loop> loops;           // outermost first; exprs are over these
  int vectorLoop = -1;               // -1: every loop has extent 1
  std::vector<LoopValue> values;     // operands before users
  std::vector<Placement> placements; // one per value
  std::vector<Store> stores;
  std::vector<DType> buffers;       // args: non-scalar inputs, then outputs
  std::vector<int64_t> bufferSizes; // elements, from where the address points
  std::vector<int64_t> offsets;     // elements by which a call moves the address of each input
  std::vector<std::vector<double>> tables;
  std::vector<DType> tableTypes;
  int inputs = 0;                // how many of `buffers` are inputs
  std::vector<int> scalarInputs; // graph inputs that are scalars, in order
  int sweeps = 1;
  int scratchSlots = 0;
  int width = 16;                // lanes of a vector
  int unroll = 1;                // vectors per iteration
  int64_t extent = 1, grain = 1; // of the parallel range
  bool flat = false;             // Map with one loop: code is independent of the extent, except conditions and tables
  ThreadPlan threads;            // for width 1

  /// Iterations of the reduced loops (1 if there are none).
  int64_t reducedCount() const;
  /// A bit for each reduced loop.
  uint32_t reducedMask() const;
  int64_t keptCount() const;
  /// Elements of the vector loop in one iteration.
  int64_t vectorBlock() const { return int64_t{width} * unroll; }
  /// (output, buffer of input): the output may safely overwrite that input.
  std::vector<std::pair<int, int>> mayAlias() const;
  /// The number of elements of a buffer, from the first one, that the code accesses: base + perExtent * extent.
  struct Reach {
    int64_t base = 0, perExtent = 0;
    bool operator==(const Reach &) const = default;
  };
  /// Whether the code works for every extent: it is flat, and the accessed part of each buffer is linear in the extent.
  bool anyExtent() const;
  /// One per buffer; the whole buffer if the code is for one extent.
  std::vector<Reach> reaches() const;
  /// The loop nest as text; equal text means equal code.
  std::string str() const;
  /// Equal for kernels with the same declaration: the text and, of kernels of a fixed extent, the elements they access.
  std::string key() const;
  /// The same with the places of the numbers that the code reads; equal text means equal code, which reads them.
  std::string str(const Sizes &sizes) const;
};

/// Schedules a graph as one kernel, or sets `why` if it cannot be one. Never fails for a single node with its inputs
/// (except a reduction of i1, or more than maxLoops dimensions). `width`: lanes of a vector, 16 for AVX-512, 8 for AVX2
/// (LLVM 22 miscompiles masked loads that it has to split), 1 for GPU threads, which have no scratch memory; see
/// ThreadPlan.
std::optional<LoopNest> loopNestOf(const KernelGraph &graph, std::string *why = nullptr, int width = 16);

/// Sets `threads`, `unroll` and `extent` of a loop nest of width 1. All maps with one loop get the same plan, whatever
/// their size.
void planThreads(LoopNest &nest);

/// The widest aligned access, in elements, that covers adjacent elements along the vector loop at `expr`, from a
/// chunk's first element; 1 if they are not adjacent. `conditions` hold for all of the access or none.
int accessWidth(const LoopNest &nest, const Expr &expr, DType type, const std::vector<Condition> &conditions = {});

/// Estimated microseconds of one execution, including the launch, on a few threads or (width 1) a GPU; for comparisons
/// only.
double cost(const LoopNest &nest);

} // namespace cleave::passes::kernel
