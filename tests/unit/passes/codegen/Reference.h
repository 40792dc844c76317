// Kernel graphs for tests: a builder, a reference evaluator in double, and execution of the generated kernel.
#pragma once
#include "ir/graph/Enums.h"
#include "passes/codegen/Object.h"
#include "passes/codegen/nest/LoopNest.h"

#include <cstdint>
#include <string>
#include <vector>

namespace cleave::passes::kernel {

struct TestTensor {
  std::vector<int64_t> shape;
  DType type = DType::F32;
  std::vector<double> data;
};

/// Builds graphs node by node; shapes are inferred.
class GraphMaker {
public:
  KernelGraph graph;
  int input(std::vector<int64_t> shape, DType type = DType::F32);
  int scalarInput();
  int constant(std::vector<int64_t> shape, double value, DType type = DType::F32);
  int table(std::vector<int64_t> shape, std::vector<double> values, DType type = DType::F32);
  int op(NodeKind kind, std::vector<int> operands);
  int compare(Predicate relation, int a, int b);
  int cast(int a, DType type);
  int iota(std::vector<int64_t> shape, int64_t dim, int offset = -1);
  int broadcast(int a, std::vector<int64_t> shape, std::vector<int64_t> dims);
  int reduce(ReduceKind combine, int a, std::vector<int64_t> dims);
  int reshape(int a, std::vector<int64_t> shape);
  int transpose(int a, std::vector<int64_t> permutation);
  int slice(int a, std::vector<int64_t> starts, std::vector<int64_t> sizes);
  int pad(int a, std::vector<int64_t> low, std::vector<int64_t> high);
  int concat(std::vector<int> operands, int64_t dim);
  int add(int a, int b) { return op(NodeKind::Add, {a, b}); }
  int sub(int a, int b) { return op(NodeKind::Sub, {a, b}); }
  int mul(int a, int b) { return op(NodeKind::Mul, {a, b}); }
  int div(int a, int b) { return op(NodeKind::Div, {a, b}); }
  const std::vector<int64_t> &shape(int n) const { return graph.nodes[static_cast<size_t>(n)].shape; }

private:
  int push(Node n);
};

/// Evaluates with plain loops in double; the result of every node of a half type is rounded.
std::vector<TestTensor> evaluate(const KernelGraph &graph, const std::vector<TestTensor> &inputs);

/// Random inputs (normal; ints 0..9) with a fixed seed.
std::vector<TestTensor> randomInputs(const KernelGraph &graph, unsigned seed);

/// The processor that runs the kernels of a target in this test.
inline Target processorOf(Target target) { return target.gpu() ? Target(Target::X86_64_v3) : target; }

/// A compiled kernel, loaded into this process.
class LoadedKernel {
public:
  using Function = void (*)(void *const *, const int64_t *, int64_t, int64_t);
  /// `batch`: compiles the GPU form that takes a table of calls.
  explicit LoadedKernel(const LoopNest &nest, Target cpu, bool batch = false);
  /// From objects that together have the kernel `kernel`.
  explicit LoadedKernel(const std::vector<std::vector<char>> &objects);
  LoadedKernel(const LoadedKernel &) = delete;
  ~LoadedKernel();
  Function function = nullptr;

private:
  void *library = nullptr;
  // stays open: dlopen knows the library by its path /proc/self/fd/N, and a reused number would return this library
  int fd = -1;
};

/// Raw bytes of a tensor in its element type, and back.
std::vector<uint8_t> pack(const TestTensor &t);
TestTensor unpack(const std::vector<uint8_t> &bytes, std::vector<int64_t> shape, DType type);

/// Runs the loop nest over [0, extent) cut into `pieces` parts; GPU threads run it once on `pieces` blocks instead.
/// Buffers begin at multiples of 16 bytes, as GPU kernels expect. `alias`: pairs (output, input buffer) that share
/// memory.
std::vector<std::vector<uint8_t>> execute(const LoopNest &nest, LoadedKernel &kernel, const KernelGraph &graph,
                                          const std::vector<TestTensor> &inputs, int pieces,
                                          const std::vector<std::pair<int, int>> &alias = {});

/// One of several calls in one launch. The loop nests of all calls have the same text; each call has its own blocks.
struct BatchCall {
  const LoopNest *nest;
  const KernelGraph *graph;
  std::vector<TestTensor> inputs;
  int blocks;
  std::vector<std::pair<int, int>> alias{};
};

/// Runs all calls with one launch of a kernel in batch form. Returns the results of each call.
std::vector<std::vector<std::vector<uint8_t>>> executeBatch(LoadedKernel &kernel, const std::vector<BatchCall> &calls);

} // namespace cleave::passes::kernel
