// Large neighbourhood search: some nodes of an assignment are freed, and their best choices are found with all others
// fixed (Shaw, CP 1998).
#pragma once
#include "partitioner/solver/Branch.h"
#include "partitioner/solver/Model.h"

#include <random>

namespace cleave::partitioner {

/// Random numbers that are the same with every standard library.
class SolverRandom {
public:
  explicit SolverRandom(uint64_t seed) : engine(seed) {}
  uint64_t below(uint64_t count) { return engine() % count; }
  double unit() { return double(engine() >> 11) * 0x1p-53; }

private:
  std::mt19937_64 engine;
};

/// The core in which only the nodes of `freed` choose; the others keep their choices of `x`. Its nodes are in the order
/// of `freed`. `load`: what x uses in each row. Its target is the cost of x less one.
Core freedCore(const Model &model, const Choices &x, const std::vector<int64_t> &load,
               const std::vector<uint32_t> &freed);

class NeighbourhoodSearch {
public:
  NeighbourhoodSearch(const Model &model, Choices start, uint64_t seed);
  /// Searches until the work is done or the limit's function says stop.
  void run(WorkLimit &limit);
  /// How much each node's choices cost more than a bound allows: where an assignment may gain.
  void setScores(std::vector<double> of);
  /// Continues from another assignment.
  void restart(Choices from);
  const Choices &best() const { return x; }
  int64_t cost() const { return current; }

  uint64_t tries = 0, gains = 0;
  double size = 20; // nodes to free

private:
  uint32_t seed();
  void grow(std::vector<uint32_t> &out, uint32_t seed, size_t count);
  std::vector<uint32_t> around(size_t count);
  std::vector<uint32_t> between(size_t count);
  std::vector<uint32_t> beside(size_t count);
  void tryFreed(const std::vector<uint32_t> &freed, WorkLimit &limit);

  const Model &model;
  Choices x;
  int64_t current = 0;
  std::vector<int64_t> load;
  SolverRandom random;
  std::vector<double> sums;   // of the scores up to each node
  std::vector<uint32_t> mark; // the last try that freed each node
};

} // namespace cleave::partitioner
