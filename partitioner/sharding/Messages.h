// The steps and messages of a reshard. partitioner/apply makes its collectives from the same steps.
#pragma once
#include "partitioner/sharding/Solution.h"

namespace cleave::partitioner {

/// One step from a sharding to another.
struct ReshardStep {
  enum class Kind {
    AllReduce,     // finishes the partial sums over `axes`
    ReduceScatter, // the same, but each member keeps only its share of the factor at `place`
    Gather,        // an all-gather: the factor at `place` becomes whole
    AllToAll,      // the split moves from the factor at `place` to the one at `to`: both in equal shares
    Slice,         // each member keeps its share of the factor at `place`; no message
  };
  Kind kind = Kind::Slice;
  std::vector<std::string> axes = {}; ///< of an all-reduce, a reduce-scatter or an all-to-all
  FactorPlace place = {};
  /// For a gather, an all-to-all or a slice: the factors of dimension `place.dim` while it is split, before the gather
  /// or after the slice.
  DimSharding dim = {};
  /// For an all-to-all: the factor of another dimension to which the split moves, and the factors of that dimension
  /// while it is split.
  FactorPlace to = {};
  DimSharding toDim = {};
};

/// The steps that turn `from` into `to`: gathers, then all-to-alls, then slices. Members of a gather or an all-to-all
/// must hold the same share of every other factor. Factors that are split alike in both stay as they are.
std::vector<ReshardStep> reshardSteps(const Mesh &mesh, const Sharding &from, const Sharding &to);

enum class Collective { AllReduce, ReduceScatter, AllGather, AllToAll };
/// "all-reduce", "reduce-scatter", "all-gather", "all-to-all".
const char *text(Collective kind);

/// A collective that every rank takes part in, in a group of `members`.
struct Message {
  Collective kind = Collective::AllReduce;
  std::vector<std::string> axes; ///< the group: ranks that differ only along these axes
  int64_t members = 1;
  /// Bytes of the largest buffer on a rank: the operand of a reduction, the result of a gather, either of an
  /// all-to-all. If shares are uneven, on the first rank, which has the largest share.
  int64_t bytes = 0;
  bool operator==(const Message &) const = default;
  /// Bytes that a rank sends: 2 (members - 1) / members of `bytes` for an all-reduce, half of that for the others (in
  /// the ring algorithm, Patarasuk and Yuan 2009; an all-to-all sends each block directly).
  int64_t bytesSent() const;
};

/// The messages of a reshard, in order; empty if each rank already has what it needs.
std::vector<Message> messagesOf(const Mesh &mesh, const Sharding &from, const Sharding &to, int64_t elementBits);

/// A message of a solution, with the tensor that it moves or reduces.
struct SolutionMessage {
  Message message;
  TensorId tensor = -1; ///< of the problem
  int stage = -1;
  bool backward = false;
  /// Sent once per iteration, after all microbatches (gradients and metrics); otherwise once per microbatch.
  bool oncePerIteration = false;
};

/// All messages of a solution: its reshards in program order, then the reductions of results at the end of an iteration
/// (counted before gradients are merged into buckets and sums of several stages into one).
std::vector<SolutionMessage> messagesOf(const ShardingProblem &problem, const ShardingSolution &solution);

} // namespace cleave::partitioner
