// Blocks, memory and threads of matrix products; the loops inside are in GemmKernels.inc.
//
// The depth is divided into blocks, and the columns of the right matrix into chunks. All threads pack a block of a
// chunk into panels, which stay in the last cache; then each multiplies its part of the rows and panels. Rows of the
// left matrix are read where they are if their units are neighbours; otherwise each thread packs some at a time, which
// stay in its own cache. Sums do not depend on the number of threads. A matrix that several small products of an
// iteration use, such as the weights of a recurrent network, is packed as a whole by the first of them
// (`PackedMatrices`).
#include "runtime/device/Gemm.h"

#include "runtime/device/GemmKernels.h"
#include "runtime/device/Parallel.h"
#include "runtime/device/VectorLoops.h"
#include "runtime/device/Workspace.h"
#include "runtime/plan/DTypes.h"
#include "runtime/plan/steps/Steps.h"

#include <fmt/format.h>

#include <algorithm>
#include <new>
#include <utility>

namespace cleave {

namespace {

constexpr int64_t rowsInCache = 48;     ///< that a thread multiplies by one panel after another
constexpr int64_t unitsInCache = 1024;  ///< of a block of the depth
constexpr int64_t mostUnits = 4096;     ///< of a depth that cannot be divided
constexpr int64_t chunkBytes = 8 << 20; ///< of packed panels
constexpr int64_t smallRows = 1024;     ///< with less, packing takes more than some hundredths of the time

/// Whether what a segment writes stays the same in the rest of an iteration, or is for the next one.
bool isSetUp(const plan::Segment &segment) {
  return segment.kind() == plan::SegmentKind::Begin || segment.kind() == plan::SegmentKind::Update;
}

/// What decides the content of a packed matrix, besides the order.
std::string keyOf(uint32_t slot, uint64_t offset, int64_t depthStride, int64_t columnStride, int64_t depth,
                  int64_t columns) {
  return fmt::format("{}+{} {}x{} {}x{}", slot, offset, depthStride, columnStride, depth, columns);
}

std::string keyOf(const MatmulPlan &p) {
  return keyOf(p.bSlot, static_cast<uint64_t>(p.b.offset), p.shape.b.row, p.shape.b.column, p.shape.k, p.shape.n);
}

class GemmOp final : public Op {
public:
  GemmOp(const MatmulPlan &plan, const SlotScope &scope, const GemmKernels &kernels, PackedMatrices &matrices,
         Workspace &workspace, unsigned threads)
      : p(plan), kernels(kernels), workspace(workspace), threads(threads), units(unitsOf(p.shape.k)),
        panels((p.shape.n + kernels.panel - 1) / kernels.panel), half(p.cType == plan::DType::BF16) {
    const int64_t blocks = half ? 1 : (units + unitsInCache - 1) / unitsInCache;
    blockUnits = std::min(units, roundUp((units + blocks - 1) / blocks, lineFloats));
    panelFloats = blockUnits * kernels.panel;
    chunkPanels = std::clamp<int64_t>(chunkBytes / (panelFloats * 4), 1, panels);
    if (matrices.keeps(p, scope)) {
      chunkPanels = panels;
      packed = matrices.find(p, fmt::format("{} {}", kernels.pairs, blockUnits),
                             (units + blockUnits - 1) / blockUnits * panels * panelFloats);
    }
    turns = p.shape.a.column != 1;
    packsLeft = turns || bytesOf(p.aType) * kernels.pairs != 4 || p.shape.k % kernels.pairs;
    packsOwn = !packed && !packsLeft && chunkPanels % threads == 0;
    // The least work of one thread, and of such grids the one whose parts have the least rows and columns to read.
    grid = packsOwn ? Grid{1, threads} : gridOf(threads, [&](int64_t down, int64_t across) {
      const int64_t rows = (p.shape.m + down - 1) / down, columns = (chunkPanels + across - 1) / across;
      return std::pair(rows * columns, rows + columns * kernels.panel);
    });
    // A line more, so that rows do not share sets of the cache.
    rowFloats = roundUp(blockUnits, lineFloats) + lineFloats;
    size_t used = 0;
    const auto reserve = [&](int64_t count) { return workspace.reserveFloats(used, count); };
    panelAt = reserve(packed ? 0 : chunkPanels * panelFloats);
    leftFloats = turns ? roundUp(rowsInCache, kernels.panel) * blockUnits : rowsInCache * rowFloats;
    leftAt = reserve(packsLeft ? leftFloats * threads : 0);
    biasAt = reserve(p.hasBias && p.biasType != plan::DType::F32 ? biasCount() : 0);
  }

  void run(SlotTable slots, const RunContext &context) override {
    for (int64_t i = 0; p.hasBias && p.biasType != plan::DType::F32 && i < biasCount(); ++i)
      scratch(biasAt)[i] = static_cast<float>(loadElement(p.bias.at(slots), i, p.biasType));
    for (int64_t firstUnit = 0; firstUnit < units; firstUnit += blockUnits)
      for (int64_t first = 0; first < panels; first += chunkPanels) {
        const int64_t count = std::min(chunkPanels, panels - first);
        float *const right = packed ? packed->floats.get() + firstUnit * kernels.panel * panels : scratch(panelAt);
        const auto packs = [&](int64_t begin, int64_t end) {
          for (int64_t panel = begin; panel < end; ++panel)
            pack(slots, first + panel, firstUnit, right + panel * panelFloats);
        };
        if (!packsOwn && (!packed || packed->iteration != context.iteration || context.iteration == 0))
          parallelRange(threads, count, 1, packs);
        parallelFor(static_cast<unsigned>(grid.down * grid.across), [&](unsigned thread) {
          const int64_t down = thread / grid.across, across = thread % grid.across;
          if (packsOwn)
            packs(count * across / grid.across, count * (across + 1) / grid.across);
          multiply(slots, thread, firstUnit, right, first,
                   {count * across / grid.across, count * (across + 1) / grid.across},
                   {p.shape.m * down / grid.down, p.shape.m * (down + 1) / grid.down});
        });
      }
    if (packed)
      packed->iteration = context.iteration;
  }

private:
  struct Range {
    int64_t begin, end;
  };

  int64_t unitsOf(int64_t depth) const { return (depth + kernels.pairs - 1) / kernels.pairs; }
  static int64_t bytesOf(plan::DType type) { return static_cast<int64_t>(dtypeSize(type)); }
  float *scratch(int64_t offset) const { return workspace.floats(offset); }
  int64_t biasCount() const { return p.shape.exchanged ? p.shape.m : p.shape.n; }
  const float *biasOf(SlotTable slots) const {
    return p.biasType == plan::DType::F32 ? reinterpret_cast<const float *>(p.bias.at(slots)) : scratch(biasAt);
  }
  /// Elements of the depth from `firstUnit` on, of one block.
  int64_t depthOf(int64_t firstUnit) const {
    return std::min(blockUnits * kernels.pairs, p.shape.k - firstUnit * kernels.pairs);
  }
  static const std::byte *at(const std::byte *from, const MatmulOperand &operand, plan::DType type, int64_t row,
                             int64_t column) {
    return from + (row * operand.row + column * operand.column) * bytesOf(type);
  }

  void pack(SlotTable slots, int64_t panel, int64_t firstUnit, float *to) const {
    const MatmulOperand &b = p.shape.b;
    const int64_t first = panel * kernels.panel;
    const bool along = b.column == 1;
    (along ? kernels.packRows : kernels.packColumns)[p.bType == plan::DType::BF16](
        at(p.b.at(slots), b, p.bType, firstUnit * kernels.pairs, first), along ? b.row : b.column, depthOf(firstUnit),
        std::min(kernels.panel, p.shape.n - first), to);
  }

  /// Some rows times some panels of the chunk that begins with panel `first`.
  void multiply(SlotTable slots, unsigned thread, int64_t firstUnit, const float *right, int64_t first, Range chunk,
                Range rows) const {
    const MatmulOperand &a = p.shape.a, &c = p.shape.c;
    const int64_t depth = depthOf(firstUnit), depthUnits = unitsOf(depth);
    float *own = scratch(leftAt) + thread * leftFloats;
    for (int64_t row = rows.begin; row < rows.end; row += rowsInCache) {
      const int64_t count = std::min(rowsInCache, rows.end - row);
      const std::byte *from = at(p.a.at(slots), a, p.aType, row, firstUnit * kernels.pairs);
      for (int64_t i = 0; turns && i < count; i += kernels.panel)
        kernels.packRows[p.aType == plan::DType::BF16](from + i * bytesOf(p.aType), a.column, depth,
                                                       std::min(kernels.panel, count - i), own + i * blockUnits);
      if (packsLeft && !turns)
        kernels.loadRows[p.aType == plan::DType::BF16](from, a.row, depth, count, own, rowFloats);
      const void *rowsOfLeft[rowsInCache];
      void *to[rowsInCache];
      for (int64_t i = 0; i < count; ++i) {
        rowsOfLeft[i] =
            turns ? static_cast<const void *>(own + i / kernels.panel * kernels.panel * blockUnits + i % kernels.panel)
            : packsLeft ? static_cast<const void *>(own + i * rowFloats)
                        : from + i * a.row * bytesOf(p.aType);
        to[i] = p.c.at(slots) + (row + i) * c.row * bytesOf(p.cType);
      }
      for (int64_t panel = chunk.begin; panel < chunk.end; ++panel) {
        const int64_t column = (first + panel) * kernels.panel;
        GemmResult result{to, column * bytesOf(p.cType), half, p.accumulate || firstUnit > 0, nullptr, nullptr};
        if (p.hasBias && firstUnit == 0)
          (p.shape.exchanged ? result.rowBias : result.columnBias) = biasOf(slots) + (p.shape.exchanged ? row : column);
        const float *const columns = right + panel * panelFloats;
        kernels.multiply(count, std::min(kernels.panel, p.shape.n - column), 1, depthUnits,
                         {rowsOfLeft, 0, turns ? kernels.panel * 4 : 4}, &columns, result, nullptr, 0);
      }
    }
  }

  MatmulPlan p;
  const GemmKernels &kernels;
  Workspace &workspace;
  unsigned threads;
  int64_t units, panels; ///< of the whole product
  bool half;             ///< the result is bf16, otherwise f32
  int64_t blockUnits, panelFloats, chunkPanels;
  Grid grid;
  bool turns, packsLeft, packsOwn; ///< turns: packs columns of the left matrix in memory as rows
  int64_t rowFloats;               ///< from one packed row to the next
  int64_t leftFloats;              ///< of the packed rows of a thread
  int64_t panelAt, leftAt, biasAt;
  std::shared_ptr<PackedMatrix> packed; ///< null: panels are packed by every run
};

} // namespace

PackedMatrix::PackedMatrix(int64_t count)
    : floats(static_cast<float *>(std::aligned_alloc(64, static_cast<size_t>(roundUp(count, lineFloats)) * 4))) {
  if (!floats)
    throw std::bad_alloc();
}

void PackedMatrices::read(const SlotScope &scope) {
  program = &scope.program;
  changing.clear();
  uses.clear();
  std::map<uint32_t, int64_t> runs; // of segments
  if (program->train())
    for (const plan::Action *action : *program->train())
      ++runs[action->segment()];
  for (const auto &[index, count] : runs) {
    const plan::Segment &segment = *program->segments()->Get(index);
    if (isSetUp(segment) || !segment.steps())
      continue;
    for (const plan::Step *step : *segment.steps()) {
      check::forEachAccess(
          *step, *program,
          [&](const check::Access &access) {
            if (access.kind != check::Access::Read)
              changing.insert(access.slot);
          },
          &scope.plan);
      if (const plan::Matmul *op = step->op_as_Matmul()) {
        const MatmulShape shape = matmulShape(*op);
        const plan::View &b = shape.exchanged ? *op->a() : *op->b();
        uses[keyOf(b.slot(), b.offset(), shape.b.row, shape.b.column, shape.k, shape.n)] += count;
      }
    }
  }
}

bool PackedMatrices::keeps(const MatmulPlan &p, const SlotScope &scope) {
  // An input is another one for each microbatch.
  if (p.shape.m >= smallRows || isSetUp(scope.segment) || scope.slot(p.bSlot).space() == plan::Space::Input)
    return false;
  if (program != &scope.program)
    read(scope);
  const auto found = uses.find(keyOf(p));
  return found != uses.end() && found->second > 1 && !changing.contains(p.bSlot);
}

std::shared_ptr<PackedMatrix> PackedMatrices::find(const MatmulPlan &p, const std::string &order, int64_t count) {
  std::shared_ptr<PackedMatrix> &found = matrices[keyOf(p) + " " + order];
  if (!found)
    found = std::make_shared<PackedMatrix>(count);
  return found;
}

std::unique_ptr<Op> makeGemm(const MatmulPlan &p, const SlotScope &scope, PackedMatrices &matrices,
                             Workspace &workspace, unsigned threads) {
  const bool half = p.aType == plan::DType::BF16 && p.bType == plan::DType::BF16;
  const GemmKernels *kernels = loopsFor(scope.plan, half, gemmAvx2, gemmAvx512, gemmBf16);
  const auto known = [](plan::DType type) { return type == plan::DType::F32 || type == plan::DType::BF16; };
  const MatmulShape &s = p.shape;
  if (!kernels || !known(p.aType) || !known(p.bType) || !known(p.cType) || (s.a.column != 1 && s.a.row != 1) ||
      (s.b.column != 1 && s.b.row != 1) || s.c.column != 1)
    return nullptr;
  if (p.cType == plan::DType::BF16 && s.k > mostUnits * kernels->pairs)
    return nullptr;
  return std::make_unique<GemmOp>(p, scope, *kernels, matrices, workspace, threads);
}

} // namespace cleave
