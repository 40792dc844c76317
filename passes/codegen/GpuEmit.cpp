// The loops of a kernel as threads walk them. Values are the base class's, one lane wide.
#include "passes/codegen/GpuEmit.h"
#include "passes/codegen/Emitter.h"

#include "llvm/IR/IntrinsicsNVPTX.h"

namespace cleave::passes::kernel {

namespace {

constexpr int warp = 32;

int64_t chunksOf(const Program &p) { return p.vectorLoop < 0 ? 1 : p.loops[p.vectorLoop].extent / p.unroll; }

int reductionsOf(const Program &p) {
  int count = 0;
  for (const ProgramValue &v : p.values)
    count += v.kind == ValueKind::Reduce;
  return count;
}

class GpuEmitter final : public Emitter {
public:
  GpuEmitter(const Program &program, llvm::Module &module, const std::string &name, ThreadWords words)
      : Emitter(program, module), launch(launchOf(program)), words(words) {
    std::vector<llvm::Type *> types(p.buffers.size(), b.getPtrTy());
    types.insert(types.end(), p.scalarInputs.size() + 1, b.getInt64Ty());
    if (words == ThreadWords::Emulated)
      types = {b.getPtrTy(), b.getPtrTy(), b.getInt64Ty(), b.getInt64Ty()};
    function = llvm::Function::Create(llvm::FunctionType::get(b.getVoidTy(), types, false),
                                      llvm::Function::ExternalLinkage, name, module);
    function->addFnAttr(llvm::Attribute::NoUnwind);
    if (words == ThreadWords::Emulated)
      noteParameters(name);
    if (words == ThreadWords::Ptx) {
      function->setCallingConv(llvm::CallingConv::PTX_Kernel);
      function->addFnAttr("nvvm.maxntid", std::to_string(launch.threads));
    }
  }

  llvm::Function *build() {
    entry = llvm::BasicBlock::Create(module.getContext(), "entry", function);
    levels[0].block = entry;
    b.SetInsertPoint(entry);
    thread = wide(word(llvm::Intrinsic::nvvm_read_ptx_sreg_tid_x, "cleave_emu_tid"));
    block = wide(word(llvm::Intrinsic::nvvm_read_ptx_sreg_ctaid_x, "cleave_emu_block"));
    blocks = wide(word(llvm::Intrinsic::nvvm_read_ptx_sreg_nctaid_x, "cleave_emu_blocks"));
    for (size_t i = 0; i < p.buffers.size(); ++i)
      bases.push_back(
          words == ThreadWords::Ptx
              ? static_cast<V>(function->getArg(static_cast<unsigned>(i)))
              : b.CreateLoad(b.getPtrTy(), b.CreateConstInBoundsGEP1_64(b.getPtrTy(), function->getArg(0), i)));
    scalars = function->getArg(1);
    extent = function->getArg(function->arg_size() - 1);
    makeTables();
    if (p.shape == Shape::Rows)
      rows();
    else
      threads();
    at(0);
    b.CreateRetVoid();
    return function;
  }

private:
  Launch launch;
  ThreadWords words;
  V thread = nullptr, block = nullptr, blocks = nullptr, extent = nullptr;
  V lane = nullptr; // within the group that shares a row
  int reductions = 0;
  llvm::GlobalVariable *shared = nullptr;

  /// NAME_parameters: how many buffers and scalars there are, which a launch of PTX knows from the code.
  void noteParameters(const std::string &name) {
    const uint32_t counts[] = {static_cast<uint32_t>(p.buffers.size()), static_cast<uint32_t>(p.scalarInputs.size())};
    auto *value = llvm::ConstantDataArray::get(module.getContext(), counts);
    new llvm::GlobalVariable(module, value->getType(), true, llvm::GlobalValue::ExternalLinkage, value,
                             name + "_parameters");
  }

  V wide(V x) { return b.CreateZExt(x, b.getInt64Ty()); }
  V outside(const char *name, llvm::Type *result, llvm::ArrayRef<V> arguments = {}) {
    std::vector<llvm::Type *> types;
    for (V argument : arguments)
      types.push_back(argument->getType());
    return b.CreateCall(module.getOrInsertFunction(name, llvm::FunctionType::get(result, types, false)), arguments);
  }
  V word(llvm::Intrinsic::ID id, const char *name) {
    return words == ThreadWords::Ptx ? b.CreateIntrinsic(id, {}) : outside(name, b.getInt32Ty());
  }
  void barrier() {
    if (words == ThreadWords::Ptx)
      b.CreateIntrinsic(llvm::Intrinsic::nvvm_barrier_cta_sync_aligned_all, {b.getInt32(0)});
    else
      outside("cleave_emu_barrier", b.getVoidTy());
  }

  void warpBarrier() {
    if (words == ThreadWords::Ptx)
      b.CreateIntrinsic(llvm::Intrinsic::nvvm_bar_warp_sync, {b.getInt32(0xffffffff)});
    else
      outside("cleave_emu_warp_barrier", b.getVoidTy());
  }

  V scalarArgument(int index) override {
    if (words == ThreadWords::Emulated)
      return Emitter::scalarArgument(index);
    return function->getArg(static_cast<unsigned>(p.buffers.size()) + static_cast<unsigned>(index));
  }

  // ---- maps and columns: items over all threads
  // ----------------------------------------------------------------------

  V everyThread() { return b.CreateAdd(b.CreateMul(block, int64(launch.threads)), thread); }
  V allThreads() { return b.CreateMul(blocks, int64(launch.threads)); }

  void threads() {
    V mine = everyThread(), all = allThreads();
    if (p.flat)
      return flatMap(mine, all);
    const int64_t chunks = p.shape == Shape::Map ? chunksOf(p) : 1;
    OpenLoop loop = open(1, mine, b.CreateMul(extent, int64(chunks)), all);
    at(1);
    V row = chunks == 1 ? static_cast<V>(loop.index) : b.CreateUDiv(loop.index, int64(chunks));
    V chunk = chunks == 1 ? int64(0) : b.CreateURem(loop.index, int64(chunks));
    setRowIndices(row);
    if (p.shape == Shape::Map && p.vectorLoop >= 0) {
      indices[p.vectorLoop] = b.CreateMul(chunk, int64(p.unroll));
      levels.back().block = levels[1].block;
      std::vector<Accumulator> none;
      body(p.unroll, 0, none);
    } else {
      emitRow();
    }
    close(loop);
  }

  void flatMap(V mine, V all) {
    std::vector<Accumulator> none;
    V step = int64(p.unroll), whole = b.CreateMul(b.CreateUDiv(extent, step), step);
    const int level = static_cast<int>(levels.size()) - 1;
    levels[1].block = entry; // one level
    V low = b.CreateMul(mine, step), stride = b.CreateMul(all, step), rest = b.CreateAdd(whole, mine);
    OpenLoop loop = open(level, low, whole, stride);
    indices[p.vectorLoop] = loop.index;
    body(p.unroll, 0, none);
    close(loop);
    OpenLoop last = open(level, rest, extent, all);
    indices[p.vectorLoop] = last.index;
    body(1, 0, none);
    close(last);
    levels[0].block = levels[1].block;
  }

  // ---- rows
  // -----------------------------------------------------------------------------------------------------------

  bool wholeBlock() const { return launch.threadsPerRow > warp; }

  void rows() {
    if (wholeBlock()) {
      auto *type = llvm::ArrayType::get(b.getInt64Ty(), static_cast<uint64_t>(launch.sharedBytes / 8));
      shared = new llvm::GlobalVariable(module, type, false, llvm::GlobalValue::InternalLinkage,
                                        llvm::PoisonValue::get(type), function->getName() + "_shared", nullptr,
                                        llvm::GlobalValue::NotThreadLocal, words == ThreadWords::Ptx ? 3 : 0);
      shared->setAlignment(llvm::Align(8));
    }
    const int64_t rowsPerBlock = launch.threads / launch.threadsPerRow;
    lane = wholeBlock() ? thread : b.CreateURem(thread, int64(warp));
    V first =
        wholeBlock() ? block : b.CreateAdd(b.CreateMul(block, int64(rowsPerBlock)), b.CreateUDiv(thread, int64(warp)));
    OpenLoop row = open(1, first, extent, b.CreateMul(blocks, int64(rowsPerBlock)));
    setRowIndices(row.index);
    reductions = 0;
    emitRow();
    at(1);
    if (wholeBlock())
      barrier(); // before the next row writes what this one reads
    close(row);
  }

  void vectorLoop(V, V, int64_t staticExtent, int s, std::vector<Accumulator> &accumulators) override {
    const int level = static_cast<int>(levels.size()) - 1;
    const int64_t step = p.unroll, whole = staticExtent / step * step;
    at(level - 1);
    OpenLoop loop = open(level, b.CreateMul(lane, int64(step)), int64(whole), launch.threadsPerRow * step);
    indices[p.vectorLoop] = loop.index;
    body(p.unroll, s, accumulators);
    close(loop);
    if (whole == staticExtent)
      return;
    at(level - 1);
    OpenLoop last = open(level, b.CreateAdd(lane, int64(whole)), int64(staticExtent), launch.threadsPerRow);
    indices[p.vectorLoop] = last.index;
    body(1, s, accumulators);
    close(last);
  }

  V exchange(V x, int distance) {
    if (x->getType()->isIntegerTy(64)) {
      V low = exchange(b.CreateTrunc(x, b.getInt32Ty()), distance),
        high = exchange(b.CreateTrunc(b.CreateLShr(x, 32), b.getInt32Ty()), distance);
      return b.CreateOr(wide(low), b.CreateShl(wide(high), 32));
    }
    const bool real = x->getType()->isFloatTy();
    V by = b.getInt32(static_cast<uint32_t>(distance));
    if (words == ThreadWords::Emulated)
      return outside(real ? "cleave_emu_shuffle_f32" : "cleave_emu_shuffle_i32", x->getType(), {x, by});
    return b.CreateIntrinsic(real ? llvm::Intrinsic::nvvm_shfl_sync_bfly_f32 : llvm::Intrinsic::nvvm_shfl_sync_bfly_i32,
                             {b.getInt32(0xffffffff), x, by, b.getInt32(warp - 1)});
  }

  /// Copies, then lanes, then warps are combined, always in the same order; every thread has the result.
  void finish(std::vector<Accumulator> &accumulators) override {
    if (p.shape != Shape::Rows)
      return Emitter::finish(accumulators);
    const int warps = launch.threads / warp;
    std::vector<V> parts;
    for (const Accumulator &a : accumulators) {
      const ProgramValue &v = p.values[a.value];
      at(1);
      V x = b.CreateLoad(a.slots[0]->getAllocatedType(), a.slots[0]);
      for (size_t c = 1; c < a.slots.size(); ++c)
        x = combine(v.combine, x, b.CreateLoad(a.slots[c]->getAllocatedType(), a.slots[c]), v.type);
      for (int distance = warp / 2; distance >= 1; distance /= 2)
        x = combine(v.combine, x, exchange(x, distance), v.type);
      parts.push_back(x);
    }
    at(1);
    if (wholeBlock() && !parts.empty()) {
      V number = b.CreateUDiv(thread, int64(warp));
      for (size_t i = 0; i < parts.size(); ++i) // every lane of a warp has the same number to write
        b.CreateStore(parts[i], place(reductions + static_cast<int>(i), number));
      barrier();
      for (size_t i = 0; i < parts.size(); ++i) {
        const ProgramValue &v = p.values[accumulators[i].value];
        V x = b.CreateLoad(parts[i]->getType(), place(reductions + static_cast<int>(i), int64(0)));
        for (int w = 1; w < warps; ++w)
          x = combine(v.combine, x, b.CreateLoad(x->getType(), place(reductions + static_cast<int>(i), int64(w))),
                      v.type);
        parts[i] = x;
      }
      reductions += static_cast<int>(parts.size());
    }
    for (size_t i = 0; i < parts.size(); ++i)
      levels[1].cache[{accumulators[i].value, 0}] = parts[i];
  }

  V place(int reduction, V warpNumber) {
    return b.CreateGEP(b.getInt64Ty(), shared,
                       b.CreateAdd(warpNumber, int64(static_cast<int64_t>(reduction) * (launch.threads / warp))));
  }

  /// One thread of the row writes what the row has one of, when all have read what it may lie on.
  void endStores() override {
    if (p.shape != Shape::Rows)
      return Emitter::endStores();
    bool any = false;
    for (const Store &s : p.stores)
      if (s.sweep < 0) {
        emit(s.value, 0);
        any = true;
      }
    if (!any)
      return;
    at(1);
    wholeBlock() ? barrier() : warpBarrier();
    auto *then = llvm::BasicBlock::Create(module.getContext(), "first", function),
         *rest = llvm::BasicBlock::Create(module.getContext(), "rest", function);
    b.CreateCondBr(b.CreateICmpEQ(lane, int64(0)), then, rest);
    levels[1].block = then;
    for (const Store &s : p.stores)
      if (s.sweep < 0)
        store(s, 0);
    at(1);
    b.CreateBr(rest);
    levels[1].block = rest;
  }
};

} // namespace

int64_t Launch::blocks() const {
  const int64_t perBlock = threads / threadsPerRow;
  return std::max<int64_t>(1, (items + perBlock - 1) / perBlock);
}

Launch launchOf(const Program &p) {
  Launch launch;
  if (p.shape != Shape::Rows) {
    launch.items = p.flat ? (p.extent + p.unroll - 1) / p.unroll : p.extent * (p.shape == Shape::Map ? chunksOf(p) : 1);
    return launch;
  }
  const int64_t chunks = (p.loops[p.vectorLoop].extent + p.unroll - 1) / p.unroll;
  launch.threadsPerRow = chunks <= 256 ? warp : chunks <= 1024 ? 128 : chunks <= 4096 ? 256 : 512;
  launch.threads = std::max(launch.threads, launch.threadsPerRow);
  launch.items = p.extent;
  if (launch.threadsPerRow > warp)
    launch.sharedBytes = 8 * reductionsOf(p) * (launch.threads / warp);
  return launch;
}

llvm::Function *emitGpuKernel(const Program &program, llvm::Module &module, const std::string &name,
                              ThreadWords words) {
  return GpuEmitter(program, module, name, words).build();
}

} // namespace cleave::passes::kernel
