// Emits the values of a kernel: loads, operations, conversions and stores.
#include "ir/graph/Enums.h"
#include "passes/codegen/cpu/KernelEmitter.h"
#include "passes/codegen/nest/Affine.h"

namespace cleave::passes::kernel {

using V = llvm::Value *;

llvm::Type *KernelEmitter::compute(DType type) {
  if (isFloat(type))
    return b.getFloatTy();
  return type == DType::I32 || type == DType::U8 ? b.getInt32Ty() : type == DType::I64 ? b.getInt64Ty() : b.getInt1Ty();
}

llvm::Type *KernelEmitter::memory(DType type) {
  switch (type) {
  case DType::F16:
    return b.getHalfTy();
  case DType::BF16:
    return b.getInt16Ty();
  case DType::I1:
  case DType::U8:
    return b.getInt8Ty();
  default:
    return compute(type);
  }
}

V KernelEmitter::emit(int value, int copy) {
  const Placement &where = p.placements[value];
  V x = unrounded(value, copy);
  if (!needsRounding(p.values[value]) || inScratch(where))
    return x;
  const int level = levelOf(value);
  V &rounded = levels[level].cache[{-2 - value, copyKey(where.loops, copy)}];
  if (!rounded) {
    at(level);
    rounded = roundTo(x, p.values[value].type);
  }
  return rounded;
}

V KernelEmitter::unrounded(int value, int copy) {
  const Placement &where = p.placements[value];
  int level = levelOf(value);
  auto key = std::pair(value, copyKey(where.loops, copy));
  if (auto it = levels[level].cache.find(key); it != levels[level].cache.end())
    return it->second;
  V result;
  if (inScratch(where)) {
    V from = scratchPointer(where, copy, level);
    at(level);
    result = b.CreateAlignedLoad(shaped(b.getFloatTy(), onVector(where.loops)), from, llvm::Align(4));
  } else {
    result = compute(p.values[value], value, copy);
  }
  levels[level].cache[key] = result;
  return result;
}

V KernelEmitter::scalarArgument(int index) {
  return b.CreateLoad(b.getInt64Ty(),
                      b.CreateConstInBoundsGEP1_64(b.getInt64Ty(), scalars, static_cast<uint64_t>(index)));
}

V KernelEmitter::compute(const LoopValue &v, int value, int copy) {
  int level = levelOf(value);
  std::vector<V> x;
  std::vector<DType> types;
  if (v.kind != ValueKind::Reduce)
    for (int o : v.operands) {
      x.push_back(emit(o, copy));
      types.push_back(p.values[o].type);
    }
  at(level);
  switch (v.kind) {
  case ValueKind::Load:
    return load(v, value, copy);
  case ValueKind::Scalar: {
    V raw = scalarArgument(v.buffer);
    return isFloat(v.type) ? b.CreateSIToFP(raw, b.getFloatTy()) : b.CreateTrunc(raw, compute(v.type));
  }
  case ValueKind::Constant:
    if (const Sizes::Place place = sizes.constant(value))
      return b.CreateBitCast(b.CreateTrunc(words[*place], b.getInt32Ty()), b.getFloatTy());
    return isFloat(v.type) ? llvm::ConstantFP::get(b.getFloatTy(), v.constant)
                           : static_cast<V>(llvm::ConstantInt::get(
                                 compute(v.type), static_cast<uint64_t>(static_cast<int64_t>(v.constant)), true, true));
  case ValueKind::Index: {
    V base = expr(v.expr, copy, level);
    at(level);
    base = b.CreateTrunc(base, b.getInt32Ty());
    int64_t step = p.vectorLoop < 0 ? 0 : v.expr.coef[p.vectorLoop];
    return step ? b.CreateAdd(splat(base), lanes(b.getInt32Ty(), step)) : base;
  }
  case ValueKind::Guarded: {
    V holds = condition(v.conditions, copy, level);
    at(level);
    if (!holds)
      return x[0];
    if (onVector(p.placements[value].loops)) {
      holds = splat(holds);
      x[0] = splat(x[0]);
      x[1] = splat(x[1]);
    }
    return b.CreateSelect(holds, x[0], x[1]);
  }
  case ValueKind::Reduce:
    assert(false && "a reduction is read before its sweep");
    return nullptr;
  case ValueKind::Op:
    break;
  }
  bool vector = false;
  for (V operand : x)
    vector |= operand->getType()->isVectorTy();
  if (vector)
    for (V &operand : x)
      operand = splat(operand);
  return operation(v, x, types);
}

V KernelEmitter::operation(const LoopValue &v, const std::vector<V> &x, const std::vector<DType> &types) {
  switch (v.op) {
  case NodeKind::Cast:
    return cast(x[0], types[0], v.type);
  case NodeKind::Compare:
    return compare(v.relation, x[0], x[1], types[0]);
  case NodeKind::Select:
    return b.CreateSelect(x[0], x[1], x[2]);
  default:
    return isFloat(v.type) ? floatOperation(v, x) : intOperation(v, x);
  }
}

V KernelEmitter::floatOperation(const LoopValue &v, const std::vector<V> &operands) {
  V x = operands[0], y = operands.back();
  switch (v.op) {
#define CLEAVE_UNARY(Name, mnemonic, exact, code, value)                                                               \
  case NodeKind::Name:                                                                                                 \
    return code;
#define CLEAVE_BINARY CLEAVE_UNARY
#include "ir/graph/GraphElementwise.inc"
  case NodeKind::Gelu:
    return math.gelu(x, v.tanh);
  case NodeKind::GeluGrad:
    return b.CreateFMul(x, math.geluDerivative(y, v.tanh));
  default:
    assert(false && "not a float operation");
    return nullptr;
  }
}

V KernelEmitter::intOperation(const LoopValue &v, const std::vector<V> &x) {
  if (v.type == DType::U8) { // modulo 256
    LoopValue asInt = v;
    asInt.type = DType::I32;
    return b.CreateAnd(intOperation(asInt, x), 255);
  }
  V zero = llvm::Constant::getNullValue(x[0]->getType());
  bool boolean = v.type == DType::I1;
  switch (v.op) {
  case NodeKind::Neg:
    return b.CreateNeg(x[0]);
  case NodeKind::Abs:
    return b.CreateSelect(b.CreateICmpSLT(x[0], zero), b.CreateNeg(x[0]), x[0]);
  case NodeKind::Relu:
    return b.CreateSelect(b.CreateICmpSLT(x[0], zero), zero, x[0]);
  case NodeKind::Add:
    return boolean ? b.CreateOr(x[0], x[1]) : b.CreateAdd(x[0], x[1]);
  case NodeKind::Sub:
    return boolean ? b.CreateXor(x[0], x[1]) : b.CreateSub(x[0], x[1]);
  case NodeKind::Mul:
    return boolean ? b.CreateAnd(x[0], x[1]) : b.CreateMul(x[0], x[1]);
  case NodeKind::Div: { // masked-off lanes must not divide by zero; INT_MIN / -1 is INT_MIN
    V one = llvm::ConstantInt::get(x[0]->getType(), 1), minus = llvm::Constant::getAllOnesValue(x[0]->getType());
    V negate = b.CreateICmpEQ(x[1], minus);
    V divisor = b.CreateSelect(b.CreateOr(b.CreateICmpEQ(x[1], zero), negate), one, x[1]);
    return b.CreateSelect(negate, b.CreateNeg(x[0]), b.CreateSDiv(x[0], divisor));
  }
  case NodeKind::Max:
    return boolean ? b.CreateOr(x[0], x[1]) : b.CreateSelect(b.CreateICmpSGT(x[0], x[1]), x[0], x[1]);
  case NodeKind::Min:
    return boolean ? b.CreateAnd(x[0], x[1]) : b.CreateSelect(b.CreateICmpSLT(x[0], x[1]), x[0], x[1]);
  default: { // all others through f32
    LoopValue asFloat = v;
    asFloat.type = DType::F32;
    std::vector<V> y;
    for (V operand : x)
      y.push_back(cast(operand, v.type, DType::F32));
    return cast(floatOperation(asFloat, y), DType::F32, v.type);
  }
  }
}

V KernelEmitter::compare(Predicate relation, V x, V y, DType type) {
  using P = llvm::CmpInst;
  static const P::Predicate floats[] = {P::FCMP_OEQ, P::FCMP_UNE, P::FCMP_OLT, P::FCMP_OLE, P::FCMP_OGT, P::FCMP_OGE};
  static const P::Predicate ints[] = {P::ICMP_EQ, P::ICMP_NE, P::ICMP_SLT, P::ICMP_SLE, P::ICMP_SGT, P::ICMP_SGE};
  static const P::Predicate bools[] = {P::ICMP_EQ, P::ICMP_NE, P::ICMP_ULT, P::ICMP_ULE, P::ICMP_UGT, P::ICMP_UGE};
  int r = static_cast<int>(relation);
  return isFloat(type) ? b.CreateFCmp(floats[r], x, y) : b.CreateICmp(type == DType::I1 ? bools[r] : ints[r], x, y);
}

V KernelEmitter::cast(V x, DType from, DType to) {
  bool vector = x->getType()->isVectorTy();
  if (to == DType::U8 && from != to)
    return b.CreateAnd(cast(x, from, DType::I32), 255);
  llvm::Type *type = shaped(compute(to), vector);
  if (isFloat(from) && isFloat(to))
    return x; // its readers round it
  if (from == to)
    return x;
  if (isFloat(from))
    return to == DType::I1 ? b.CreateFCmpUNE(x, llvm::Constant::getNullValue(x->getType()))
                           : b.CreateIntrinsic(llvm::Intrinsic::fptosi_sat, {type, x->getType()}, {x});
  if (isFloat(to))
    return from == DType::I1 ? b.CreateUIToFP(x, type) : b.CreateSIToFP(x, type);
  if (to == DType::I1)
    return b.CreateICmpNE(x, llvm::Constant::getNullValue(x->getType()));
  return from == DType::I1 ? b.CreateZExt(x, type) : b.CreateSExtOrTrunc(x, type);
}

V KernelEmitter::roundTo(V x, DType type) { return fromMemory(toMemory(x, type), type); }

V KernelEmitter::fromMemory(V x, DType type) {
  bool vector = x->getType()->isVectorTy();
  switch (type) {
  case DType::F16:
    return b.CreateFPExt(x, shaped(b.getFloatTy(), vector));
  case DType::BF16:
    return b.CreateBitCast(b.CreateShl(b.CreateZExt(x, shaped(b.getInt32Ty(), vector)), 16),
                           shaped(b.getFloatTy(), vector));
  case DType::I1:
    return b.CreateICmpNE(x, llvm::Constant::getNullValue(x->getType()));
  case DType::U8:
    return b.CreateZExt(x, shaped(b.getInt32Ty(), vector));
  default:
    return x;
  }
}

V KernelEmitter::toMemory(V x, DType type) {
  bool vector = x->getType()->isVectorTy();
  switch (type) {
  case DType::F16:
    return b.CreateFPTrunc(x, shaped(b.getHalfTy(), vector));
  case DType::BF16: {
    llvm::Type *i32 = shaped(b.getInt32Ty(), vector);
    auto c = [&](uint64_t value) { return llvm::ConstantInt::get(i32, value); };
    V bits = b.CreateBitCast(x, i32);
    V even = b.CreateAnd(b.CreateLShr(bits, 16), c(1));
    V rounded = b.CreateAdd(bits, b.CreateAdd(even, c(0x7fff)));
    V quiet = b.CreateOr(bits, c(0x400000));
    V word = b.CreateSelect(b.CreateFCmpUNO(x, x), quiet, rounded);
    return b.CreateTrunc(b.CreateLShr(word, 16), shaped(b.getInt16Ty(), vector));
  }
  case DType::I1:
    return b.CreateZExt(x, shaped(b.getInt8Ty(), vector));
  case DType::U8:
    return b.CreateTrunc(x, shaped(b.getInt8Ty(), vector));
  default:
    return x;
  }
}

V KernelEmitter::expr(const Expr &e, int copy, int level) {
  int64_t constant = e.constant;
  if (p.vectorLoop >= 0)
    constant += e.coef[p.vectorLoop] * copyOffset(copy);
  const bool narrow = indexType->getBitWidth() < 64; // no overflow (nsw), so constants fold into addresses
  V sum = number(constant);
  if (const Sizes::Place offset = sizes.offset(e.constant)) {
    at(0);
    sum = b.CreateAdd(number(constant - e.constant), words[*offset]);
  }
  for (int l = 0; l <= level; ++l)
    for (int loop = 0; loop < static_cast<int>(p.loops.size()); ++loop)
      if (e.coef[loop] && loopLevel(loop) == l) {
        at(l);
        sum = b.CreateAdd(sum,
                          b.CreateMul(indexOf(loop, copy), number(e.coef[loop], sizes.coefficient(loop, e.coef[loop])),
                                      "", false, narrow),
                          "", false, narrow);
      }
  at(level);
  return sum;
}

V KernelEmitter::lanes(llvm::Type *element, int64_t step) {
  if (p.width == 1)
    return llvm::ConstantInt::get(element, 0);
  std::vector<llvm::Constant *> values;
  for (int i = 0; i < p.width; ++i)
    values.push_back(llvm::ConstantInt::get(element, static_cast<uint64_t>(step * i), true, true));
  return llvm::ConstantVector::get(values);
}

V KernelEmitter::mask(int copy) {
  if (!laneLimit)
    return nullptr;
  int level = loopLevel(p.vectorLoop);
  V &cached = levels[level].cache[{-1, copy}];
  if (!cached) {
    llvm::IRBuilder<>::InsertPointGuard guard(b);
    at(level);
    V left = b.CreateSub(laneLimit, b.CreateAdd(indices[p.vectorLoop], number(int64_t{p.width} * copy)));
    left = b.CreateTrunc(b.CreateSelect(b.CreateICmpSLT(left, number(p.width)), left, number(p.width)), b.getInt32Ty());
    cached = b.CreateICmpSLT(lanes(b.getInt32Ty(), 1), splat(left));
  }
  return cached;
}

V KernelEmitter::condition(const std::vector<Condition> &conditions, int copy, int level) {
  V all = nullptr;
  for (const Condition &c : conditions) {
    if (piece.end > piece.begin && c.expr.coef[p.vectorLoop] == 1 && loopsOf(c.expr) == 1u << p.vectorLoop) {
      const int64_t least = piece.begin + c.expr.constant, most = piece.end - 1 + c.expr.constant;
      if (least >= c.low && most < c.high)
        continue;
      if (most < c.low || least >= c.high)
        return b.getFalse();
    }
    Expr shifted = c.expr;
    shifted.constant -= c.low;
    V e = expr(shifted, copy, level);
    int64_t step = p.vectorLoop < 0 ? 0 : c.expr.coef[p.vectorLoop];
    e = b.CreateTrunc(e, b.getInt32Ty());
    if (step)
      e = b.CreateAdd(splat(e), lanes(b.getInt32Ty(), step));
    V holds = b.CreateICmpULT(e, llvm::ConstantInt::get(e->getType(), static_cast<uint64_t>(c.high - c.low)));
    if (all && all->getType() != holds->getType()) {
      all = splat(all);
      holds = splat(holds);
    }
    all = all ? b.CreateAnd(all, holds) : holds;
  }
  return all;
}

V KernelEmitter::pointer(int buffer, V index) {
  DType type = buffer < 0 ? p.tableTypes[-1 - buffer] : p.buffers[buffer];
  V base = buffer < 0 ? static_cast<V>(tables[-1 - buffer]) : bases[buffer];
  return b.CreateGEP(buffer < 0 && isFloat(type) ? b.getFloatTy() : memory(type), base, index);
}

/// Pointers to elements 0, step, 2 step, ... from `first`; gathers with 32-bit offsets are twice as fast.
V KernelEmitter::lanePointers(V first, llvm::Type *element, int64_t step) {
  bool small = step > -(int64_t{1} << 24) && step < int64_t{1} << 24;
  return b.CreateGEP(element, first, lanes(small ? b.getInt32Ty() : b.getInt64Ty(), step));
}

V KernelEmitter::load(const LoopValue &v, int value, int copy) {
  int level = levelOf(value);
  bool vector = p.width > 1 && onVector(p.placements[value].loops);
  bool table = v.buffer < 0 && isFloat(v.type); // tables of floats are f32
  llvm::Type *type = table ? b.getFloatTy() : memory(v.type);
  auto finish = [&](V x) { return table ? x : fromMemory(x, v.type); };
  V index = expr(v.expr, copy, level);
  V holds = v.conditions.empty() ? nullptr : condition(v.conditions, copy, level);
  at(level);
  llvm::Align align(table ? 4 : static_cast<uint64_t>(dtypeSize(v.type)));
  if (!vector) { // if the condition is false, reads element 0 and discards it
    if (!holds)
      return finish(b.CreateAlignedLoad(type, pointer(v.buffer, index), align));
    V x = finish(b.CreateAlignedLoad(type, pointer(v.buffer, b.CreateSelect(holds, index, number(0))), align));
    return b.CreateSelect(holds, x, llvm::Constant::getNullValue(x->getType()));
  }
  V exists = mask(copy);
  if (holds)
    exists = exists ? b.CreateAnd(exists, splat(holds)) : splat(holds);
  llvm::Type *vectorType = shaped(type, true);
  V zero = llvm::Constant::getNullValue(vectorType);
  if (v.expr.coef[p.vectorLoop] == 1) {
    V from = pointer(v.buffer, index);
    return finish(exists ? static_cast<V>(b.CreateMaskedLoad(vectorType, from, align, exists, zero))
                         : b.CreateAlignedLoad(vectorType, from, align));
  }
  V all = exists ? exists : splat(b.getTrue());
  V from = lanePointers(pointer(v.buffer, index), type, v.expr.coef[p.vectorLoop]);
  return finish(b.CreateMaskedGather(vectorType, from, align, all, zero));
}

void KernelEmitter::store(const Store &s, int copy) {
  int innermost = static_cast<int>(levels.size()) - (p.shape == Shape::Columns ? 2 : 1);
  int level = s.sweep < 0 || p.vectorLoop < 0 ? 1 : innermost;
  V x = unrounded(s.value, copy);
  V index = expr(s.expr, copy, level);
  at(level);
  DType type = p.buffers[s.buffer];
  llvm::Align align(static_cast<uint64_t>(dtypeSize(type)));
  bool vector = p.width > 1 && onVector(loopsOf(s.expr));
  x = toMemory(vector ? splat(x) : x, type);
  if (!vector) {
    b.CreateAlignedStore(x, pointer(s.buffer, index), align);
    return;
  }
  V exists = mask(copy);
  int64_t step = s.expr.coef[p.vectorLoop];
  if (step == 1) {
    V to = pointer(s.buffer, index);
    if (exists)
      b.CreateMaskedStore(x, to, align, exists);
    else
      b.CreateAlignedStore(x, to, align);
    return;
  }
  V to = lanePointers(pointer(s.buffer, index), memory(type), step);
  b.CreateMaskedScatter(x, to, align, exists);
}

V KernelEmitter::scratchPointer(const Placement &where, int copy, int level) {
  Expr e;
  int64_t stride = 1;
  // Only the loops that the value depends on: another one's index may not be defined where the value is read.
  const auto walk = [&](int loop, int64_t step) {
    if (where.loops >> loop & 1)
      e.coef[loop] = step;
  };
  if (p.shape == Shape::Columns) {
    stride = p.vectorBlock();
    e.constant = int64_t{p.width} * copy;
  } else {
    walk(p.vectorLoop, 1);
    stride = p.loops[p.vectorLoop].extent;
  }
  for (size_t i = reducedLoopsInside.size(); i-- > 0;) {
    walk(reducedLoopsInside[i], stride);
    stride *= p.loops[reducedLoopsInside[i]].extent;
  }
  V index = expr(e, copy, level);
  return b.CreateGEP(b.getFloatTy(), scratch[where.scratch], index);
}

V KernelEmitter::combine(ReduceKind kind, V x, V y, DType type) {
  bool real = isFloat(type);
  switch (kind) {
  case ReduceKind::Sum:
    return real ? b.CreateFAdd(x, y) : b.CreateAdd(x, y);
  case ReduceKind::Max:
    return real ? math.max(y, x) : b.CreateSelect(b.CreateICmpSGT(y, x), y, x);
  case ReduceKind::Min:
    return real ? math.min(y, x) : b.CreateSelect(b.CreateICmpSLT(y, x), y, x);
  }
  return nullptr;
}

V KernelEmitter::identity(ReduceKind kind, DType type, bool vector) {
  llvm::Type *t = shaped(compute(type), vector);
  if (kind == ReduceKind::Sum)
    return llvm::Constant::getNullValue(t);
  bool low = kind == ReduceKind::Max;
  if (isFloat(type))
    return llvm::ConstantFP::getInfinity(t, low);
  unsigned bits = type == DType::I64 ? 64 : 32;
  return llvm::ConstantInt::get(t, low ? llvm::APInt::getSignedMinValue(bits) : llvm::APInt::getSignedMaxValue(bits));
}

} // namespace cleave::passes::kernel
