// The streams of a rank, and the events by which steps in one wait for steps in another. The plan says both
// (Step.stream, Action.waits); the checker has shown that where these waits are kept, steps that touch the same bytes
// run in the order of the list.
#pragma once
#include "runtime/cuda/kernels/OwnKernels.h"
#include "runtime/cuda/driver/Ranges.h"
#include "runtime/executor/Resolved.h"

#include <functional>
#include <map>
#include <vector>

namespace cleave::cuda {

/// A list of actions with its waits as events.
class Lane {
public:
  /// An iteration, or the piece of one that a graph holds.
  struct Piece {
    size_t begin = 0, end = 0; ///< actions
  };
  /// What to do around a step: for timing.
  using Around = std::function<void(size_t action, size_t step, CUstream stream, bool before)>;

  /// `steps`: about how many steps a piece has at most; pieces end between actions.
  Lane(const plan::Plan &plan, std::vector<ResolvedAction> &actions, std::map<uint32_t, Stream> &streams, size_t steps);

  const std::vector<Piece> &pieces() const { return list; }
  /// Puts a piece's steps into their streams. All begin after what the compute stream holds, and what is put there
  /// afterwards begins after them. A tool is told each action and, inside it, each module path.
  void enqueue(const Piece &piece, Queue &queue, int whichInput, const Around *around = nullptr) const;

private:
  struct StepWaits {
    std::vector<uint32_t> before; ///< events to wait for
    int32_t after = -1;           ///< event to record
  };
  struct Names {
    RangeName segment = nullptr;
    std::vector<RangeName> paths; ///< by step
  };
  void makeEvents(std::map<uint32_t, Stream> &streams);
  void makeNames(const plan::Plan &plan);

  std::vector<ResolvedAction> &actions;
  std::map<uint32_t, Stream> &streams;
  std::vector<Piece> list;
  std::vector<size_t> pieceOf;               ///< by action
  std::vector<std::vector<StepWaits>> waits; ///< by action and step
  std::map<const ResolvedSegment *, Names> names;
  std::vector<Event> events;
  Event fork;
  std::map<uint32_t, Event> joins; ///< by stream, but for the one that computes
};

} // namespace cleave::cuda
