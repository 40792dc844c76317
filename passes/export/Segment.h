// Builds one segment: assigns a slot to every value (Slots.cpp), then emits steps for every op (Steps*.cpp).
#pragma once
#include "ir/library/Library.h"
#include "passes/export/ProgramBuilder.h"
#include "runtime/plan/check/Defects.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"

namespace cleave::passes {

using library::Strided;

/// Whether operands and results share bytes: reshapes, markers, collectives with one member. Result i pairs with
/// operand i.
bool isNoOp(mlir::Operation *op, const Mesh &mesh);

/// Assigns slots to the values of a local function. Values that share bytes have one root.
///
/// Results are written in place if that is safe: into the named tensor that they are returned as, once its old value is
/// dead; or into a fusion's operand whose last use this is. All others are copied at the end (`copies`).
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
  /// Each value that the segment returns, and the slot in which later segments find it.
  const std::vector<Target> &returned() const { return leaves; }
  /// The returned values that are in another slot and must be copied at the end.
  std::vector<Target> copies() const;
  /// A slot for a copy of a value from the named slot `slot`, with the same label.
  uint32_t newCopy(const std::string &name, mlir::Value value, uint32_t slot) const;
  /// The value that owns these bytes.
  mlir::Value root(mlir::Value value) const;

private:
  void findUses();
  void assignArguments();
  void findTargets();
  void assignResult(mlir::OpResult result);
  /// A new slot for an unnamed value.
  uint32_t newActivation(const std::string &name, mlir::OpResult result) const;
  void finish();

  std::optional<uint32_t> intoSlot(mlir::OpResult result);
  std::optional<uint32_t> targetSlot(mlir::OpResult result);
  std::optional<uint32_t> reusedSlot(mlir::OpResult result);
  bool mayReplace(mlir::OpResult result, uint32_t slot);
  const std::map<uint32_t, llvm::SmallVector<unsigned, 1>> &readersOf(mlir::Operation *op);
  Label labelOf(mlir::OpResult result) const;
  Label labelAs(mlir::Value returned) const;
  void bind(mlir::Value value, uint32_t slot);

  ProgramBuilder &program;
  mlir::func::FuncOp function;
  std::map<mlir::Operation *, int64_t> positions;
  std::map<mlir::Operation *, KernelCall> kernels;
  llvm::DenseMap<mlir::Value, int64_t> lastUse;                       // of roots
  llvm::DenseMap<mlir::Value, uint32_t> slots;                        // of roots
  std::map<uint32_t, int64_t> busyUntil;                              // slot -> last use of its content
  std::set<uint32_t> keptSlots;                                       // slots that messages or later segments read
  llvm::DenseMap<mlir::Value, uint32_t> targets;                      // root -> named slot in which it is returned
  llvm::DenseSet<mlir::Value> sent;                                   // roots
  llvm::DenseSet<std::pair<mlir::Operation *, unsigned>> overwritten; // fusion operands
  mlir::Operation *operandsOf = nullptr;                              // the op that operandsBySlot describes
  std::map<uint32_t, llvm::SmallVector<unsigned, 1>> operandsBySlot;
  std::vector<Target> leaves;
};

/// Used by the functions that emit steps.
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
  /// A strided view of the value's slot; offset and strides in elements.
  std::unique_ptr<plan::ViewT> view(mlir::Value value, library::ViewAttr window) const;
  std::unique_ptr<plan::ViewT> view(mlir::Value value, int64_t offset, llvm::ArrayRef<int64_t> strides) const;
  std::unique_ptr<plan::ViewT> wholeSlot(uint32_t slot) const;

  /// Appends a step.
  template <class Op> void step(mlir::Operation *from, Op op) {
    plan::StepOpUnion made;
    made.Set(std::move(op));
    append(from, std::move(made));
  }
  /// One contiguous copy between slots of equal size.
  void copySlot(mlir::Operation *from, uint32_t source, uint32_t destination);

  /// Call after emitting an op's steps: records its results as the contents of their slots.
  void finishOp(mlir::Operation *op);
  /// The value number (Step.values) that `slot` must hold at the end, for a value returned in it.
  uint32_t finalValue(mlir::Value returned, uint32_t slot) const;

private:
  /// The value number of an operand, wherever earlier steps put it.
  uint32_t valueOf(mlir::Value value) const;
  uint32_t held(uint32_t slot) const;
  void numberValues(mlir::Operation *from, plan::StepT &step, llvm::ArrayRef<check::Access> accesses);
  llvm::DenseMap<mlir::Value, uint32_t> numbers; // of roots
  std::map<uint32_t, uint32_t> holds;            // by slot: the last value written
  uint32_t made = 0;                             // number of values so far

  void append(mlir::Operation *from, plan::StepOpUnion op);
  /// Sets layers and role.
  void describe(mlir::Operation *from, plan::StepT &step) const;
};

/// Appends the steps of an op; throws userError if it has none.
void emitOp(SegmentBuilder &s, mlir::Operation *op);
/// Steps of the library dialect's ops, of look-ups, of messages; false for any other op.
bool emitLibraryCall(SegmentBuilder &s, mlir::Operation *op);
bool emitLookup(SegmentBuilder &s, mlir::Operation *op);
bool emitMessage(SegmentBuilder &s, mlir::Operation *op);
/// Fills a slot with the constant's value. The op gives path and location.
void emitFill(SegmentBuilder &s, mlir::Operation *constant, uint32_t slot);
/// Index in Rank.scalars of a value defined by dist.shard_offset; -1 for a null value.
int32_t scalarOf(SegmentBuilder &s, mlir::Value offset);

/// Names of mesh axes.
std::vector<std::string> axesOf(mlir::ArrayAttr axes);

} // namespace cleave::passes
