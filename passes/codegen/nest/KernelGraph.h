// The computation of a fusion as value structs: a small graph of elementwise, indexing and reduction nodes with static
// shapes. Built from IR by FromFusion.h; scheduled by LoopNest.h. No MLIR here.
#pragma once
#include "runtime/base/DType.h"

#include <cstdint>
#include <string>
#include <vector>

namespace cleave::ir {
enum class Predicate : uint32_t;  // ir/graph/Enums.h
enum class ReduceKind : uint32_t; // ir/graph/Enums.h
} // namespace cleave::ir

namespace cleave::passes::kernel {

using cleave::DType;
using ir::Predicate;
using ir::ReduceKind;

enum class NodeKind : uint8_t {
  Input,
  Constant,
  Iota,
#define CLEAVE_ELEMENTWISE(Name, mnemonic, cycles, exact) Name,
#include "ir/graph/GraphElementwise.inc"
  // indexing
  Broadcast,
  Reshape,
  Transpose,
  Slice,
  Pad,
  Concat,
  Reduce
};
inline bool isElementwise(NodeKind k) { return k > NodeKind::Iota && k < NodeKind::Broadcast; }
const char *nodeName(NodeKind kind);
/// Facts of an elementwise kind: cycles of one vector on a CPU; whether it selects or moves values, so it never rounds.
double cyclesOf(NodeKind kind);
bool isExact(NodeKind kind);

/// A tensor value. Operands are indices of earlier nodes. Floats are computed in f32; the result of every half-type
/// node is rounded before another node reads it, as if it had been stored.
struct Node {
  NodeKind kind = NodeKind::Input;
  DType type = DType::F32;
  std::vector<int64_t> shape;
  std::vector<int> operands;
  std::vector<int64_t> dims; // Broadcast, Reduce: dims; Transpose: permutation; Slice: starts; Pad: low
  int64_t dim = 0;           // Iota, Concat
  double value = 0;          // Constant: splat
  std::vector<double> table; // Constant: its elements if they differ
  ReduceKind combine{};
  Predicate relation{};
  bool tanh = false;   // Gelu, GeluGrad
  bool scalar = false; // Input: passed as an int64 scalar, not as memory
};

struct KernelGraph {
  std::vector<Node> nodes;  // operands before users; inputs in operand order
  std::vector<int> outputs; // nodes; may repeat
};

int64_t elementCount(const std::vector<int64_t> &shape);

} // namespace cleave::passes::kernel
