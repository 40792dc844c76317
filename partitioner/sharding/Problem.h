// The input of the choice of shardings as plain values, without IR. partitioner/annotate reads it from the IR; tests
// write it literally.
#pragma once
#include "ir/dist/Sharding.h"
#include "partitioner/sharding/Interned.h"
#include "partitioner/sharding/Rules.h"

#include <optional>
#include <string>
#include <vector>

namespace cleave::partitioner {

// Indices into the lists of a problem; -1: none.
using TensorId = int32_t;
using OpId = int32_t;
using NameId = int32_t;
using RuleId = int32_t;
using ShardingId = int32_t;

/// Kinds of ops as far as their shardings are concerned.
enum class OpKind : uint8_t {
  Free,        // a constant, indices, random numbers: computed under any sharding; no rule
  Reshape,     // no rule: the factors of the dimensions are regrouped (Reshape.h)
  Broadcast,   // recomputed under another sharding instead of moved
  Cast,        // elementwise; a cast of a parameter is the parameter in another type
  Transpose,   // a transpose of a parameter is the parameter with its dimensions in another order
  Slice,       //
  Concat,      //
  Add,         // elementwise; also adds the terms of a gradient
  Elementwise, // any other elementwise op
  Mark,        // the identity, with the user's demand on some dimensions
  Other,       // described by its rule alone
  Return,      // the function's results: the last op
};
bool isElementwise(OpKind kind);

/// An operand of an op.
struct Use {
  OpId op = -1;
  int operand = 0;
  bool operator==(const Use &) const = default;
};

struct ProblemTensor {
  std::vector<int64_t> shape;
  int64_t elementBits = 32;
  /// All elements are equal, and known to every rank: a constant, or a broadcast of one.
  bool splat = false;
  /// Its bytes have a library's private format, so that no message can change its sharding (the workspace of a
  /// max-pool).
  bool fixed = false;
  // The following are filled in by ShardingProblem.
  OpId op = -1;               ///< the op that computes it; -1: an argument
  std::vector<Use> uses = {}; ///< in program order
};

/// The demand of the user's mark on each dimension: none, or a split (a split without axes: the dimension stays whole).
using MarkedDims = std::vector<std::optional<DimSharding>>;

struct ProblemOp {
  OpKind kind = OpKind::Other;
  RuleId rule = -1;
  std::vector<TensorId> operands = {};
  int stage = -1;         ///< pipeline stage; -1: unknown
  bool backward = false;  ///< belongs to the backward pass
  int mark = -1;          ///< for kind Mark: index in ShardingProblem::marks
  double flops = 0;       ///< of products, convolutions and attention, all ranks together
  bool attention = false; ///< one kernel, or its gradient
  bool samples = false;   ///< of kind Free: dimension 0 has a row for each sample, split over dp as the inputs are
  std::string path = {};  ///< of its module
  /// Its name among the ops of its module: "matmul", "matmul.2", "backward.matmul".
  std::string label = {};
  std::vector<TensorId> results = {}; ///< filled in by ShardingProblem
};

/// A tensor that outlives the function, by name: a parameter or a buffer.
struct NamedTensor {
  std::string name;
  /// Set if already decided by an earlier function or by a rule of the strategy.
  std::optional<Sharding> sharding;
};

/// An argument of the function; argument i is tensor i. `pinned` is its sharding; without one it is *open*: its first
/// use decides how it is split.
struct Argument {
  NameId name = -1;
  std::optional<Sharding> pinned = {};
};

/// A result of the function: operand i of the return op.
struct Result {
  /// The named tensor whose sharding the result takes if that is decided and has as many dimensions; otherwise the
  /// result is replicated.
  NameId follows = -1;
  /// Whether it may stay a partial sum, which is reduced once per iteration instead of once per microbatch.
  bool mayBePartial = false;
  /// Whether it is a gradient. A parameter used in several stages has several gradients, which are reduced together.
  bool gradient = false;
};

struct RuleHash {
  size_t operator()(const OpRule &rule) const;
};

/// The axis of sequence parallelism, and the dimension of activations [batch, sequence, width] that it splits.
inline constexpr const char *sequenceAxis = axisName(AxisRole::Tensor);
inline constexpr size_t sequenceDim = 1, sequenceRank = 3;
/// Whether a mark demands an activation that is split along the sequence.
bool splitsSequence(const MarkedDims &marked);

/// A function as input of the choice of shardings.
struct ShardingProblem {
  Mesh mesh;
  /// Sequence parallelism: sums over tp of activations [batch, sequence, width] are reduced and split along the
  /// sequence at once, and stay split until a product needs them whole (Korthikanti et al. 2022).
  bool sequence = false;
  std::vector<NamedTensor> names;
  std::vector<Argument> arguments;
  std::vector<ProblemTensor> tensors; ///< arguments first, then the results of ops in program order
  std::vector<ProblemOp> ops;         ///< in program order; the last one is the return
  std::vector<Result> results;
  std::vector<MarkedDims> marks;
  Interned<OpRule, RuleHash> rules;

  /// Adds an argument; all arguments come before the first op.
  TensorId addArgument(ProblemTensor tensor, Argument argument);
  /// Adds an op behind the others; its results become tensors.
  OpId addOp(ProblemOp op, std::vector<ProblemTensor> results);
  /// Adds the return op.
  void addReturn(const std::vector<TensorId> &values, std::vector<Result> descriptions);

  const OpRule &ruleOf(OpId op) const { return rules[ops[op].rule]; }
  const ProblemOp *makerOf(TensorId tensor) const {
    return tensors[tensor].op < 0 ? nullptr : &ops[tensors[tensor].op];
  }
};

/// For each tensor, whether every rank can compute any share of it instead of receiving it. True for constants, for
/// broadcasts (a message moves the smaller operand), and for elementwise ops that read only such tensors.
std::vector<bool> rematerialisableTensors(const ShardingProblem &problem);

/// The sharding that the operand of a broadcast needs so that the result has the sharding `result`.
Sharding broadcastOperand(const OpRule &rule, const Sharding &result);

} // namespace cleave::partitioner
