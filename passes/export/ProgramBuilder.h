// Builds the program of one class of equal ranks: slots, segments, and the tables that differ between its ranks.
#pragma once
#include "partitioner/apply/LocalPrograms.h"
#include "passes/codegen/Codegen.h"
#include "passes/export/Tables.h"
#include "passes/export/TensorKinds.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <map>
#include <set>

namespace cleave::passes {

/// A message whose send a segment starts.
struct SentMessage {
  uint32_t slot = 0, tag = 0;
  size_t step = 0;
};

/// A segment and, for every step, the slots it reads or writes.
struct SegmentDraft {
  partitioner::SegmentId id;
  std::unique_ptr<plan::SegmentT> segment = std::make_unique<plan::SegmentT>();
  std::vector<std::vector<uint32_t>> touched; // per step
  std::vector<SentMessage> sends;
};

/// A Rank.scalars entry: start of a rank's share of `size` elements split over `axes`, multiplied by `scale`.
struct ScalarSource {
  int64_t size = 0, scale = 1;
  std::vector<std::string> axes;
  bool operator==(const ScalarSource &) const = default;
};

class ProgramBuilder {
public:
  /// `batches`: merge independent calls of one kernel into one step, in segments that run once per step (Batches.h).
  ProgramBuilder(Tables &tables, KernelBuilder &kernels, const partitioner::RankClass &rankClass,
                 const partitioner::LocalPrograms &applied, bool batches);

  /// Appends the segment of a local function (fused). Add segments that share stashed values in execution order;
  /// `later` are those that may run after it in the same pass over a microbatch.
  void addSegment(mlir::func::FuncOp function, partitioner::SegmentId id, llvm::ArrayRef<mlir::func::FuncOp> later);
  /// Appends an empty segment.
  SegmentDraft &newSegment(partitioner::SegmentId id);
  /// Clears the stashed values before the segments of another pass.
  void beginPass() { stash.clear(); }

  /// The entries of the Rank tables for the rank at `coords`.
  std::unique_ptr<plan::RankT> rank(uint32_t programIndex, const std::vector<int64_t> &coords);

  // For the builders of segments.
  Tables &tables;
  KernelBuilder &kernels;
  const std::vector<int64_t> coords; // of the class's first rank
  const bool batches;
  std::map<int64_t, int64_t> channels; // of messages, by tag
  std::unique_ptr<plan::ProgramT> program = std::make_unique<plan::ProgramT>();
  std::vector<SegmentDraft> segments;
  std::vector<Label> labels;             // by slot
  std::map<std::string, uint32_t> stash; // name -> slot
  std::set<uint32_t> sentSlots;          // slots that some segment sends

  uint32_t newSlot(const std::string &name, mlir::Type type, const Label &label, plan::Space space);
  /// The slot of a named tensor with persistent memory, or of an input.
  uint32_t namedSlot(ir::SlotKind kind, const std::string &name, mlir::Type type, const Label &label);
  /// Records the attributes of an argument for its tensor.
  void describe(uint32_t slot, mlir::func::FuncOp function, unsigned argument);
  plan::SlotT &slot(uint32_t index) { return *program->slots[index]; }

  uint32_t scalarIndex(const ScalarSource &source);
  uint32_t groupIndex(const GroupAxes &group);
  /// The entry in the table of peers for the other position of a message; one entry for each channel.
  uint32_t peerIndex(int64_t position, int64_t channel);

private:
  // By kind, name and, of an input, global shape.
  std::map<std::tuple<ir::SlotKind, std::string, std::vector<int64_t>>, uint32_t> named;
  std::vector<ScalarSource> scalars;
  std::vector<GroupAxes> groups;
  std::vector<std::pair<int64_t, int64_t>> peers; // positions, channels
  const std::vector<int64_t> stages;              // of the program, by chunk
};

plan::SegmentKind planned(partitioner::SegmentKind kind);
/// Parameters and their working copies, buffers, states, gradients, scalars, metrics and outputs have persistent
/// memory.
bool isPersistentKind(ir::SlotKind kind);

} // namespace cleave::passes
