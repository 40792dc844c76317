// Emits the loops of a kernel for GPU threads.
#include "passes/codegen/gpu/GpuEmitter.h"
#include "passes/codegen/nest/GpuNumbers.h"

#include "llvm/IR/IntrinsicsNVPTX.h"

namespace cleave::passes::kernel {

namespace {

using V = llvm::Value *;

/// Whether indices fit in 32 bits, including the last step of a grid-stride loop.
bool isSmall(const LoopNest &p) {
  constexpr int64_t most = int64_t{1} << 30;
  bool small = !p.flat && p.keptCount() * p.reducedCount() < most;
  for (int64_t size : p.bufferSizes)
    small &= size < most;
  return small;
}

} // namespace

GpuEmitter::GpuEmitter(const LoopNest &nest, llvm::Module &module, const std::string &name, ThreadWords words,
                       bool batch)
    : KernelEmitter(nest, Sizes(), module, words == ThreadWords::Ptx ? MathUnit::Gpu : MathUnit::PlayedGpu),
      plan(nest.threads), words(words), batch(batch), chunk(plan.chunk) {
  reduced = reducedLoopsInside;
  levels.assign(3, {});
  std::vector<llvm::Type *> types(batch ? 1 : p.buffers.size(), b.getPtrTy());
  types.insert(types.end(), batch ? 1 : p.scalarInputs.size() + 1, b.getInt64Ty());
  if (!ptx())
    types = {b.getPtrTy(), b.getPtrTy(), b.getInt64Ty(), b.getInt64Ty()};
  function = llvm::Function::Create(llvm::FunctionType::get(b.getVoidTy(), types, false),
                                    llvm::Function::ExternalLinkage, name, module);
  function->addFnAttr(llvm::Attribute::NoUnwind);
  if (isSmall(p))
    indexType = b.getInt32Ty();
  if (ptx()) {
    function->setCallingConv(llvm::CallingConv::PTX_Kernel);
    function->addFnAttr("nvvm.maxntid", std::to_string(plan.block));
    // The minimum number of blocks per multiprocessor, which limits the registers that ptxas may use. A low value
    // allows more registers than its default, so that rows stay in registers and loads are issued early. Many buffers
    // need a low value to avoid spills.
    const size_t buffers = p.buffers.size();
    if (plan.block >= 512)
      function->addFnAttr("nvvm.minctasm", plan.held || buffers > 6 ? "1" : "2");
    else if (plan.block == 256 && p.shape == Shape::Columns && buffers <= 8)
      function->addFnAttr("nvvm.minctasm", "3");
  } else {
    noteParameters(name);
  }
}

llvm::Function *GpuEmitter::build() {
  entry = llvm::BasicBlock::Create(module.getContext(), "entry", function);
  levels[0].block = entry;
  b.SetInsertPoint(entry);
  thread = wide(word(llvm::Intrinsic::nvvm_read_ptx_sreg_tid_x, "cleave_emu_tid"));
  block = wide(word(llvm::Intrinsic::nvvm_read_ptx_sreg_ctaid_x, "cleave_emu_block"));
  blocks = wide(word(llvm::Intrinsic::nvvm_read_ptx_sreg_nctaid_x, "cleave_emu_blocks"));
  scalars = function->getArg(1);
  extent = function->getArg(function->arg_size() - 1);
  if (batch)
    findCall();
  for (size_t i = 0; i < p.buffers.size() && !batch; ++i)
    bases.push_back(parameter(i));
  makeTables();
  makeShared();
  if (p.shape == Shape::Map)
    p.flat ? flatMap() : maps();
  else
    p.shape == Shape::Rows ? rows() : columns();
  at(0);
  b.CreateRetVoid();
  return function;
}

/// A buffer among the kernel's parameters.
V GpuEmitter::parameter(size_t buffer) {
  if (ptx())
    return function->getArg(static_cast<unsigned>(buffer));
  return b.CreateLoad(b.getPtrTy(), b.CreateConstInBoundsGEP1_64(b.getPtrTy(), function->getArg(0), buffer));
}

/// In batch form: finds the block's call, the block's index within the call, and the call's parameters.
void GpuEmitter::findCall() {
  llvm::Type *i64 = b.getInt64Ty(), *i32 = b.getInt32Ty();
  const size_t head = 3, words = head + p.buffers.size() + p.scalarInputs.size(); // words per call
  auto read = [&](llvm::Type *type, V at) -> V {
    llvm::LoadInst *word = b.CreateLoad(type, at);
    word->setMetadata(llvm::LLVMContext::MD_invariant_load, llvm::MDNode::get(module.getContext(), {}));
    return word;
  };
  V table = parameter(0), ofBlock = b.CreateGEP(i64, table, b.CreateMul(extent, b.getInt64(words)));
  V number = read(i32, b.CreateGEP(i32, ofBlock, b.CreateZExt(block, i64)));
  V call = b.CreateGEP(i64, table, b.CreateMul(b.CreateZExt(number, i64), b.getInt64(words)));
  auto field = [&](size_t i, llvm::Type *type) { return read(type, b.CreateConstInBoundsGEP1_64(i64, call, i)); };
  block = b.CreateSub(block, wide(field(0, i64)));
  blocks = wide(field(1, i64));
  extent = field(2, i64);
  for (size_t i = 0; i < p.buffers.size(); ++i) // marks them as global memory, as is known for parameters
    bases.push_back(ptx() ? b.CreateAddrSpaceCast(field(head + i, b.getPtrTy(1)), b.getPtrTy())
                          : field(head + i, b.getPtrTy()));
  scalars = b.CreateConstInBoundsGEP1_64(i64, call, head + p.buffers.size());
}

/// NAME_parameters: the number of buffers and scalars, which tests read; a launch of PTX knows them from the code.
void GpuEmitter::noteParameters(const std::string &name) {
  const uint32_t counts[] = {batch ? 1 : static_cast<uint32_t>(p.buffers.size()),
                             batch ? 0 : static_cast<uint32_t>(p.scalarInputs.size())};
  auto *value = llvm::ConstantDataArray::get(module.getContext(), counts);
  new llvm::GlobalVariable(module, value->getType(), true, llvm::GlobalValue::ExternalLinkage, value,
                           name + "_parameters");
}

V GpuEmitter::outside(const char *name, llvm::Type *result, llvm::ArrayRef<V> arguments) {
  std::vector<llvm::Type *> types;
  for (V argument : arguments)
    types.push_back(argument->getType());
  return b.CreateCall(module.getOrInsertFunction(name, llvm::FunctionType::get(result, types, false)), arguments);
}

V GpuEmitter::word(unsigned intrinsic, const char *name) {
  return ptx() ? b.CreateIntrinsic(intrinsic, {}) : outside(name, b.getInt32Ty());
}

V GpuEmitter::scalarArgument(int index) {
  if (!ptx() || batch)
    return KernelEmitter::scalarArgument(index);
  return function->getArg(static_cast<unsigned>(p.buffers.size()) + static_cast<unsigned>(index));
}

int GpuEmitter::copyKey(uint32_t loops, int copy) const {
  bool passDiffers = false;
  for (int l = 0; l < static_cast<int>(p.loops.size()); ++l)
    passDiffers |= (loops >> l & 1) && differs(l);
  return (passDiffers ? copy / chunk * chunk : 0) + (onVector(loops) ? copy % chunk : 0);
}

V GpuEmitter::indexOf(int loop, int copy) const {
  const auto l = static_cast<size_t>(loop);
  return differs(loop) ? passes[static_cast<size_t>(copy / chunk)].index[l] : indices[l];
}

/// The indices of `loops` (and, innermost, of the vector loop's chunks) for a row-major position.
void GpuEmitter::takeApart(V number, const std::vector<int> &loops, bool vector, std::vector<V> &index) {
  if (vector && p.vectorLoop >= 0) {
    const int64_t chunks = vectorChunks();
    const bool only = loops.empty();
    V inside = only ? number : b.CreateURem(number, this->number(chunks));
    index[p.vectorLoop] = b.CreateNSWMul(inside, this->number(plan.chunk));
    number = only ? number : b.CreateUDiv(number, this->number(chunks));
  }
  for (size_t k = loops.size(); k-- > 0;) {
    V size = this->number(p.loops[loops[k]].extent);
    index[loops[k]] = k == 0 ? number : b.CreateURem(number, size);
    number = k == 0 ? number : b.CreateUDiv(number, size);
  }
}

/// The pass at a position: a chunk of a map, a chunk of a row, or a reduced position of a column.
GpuEmitter::Pass GpuEmitter::passAt(V number, V valid) {
  Pass pass{std::vector<V>(p.loops.size()), valid};
  takeApart(number, p.shape == Shape::Map ? keptLoops : reduced, p.shape != Shape::Columns, pass.index);
  return pass;
}

GpuEmitter::Branch GpuEmitter::branch(V condition) {
  if (!condition)
    return {};
  auto *then = llvm::BasicBlock::Create(module.getContext(), "if", function);
  auto *rest = llvm::BasicBlock::Create(module.getContext(), "rest", function);
  b.CreateCondBr(condition, then, rest);
  b.SetInsertPoint(then);
  return {rest};
}

void GpuEmitter::close(Branch branch) {
  if (!branch.rest)
    return;
  b.CreateBr(branch.rest);
  b.SetInsertPoint(branch.rest);
}

// ---- maps: chunks over all threads ----------------------------------------------------------------------------------

void GpuEmitter::maps() {
  const int64_t total = p.keptCount() / (p.vectorLoop < 0 ? 1 : plan.chunk), perBlock = int64_t{plan.block} * plan.passes;
  V first = b.CreateAdd(b.CreateMul(block, number(perBlock)), thread);
  OpenLoop loop = open(1, first, number(total), b.CreateMul(blocks, number(perBlock)));
  std::vector<Pass> now{passAt(loop.index)};
  for (int i = 1; i < plan.passes; ++i) {
    V chunkNumber = b.CreateNSWAdd(loop.index, number(int64_t{i} * plan.block)), valid = nullptr;
    if (total % perBlock) {
      valid = b.CreateICmpSLT(chunkNumber, number(total));
      chunkNumber = b.CreateSelect(valid, chunkNumber, loop.index);
    }
    now.push_back(passAt(chunkNumber, valid));
  }
  std::vector<Accumulator> none;
  levels[2].block = levels[1].block;
  take(std::move(now), 0, none);
  levels[1].block = levels[2].block;
  close(loop);
}

void GpuEmitter::flatMap() {
  const int64_t perBlock = int64_t{plan.block} * plan.passes;
  std::vector<Accumulator> none;
  V step = number(plan.chunk), chunks = b.CreateUDiv(extent, step);
  V first = b.CreateAdd(b.CreateMul(block, number(perBlock)), thread);
  V tail = b.CreateAdd(b.CreateMul(chunks, step), b.CreateAdd(b.CreateMul(block, number(plan.block)), thread));
  OpenLoop loop = open(1, first, chunks, b.CreateMul(blocks, number(perBlock)));
  std::vector<Pass> now;
  for (int i = 0; i < plan.passes; ++i) {
    V chunkNumber = b.CreateAdd(loop.index, number(int64_t{i} * plan.block));
    V valid = i ? b.CreateICmpSLT(chunkNumber, chunks) : nullptr;
    V from = i ? b.CreateSelect(valid, chunkNumber, loop.index) : chunkNumber;
    now.push_back({{b.CreateMul(from, step)}, valid});
  }
  levels[2].block = levels[1].block;
  take(std::move(now), 0, none);
  levels[1].block = levels[2].block;
  close(loop);
  if (plan.chunk == 1)
    return;
  at(0);
  OpenLoop last = open(1, tail, extent, b.CreateMul(blocks, number(plan.block)));
  chunk = 1;
  levels[2].block = levels[1].block;
  take({Pass{std::vector<V>{last.index}, nullptr}}, 0, none);
  levels[1].block = levels[2].block;
  close(last);
}

// ---- rows and columns: a group of threads to each -------------------------------------------------------------------

void GpuEmitter::rows() {
  const int64_t rowsPerBlock = plan.block / plan.group;
  const bool wholeBlock = plan.group > warp;
  member = wholeBlock ? thread : b.CreateURem(thread, number(warp));
  V first =
      wholeBlock ? block : b.CreateAdd(b.CreateMul(block, number(rowsPerBlock)), b.CreateUDiv(thread, number(warp)));
  OpenLoop loop = open(1, first, number(p.keptCount()), b.CreateMul(blocks, number(rowsPerBlock)));
  takeApart(loop.index, keptLoops, false, indices);
  emitRow();
  at(1);
  if (wholeBlock)
    barrier(); // before the next row overwrites shared memory
  close(loop);
}

/// The threads of a block form `group` lines; each line processes other positions of the same columns.
void GpuEmitter::columns() {
  const int64_t width = plan.block / plan.group, items = p.keptCount() / plan.chunk;
  across = b.CreateURem(thread, number(width));
  member = b.CreateUDiv(thread, number(width));
  OpenLoop loop = open(1, b.CreateMul(block, number(width)), number(items), b.CreateMul(blocks, number(width)));
  V item = b.CreateNSWAdd(loop.index, across);
  if (items % width) {
    mine = b.CreateICmpSLT(item, number(items));
    item = b.CreateSelect(mine, item, number(items - 1));
  }
  takeApart(item, keptLoops, true, indices);
  emitRow();
  at(1);
  if (plan.group > 1)
    barrier();
  close(loop);
}

void GpuEmitter::reducedLoops(size_t, int s, std::vector<Accumulator> &accumulators) {
  if (plan.held)
    return heldRow(s, accumulators);
  const int64_t count = p.reducedCount() / (p.shape == Shape::Rows ? plan.chunk : 1);
  const int64_t step = int64_t{plan.group} * plan.passes, whole = count / step * step;
  at(1);
  if (whole) {
    OpenLoop loop = open(2, member, number(whole), step);
    std::vector<Pass> now;
    for (int i = 0; i < plan.passes; ++i)
      now.push_back(passAt(b.CreateNSWAdd(loop.index, number(int64_t{i} * plan.group))));
    take(std::move(now), s, accumulators);
    close(loop);
  }
  if (whole == count)
    return;
  at(1);
  OpenLoop rest = open(2, b.CreateNSWAdd(member, number(whole)), number(count), plan.group);
  take({passAt(rest.index)}, s, accumulators);
  close(rest);
}

/// Processes the whole row without a loop; later sweeps reuse the values in registers.
void GpuEmitter::heldRow(int s, std::vector<Accumulator> &accumulators) {
  const int64_t chunks = p.reducedCount() / plan.chunk;
  at(1);
  levels[2].block = levels[1].block;
  for (int i = static_cast<int>(row.size()); i < plan.passes; ++i) {
    V position = b.CreateNSWAdd(member, number(int64_t{i} * plan.group)), valid = nullptr;
    if (int64_t{i + 1} * plan.group > chunks) {
      valid = b.CreateICmpSLT(position, number(chunks));
      position = b.CreateSelect(valid, position, number(0));
    }
    row.push_back(passAt(position, valid));
  }
  take(row, s, accumulators);
  levels[1].block = levels[2].block;
}

/// Loads, computes, combines and stores the chunks of `now`, in this order.
void GpuEmitter::take(std::vector<Pass> now, int s, std::vector<Accumulator> &accumulators) {
  passes = std::move(now);
  const int copies = static_cast<int>(passes.size()) * chunk;
  std::vector<int> summed, stored;
  for (const Accumulator &a : accumulators)
    summed.push_back(p.values[a.value].operands[0]);
  for (const Store &store : p.stores)
    if (store.sweep == s)
      stored.push_back(store.value);
  std::vector<char> seen(p.values.size(), false);
  for (const std::vector<int> *wanted : {&summed, &stored})
    for (int value : *wanted)
      loadAhead(value, seen);
  for (int c = 0; c < copies; ++c) {
    for (int value : summed)
      emit(value, c);
    for (int value : stored)
      unrounded(value, c);
  }
  accumulate(accumulators);
  for (int i = 0; i < static_cast<int>(passes.size()); ++i) {
    at(2);
    V valid = passes[static_cast<size_t>(i)].valid;
    Branch ifValid = branch(valid && mine ? b.CreateAnd(valid, mine) : valid ? valid : mine);
    levels[2].block = b.GetInsertBlock();
    for (const Store &store : p.stores)
      if (store.sweep == s)
        storeChunk(store, i, 2);
    at(2);
    close(ifValid);
    levels[2].block = b.GetInsertBlock();
  }
}

/// Issues all loads that `value` needs before any computation.
void GpuEmitter::loadAhead(int value, std::vector<char> &seen) {
  const auto v = static_cast<size_t>(value);
  if (seen[v] || levelOf(value) < 2)
    return;
  seen[v] = true;
  if (p.values[v].kind == ValueKind::Load)
    for (int c = 0; c < static_cast<int>(passes.size()) * chunk; ++c)
      emit(value, c);
  for (int operand : p.values[v].operands)
    loadAhead(operand, seen);
}

/// Element e of every pass is combined into accumulator e.
void GpuEmitter::accumulate(std::vector<Accumulator> &accumulators) {
  const int copies = static_cast<int>(passes.size()) * chunk;
  for (const Accumulator &a : accumulators) {
    const LoopValue &v = p.values[a.value];
    const bool all = p.shape == Shape::Rows || onVector(p.placements[v.operands[0]].loops);
    for (int c = 0; c < copies; ++c) {
      if (!all && c % chunk)
        continue;
      V x = emit(v.operands[0], c);
      at(2);
      if (V valid = passes[static_cast<size_t>(c / chunk)].valid)
        x = b.CreateSelect(valid, x, identity(v.combine, v.type, false));
      llvm::AllocaInst *slot = a.slots[static_cast<size_t>(c % chunk)];
      b.CreateStore(combine(v.combine, b.CreateLoad(slot->getAllocatedType(), slot), x, v.type), slot);
    }
  }
}

// ---- launches -------------------------------------------------------------------------------------------------------

int64_t Launch::blocks() const { return std::clamp<int64_t>((items + perBlock - 1) / perBlock, 1, mostBlocks); }

Launch launchOf(const LoopNest &p) {
  const ThreadPlan &t = p.threads;
  Launch launch{t.block, t.group, 1, 1, t.group > 1};
  switch (p.shape) {
  case Shape::Map:
    launch.items = (p.extent + t.chunk - 1) / t.chunk;
    launch.perBlock = int64_t{t.block} * t.passes;
    break;
  case Shape::Rows:
    launch.items = p.extent;
    launch.perBlock = t.block / t.group;
    break;
  case Shape::Columns:
    launch.items = p.extent / t.chunk;
    launch.perBlock = t.block / t.group;
    break;
  }
  return launch;
}

llvm::Function *emitGpuKernel(const LoopNest &nest, llvm::Module &module, const std::string &name, ThreadWords words,
                              bool batch) {
  return GpuEmitter(nest, module, name, words, batch).build();
}

} // namespace cleave::passes::kernel
