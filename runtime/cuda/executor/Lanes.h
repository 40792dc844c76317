// The streams of a rank, and the events that synchronise steps in different streams. The plan defines both
// (Step.stream, Action.waits). The checker has verified that with these waits, steps that access the same bytes run in
// list order.
#pragma once
#include "runtime/cuda/driver/Ranges.h"
#include "runtime/cuda/kernels/OwnKernels.h"
#include "runtime/executor/Resolved.h"

#include <functional>
#include <map>
#include <vector>

namespace cleave::cuda {

/// A list of actions, with its waits as events.
class Lane {
public:
  /// An iteration, or the part of one that a graph holds.
  struct Piece {
    size_t begin = 0, end = 0; ///< actions
  };
  /// Called before and after each step, for timing.
  using Around = std::function<void(size_t action, size_t step, CUstream stream, bool before)>;

  /// `steps`: approximate maximum number of steps per piece; pieces end between actions.
  Lane(const plan::Plan &plan, std::vector<ResolvedAction> &actions, std::map<uint32_t, Stream> &streams, size_t steps);

  const std::vector<Piece> &pieces() const { return list; }
  /// Enqueues a piece's steps into their streams. All of them start after work already in the compute stream; work
  /// enqueued there later starts after them. Marks each action, and each module path within it, as an NVTX range.
  void enqueue(const Piece &piece, Queue &queue, int whichInput, const Around *around = nullptr) const;

private:
  struct StepWaits {
    std::vector<uint32_t> before; ///< events to wait for
    int32_t after = -1;           ///< event to record
  };
  struct Names {
    RangeName segment = nullptr;
    std::vector<RangeName> paths; ///< per step
  };
  void makeEvents(std::map<uint32_t, Stream> &streams);
  void makeNames(const plan::Plan &plan);

  std::vector<ResolvedAction> &actions;
  std::map<uint32_t, Stream> &streams;
  std::vector<Piece> list;
  std::vector<size_t> pieceOf;               ///< per action
  std::vector<std::vector<StepWaits>> waits; ///< per action and step
  std::map<const ResolvedSegment *, Names> names;
  std::vector<Event> events;
  Event fork;
  std::map<uint32_t, Event> joins; ///< per stream except the compute stream
};

} // namespace cleave::cuda
