// From a kernel graph to the values of a loop nest: demand-driven, each output at every index of the iteration space.
// Private to codegen; see LoopNest.h for the result.
#pragma once
#include "passes/codegen/nest/Affine.h"

#include <map>
#include <string>
#include <tuple>

namespace cleave::passes::kernel {

class Planner {
public:
  explicit Planner(const KernelGraph &graph) : graph(graph) {}
  /// Fills loops, values, stores and buffers of `nest`. Returns false and sets `why` if the graph cannot be one
  /// kernel.
  bool run(LoopNest &nest);
  std::string why;

private:
  using Conditions = std::vector<Condition>;
  bool chooseRoot();
  bool attempt();
  void makeLoops();
  bool placeOutputs();
  bool outputIndex(int node, bool kept, Index &index);
  int demand(int node, const Index &index, const Conditions &guards);
  int compute(int node, const Index &index, const Conditions &guards);
  int load(int node, const Index &index, const Conditions &guards);
  int iota(const Node &n, const Index &index, const Conditions &guards);
  int pad(const Node &n, const Index &index, const Conditions &guards);
  int concat(const Node &n, const Index &index, const Conditions &guards);
  int reduce(const Node &n, const Index &index, const Conditions &guards);
  int elementwise(const Node &n, const Index &index, const Conditions &guards);
  int guarded(const Conditions &conditions, int inside, int outside, DType type);
  int intern(LoopValue value);
  bool alwaysTrue(const Condition &c) const;
  int fail(const std::string &reason);

  const KernelGraph &graph;
  LoopNest p;
  std::vector<std::vector<int64_t>> factors; // per dimension of the root: the extents of its loops
  std::vector<bool> reducedDims;
  std::vector<int64_t> rootShape;
  Expr full, kept, reduced; // row-major positions in the whole space, in its kept and in its reduced part
  uint32_t keptMask = 0, allMask = 0;
  std::map<std::tuple<int, Index, Conditions>, int> memo;
  std::map<int, std::vector<Index>> demanded; // without guards
  std::map<LoopValue, int> numbers;
  std::vector<int> bufferOf, scalarOf; // per input node
  SplitRequest split;
};

} // namespace cleave::passes::kernel
