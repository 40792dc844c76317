// Emits the loops of a kernel.
#include "passes/codegen/cpu/Emit.h"
#include "ir/graph/Enums.h"
#include "passes/codegen/cpu/KernelEmitter.h"
#include "passes/codegen/nest/Affine.h"

#include <set>

namespace cleave::passes::kernel {

using V = llvm::Value *;

static bool isFloatSum(const LoopValue &v) {
  return v.kind == ValueKind::Reduce && v.combine == ReduceKind::Sum && isFloat(v.type);
}

llvm::Function *emitKernel(const LoopNest &nest, const Sizes &sizes, llvm::Module &module, const std::string &name) {
  return KernelEmitter(nest, sizes, module, name).run();
}

KernelEmitter::KernelEmitter(const LoopNest &nest, const Sizes &sizes, llvm::Module &module, MathUnit unit)
    : p(nest), sizes(sizes), module(module), b(module.getContext()), indexType(b.getInt64Ty()), math(b, unit) {
  // No fast-math flags: a recomputed value must be bit-identical (Machine.h), and 1 / -0 is not 1 / 0.
  for (int l = 0; l < static_cast<int>(p.loops.size()); ++l)
    if (l != p.vectorLoop)
      (p.loops[l].reduced ? reducedLoopsInside : keptLoops).push_back(l);
  indices.assign(p.loops.size(), nullptr);
  levels.resize(3 + reducedLoopsInside.size());
}

KernelEmitter::KernelEmitter(const LoopNest &nest, const Sizes &sizes, llvm::Module &module, const std::string &name)
    : KernelEmitter(nest, sizes, module, MathUnit::Cpu) {
  llvm::Type *pointer = b.getPtrTy(), *i64 = b.getInt64Ty();
  llvm::SmallVector<llvm::Type *> types{pointer, pointer, i64, i64};
  if (!sizes.empty())
    types.push_back(pointer);
  auto *type = llvm::FunctionType::get(b.getVoidTy(), types, false);
  function = llvm::Function::Create(type, llvm::Function::ExternalLinkage, name, module);
  if (!sizes.empty())
    function->setVisibility(llvm::GlobalValue::HiddenVisibility);
  function->addFnAttr(llvm::Attribute::NoUnwind);
  args = function->getArg(0);
  scalars = function->getArg(1);
  begin = function->getArg(2);
  end = function->getArg(3);
  if (p.shape != Shape::Map && llvm::any_of(p.values, isFloatSum)) {
    levels.emplace_back();
    partLevel = static_cast<int>(levels.size()) - (p.shape == Shape::Columns ? 3 : 2);
  }
}

void KernelEmitter::at(int level) {
  llvm::BasicBlock *block = levels[level].block;
  if (block->getTerminator())
    b.SetInsertPoint(block->getTerminator());
  else
    b.SetInsertPoint(block);
}

int KernelEmitter::loopLevel(int loop) const {
  if (loop == p.vectorLoop)
    return p.shape == Shape::Columns ? 1 : static_cast<int>(levels.size()) - 1;
  if (!p.loops[loop].reduced)
    return 1;
  if (p.shape == Shape::Columns && loop == reducedLoopsInside.back())
    return static_cast<int>(levels.size()) - 2;
  for (size_t i = 0; i < reducedLoopsInside.size(); ++i)
    if (reducedLoopsInside[i] == loop)
      return 2 + static_cast<int>(i);
  return 1;
}

int KernelEmitter::levelOf(uint32_t loops) const {
  int level = 0;
  for (int l = 0; l < static_cast<int>(p.loops.size()); ++l)
    if (loops >> l & 1)
      level = std::max(level, loopLevel(l));
  return level;
}

int KernelEmitter::levelOf(int value) const {
  return std::max(levelOf(p.placements[value].loops), p.placements[value].row ? 1 : 0);
}

/// Opens for (index = low; index < high; index += step) with its body at `level`; the level above continues after the
/// loop.
KernelEmitter::OpenLoop KernelEmitter::open(int level, V low, V high, V step) {
  auto &context = module.getContext();
  OpenLoop loop{llvm::BasicBlock::Create(context, "loop", function),
                llvm::BasicBlock::Create(context, "done", function),
                nullptr,
                high,
                step,
                level};
  at(level - 1);
  llvm::BasicBlock *before = b.GetInsertBlock();
  b.CreateCondBr(b.CreateICmpSLT(low, high), loop.header, loop.exit);
  b.SetInsertPoint(loop.header);
  loop.index = b.CreatePHI(indexType, 2);
  loop.index->addIncoming(low, before);
  levels[level].block = loop.header;
  levels[level].cache.clear();
  return loop;
}

void KernelEmitter::close(const OpenLoop &loop) {
  at(loop.level);
  V next = b.CreateNSWAdd(loop.index, loop.step);
  loop.index->addIncoming(next, b.GetInsertBlock());
  b.CreateCondBr(b.CreateICmpSLT(next, loop.high), loop.header, loop.exit);
  for (size_t l = static_cast<size_t>(loop.level); l < levels.size(); ++l)
    levels[l].cache.clear();
  levels[loop.level - 1].block = loop.exit;
}

llvm::Function *KernelEmitter::run() {
  entry = llvm::BasicBlock::Create(module.getContext(), "entry", function);
  levels[0].block = entry;
  b.SetInsertPoint(entry);
  for (size_t i = 0; i < p.buffers.size(); ++i)
    bases.push_back(b.CreateLoad(b.getPtrTy(), b.CreateConstInBoundsGEP1_64(b.getPtrTy(), args, i)));
  makeTables();
  readSizes();
  int64_t floats = p.shape == Shape::Columns ? p.reducedCount() * p.vectorBlock()
                   : p.shape == Shape::Rows  ? p.reducedCount()
                                             : hoistedFloats / std::max(p.scratchSlots, 1); // the same for all sizes
  for (int s = 0; s < p.scratchSlots; ++s) {
    scratch.push_back(b.CreateAlloca(b.getFloatTy(), number(floats + p.width)));
    scratch.back()->setAlignment(llvm::Align(64));
  }
  if (p.flat)
    emitFlat();
  else
    emitRows();
  at(0);
  b.CreateRetVoid();
  return function;
}

void KernelEmitter::makeTables() {
  for (size_t t = 0; t < p.tables.size(); ++t) {
    std::vector<llvm::Constant *> elements;
    for (double x : p.tables[t])
      elements.push_back(
          isFloat(p.tableTypes[t])
              ? llvm::ConstantFP::get(b.getFloatTy(), x)
              : llvm::ConstantInt::get(memory(p.tableTypes[t]), static_cast<uint64_t>(static_cast<int64_t>(x)), true));
    auto *type = llvm::ArrayType::get(elements[0]->getType(), elements.size());
    tables.push_back(new llvm::GlobalVariable(module, type, true, llvm::GlobalValue::PrivateLinkage,
                                              llvm::ConstantArray::get(type, elements)));
  }
}

void KernelEmitter::readSizes() {
  for (size_t i = 0; i < sizes.words().size(); ++i)
    words.push_back(b.CreateLoad(b.getInt64Ty(), b.CreateConstInBoundsGEP1_64(b.getInt64Ty(), function->getArg(4), i)));
}

void KernelEmitter::emitFlat() {
  levels[1].block = entry; // a single level
  std::vector<Accumulator> none;
  vectorLoop(begin, end, -1, 0, none);
  levels[0].block = levels[1].block;
}

void KernelEmitter::emitRows() {
  if (p.shape == Shape::Map && p.scratchSlots) {
    levels[1].block = levels[0].block; // there are no rows yet
    currentSweep = -1;
    std::vector<Accumulator> none;
    vectorLoop(number(0), extentOf(p.vectorLoop), p.loops[p.vectorLoop].extent, currentSweep, none);
    currentSweep = 0;
    levels[0].block = levels[1].block;
  }
  OpenLoop row = open(1, begin, end, 1);
  setRowIndices(row.index);
  emitRow();
  close(row);
}

/// Computes the kept loops' indices from the row number and, in Columns, the block of the vector loop.
void KernelEmitter::setRowIndices(V row) {
  if (p.shape == Shape::Columns) {
    const int64_t extent = p.loops[p.vectorLoop].extent, block = p.vectorBlock();
    at(0);
    V blocks = b.CreateUDiv(b.CreateAdd(extentOf(p.vectorLoop), number(block - 1)), number(block));
    at(1);
    V inBlock = extent <= block ? number(0) : keptLoops.empty() ? row : b.CreateURem(row, blocks);
    row = b.CreateUDiv(row, blocks);
    indices[p.vectorLoop] = b.CreateMul(inBlock, number(block));
    laneLimit = extent % block ? extentOf(p.vectorLoop) : nullptr;
  }
  at(1);
  for (size_t k = keptLoops.size(); k-- > 0;) {
    indices[keptLoops[k]] = k == 0 ? row : b.CreateURem(row, extentOf(keptLoops[k]));
    row = k == 0 ? row : b.CreateUDiv(row, extentOf(keptLoops[k]));
  }
}

/// Where the vector loop of a map is cut: whole vectors, so that conditions on its index hold for all of a piece or for
/// none. These are the parts of a concatenation, and what is around a padded value.
std::vector<int64_t> KernelEmitter::pieces() const {
  constexpr size_t mostPieces = 8;
  const int64_t extent = p.loops[p.vectorLoop].extent;
  std::set<int64_t> ends;
  for (const LoopValue &v : p.values)
    for (const Condition &c : v.conditions)
      if (c.expr.coef[p.vectorLoop] == 1 && loopsOf(c.expr) == 1u << p.vectorLoop)
        for (const int64_t end : {c.low - c.expr.constant, c.high - c.expr.constant})
          if (end > 0 && end < extent && end % p.width == 0)
            ends.insert(end);
  if (ends.size() >= mostPieces || p.width == 1)
    ends.clear();
  ends.insert({0, extent});
  return {ends.begin(), ends.end()};
}

void KernelEmitter::emitRow() {
  if (p.shape == Shape::Map) {
    std::vector<Accumulator> none;
    if (p.vectorLoop < 0) {
      for (const Store &s : p.stores)
        unrounded(s.value, 0);
      for (const Store &s : p.stores)
        store(s, 0);
    } else {
      const std::vector<int64_t> ends = pieces();
      for (size_t i = 1; i < ends.size(); ++i) {
        piece = {ends[i - 1], ends[i]};
        V high = i + 1 == ends.size() ? extentOf(p.vectorLoop) : number(ends[i]);
        vectorLoop(number(ends[i - 1]), high, ends[i] - ends[i - 1], 0, none);
      }
      piece = {};
    }
    return;
  }
  for (int s = 0; s < p.sweeps; ++s)
    sweep(s);
  endStores();
}

void KernelEmitter::sweep(int s) {
  currentSweep = s;
  std::vector<Accumulator> accumulators;
  for (int i = 0; i < static_cast<int>(p.values.size()); ++i) {
    if (p.values[i].kind != ValueKind::Reduce || p.placements[i].sweep != s + 1)
      continue;
    Accumulator a{i, {}, {}};
    bool vector = p.shape == Shape::Rows || onVector(p.placements[p.values[i].operands[0]].loops);
    const auto addSlot = [&](std::vector<llvm::AllocaInst *> &slots) {
      llvm::IRBuilder<> atEntry(&entry->front());
      slots.push_back(atEntry.CreateAlloca(shaped(compute(p.values[i].type), vector)));
      at(1);
      b.CreateStore(identity(p.values[i].combine, p.values[i].type, vector), slots.back());
    };
    for (int c = 0; c < p.unroll; ++c) {
      addSlot(a.slots);
      if (partLevel >= 0 && isFloatSum(p.values[i]))
        addSlot(a.totals);
    }
    accumulators.push_back(std::move(a));
  }
  bool stores = false;
  for (const Store &store : p.stores)
    stores |= store.sweep == s;
  if (accumulators.empty() && !stores)
    return;
  reducedLoops(0, s, accumulators);
  finish(accumulators);
}

void KernelEmitter::reducedLoops(size_t next, int s, std::vector<Accumulator> &accumulators) {
  if (p.shape == Shape::Columns && next + 1 == reducedLoopsInside.size()) {
    innermostLoop(reducedLoopsInside[next], number(0), extentOf(reducedLoopsInside[next]), 1, p.unroll, s,
                  accumulators);
  } else if (next < reducedLoopsInside.size()) {
    int loop = reducedLoopsInside[next];
    OpenLoop l = open(2 + static_cast<int>(next), number(0), extentOf(loop), 1);
    indices[loop] = l.index;
    reducedLoops(next + 1, s, accumulators);
    close(l);
  } else {
    vectorLoop(number(0), extentOf(p.vectorLoop), p.loops[p.vectorLoop].extent, s, accumulators);
  }
}

void KernelEmitter::innermostLoop(int loop, V low, V high, int64_t step, int copies, int s,
                                  std::vector<Accumulator> &accumulators) {
  constexpr int64_t mostSummed = 64;
  const int level = loopLevel(loop);
  // Fewer copies: the last few vectors.
  const bool inParts =
      copies == p.unroll && llvm::any_of(accumulators, [](const Accumulator &a) { return !a.totals.empty(); });
  std::optional<OpenLoop> part;
  V from = low, to = high;
  if (inParts) {
    part = open(partLevel, low, high, step * mostSummed);
    at(partLevel);
    from = part->index;
    V after = b.CreateNSWAdd(from, part->step);
    to = b.CreateSelect(b.CreateICmpSLT(after, high), after, high);
  } else if (partLevel >= 0) {
    levels[partLevel].block = levels[partLevel - 1].block;
  }
  OpenLoop l = open(level, from, to, step);
  indices[loop] = l.index;
  if (p.shape == Shape::Columns)
    levels.back().block = levels[level].block; // the level of the vector loop stays empty
  body(copies, s, accumulators);
  close(l);
  if (inParts) {
    finishPart(partLevel, accumulators);
    close(*part);
  } else if (partLevel >= 0) {
    levels[partLevel - 1].block = levels[partLevel].block;
  }
}

/// Adds the parts of float sums to their totals and begins new ones.
void KernelEmitter::finishPart(int level, std::vector<Accumulator> &accumulators) {
  at(level);
  for (const Accumulator &a : accumulators)
    for (size_t c = 0; c < a.totals.size(); ++c) {
      auto *type = a.slots[c]->getAllocatedType();
      b.CreateStore(b.CreateFAdd(b.CreateLoad(type, a.totals[c]), b.CreateLoad(type, a.slots[c])), a.totals[c]);
      b.CreateStore(llvm::Constant::getNullValue(type), a.slots[c]);
    }
}

/// Full groups of `unroll` vectors, then single vectors with masked lanes. staticExtent: high - low if the form of the
/// loops may depend on it, else -1.
void KernelEmitter::vectorLoop(V low, V high, int64_t staticExtent, int s, std::vector<Accumulator> &accumulators) {
  int64_t step = p.vectorBlock();
  V rest = low;
  laneLimit = nullptr;
  if (staticExtent < 0 || staticExtent >= step) {
    V whole;
    if (staticExtent >= 0 && !sizes.extent(p.vectorLoop)) {
      whole = b.CreateAdd(low, number(staticExtent / step * step));
    } else if (staticExtent >= 0 && staticExtent % step == 0) {
      whole = high;
    } else {
      at((partLevel >= 0 ? partLevel : loopLevel(p.vectorLoop)) - 1);
      whole = b.CreateAdd(low, b.CreateAnd(b.CreateSub(high, low), number(-step)));
    }
    innermostLoop(p.vectorLoop, low, whole, step, p.unroll, s, accumulators);
    rest = whole;
  }
  if (staticExtent < 0 || staticExtent % step) {
    laneLimit = staticExtent >= 0 && staticExtent % p.width == 0 ? nullptr : high; // `low` is a multiple of the width
    innermostLoop(p.vectorLoop, rest, high, p.width, 1, s, accumulators);
    laneLimit = nullptr;
  }
}

/// One step of a sweep: computes everything before storing anything, so that results may overwrite operands.
void KernelEmitter::body(int copies, int s, std::vector<Accumulator> &accumulators) {
  int level = static_cast<int>(levels.size()) - 1;
  for (int c = 0; c < copies; ++c) {
    for (const Accumulator &a : accumulators)
      emit(p.values[a.value].operands[0], c);
    for (const Store &store : p.stores)
      if (store.sweep == s)
        unrounded(store.value, c);
  }
  for (int c = 0; c < copies; ++c)
    for (const Accumulator &a : accumulators) {
      const LoopValue &v = p.values[a.value];
      V x = emit(v.operands[0], c);
      at(p.shape == Shape::Columns ? level - 1 : level);
      auto *type = a.slots[c]->getAllocatedType();
      if (type->isVectorTy()) {
        x = splat(x);
        if (p.shape == Shape::Rows)
          if (V exists = mask(c))
            x = b.CreateSelect(exists, x, identity(v.combine, v.type, true));
      }
      b.CreateStore(combine(v.combine, b.CreateLoad(type, a.slots[c]), x, v.type), a.slots[c]);
    }
  for (size_t i = 0; i < p.values.size(); ++i)
    if (p.placements[i].scratch >= 0 && p.placements[i].scratchFrom == s)
      for (int c = 0; c < copies; ++c) {
        V x = emit(static_cast<int>(i), c);
        const int inside = p.shape == Shape::Columns ? level - 1 : level;
        V to = scratchPointer(p.placements[i], c, inside);
        at(inside);
        x = splat(x);
        if (V exists = mask(c); exists && p.shape == Shape::Rows)
          b.CreateMaskedStore(x, to, llvm::Align(4), exists);
        else
          b.CreateAlignedStore(x, to, llvm::Align(4));
      }
  for (int c = 0; c < copies; ++c)
    for (const Store &st : p.stores)
      if (st.sweep == s)
        store(st, c);
}

/// Ends a sweep: combines copies and lanes in a fixed order; the results are values of the row.
void KernelEmitter::finish(std::vector<Accumulator> &accumulators) {
  finishPart(1, accumulators);
  for (const Accumulator &a : accumulators) {
    const LoopValue &v = p.values[a.value];
    at(1);
    std::vector<V> parts;
    for (llvm::AllocaInst *slot : a.totals.empty() ? a.slots : a.totals)
      parts.push_back(b.CreateLoad(slot->getAllocatedType(), slot));
    if (p.shape == Shape::Columns) {
      bool vector = onVector(p.placements[a.value].loops);
      for (int c = 0; c < (vector ? p.unroll : 1); ++c)
        levels[1].cache[{a.value, c}] = parts[c];
      continue;
    }
    for (size_t width = parts.size(); width > 1; width /= 2)
      for (size_t i = 0; i < width / 2; ++i)
        parts[i] = combine(v.combine, parts[i], parts[i + width / 2], v.type);
    V x = parts[0];
    for (int width = p.width / 2; width >= 1; width /= 2) {
      std::vector<int> order(p.width, -1);
      for (int i = 0; i < width; ++i)
        order[i] = i + width;
      x = combine(v.combine, x, b.CreateShuffleVector(x, order), v.type);
    }
    levels[1].cache[{a.value, 0}] = b.CreateExtractElement(x, uint64_t{0});
  }
}

void KernelEmitter::endStores() {
  int copies = p.shape == Shape::Columns ? p.unroll : 1;
  for (int c = 0; c < copies; ++c)
    for (const Store &s : p.stores)
      if (s.sweep < 0)
        unrounded(s.value, c);
  for (int c = 0; c < copies; ++c)
    for (const Store &s : p.stores)
      if (s.sweep < 0)
        store(s, c);
}

} // namespace cleave::passes::kernel
