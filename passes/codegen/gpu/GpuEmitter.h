// The emitter of GPU kernels: its state and parts. Private to codegen; GpuEmit.h describes the result.
//
// Levels: 0 the kernel, 1 the item (a row, a chunk of columns; unused for maps), 2 inside the item. A thread processes
// ThreadPlan::passes chunks at a time; copy c of a value is element c % chunk of pass c / chunk.
#pragma once
#include "passes/codegen/cpu/KernelEmitter.h"
#include "passes/codegen/gpu/GpuEmit.h"

namespace cleave::passes::kernel {

class GpuEmitter final : public KernelEmitter {
public:
  GpuEmitter(const LoopNest &nest, llvm::Module &module, const std::string &name, ThreadWords words, bool batch);
  llvm::Function *build();

private:
  /// One chunk in flight (columns: one reduced position).
  struct Pass {
    std::vector<V> index; // per loop that differs between passes
    V valid = nullptr;    // null: always. Otherwise invalid elements are read from elsewhere and discarded
  };
  /// One column's partial result of a reduction in shared memory; the lines' parts start at `byte`.
  struct Part {
    int value, element;
    int64_t byte;
    llvm::Type *type;
  };
  /// Code for only some threads, until it is closed.
  struct Branch {
    llvm::BasicBlock *rest = nullptr; // null: all threads run it
  };

  // loops over items and inside them (GpuEmit.cpp)
  void maps();
  void flatMap();
  void rows();
  void columns();
  void reducedLoops(size_t next, int s, std::vector<Accumulator> &accumulators) override;
  void heldRow(int s, std::vector<Accumulator> &accumulators);
  void take(std::vector<Pass> now, int s, std::vector<Accumulator> &accumulators);
  void loadAhead(int value, std::vector<char> &seen);
  void accumulate(std::vector<Accumulator> &accumulators);
  Pass passAt(V number, V valid = nullptr);
  void takeApart(V number, const std::vector<int> &loops, bool vector, std::vector<V> &index);
  Branch branch(V condition); // null: always
  void close(Branch branch);
  using KernelEmitter::close;

  // results of reductions (GpuReduce.cpp)
  void finish(std::vector<Accumulator> &accumulators) override;
  void finishRows(std::vector<Accumulator> &accumulators);
  void acrossWarps(const std::vector<Accumulator> &accumulators, std::vector<V> &parts);
  V tree(std::vector<V> x, const LoopValue &v);
  void finishColumns(std::vector<Accumulator> &accumulators);
  void acrossLines(const std::vector<Part> &parts);
  V linePlace(int64_t byte, llvm::Type *type, V line, int e);
  void endStores() override;
  void makeShared();
  int64_t sharedBytes() const;
  V place(int64_t byte, llvm::Type *type, V index);
  V exchange(V x, int distance);
  void barrier();
  void warpBarrier();

  // memory (GpuMemory.cpp)
  V load(const LoopValue &v, int value, int copy) override;
  V toMemory(V x, DType type) override;
  void storeChunk(const Store &s, int pass, int level);
  void storeTogether(const Store &s, const std::vector<V> &elements, V index);
  V elementOf(const std::vector<V> &words, int i, DType type);
  V wordOf(const std::vector<V> &elements, size_t first, DType type);

  // parameters
  V parameter(size_t buffer);
  void findCall();

  // threads
  V wide(V x) { return b.CreateZExtOrTrunc(x, indexType); }
  V outside(const char *name, llvm::Type *result, llvm::ArrayRef<V> arguments = {});
  V word(unsigned intrinsic, const char *name);
  void noteParameters(const std::string &name);
  V scalarArgument(int index) override;
  bool ptx() const { return words == ThreadWords::Ptx; }

  // levels of loops and values
  int loopLevel(int loop) const override { return p.shape == Shape::Map || p.loops[loop].reduced ? 2 : 1; }
  bool differs(int loop) const { return loopLevel(loop) == 2; } // between passes
  int copyKey(uint32_t loops, int copy) const override;
  int64_t copyOffset(int copy) const override { return copy % chunk; }
  V indexOf(int loop, int copy) const override;
  int64_t vectorChunks() const { return p.vectorLoop < 0 ? 1 : p.loops[p.vectorLoop].extent / plan.chunk; }

  const ThreadPlan &plan;
  ThreadWords words;
  bool batch;               // several calls: buffers, scalars and extent come from the block's call
  int chunk;                // elements of a pass: the plan's, except in the tail of a flat map
  std::vector<int> reduced; // loops, without the vector loop
  std::vector<Pass> passes; // in flight
  std::vector<Pass> row;    // all passes of a row held in registers
  V thread = nullptr, block = nullptr, blocks = nullptr, extent = nullptr;
  V member = nullptr;     // index within the group
  V across = nullptr;     // columns: index of the chunk within the block
  V mine = nullptr;       // columns: whether this thread's columns exist; null: always
  int64_t sharedUsed = 0; // bytes used within an item
  llvm::GlobalVariable *shared = nullptr;
};

} // namespace cleave::passes::kernel
