// Ranks as threads of one process. A message is a single copy between arenas. Nothing is allocated after set-up.
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
  RankEndpoint &operator[](unsigned rank);
  /// The message of the first failure, "" if there is none.
  std::string failure() const;

private:
  std::unique_ptr<LocalState> state;
};

/// Runs fn(0) ... fn(n - 1), each in its own thread (rank 0 in the calling one). The first exception aborts the world,
/// so that all threads end, and is then rethrown.
void runRanks(LocalWorld &world, const std::function<void(unsigned rank)> &fn);

} // namespace cleave
