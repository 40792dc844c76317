// What changing a sharding costs in messages. partitioner/apply makes collectives of the same steps.
#pragma once
#include "partitioner/sharding/Solution.h"

namespace cleave::partitioner {

/// One step from a sharding to another.
struct ReshardStep {
  enum class Kind {
    AllReduce,     // finishes the partial sums over `axes`
    ReduceScatter, // the same, each member keeping its share of the factor at `place`
    Gather,        // an all-gather: the factor at `place` becomes whole
    Slice,         // each member keeps its share of the factor at `place`; no message
  };
  Kind kind = Kind::Slice;
  std::vector<std::string> axes = {}; ///< of an all-reduce or a reduce-scatter
  FactorPlace place = {};
  /// Of a gather or a slice: the factors of dimension `place.dim` while it is split the most, before it or after it.
  DimSharding dim = {};
};

/// The steps that turn `from` into `to`. All gathers come before all slices: members of a gather must hold the same
/// share of every other factor. Factors that both have stay as they are.
std::vector<ReshardStep> reshardSteps(const Mesh &mesh, const Sharding &from, const Sharding &to);

enum class Collective { AllReduce, ReduceScatter, AllGather };

/// A collective that every rank takes part in, in a group of `members`.
struct Message {
  Collective kind = Collective::AllReduce;
  std::vector<std::string> axes; ///< the group: ranks that differ only along these
  int64_t members = 1;
  /// Of the largest buffer on a rank: what is reduced, or what a gather gives. Where shares are uneven, on the first
  /// rank, which has the largest.
  int64_t bytes = 0;
  bool operator==(const Message &) const = default;
  /// What a rank sends in the ring algorithm: twice (members - 1) / members of the bytes for an all-reduce, once for
  /// the others (Patarasuk and Yuan 2009).
  int64_t bytesSent() const;
};

/// The messages of a reshard, in order; empty where each rank has what it needs.
std::vector<Message> messagesOf(const Mesh &mesh, const Sharding &from, const Sharding &to, int64_t elementBits);

/// A message of a solution, with the tensor that it is about.
struct SolutionMessage {
  Message message;
  TensorId tensor = -1; ///< of the problem
  int stage = -1;
  bool backward = false;
  /// Once an iteration, over all microbatches (gradients and metrics); else once a microbatch.
  bool oncePerIteration = false;
};

/// All messages of a solution: its reshards, in program order, then the sums that results leave to the end of an
/// iteration (these before gradients are joined in buckets and sums of several stages in one).
std::vector<SolutionMessage> messagesOf(const ShardingProblem &problem, const ShardingSolution &solution);

} // namespace cleave::partitioner
