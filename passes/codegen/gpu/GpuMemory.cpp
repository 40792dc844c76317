// Loads and stores of a chunk: up to 16 bytes at once, packed and unpacked in 32-bit registers.
#include "passes/codegen/gpu/GpuEmitter.h"
#include "passes/codegen/nest/Affine.h"

#include "llvm/IR/IntrinsicsNVPTX.h"

namespace cleave::passes::kernel {

using V = llvm::Value *;

/// The words of `width` elements: 64-bit words for i64, otherwise 32-bit words.
static llvm::Type *wordsType(llvm::IRBuilder<> &b, DType type, int width) {
  llvm::Type *word = type == DType::I64 ? b.getInt64Ty() : b.getInt32Ty();
  const int64_t count = width * dtypeSize(type) / (type == DType::I64 ? 8 : 4);
  return count == 1 ? word : llvm::FixedVectorType::get(word, static_cast<unsigned>(count));
}

/// Element i of the words, in the type used for computation.
V GpuEmitter::elementOf(const std::vector<V> &words, int i, DType type) {
  const int perWord = static_cast<int>(std::max<int64_t>(1, 4 / dtypeSize(type))), part = i % perWord;
  V word = words[static_cast<size_t>(i / perWord)];
  switch (type) {
  case DType::F32:
    return b.CreateBitCast(word, b.getFloatTy());
  case DType::BF16: // the upper half of an f32
    return b.CreateBitCast(part ? b.CreateAnd(word, 0xffff0000) : b.CreateShl(word, 16), b.getFloatTy());
  case DType::F16:
  case DType::I1:
  case DType::U8:
    word = part ? b.CreateLShr(word, static_cast<uint64_t>(part) * 32 / static_cast<uint64_t>(perWord)) : word;
    if (dtypeSize(type) == 1)
      return fromMemory(b.CreateTrunc(word, b.getInt8Ty()), type);
    return fromMemory(b.CreateBitCast(b.CreateTrunc(word, b.getInt16Ty()), b.getHalfTy()), type);
  default:
    return word;
  }
}

V GpuEmitter::load(const LoopValue &v, int value, int copy) {
  const int width = v.buffer < 0 || chunk < plan.chunk ? 1 : accessWidth(p, v.expr, v.type, v.conditions);
  if (width == 1)
    return KernelEmitter::load(v, value, copy);
  const int level = levelOf(value), first = copy / width * width;
  V index = expr(v.expr, first, level);
  V holds = v.conditions.empty() ? nullptr : condition(v.conditions, first, level);
  at(level);
  if (holds) // true for all elements or none; if false, reads the buffer's first elements instead
    index = b.CreateSelect(holds, index, number(0));
  llvm::Type *type = wordsType(b, v.type, width);
  V together = b.CreateAlignedLoad(type, pointer(v.buffer, index),
                                   llvm::Align(static_cast<uint64_t>(width * dtypeSize(v.type))));
  std::vector<V> words{together};
  if (auto *vector = llvm::dyn_cast<llvm::FixedVectorType>(type)) {
    words.clear();
    for (uint64_t w = 0; w < vector->getNumElements(); ++w)
      words.push_back(b.CreateExtractElement(together, w));
  }
  V wanted = nullptr;
  for (int i = 0; i < width; ++i) {
    V x = elementOf(words, i, v.type);
    if (holds)
      x = b.CreateSelect(holds, x, llvm::Constant::getNullValue(x->getType()));
    levels[level].cache[{value, copyKey(p.placements[value].loops, first + i)}] = x;
    wanted = first + i == copy ? x : wanted;
  }
  return wanted;
}

V GpuEmitter::toMemory(V x, DType type) {
  if (ptx() && type == DType::BF16)
    return b.CreateBitCast(b.CreateFPTrunc(x, b.getBFloatTy()), b.getInt16Ty());
  return KernelEmitter::toMemory(x, type);
}

/// Packs elements from `first` into one word.
V GpuEmitter::wordOf(const std::vector<V> &x, size_t first, DType type) {
  llvm::Type *i32 = b.getInt32Ty();
  if (type == DType::F32)
    return b.CreateBitCast(x[first], i32);
  if (dtypeSize(type) >= 4)
    return x[first];
  if (ptx() && isFloat(type)) // the second operand is the lower half
    return b.CreateBitCast(
        b.CreateIntrinsic(type == DType::BF16 ? llvm::Intrinsic::nvvm_ff2bf16x2_rn : llvm::Intrinsic::nvvm_ff2f16x2_rn,
                          {x[first + 1], x[first]}),
        i32);
  const size_t perWord = static_cast<size_t>(4 / dtypeSize(type));
  V word = nullptr;
  for (size_t i = 0; i < perWord; ++i) {
    V bits = toMemory(x[first + i], type);
    if (type == DType::F16)
      bits = b.CreateBitCast(bits, b.getInt16Ty());
    bits = b.CreateShl(b.CreateZExt(bits, i32), 32 / perWord * i);
    word = word ? b.CreateOr(word, bits) : bits;
  }
  return word;
}

void GpuEmitter::storeTogether(const Store &s, const std::vector<V> &elements, V index) {
  const DType type = p.buffers[s.buffer];
  const auto perWord = static_cast<size_t>(std::max<int64_t>(1, 4 / dtypeSize(type)));
  llvm::Type *words = wordsType(b, type, static_cast<int>(elements.size()));
  V together = llvm::PoisonValue::get(words);
  for (size_t i = 0; i < elements.size(); i += perWord) {
    V word = wordOf(elements, i, type);
    together = words->isVectorTy() ? b.CreateInsertElement(together, word, i / perWord) : word;
  }
  b.CreateAlignedStore(together, pointer(s.buffer, index),
                       llvm::Align(elements.size() * static_cast<uint64_t>(dtypeSize(type))));
}

/// Stores a pass's elements of an output.
void GpuEmitter::storeChunk(const Store &s, int pass, int level) {
  const DType type = p.buffers[s.buffer];
  const bool vector = onVector(loopsOf(s.expr));
  const int width = chunk < plan.chunk ? 1 : accessWidth(p, s.expr, type), end = (pass + 1) * chunk;
  for (int c = pass * chunk; c < (vector ? end : pass * chunk + 1); c += width) {
    std::vector<V> elements;
    for (int i = 0; i < width; ++i)
      elements.push_back(unrounded(s.value, c + i));
    V index = expr(s.expr, c, level);
    at(level);
    if (width > 1)
      storeTogether(s, elements, index);
    else
      b.CreateAlignedStore(toMemory(elements[0], type), pointer(s.buffer, index),
                           llvm::Align(static_cast<uint64_t>(dtypeSize(type))));
  }
}

} // namespace cleave::passes::kernel
