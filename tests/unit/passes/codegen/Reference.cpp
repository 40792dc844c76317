// The reference evaluator of kernel graphs and the harness that runs generated kernels.
#include "tests/unit/passes/codegen/Reference.h"
#include "ir/graph/Enums.h"

#include "passes/codegen/gpu/GpuEmit.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <dlfcn.h>
#include <functional>
#include <random>
#include <stdexcept>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

namespace cleave::passes::kernel {

int GraphMaker::push(Node n) {
  graph.nodes.push_back(std::move(n));
  return static_cast<int>(graph.nodes.size()) - 1;
}
int GraphMaker::input(std::vector<int64_t> shape, DType type) {
  Node n;
  n.type = type;
  n.shape = std::move(shape);
  return push(n);
}
int GraphMaker::scalarInput() {
  Node n;
  n.type = DType::I32;
  n.scalar = true;
  return push(n);
}
int GraphMaker::constant(std::vector<int64_t> shape, double value, DType type) {
  Node n;
  n.kind = NodeKind::Constant;
  n.type = type;
  n.shape = std::move(shape);
  n.value = value;
  return push(n);
}
int GraphMaker::table(std::vector<int64_t> shape, std::vector<double> values, DType type) {
  int c = constant(std::move(shape), values[0], type);
  graph.nodes[static_cast<size_t>(c)].table = std::move(values);
  return c;
}
int GraphMaker::op(NodeKind kind, std::vector<int> operands) {
  Node n;
  n.kind = kind;
  n.shape = shape(operands.back());
  n.type = graph.nodes[static_cast<size_t>(operands.back())].type;
  n.operands = std::move(operands);
  return push(n);
}
int GraphMaker::compare(Predicate relation, int a, int b) {
  int c = op(NodeKind::Compare, {a, b});
  graph.nodes[static_cast<size_t>(c)].type = DType::I1;
  graph.nodes[static_cast<size_t>(c)].relation = relation;
  return c;
}
int GraphMaker::cast(int a, DType type) {
  int c = op(NodeKind::Cast, {a});
  graph.nodes[static_cast<size_t>(c)].type = type;
  return c;
}
int GraphMaker::iota(std::vector<int64_t> shape, int64_t dim, int offset) {
  Node n;
  n.kind = NodeKind::Iota;
  n.type = DType::I32;
  n.shape = std::move(shape);
  n.dim = dim;
  if (offset >= 0)
    n.operands = {offset};
  return push(n);
}
int GraphMaker::broadcast(int a, std::vector<int64_t> to, std::vector<int64_t> dims) {
  int c = op(NodeKind::Broadcast, {a});
  graph.nodes[static_cast<size_t>(c)].shape = std::move(to);
  graph.nodes[static_cast<size_t>(c)].dims = std::move(dims);
  return c;
}
int GraphMaker::reduce(ReduceKind combine, int a, std::vector<int64_t> dims) {
  int c = op(NodeKind::Reduce, {a});
  Node &n = graph.nodes[static_cast<size_t>(c)];
  n.combine = combine;
  n.shape.clear();
  for (size_t i = 0; i < shape(a).size(); ++i)
    if (std::find(dims.begin(), dims.end(), static_cast<int64_t>(i)) == dims.end())
      n.shape.push_back(shape(a)[i]);
  n.dims = std::move(dims);
  return c;
}
int GraphMaker::reshape(int a, std::vector<int64_t> to) {
  int c = op(NodeKind::Reshape, {a});
  graph.nodes[static_cast<size_t>(c)].shape = std::move(to);
  return c;
}
int GraphMaker::transpose(int a, std::vector<int64_t> permutation) {
  int c = op(NodeKind::Transpose, {a});
  Node &n = graph.nodes[static_cast<size_t>(c)];
  for (size_t i = 0; i < permutation.size(); ++i)
    n.shape[i] = shape(a)[static_cast<size_t>(permutation[i])];
  n.dims = std::move(permutation);
  return c;
}
int GraphMaker::slice(int a, std::vector<int64_t> starts, std::vector<int64_t> sizes) {
  int c = op(NodeKind::Slice, {a});
  graph.nodes[static_cast<size_t>(c)].shape = std::move(sizes);
  graph.nodes[static_cast<size_t>(c)].dims = std::move(starts);
  return c;
}
int GraphMaker::pad(int a, std::vector<int64_t> low, std::vector<int64_t> high) {
  int c = op(NodeKind::Pad, {a});
  Node &n = graph.nodes[static_cast<size_t>(c)];
  for (size_t i = 0; i < low.size(); ++i)
    n.shape[i] += low[i] + high[i];
  n.dims = std::move(low);
  return c;
}
int GraphMaker::concat(std::vector<int> operands, int64_t dim) {
  int c = op(NodeKind::Concat, operands);
  Node &n = graph.nodes[static_cast<size_t>(c)];
  n.dim = dim;
  n.shape[static_cast<size_t>(dim)] = 0;
  for (int o : operands)
    n.shape[static_cast<size_t>(dim)] += shape(o)[static_cast<size_t>(dim)];
  return c;
}

namespace {

using Index = std::vector<int64_t>;

int64_t position(const Index &index, const std::vector<int64_t> &shape) {
  int64_t p = 0;
  for (size_t i = 0; i < shape.size(); ++i)
    p = p * shape[i] + index[i];
  return p;
}
Index indexOf(int64_t p, const std::vector<int64_t> &shape) {
  Index index(shape.size());
  for (size_t i = shape.size(); i-- > 0; p /= shape[i])
    index[i] = p % shape[i];
  return index;
}

/// The larger number, NaN if one is NaN.
double larger(double x, double y) { return x > y || std::isnan(x) ? x : y; }

double gelu(double x, bool tanhForm) {
  return tanhForm ? 0.5 * x * (1 + std::tanh(0.79788456080286536 * (x + 0.044715 * x * x * x)))
                  : 0.5 * x * std::erfc(-x * 0.70710678118654752);
}

/// What the ops' definitions say; `more` points to all operands.
double scalarOp(const Node &n, const double *more) {
  const double x = more[0], y = more[n.operands.size() > 1];
  if (n.kind == NodeKind::Div && !isFloat(n.type))
    return std::trunc(x / y);
  switch (n.kind) {
#define CLEAVE_UNARY(Name, mnemonic, exact, code, value)                                                               \
  case NodeKind::Name:                                                                                                 \
    return value;
#define CLEAVE_BINARY CLEAVE_UNARY
#include "ir/graph/GraphElementwise.inc"
  case NodeKind::Gelu:
    return gelu(x, n.tanh);
  case NodeKind::GeluGrad:
    return x * (gelu(y + 1e-4, n.tanh) - gelu(y - 1e-4, n.tanh)) / 2e-4;
  case NodeKind::Cast:
    return isFloat(n.type) ? x : n.type == DType::I1 ? x != 0 : std::trunc(x);
  case NodeKind::Select:
    return x != 0 ? y : more[2];
  case NodeKind::Compare:
    switch (n.relation) {
    case Predicate::Eq:
      return x == y;
    case Predicate::Ne:
      return x != y;
    case Predicate::Lt:
      return x < y;
    case Predicate::Le:
      return x <= y;
    case Predicate::Gt:
      return x > y;
    case Predicate::Ge:
      return x >= y;
    }
    [[fallthrough]];
  default:
    throw std::logic_error("not elementwise");
  }
}

TestTensor evaluateReduce(const Node &n, const TestTensor &in, TestTensor out) {
  std::fill(out.data.begin(), out.data.end(),
            n.combine == ReduceKind::Sum   ? 0.0
            : n.combine == ReduceKind::Max ? -INFINITY
                                           : INFINITY);
  for (int64_t p = 0; p < static_cast<int64_t>(in.data.size()); ++p) {
    Index at = indexOf(p, in.shape), keptIndex;
    for (size_t i = 0; i < at.size(); ++i)
      if (std::find(n.dims.begin(), n.dims.end(), static_cast<int64_t>(i)) == n.dims.end())
        keptIndex.push_back(at[i]);
    double &to = out.data[static_cast<size_t>(position(keptIndex, out.shape))], x = in.data[static_cast<size_t>(p)];
    to = n.combine == ReduceKind::Sum ? to + x : n.combine == ReduceKind::Max ? larger(to, x) : -larger(-to, -x);
  }
  return out;
}

double indexed(const Node &n, const Index &at, const std::vector<const TestTensor *> &in) {
  Index from = at;
  auto read = [&](const TestTensor &t, const Index &i) { return t.data[static_cast<size_t>(position(i, t.shape))]; };
  switch (n.kind) {
  case NodeKind::Iota:
    return static_cast<double>(at[static_cast<size_t>(n.dim)]) + (in.empty() ? 0 : in[0]->data[0]);
  case NodeKind::Broadcast:
    from.clear();
    for (int64_t d : n.dims)
      from.push_back(at[static_cast<size_t>(d)]);
    return read(*in[0], from);
  case NodeKind::Transpose:
    for (size_t i = 0; i < at.size(); ++i)
      from[static_cast<size_t>(n.dims[i])] = at[i];
    return read(*in[0], from);
  case NodeKind::Slice:
    for (size_t i = 0; i < at.size(); ++i)
      from[i] += n.dims[i];
    return read(*in[0], from);
  case NodeKind::Pad:
    for (size_t i = 0; i < at.size(); ++i) {
      from[i] -= n.dims[i];
      if (from[i] < 0 || from[i] >= in[0]->shape[i])
        return 0;
    }
    return read(*in[0], from);
  case NodeKind::Concat:
    for (const TestTensor *t : in) {
      if (from[static_cast<size_t>(n.dim)] < t->shape[static_cast<size_t>(n.dim)])
        return read(*t, from);
      from[static_cast<size_t>(n.dim)] -= t->shape[static_cast<size_t>(n.dim)];
    }
    [[fallthrough]];
  default:
    throw std::logic_error("not an indexing node");
  }
}

} // namespace

std::vector<TestTensor> evaluate(const KernelGraph &graph, const std::vector<TestTensor> &inputs) {
  std::vector<TestTensor> values;
  size_t nextInput = 0;
  for (const Node &n : graph.nodes) {
    TestTensor out{n.shape, n.type, std::vector<double>(static_cast<size_t>(elementCount(n.shape)))};
    std::vector<const TestTensor *> in;
    for (int o : n.operands)
      in.push_back(&values[static_cast<size_t>(o)]);
    if (n.kind == NodeKind::Input) {
      out = inputs[nextInput++];
    } else if (n.kind == NodeKind::Constant) {
      std::fill(out.data.begin(), out.data.end(), n.value);
      if (!n.table.empty())
        out.data = n.table;
    } else if (n.kind == NodeKind::Reshape) {
      out.data = in[0]->data;
    } else if (n.kind == NodeKind::Reduce) {
      out = evaluateReduce(n, *in[0], std::move(out));
    } else {
      for (size_t p = 0; p < out.data.size(); ++p) {
        if (isElementwise(n.kind)) {
          double x[3] = {};
          for (size_t k = 0; k < in.size(); ++k)
            x[k] = in[k]->data[p];
          out.data[p] = scalarOp(n, x);
        } else {
          out.data[p] = indexed(n, indexOf(static_cast<int64_t>(p), n.shape), in);
        }
      }
    }
    values.push_back(isFloat(n.type) && n.type != DType::F32 ? unpack(pack(out), out.shape, out.type) : std::move(out));
  }
  std::vector<TestTensor> results;
  for (int o : graph.outputs)
    results.push_back(values[static_cast<size_t>(o)]);
  return results;
}

std::vector<TestTensor> randomInputs(const KernelGraph &graph, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<TestTensor> inputs;
  for (const Node &n : graph.nodes) {
    if (n.kind != NodeKind::Input)
      continue;
    TestTensor t{n.shape, n.type, {}};
    for (int64_t i = 0; i < elementCount(n.shape); ++i)
      t.data.push_back(isFloat(n.type) ? normal(random)
                                       : static_cast<double>(random() % (n.type == DType::I1 ? 2 : 10)));
    inputs.push_back(unpack(pack(t), t.shape, t.type)); // rounded to its element type
  }
  return inputs;
}

std::vector<uint8_t> pack(const TestTensor &t) {
  std::vector<uint8_t> bytes(t.data.size() * static_cast<size_t>(dtypeSize(t.type)));
  auto put = [&](auto convert) {
    for (size_t i = 0; i < t.data.size(); ++i) {
      auto x = convert(t.data[i]);
      std::memcpy(bytes.data() + i * sizeof x, &x, sizeof x);
    }
  };
  switch (t.type) {
  case DType::F32:
    put([](double x) { return static_cast<float>(x); });
    break;
  case DType::F16:
    put([](double x) { return static_cast<_Float16>(x); });
    break;
  case DType::BF16:
    put([](double x) {
      uint32_t w = std::bit_cast<uint32_t>(static_cast<float>(x));
      return static_cast<uint16_t>((w + 0x7fff + (w >> 16 & 1)) >> 16);
    });
    break;
  case DType::I32:
    put([](double x) { return static_cast<int32_t>(x); });
    break;
  case DType::I64:
    put([](double x) { return static_cast<int64_t>(x); });
    break;
  case DType::I1:
    put([](double x) { return static_cast<uint8_t>(x != 0); });
    break;
  }
  return bytes;
}

TestTensor unpack(const std::vector<uint8_t> &bytes, std::vector<int64_t> shape, DType type) {
  TestTensor t{std::move(shape), type, {}};
  size_t size = static_cast<size_t>(dtypeSize(type));
  auto get = [&](auto sample, auto convert) {
    for (size_t i = 0; i * size < bytes.size(); ++i) {
      std::memcpy(&sample, bytes.data() + i * size, size);
      t.data.push_back(static_cast<double>(convert(sample)));
    }
  };
  auto same = [](auto x) { return x; };
  switch (type) {
  case DType::F32:
    get(float{}, same);
    break;
  case DType::F16:
    get(_Float16{}, same);
    break;
  case DType::BF16:
    get(uint16_t{}, [](uint16_t w) { return std::bit_cast<float>(static_cast<uint32_t>(w) << 16); });
    break;
  case DType::I32:
    get(int32_t{}, same);
    break;
  case DType::I64:
    get(int64_t{}, same);
    break;
  case DType::I1:
    get(uint8_t{}, same);
    break;
  }
  return t;
}

/// The objects of a kernel as a plan has them.
static std::vector<std::vector<char>> objectsOf(const LoopNest &nest, Target cpu, bool batch) {
  ObjectCompiler compiler(cpu);
  const Sizes sizes(nest);
  std::vector<std::vector<char>> objects;
  objects.push_back(compiler.compile({{sizes.empty() ? "kernel" : "code", &nest, nest.width == 1, batch, sizes}}));
  if (!sizes.empty())
    objects.push_back(compiler.assemble(assemblyOf({{"kernel", "code", sizes}})));
  return objects;
}

LoadedKernel::LoadedKernel(const LoopNest &nest, Target cpu, bool batch) : LoadedKernel(objectsOf(nest, cpu, batch)) {}

LoadedKernel::LoadedKernel(const std::vector<std::vector<char>> &objects) {
  const std::vector<uint8_t> bytes = linkShared(objects);
  fd = memfd_create("kernel", 0);
  if (write(fd, bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size()))
    throw std::runtime_error("cannot write the kernel");
  library = dlopen(("/proc/self/fd/" + std::to_string(fd)).c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library)
    throw std::runtime_error(dlerror());
  function = reinterpret_cast<Function>(dlsym(library, "kernel"));
}

LoadedKernel::~LoadedKernel() {
  if (library)
    dlclose(library);
  close(fd);
}

namespace {

/// Emulates a GPU one block at a time. If the threads of a block wait for each other, each thread has its own stack,
/// and the threads run in turns: a wait ends a turn, and the order of the threads alternates between rounds.
class Grid {
public:
  unsigned thread = 0, block = 0, blocks = 1;
  std::vector<uint32_t> words; // values exchanged by a shuffle

  enum class Wait : uint8_t { None, Warp, Block, Done };

  void run(unsigned count, bool together, const std::function<void()> &body) {
    if (!together) {
      for (thread = 0; thread < count; ++thread)
        body();
      return;
    }
    work = &body;
    words.assign(count, 0);
    waits.assign(count, Wait::None);
    contexts.assign(count, {});
    stacks.resize(size_t{count} * stackBytes);
    for (unsigned t = 0; t < count; ++t) {
      getcontext(&contexts[t]);
      contexts[t].uc_stack.ss_sp = stacks.data() + size_t{t} * stackBytes;
      contexts[t].uc_stack.ss_size = stackBytes;
      contexts[t].uc_link = &scheduler;
      makecontext(&contexts[t], &Grid::enter, 0);
    }
    auto waiting = [](Wait w) { return w != Wait::Done; };
    for (unsigned round = 0; std::any_of(waits.begin(), waits.end(), waiting); ++round) {
      for (unsigned i = 0; i < count; ++i) {
        thread = round % 2 ? count - 1 - i : i;
        if (waiting(waits[thread]))
          swapcontext(&scheduler, &contexts[thread]);
      }
      checkRound();
    }
  }

  /// Ends the turn of the current thread.
  void wait(Wait what) {
    const unsigned self = thread;
    waits[self] = what;
    swapcontext(&contexts[self], &scheduler);
  }

private:
  static constexpr size_t stackBytes = 64 * 1024;
  static void enter();

  /// Checks that all threads of a warp are in the same kind of wait, and all threads of a block if one waits for the
  /// block.
  void checkRound() {
    for (size_t t = 0; t < waits.size(); ++t)
      if (waits[t] != waits[t / 32 * 32] || ((waits[t] == Wait::Block) != (waits[0] == Wait::Block)))
        throw std::runtime_error("threads of a kernel wait for different things");
  }

  const std::function<void()> *work = nullptr;
  std::vector<Wait> waits;
  std::vector<ucontext_t> contexts;
  std::vector<char> stacks;
  ucontext_t scheduler{};
} grid;

void Grid::enter() {
  const unsigned self = grid.thread;
  (*grid.work)();
  grid.waits[self] = Wait::Done;
}

void runGrid(const LoopNest &nest, LoadedKernel &kernel, void *const *args, const int64_t *scalars, int64_t extent,
             int blocks) {
  const Launch launch = launchOf(nest);
  grid.blocks = static_cast<unsigned>(blocks);
  for (grid.block = 0; grid.block < grid.blocks; ++grid.block)
    grid.run(static_cast<unsigned>(launch.threads), launch.together,
             [&] { kernel.function(args, scalars, 0, extent); });
}

uint32_t shuffle(uint32_t word, uint32_t distance) {
  grid.words[grid.thread] = word;
  grid.wait(Grid::Wait::Warp);
  const uint32_t other = grid.words[grid.thread ^ distance];
  grid.wait(Grid::Wait::Warp);
  return other;
}

} // namespace

extern "C" {
uint32_t cleave_emu_tid() { return grid.thread; }
uint32_t cleave_emu_block() { return grid.block; }
uint32_t cleave_emu_blocks() { return grid.blocks; }
void cleave_emu_warp_barrier() { grid.wait(Grid::Wait::Warp); }
void cleave_emu_barrier() { grid.wait(Grid::Wait::Block); }
uint32_t cleave_emu_shuffle_i32(uint32_t x, uint32_t distance) { return shuffle(x, distance); }
float cleave_emu_shuffle_f32(float x, uint32_t distance) {
  return std::bit_cast<float>(shuffle(std::bit_cast<uint32_t>(x), distance));
}
}

namespace {

/// The arguments of a kernel call, and the memory that they point to.
struct Arguments {
  std::vector<std::vector<uint8_t>> memory;
  std::vector<int64_t> scalars;
  std::vector<void *> args;

  Arguments(const LoopNest &nest, const KernelGraph &graph, const std::vector<TestTensor> &inputs,
            const std::vector<std::pair<int, int>> &alias) {
    size_t next = 0;
    for (const Node &n : graph.nodes) {
      if (n.kind != NodeKind::Input)
        continue;
      const TestTensor &t = inputs[next++];
      if (n.scalar)
        scalars.push_back(static_cast<int64_t>(t.data[0]));
      else
        memory.push_back(pack(t));
    }
    for (size_t b = static_cast<size_t>(nest.inputs); b < nest.buffers.size(); ++b)
      memory.push_back(std::vector<uint8_t>(bytesOf(nest, b), 0xff));
    for (auto &m : memory)
      m.resize(m.size() + 64, 0xee); // a guard area after each buffer
    for (size_t b = 0; b < memory.size(); ++b) {
      const int64_t offset = b < nest.offsets.size() ? nest.offsets[b] : 0;
      args.push_back(memory[b].data() + offset * dtypeSize(nest.buffers[b]));
    }
    for (auto [output, input] : alias)
      args[static_cast<size_t>(nest.inputs + output)] = args[static_cast<size_t>(input)];
  }

  static size_t bytesOf(const LoopNest &nest, size_t buffer) {
    return static_cast<size_t>(nest.bufferSizes[buffer] * dtypeSize(nest.buffers[buffer]));
  }

  std::vector<std::vector<uint8_t>> results(const LoopNest &nest) const {
    std::vector<std::vector<uint8_t>> results;
    for (size_t b = static_cast<size_t>(nest.inputs); b < nest.buffers.size(); ++b) {
      const size_t bytes = bytesOf(nest, b);
      const uint8_t *from = static_cast<const uint8_t *>(args[b]);
      for (size_t i = 0; i < 64; ++i)
        if (from[bytes + i] != 0xee)
          throw std::runtime_error("a kernel writes behind its result");
      results.emplace_back(from, from + bytes);
    }
    return results;
  }
};

} // namespace

std::vector<std::vector<uint8_t>> execute(const LoopNest &nest, LoadedKernel &kernel, const KernelGraph &graph,
                                          const std::vector<TestTensor> &inputs, int pieces,
                                          const std::vector<std::pair<int, int>> &alias) {
  Arguments with(nest, graph, inputs, alias);
  if (nest.width == 1) {
    runGrid(nest, kernel, with.args.data(), with.scalars.data(), nest.extent, pieces);
    pieces = 0;
  }
  int64_t blocks = (nest.extent + nest.grain - 1) / nest.grain;
  for (int k = pieces; k-- > 0;) { // backwards, because the order must not matter
    int64_t begin = blocks * k / pieces * nest.grain, end = blocks * (k + 1) / pieces * nest.grain;
    if (begin < std::min(end, nest.extent))
      kernel.function(with.args.data(), with.scalars.data(), begin, std::min(end, nest.extent));
  }
  return with.results(nest);
}

std::vector<std::vector<std::vector<uint8_t>>> executeBatch(LoadedKernel &kernel, const std::vector<BatchCall> &calls) {
  std::vector<Arguments> with;
  std::vector<int64_t> table;
  std::vector<uint32_t> ofBlock;
  for (const BatchCall &call : calls) {
    with.emplace_back(*call.nest, *call.graph, call.inputs, call.alias);
    table.insert(table.end(), {static_cast<int64_t>(ofBlock.size()), call.blocks, call.nest->extent});
    for (void *argument : with.back().args)
      table.push_back(reinterpret_cast<int64_t>(argument));
    table.insert(table.end(), with.back().scalars.begin(), with.back().scalars.end());
    ofBlock.insert(ofBlock.end(), static_cast<size_t>(call.blocks), static_cast<uint32_t>(with.size() - 1));
  }
  const int blocks = static_cast<int>(ofBlock.size());
  ofBlock.resize((ofBlock.size() + 1) / 2 * 2);
  const size_t words = table.size();
  table.resize(words + ofBlock.size() / 2);
  std::memcpy(table.data() + words, ofBlock.data(), ofBlock.size() * sizeof ofBlock[0]);
  void *const args[] = {table.data()};
  runGrid(*calls[0].nest, kernel, args, nullptr, static_cast<int64_t>(calls.size()), blocks);
  std::vector<std::vector<std::vector<uint8_t>>> results;
  for (size_t i = 0; i < calls.size(); ++i)
    results.push_back(with[i].results(*calls[i].nest));
  return results;
}

} // namespace cleave::passes::kernel
