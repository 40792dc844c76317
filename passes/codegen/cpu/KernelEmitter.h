// The emitter's state: per loop level one insertion point and one cache of values. Private to codegen.
//
// Levels: 0 the kernel, 1 the row (the parallel loop), 2 and above the loops inside a row, vector loop last. A value is
// emitted at the level of the innermost loop that it depends on, at the current end of that level, which dominates all
// later code of the level. In Columns the vector loop belongs to the row level. On CPUs, if there are float sums, a
// level stands above the innermost reduced loop: the loop over its parts.
#pragma once
#include "passes/codegen/Math.h"
#include "passes/codegen/nest/Sizes.h"

#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/Module.h"

#include <map>
#include <vector>

namespace cleave::passes::kernel {

class KernelEmitter {
public:
  KernelEmitter(const LoopNest &nest, const Sizes &sizes, llvm::Module &module, const std::string &name);
  virtual ~KernelEmitter() = default;
  llvm::Function *run();

protected:
  /// The derived class creates the function.
  KernelEmitter(const LoopNest &nest, const Sizes &sizes, llvm::Module &module, MathUnit unit);
  using V = llvm::Value *;
  struct Level {
    llvm::BasicBlock *block = nullptr;
    std::map<std::pair<int, int>, V> cache; // (value, copy), unrounded; (-2 - value, copy), rounded
  };
  struct OpenLoop {
    llvm::BasicBlock *header, *exit;
    llvm::PHINode *index;
    V high, step;
    int level;
  };
  struct Accumulator {
    int value;                              // the Reduce
    std::vector<llvm::AllocaInst *> slots;  // per copy
    std::vector<llvm::AllocaInst *> totals; // per copy; of a float sum, the sum of its finished parts
  };

  // structure
  void emitFlat();
  void emitRows();
  void emitRow();
  std::vector<int64_t> pieces() const;
  void setRowIndices(V row);
  void sweep(int s);
  virtual void reducedLoops(size_t next, int s, std::vector<Accumulator> &accumulators);
  void vectorLoop(V low, V high, int64_t staticExtent, int s, std::vector<Accumulator> &accumulators);
  /// The innermost loop of a sweep. Float sums are added up in parts of `mostSummed` iterations: the rounding errors of
  /// a sum of n numbers grow with mostSummed + n / mostSummed, not with n (Higham, The accuracy of floating point
  /// summation, 1993).
  void innermostLoop(int loop, V low, V high, int64_t step, int copies, int s, std::vector<Accumulator> &accumulators);
  void finishPart(int level, std::vector<Accumulator> &accumulators);
  void body(int copies, int s, std::vector<Accumulator> &accumulators);
  virtual void finish(std::vector<Accumulator> &accumulators);
  virtual void endStores();
  OpenLoop open(int level, V low, V high, V step);
  OpenLoop open(int level, V low, V high, int64_t step) { return open(level, low, high, number(step)); }
  void makeTables();
  void readSizes();
  void close(const OpenLoop &loop);
  void at(int level); // sets the insertion point to the end of that level
  /// A constant of the index type.
  V number(int64_t value) { return llvm::ConstantInt::getSigned(indexType, value); }
  /// The same, or what was read.
  V number(int64_t value, Sizes::Place place) { return place ? words[*place] : number(value); }
  V extentOf(int loop) { return number(p.loops[loop].extent, sizes.extent(loop)); }

  // values (EmitValue.cpp)
  /// A value as its readers see it: rounded to its type, as if loaded from memory.
  V emit(int value, int copy);
  /// A value for a store, which rounds it.
  V unrounded(int value, int copy);
  virtual V scalarArgument(int index);
  V compute(const LoopValue &v, int value, int copy);
  V operation(const LoopValue &v, const std::vector<V> &x, const std::vector<DType> &types);
  V floatOperation(const LoopValue &v, const std::vector<V> &x);
  V intOperation(const LoopValue &v, const std::vector<V> &x);
  V compare(Predicate relation, V x, V y, DType type);
  V cast(V x, DType from, DType to);
  V roundTo(V x, DType type); // the nearest value of a 16-bit type, as f32
  virtual V load(const LoopValue &v, int value, int copy);
  void store(const Store &s, int copy);
  V fromMemory(V x, DType type);
  virtual V toMemory(V x, DType type);
  /// Null if the conditions always hold.
  V condition(const std::vector<Condition> &conditions, int copy, int level);
  V splat(V x) { return p.width == 1 || x->getType()->isVectorTy() ? x : b.CreateVectorSplat(p.width, x); }
  V combine(ReduceKind kind, V x, V y, DType type);
  V identity(ReduceKind kind, DType type, bool vector);
  /// The scalar part of an expression (lane 0 of `copy`), computed at `level` or above.
  V expr(const Expr &e, int copy, int level);
  V lanes(llvm::Type *element, int64_t step); // <0, step, 2 step, ...>
  V mask(int copy);                           // active lanes; null: all
  V pointer(int buffer, V index);
  V lanePointers(V first, llvm::Type *element, int64_t step);
  V scratchPointer(const Placement &where, int copy, int level);

  /// Whether an earlier sweep stored the value to scratch memory, rounded.
  bool inScratch(const Placement &where) const { return where.scratch >= 0 && currentSweep > where.scratchFrom; }
  bool onVector(uint32_t loops) const { return p.vectorLoop >= 0 && loops >> p.vectorLoop & 1; }
  int levelOf(int value) const;
  int levelOf(uint32_t loops) const;
  // Depends on the loop order, which differs on a GPU.
  virtual int loopLevel(int loop) const;
  /// The copy index in the cache for a value that depends on `loops`.
  virtual int copyKey(uint32_t loops, int copy) const { return onVector(loops) ? copy : 0; }
  /// Number of elements between copy 0 and `copy` along the vector loop.
  virtual int64_t copyOffset(int copy) const { return int64_t{p.width} * copy; }
  virtual V indexOf(int loop, int) const { return indices[static_cast<size_t>(loop)]; }
  llvm::Type *compute(DType type);
  llvm::Type *memory(DType type);
  llvm::Type *shaped(llvm::Type *element, bool vector) {
    return vector && p.width > 1 ? llvm::VectorType::get(element, p.width, false) : element;
  }

  const LoopNest &p;
  const Sizes sizes; // none on a GPU
  llvm::Module &module;
  llvm::IRBuilder<> b;
  llvm::IntegerType *indexType; // of loops and addresses: i64, or i32 if a GPU loop nest is small enough
  Math math;
  llvm::Function *function = nullptr;
  llvm::BasicBlock *entry = nullptr;
  V args = nullptr, scalars = nullptr, begin = nullptr, end = nullptr;
  std::vector<V> words; // the sizes, read on entry
  std::vector<Level> levels;
  std::vector<V> indices;                         // per loop: its current index
  std::vector<int> keptLoops, reducedLoopsInside; // without the vector loop
  std::vector<V> bases;                           // per buffer
  std::vector<llvm::GlobalVariable *> tables;
  std::vector<llvm::AllocaInst *> scratch;
  V laneLimit = nullptr; // end of the vector loop if lanes must be masked
  struct {
    int64_t begin = 0, end = 0;
  } piece; // of the vector loop: its index is within; unknown if empty
  int currentSweep = 0;
  int partLevel = -1; // of the loop over parts of a sum; -1: there is none
};

} // namespace cleave::passes::kernel
