// Results of reductions: each thread's partial result, then lanes by shuffles, then warps (columns: lines of threads)
// through shared memory, always in the same order, so that the bits depend only on the loop nest.
#include "ir/graph/Enums.h"
#include "passes/codegen/gpu/GpuEmitter.h"
#include "passes/codegen/nest/GpuNumbers.h"

#include "llvm/IR/IntrinsicsNVPTX.h"

namespace cleave::passes::kernel {

namespace {

using V = llvm::Value *;

int64_t partBytes(DType type) { return type == DType::I64 ? 8 : 4; }

} // namespace

/// Each reduction has its own region of shared memory, so one barrier per item separates reads from later writes.
int64_t GpuEmitter::sharedBytes() const {
  if (p.shape == Shape::Map || plan.group <= (p.shape == Shape::Rows ? warp : 1))
    return 0;
  const int64_t parts = p.shape == Shape::Rows ? plan.block / warp : int64_t{plan.block} * plan.chunk;
  int64_t bytes = 0;
  for (const LoopValue &v : p.values)
    if (v.kind == ValueKind::Reduce)
      bytes += (parts * partBytes(v.type) + 7) / 8 * 8;
  return bytes;
}

void GpuEmitter::makeShared() {
  const int64_t bytes = sharedBytes();
  if (!bytes)
    return;
  auto *type = llvm::ArrayType::get(b.getInt64Ty(), static_cast<uint64_t>(bytes / 8));
  shared = new llvm::GlobalVariable(module, type, false, llvm::GlobalValue::InternalLinkage,
                                    llvm::PoisonValue::get(type), function->getName() + "_shared", nullptr,
                                    llvm::GlobalValue::NotThreadLocal, ptx() ? 3 : 0);
  shared->setAlignment(llvm::Align(8));
}

/// Element `index` of the array that begins at `byte`.
V GpuEmitter::place(int64_t byte, llvm::Type *type, V index) {
  return b.CreateGEP(type, b.CreateConstInBoundsGEP1_64(b.getInt8Ty(), shared, static_cast<uint64_t>(byte)), index);
}

void GpuEmitter::barrier() {
  if (ptx())
    b.CreateIntrinsic(llvm::Intrinsic::nvvm_barrier_cta_sync_aligned_all, {b.getInt32(0)});
  else
    outside("cleave_emu_barrier", b.getVoidTy());
}

void GpuEmitter::warpBarrier() {
  if (ptx())
    b.CreateIntrinsic(llvm::Intrinsic::nvvm_bar_warp_sync, {b.getInt32(0xffffffff)});
  else
    outside("cleave_emu_warp_barrier", b.getVoidTy());
}

V GpuEmitter::exchange(V x, int distance) {
  if (x->getType()->isIntegerTy(64)) {
    V low = exchange(b.CreateTrunc(x, b.getInt32Ty()), distance),
      high = exchange(b.CreateTrunc(b.CreateLShr(x, 32), b.getInt32Ty()), distance);
    return b.CreateOr(b.CreateZExt(low, x->getType()), b.CreateShl(b.CreateZExt(high, x->getType()), 32));
  }
  const bool real = x->getType()->isFloatTy();
  V by = b.getInt32(static_cast<uint32_t>(distance));
  if (!ptx())
    return outside(real ? "cleave_emu_shuffle_f32" : "cleave_emu_shuffle_i32", x->getType(), {x, by});
  return b.CreateIntrinsic(real ? llvm::Intrinsic::nvvm_shfl_sync_bfly_f32 : llvm::Intrinsic::nvvm_shfl_sync_bfly_i32,
                           {b.getInt32(0xffffffff), x, by, b.getInt32(warp - 1)});
}

/// Ends a sweep; every thread of the group gets the result.
void GpuEmitter::finish(std::vector<Accumulator> &accumulators) {
  if (accumulators.empty())
    return;
  p.shape == Shape::Rows ? finishRows(accumulators) : finishColumns(accumulators);
}

/// Combines the two halves until one value is left.
V GpuEmitter::tree(std::vector<V> x, const LoopValue &v) {
  for (size_t count = x.size(); count > 1; count /= 2)
    for (size_t i = 0; i < count / 2; ++i)
      x[i] = combine(v.combine, x[i], x[i + count / 2], v.type);
  return x[0];
}

void GpuEmitter::finishRows(std::vector<Accumulator> &accumulators) {
  at(1);
  std::vector<V> parts;
  for (const Accumulator &a : accumulators) {
    const LoopValue &v = p.values[a.value];
    std::vector<V> x;
    for (int e = 0; e < plan.chunk; ++e) {
      llvm::AllocaInst *slot = a.slots[static_cast<size_t>(e)];
      x.push_back(b.CreateLoad(slot->getAllocatedType(), slot));
    }
    V lanes = tree(std::move(x), v);
    for (int distance = warp / 2; distance >= 1; distance /= 2) {
      V other = exchange(lanes, distance);
      // Not contracted with a lane's product: otherwise the sum would differ between the two lanes.
      lanes = ptx() && v.combine == ReduceKind::Sum && lanes->getType()->isFloatTy()
                  ? b.CreateIntrinsic(llvm::Intrinsic::nvvm_add_rn_f, {}, {lanes, other})
                  : combine(v.combine, lanes, other, v.type);
    }
    parts.push_back(lanes);
  }
  if (plan.group > warp)
    acrossWarps(accumulators, parts);
  for (size_t i = 0; i < parts.size(); ++i)
    levels[1].cache[{accumulators[i].value, 0}] = parts[i];
}

void GpuEmitter::acrossWarps(const std::vector<Accumulator> &accumulators, std::vector<V> &parts) {
  const int warps = plan.block / warp;
  std::vector<int64_t> bytes;
  V own = b.CreateUDiv(thread, number(warp));
  for (size_t i = 0; i < parts.size(); ++i) { // all lanes of a warp write the same value
    bytes.push_back(sharedUsed);
    b.CreateStore(parts[i], place(sharedUsed, parts[i]->getType(), own));
    sharedUsed += (warps * partBytes(p.values[accumulators[i].value].type) + 7) / 8 * 8;
  }
  barrier();
  for (size_t i = 0; i < parts.size(); ++i) {
    std::vector<V> x;
    for (int w = 0; w < warps; ++w)
      x.push_back(b.CreateLoad(parts[i]->getType(), place(bytes[i], parts[i]->getType(), number(w))));
    parts[i] = tree(std::move(x), p.values[accumulators[i].value]);
  }
}

/// Element e of a chunk in a line's part. Elements e and e + 1 are not adjacent, which avoids bank conflicts.
V GpuEmitter::linePlace(int64_t byte, llvm::Type *type, V line, int e) {
  V row = b.CreateAdd(b.CreateMul(line, number(plan.chunk)), number(e));
  return place(byte, type, b.CreateAdd(b.CreateMul(row, number(plan.block / plan.group)), across));
}

void GpuEmitter::finishColumns(std::vector<Accumulator> &accumulators) {
  at(1);
  std::vector<Part> parts;
  for (const Accumulator &a : accumulators) {
    const LoopValue &v = p.values[a.value];
    const int elements = onVector(p.placements[v.operands[0]].loops) ? plan.chunk : 1;
    for (int e = 0; e < elements; ++e) {
      llvm::AllocaInst *slot = a.slots[static_cast<size_t>(e)];
      levels[1].cache[{a.value, e}] = b.CreateLoad(slot->getAllocatedType(), slot);
      parts.push_back({a.value, e, sharedUsed, slot->getAllocatedType()});
    }
    sharedUsed += int64_t{plan.block} * plan.chunk * partBytes(v.type);
  }
  if (plan.group > 1)
    acrossLines(parts);
  levels[1].block = b.GetInsertBlock();
}

/// Adds the upper half of the lines to the lower half until one line is left.
void GpuEmitter::acrossLines(const std::vector<Part> &parts) {
  for (const Part &part : parts)
    b.CreateStore(levels[1].cache[{part.value, part.element}], linePlace(part.byte, part.type, member, part.element));
  for (int lines = plan.group / 2; lines >= 1; lines /= 2) {
    barrier();
    Branch lower = branch(b.CreateICmpSLT(member, number(lines)));
    for (const Part &part : parts) {
      const LoopValue &v = p.values[part.value];
      V to = linePlace(part.byte, part.type, member, part.element);
      V from = linePlace(part.byte, part.type, b.CreateAdd(member, number(lines)), part.element);
      b.CreateStore(combine(v.combine, b.CreateLoad(part.type, to), b.CreateLoad(part.type, from), v.type), to);
    }
    close(lower);
  }
  barrier();
  for (const Part &part : parts)
    levels[1].cache[{part.value, part.element}] =
        b.CreateLoad(part.type, linePlace(part.byte, part.type, number(0), part.element));
}

/// One thread of the group stores the per-item results, after all threads have read memory that they may overwrite.
void GpuEmitter::endStores() {
  const int copies = p.shape == Shape::Columns ? plan.chunk : 1;
  bool any = false;
  for (const Store &s : p.stores)
    for (int c = 0; c < copies && s.sweep < 0; ++c) {
      unrounded(s.value, c);
      any = true;
    }
  if (!any)
    return;
  at(1);
  if (p.shape == Shape::Rows && plan.group == warp)
    warpBarrier();
  else if (plan.group > 1)
    barrier();
  V first = plan.group > 1 ? b.CreateICmpEQ(member, number(0)) : nullptr;
  Branch one = branch(first && mine ? b.CreateAnd(first, mine) : first ? first : mine);
  levels[1].block = b.GetInsertBlock();
  for (const Store &s : p.stores)
    if (s.sweep < 0)
      storeChunk(s, 0, 1);
  at(1);
  close(one);
  levels[1].block = b.GetInsertBlock();
}

} // namespace cleave::passes::kernel
