// What a fusion computes, as value structs: a small graph of elementwise, indexing and reduction nodes with static
// shapes. Built from IR by FromFusion.h; scheduled by LoopNest.h. No MLIR here.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace cleave::passes::kernel {

/// Element types as stored in memory. Floats are computed in f32. The result of every half-type node is rounded before
/// another node reads it, as if it had been stored. i1 is one byte.
enum class Element : uint8_t { F32, F16, BF16, I32, I64, I1 };
inline bool isFloat(Element e) { return e <= Element::BF16; }
int64_t elementBytes(Element e);
const char *elementName(Element e);

enum class NodeKind : uint8_t {
  Input,
  Constant,
  Iota,
  // one operand
  Neg,
  Abs,
  Exp,
  Log,
  Sqrt,
  Rsqrt,
  Tanh,
  Erf,
  Sin,
  Cos,
  Sigmoid,
  Relu,
  Silu,
  Gelu,
  Cast,
  // more operands
  GeluGrad,
  Add,
  Sub,
  Mul,
  Div,
  Max,
  Min,
  Pow,
  Compare,
  Select,
  // indexing
  Broadcast,
  Reshape,
  Transpose,
  Slice,
  Pad,
  Concat,
  Reduce
};
const char *nodeName(NodeKind kind);
inline bool isElementwise(NodeKind k) { return k >= NodeKind::Neg && k <= NodeKind::Select; }

enum class Combine : uint8_t { Sum, Max, Min };           // as ir::ReduceKind
enum class Relation : uint8_t { Eq, Ne, Lt, Le, Gt, Ge }; // as ir::Predicate

/// A tensor value. Operands are indices of earlier nodes.
struct Node {
  NodeKind kind = NodeKind::Input;
  Element type = Element::F32;
  std::vector<int64_t> shape;
  std::vector<int> operands;
  std::vector<int64_t> dims; // Broadcast, Reduce: dims; Transpose: permutation; Slice: starts; Pad: low
  int64_t dim = 0;           // Iota, Concat
  double value = 0;          // Constant: splat
  std::vector<double> table; // Constant: its elements if they differ
  Combine combine = Combine::Sum;
  Relation relation = Relation::Eq;
  bool tanh = false;   // Gelu, GeluGrad
  bool scalar = false; // Input: passed as an int64 scalar, not as memory
};

struct KernelGraph {
  std::vector<Node> nodes;  // operands before users; inputs in operand order
  std::vector<int> outputs; // nodes; may repeat
};

int64_t elementCount(const std::vector<int64_t> &shape);

} // namespace cleave::passes::kernel
