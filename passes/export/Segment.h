// Builds one segment: which slot every value lies in (Slots.cpp), then a step or a few for every op (Steps*.cpp).
#pragma once
#include "ir/library/Library.h"
#include "passes/export/Program.h"
#include "runtime/plan/CheckParts.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"

namespace cleave::passes {

using library::Strided;

/// Operand and result are the same bytes: reshapes, marks, collectives of one member. Results then pair with operands.
bool isNoOp(mlir::Operation *op, const Mesh &mesh);

/// Assigns slots to the values of a local function. Values that share bytes have one root.
///
/// Results are written in place where that is safe: into the named tensor they are returned as, once its old value is
/// no longer read; into a fusion's operand that dies there. What stays apart is copied at the end (`copies`).
class SlotAssignment {
public:
  SlotAssignment(ProgramBuilder &program, mlir::func::FuncOp function, const std::set<std::string> &stashReadLater);

  uint32_t slotOf(mlir::Value value) const { return slots.at(root(value)); }
  bool hasSlot(mlir::Value value) const { return slots.count(root(value)) != 0; }
  const KernelCall &kernelOf(mlir::Operation *fusion) const { return kernels.at(fusion); }
  struct Target {
    mlir::Value value;
    uint32_t slot;
  };
  /// Each value that the segment returns, and the slot that later segments find it in.
  const std::vector<Target> &returned() const { return leaves; }
  /// Those of them that lie in another slot, and are copied at the end.
  std::vector<Target> copies() const;
  /// A slot for a copy of a value that lies in `slot`, a named one: it means what the value means.
  uint32_t newCopy(const std::string &name, mlir::Value value, uint32_t slot) const;
  /// The value whose bytes these are.
  mlir::Value root(mlir::Value value) const;

private:
  void findUses();
  void assignArguments();
  void findTargets();
  void assignResult(mlir::OpResult result);
  /// A slot of its own for a value that no name is known of.
  uint32_t newActivation(const std::string &name, mlir::OpResult result) const;
  void finish();

  std::optional<uint32_t> intoSlot(mlir::OpResult result);
  std::optional<uint32_t> targetSlot(mlir::OpResult result);
  std::optional<uint32_t> reusedSlot(mlir::OpResult result);
  bool mayReplace(mlir::OpResult result, uint32_t slot);
  const std::map<uint32_t, llvm::SmallVector<unsigned, 1>> &readersOf(mlir::Operation *op);
  Label labelOf(mlir::OpResult result) const;
  void bind(mlir::Value value, uint32_t slot);

  ProgramBuilder &program;
  mlir::func::FuncOp function;
  std::map<mlir::Operation *, int64_t> positions;
  std::map<mlir::Operation *, KernelCall> kernels;
  llvm::DenseMap<mlir::Value, int64_t> lastUse;                       // of roots
  llvm::DenseMap<mlir::Value, uint32_t> slots;                        // of roots
  std::map<uint32_t, int64_t> busyUntil;                              // slot -> last use of what it holds
  std::set<uint32_t> keptSlots;                                       // which messages leave or later segments read
  llvm::DenseMap<mlir::Value, uint32_t> targets;                      // root -> named slot it is returned as
  llvm::DenseSet<mlir::Value> sent;                                   // roots
  llvm::DenseSet<std::pair<mlir::Operation *, unsigned>> overwritten; // fusion operands
  mlir::Operation *operandsOf = nullptr;                              // what operandsBySlot is of
  std::map<uint32_t, llvm::SmallVector<unsigned, 1>> operandsBySlot;
  std::vector<Target> leaves;
};

/// What the ops' step functions use.
class SegmentBuilder {
public:
  SegmentBuilder(ProgramBuilder &program, SegmentDraft &draft, const SlotAssignment &slots)
      : program(program), draft(draft), slots(slots) {}

  ProgramBuilder &program;
  SegmentDraft &draft;
  const SlotAssignment &slots;

  uint32_t slot(mlir::Value value) const { return slots.slotOf(value); }
  /// The whole slot, contiguous in the value's shape.
  std::unique_ptr<plan::ViewT> view(mlir::Value value) const;
  /// A window onto the value's slot.
  std::unique_ptr<plan::ViewT> view(mlir::Value value, library::ViewAttr window) const;
  std::unique_ptr<plan::ViewT> view(mlir::Value value, int64_t offset, llvm::ArrayRef<int64_t> strides) const;
  std::unique_ptr<plan::ViewT> wholeSlot(uint32_t slot) const;

  /// Appends a step.
  template <class Op> void step(mlir::Operation *from, Op op, double flops = 0) {
    plan::StepOpUnion made;
    made.Set(std::move(op));
    append(from, std::move(made), flops);
  }
  /// One contiguous copy between slots of equal size.
  void copySlot(mlir::Operation *from, uint32_t source, uint32_t destination);

  /// The steps of an op are there: its results are what these left in their slots.
  void finishOp(mlir::Operation *op);
  /// The value (Step.values) that `slot` is to hold at the end, for a value that is returned in it.
  uint32_t finalValue(mlir::Value returned, uint32_t slot) const;

private:
  /// What an operand is by the graph, wherever the steps so far left it.
  uint32_t valueOf(mlir::Value value) const;
  uint32_t held(uint32_t slot) const;
  void numberValues(mlir::Operation *from, plan::StepT &step, llvm::ArrayRef<check::Access> accesses);
  llvm::DenseMap<mlir::Value, uint32_t> numbers; // of roots
  std::map<uint32_t, uint32_t> holds;            // by slot: the last value made there
  uint32_t made = 0;                             // values so far

  void append(mlir::Operation *from, plan::StepOpUnion op, double flops);
};

/// Appends the steps of an op; throws userError where it has none.
void emitOp(SegmentBuilder &s, mlir::Operation *op);
/// Steps of the library dialect's ops, of look-ups, of messages; false for any other op.
bool emitLibraryCall(SegmentBuilder &s, mlir::Operation *op);
bool emitLookup(SegmentBuilder &s, mlir::Operation *op);
bool emitMessage(SegmentBuilder &s, mlir::Operation *op);
/// Fills a slot with the constant's value; `from` gives path and location.
void emitFill(SegmentBuilder &s, mlir::Operation *constant, uint32_t slot);
/// Index of Rank.scalars for a value made by dist.shard_offset; -1 for a null value.
int32_t scalarOf(SegmentBuilder &s, mlir::Value offset);

/// Names of mesh axes.
std::vector<std::string> axesOf(mlir::ArrayAttr axes);

} // namespace cleave::passes
