// What the choice of shardings needs to know of a function, as values: no IR. partitioner/annotate reads it off the IR;
// tests write it down.
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
  Free,        // a constant, indices, random numbers: made under any sharding; no rule
  Reshape,     // no rule: the factors of the dimensions regroup (Reshape.h)
  Broadcast,   // is computed again rather than moved
  Cast,        // elementwise, and of a parameter the parameter in another type
  Transpose,   // of a parameter the parameter with its dimensions in another order
  Slice,       //
  Concat,      //
  Add,         // elementwise, and adds up the terms of a gradient
  Elementwise, // any other elementwise op
  Mark,        // the identity with the user's demand on some dimensions
  Other,       // all that its rule says
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
  /// Its bytes have a form of a library's own, so that no message can change its sharding (the workspace of a
  /// max-pool).
  bool fixed = false;
  // The following are filled in by ShardingProblem.
  OpId op = -1;               ///< whose result it is; -1: an argument
  std::vector<Use> uses = {}; ///< in program order
};

/// What the user's mark demands of a dimension: nothing, or a split (one that splits nothing: the dimension is whole).
using MarkedDims = std::vector<std::optional<DimSharding>>;

struct ProblemOp {
  OpKind kind = OpKind::Other;
  RuleId rule = -1;
  std::vector<TensorId> operands = {};
  int stage = -1;                     ///< pipeline stage, where it is known
  bool backward = false;              ///< of the backward pass
  int mark = -1;                      ///< of an op of kind Mark: its index in ShardingProblem::marks
  std::vector<TensorId> results = {}; ///< filled in by ShardingProblem
};

/// A tensor that outlives the function, by name: a parameter or a buffer.
struct NamedTensor {
  std::string name;
  /// Decided already: by an earlier function, or by a rule of the strategy.
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
  /// The named tensor whose sharding it takes, where that is decided and has as many dimensions; else it is whole.
  NameId follows = -1;
  /// It may stay a partial sum, which is finished once an iteration instead of once a microbatch.
  bool mayBePartial = false;
  /// A gradient; a parameter that several stages use has several, which are finished together.
  bool gradient = false;
};

struct RuleHash {
  size_t operator()(const OpRule &rule) const;
};

/// The axis of sequence parallelism, and the dimension of activations [batch, sequence, width] that it splits.
inline constexpr const char *sequenceAxis = "tp";
inline constexpr size_t sequenceDim = 1, sequenceRank = 3;
/// Whether a mark asks for an activation that is split along the sequence.
bool splitsSequence(const MarkedDims &marked);

/// A function as the choice of shardings sees it.
struct ShardingProblem {
  Mesh mesh;
  /// Sequence parallelism: sums over tp of activations [batch, sequence, width] are finished split along the sequence, and
  /// stay so until a product needs them whole (Korthikanti et al. 2022).
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

/// For each tensor whether every rank can compute any share of it without a message, from constants and from values
/// that are broadcast (these are moved before the broadcast): constants, broadcasts, and elementwise ops of nothing
/// else.
std::vector<bool> remakeableTensors(const ShardingProblem &problem);

/// The sharding that the operand of a broadcast needs so that the result has `result`.
Sharding broadcastOperand(const OpRule &rule, const Sharding &result);

} // namespace cleave::partitioner
