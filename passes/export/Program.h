// The program of one class of equal ranks while it is built: slots, segments, and the tables that differ between its
// ranks.
#pragma once
#include "partitioner/apply/Applied.h"
#include "passes/codegen/Codegen.h"
#include "passes/export/Tables.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <map>
#include <set>

namespace cleave::passes {

/// A message that a segment starts to send.
struct SentMessage {
  uint32_t slot = 0, tag = 0;
  size_t step = 0;
};

/// A segment and, for every step, the slots it reads or writes.
struct SegmentDraft {
  std::string name; // "forward"
  std::unique_ptr<plan::SegmentT> segment = std::make_unique<plan::SegmentT>();
  std::vector<std::vector<uint32_t>> touched; // per step
  std::vector<SentMessage> sends;
};

/// Rank.scalars entry: where a rank's share of `size` elements split over `axes` begins, times `scale`.
struct ScalarSource {
  int64_t size = 0, scale = 1;
  std::vector<std::string> axes;
  bool operator==(const ScalarSource &) const = default;
};

class ProgramBuilder {
public:
  /// `batches`: independent calls of one kernel become one step in what runs once a step (Batches.h).
  ProgramBuilder(Tables &tables, KernelBuilder &kernels, const partitioner::RankClass &rankClass, bool batches);

  /// Appends the segment of a local function (fused). Segments that share stashed values are added in the order in
  /// which they run; `later` are those of the same pass over a microbatch that follow.
  void addSegment(mlir::func::FuncOp function, const std::string &name, llvm::ArrayRef<mlir::func::FuncOp> later);
  /// Forgets stashed values: the next segments belong to another pass.
  void beginPass() { stash.clear(); }

  /// Entries of Rank tables for the rank at `coords`.
  std::unique_ptr<plan::RankT> rank(uint32_t programIndex, const std::vector<int64_t> &coords);

  // Used by the segments' builders.
  Tables &tables;
  KernelBuilder &kernels;
  const std::vector<int64_t> coords; // of the class's first rank
  const bool batches;
  std::unique_ptr<plan::ProgramT> program = std::make_unique<plan::ProgramT>();
  std::vector<SegmentDraft> segments;
  std::vector<Label> labels;             // of slots
  std::map<std::string, uint32_t> stash; // name -> slot
  std::set<uint32_t> sentSlots;          // from which some segment sends

  uint32_t newSlot(const std::string &name, mlir::Type type, const Label &label, plan::Space space);
  /// The slot of a named tensor that lives for the whole run, or of an input.
  uint32_t namedSlot(const std::string &kind, const std::string &name, mlir::Type type, const Label &label);
  /// Notes what an argument says of its tensor.
  void describe(uint32_t slot, mlir::func::FuncOp function, unsigned argument);
  plan::SlotT &slot(uint32_t index) { return *program->slots[index]; }

  uint32_t scalarIndex(const ScalarSource &source);
  uint32_t groupIndex(const GroupAxes &group);
  uint32_t peerIndex(int64_t stage);

private:
  std::map<std::pair<std::string, std::string>, uint32_t> named;
  std::vector<ScalarSource> scalars;
  std::vector<GroupAxes> groups;
  std::vector<int64_t> peers; // stages
};

plan::TensorKind tensorKindOf(const std::string &kind);
plan::SegmentKind segmentKindOf(const std::string &name);
/// Parameters and their working copies, buffers, states, gradients, scalars, metrics and outputs have memory of their
/// own for the whole run.
bool isPersistentKind(llvm::StringRef kind);

} // namespace cleave::passes
