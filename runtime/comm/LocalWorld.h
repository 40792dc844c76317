// Ranks as threads of one process: messages are single copies between their arenas. Nothing is allocated after set-up.
#pragma once
#include "runtime/comm/Communicator.h"

#include <functional>

namespace cleave {

struct LocalState;

class LocalWorld {
public:
  explicit LocalWorld(unsigned ranks);
  ~LocalWorld();
  unsigned size() const;
  World &operator[](unsigned rank);
  /// The first failure, "" while there is none.
  std::string failure() const;

private:
  std::unique_ptr<LocalState> state;
};

/// Runs fn(0) ... fn(n - 1), each in a thread of its own (rank 0 in the calling one). The first exception aborts the
/// world, so that the others end too, and is thrown again here when all have ended.
void runRanks(LocalWorld &world, const std::function<void(unsigned rank)> &fn);

} // namespace cleave
