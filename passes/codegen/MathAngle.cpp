// Sine, cosine and tangent in LLVM IR. Their argument is first reduced to a rest of at most a quarter of pi: by three
// multiply-adds, or, of a large number, by its product with many digits of 2 / pi.
#include "passes/codegen/Math.h"

#include "llvm/IR/Intrinsics.h"
#include "llvm/IR/MDBuilder.h"
#include "llvm/IR/Module.h"

#include <cmath>
#include <fmt/format.h>

namespace cleave::passes::kernel {

using llvm::Value;

/// pi/2 split in three parts (Cody and Waite 1980; with FMA the first difference is exact).
Math::Angle Math::nearAngle(Value *x) {
  Value *n = b.CreateUnaryIntrinsic(llvm::Intrinsic::nearbyint, b.CreateFMul(x, constant(x, 0.6366197723675814)));
  Value *r = fma(n, constant(x, -1.5707963705062866), x);
  r = fma(n, constant(x, 4.371138828673793e-08), r);
  return {fma(n, constant(x, 1.7151245100058819e-15), r), n};
}

/// Payne and Hanek 1983. With |x| = m 2^s, m an integer of 24 bits, |x| / (2 pi) modulo 1 is m times the digits of
/// 2 / pi from binary place s - 2 on, of which 96 are enough: the rest of an f32 has no more than 32 leading zeros.
Math::Angle Math::farAngle(Value *x) {
  // 2 / pi; the first word is its integer part.
  static constexpr uint32_t digits[] = {0,          0xa2f9836e, 0x4e441529, 0xfc2757d1,
                                        0xf534ddc0, 0xdb629599, 0x3c439041, 0xfe5163ab};
  constexpr int words = 4, places = std::size(digits) - words + 1;
  Value *size = bits(abs(x)), *biased = b.CreateLShr(size, 23); // 127 + s + 23
  Value *first = b.CreateSub(biased, integer(x, 127 - 7)), *shift = b.CreateAnd(first, 31);
  Value *place = b.CreateLShr(first, 5), *window[words];
  for (int w = 0; w < words; ++w) {
    window[w] = integer(x, digits[places - 1 + w]);
    for (int p = places - 2; p >= 0; --p)
      window[w] = b.CreateSelect(b.CreateICmpEQ(place, integer(x, p)), integer(x, digits[p + w]), window[w]);
  }
  Value *m = b.CreateOr(b.CreateAnd(size, 0x7fffff), 0x800000);
  llvm::Type *wide = m->getType()->getWithNewType(b.getInt64Ty());
  Value *products[words - 1];
  for (int w = 0; w + 1 < words; ++w) {
    Value *word = b.CreateIntrinsic(llvm::Intrinsic::fshl, {m->getType()}, {window[w], window[w + 1], shift});
    products[w] = b.CreateMul(b.CreateZExt(m, wide), b.CreateZExt(word, wide));
  }
  // The turn as a fraction of 2^64: two bits of quarters, then the rest.
  Value *turn = b.CreateAdd(b.CreateAdd(b.CreateShl(products[0], 32), products[1]), b.CreateLShr(products[2], 32));
  Value *up = b.CreateAnd(b.CreateLShr(turn, 61), 1); // the rest is nearer to the next quarter
  Value *quarters = b.CreateSIToFP(b.CreateAdd(b.CreateLShr(turn, 62), up), x->getType());
  Value *rest = b.CreateFMul(b.CreateSIToFP(b.CreateShl(turn, 2), x->getType()),
                             constant(x, std::ldexp(1.5707963267948966, -64)));
  Value *negative = b.CreateFCmpOLT(x, constant(x, 0));
  return {b.CreateSelect(negative, b.CreateFNeg(rest), rest),
          b.CreateSelect(negative, b.CreateFNeg(quarters), quarters)};
}

/// Computes the far form only if an element needs it.
llvm::Function *Math::makeAngle(llvm::Module &module, llvm::Type *type, const std::string &name) {
  llvm::LLVMContext &context = module.getContext();
  auto *signature = llvm::FunctionType::get(llvm::StructType::get(type, type), {type}, false);
  auto *function = llvm::Function::Create(signature, llvm::Function::InternalLinkage, name, module);
  function->addFnAttr(llvm::Attribute::AlwaysInline);
  function->addFnAttr(llvm::Attribute::NoUnwind);
  auto *entry = llvm::BasicBlock::Create(context, "entry", function),
       *far = llvm::BasicBlock::Create(context, "far", function),
       *done = llvm::BasicBlock::Create(context, "done", function);
  llvm::IRBuilder<> builder(entry);
  Math math(builder, unit);
  Value *x = function->getArg(0), *size = math.abs(x);
  const Angle near = math.nearAngle(x);
  Value *large = builder.CreateAnd(builder.CreateFCmpOGT(size, math.constant(x, 1e5)),
                                   builder.CreateFCmpOLT(size, math.constant(x, INFINITY)));
  Value *any = type->isVectorTy() ? builder.CreateOrReduce(large) : large;
  builder.CreateCondBr(any, far, done, llvm::MDBuilder(context).createUnlikelyBranchWeights());
  builder.SetInsertPoint(far);
  const Angle other = math.farAngle(x);
  Value *rest = builder.CreateSelect(large, other.rest, near.rest),
        *quarters = builder.CreateSelect(large, other.quarters, near.quarters);
  builder.CreateBr(done);
  builder.SetInsertPoint(done);
  const auto either = [&](Value *small, Value *chosen) {
    llvm::PHINode *phi = builder.CreatePHI(type, 2);
    phi->addIncoming(small, entry);
    phi->addIncoming(chosen, far);
    return phi;
  };
  Value *results[] = {either(near.rest, rest), either(near.quarters, quarters)};
  builder.CreateAggregateRet(results, 2);
  return function;
}

/// A function, because the code branches, but the emitters of kernels continue in the block of each loop level.
Math::Angle Math::angle(Value *x) {
  llvm::Module &module = *b.GetInsertBlock()->getModule();
  auto *vector = llvm::dyn_cast<llvm::FixedVectorType>(x->getType());
  const std::string name = fmt::format("cleave_angle_{}", vector ? vector->getNumElements() : 1);
  llvm::Function *function = module.getFunction(name);
  if (!function)
    function = makeAngle(module, x->getType(), name);
  Value *both = b.CreateCall(function, {x});
  return {b.CreateExtractValue(both, 0), b.CreateExtractValue(both, 1)};
}

/// The sine or cosine of the rest, depending on the parity of the quarters, with their sign modulo 4.
Value *Math::sine(Angle angle, int more) {
  Value *r = angle.rest, *r2 = b.CreateFMul(r, r);
  Value *s = polynomial(r2, {-0.16666655242443085, 0.008332176133990288, -0.000195169763173908});
  s = fma(b.CreateFMul(r, r2), s, r);
  Value *c = polynomial(r2, {0.04166664555668831, -0.0013887364184483886, 2.4438089894829318e-05});
  c = fma(b.CreateFMul(r2, r2), c, fma(r2, constant(r, -0.5), constant(r, 1)));
  auto floor = [&](Value *v) { return b.CreateUnaryIntrinsic(llvm::Intrinsic::floor, v); };
  Value *half = b.CreateFMul(b.CreateFAdd(angle.quarters, constant(r, more)), constant(r, 0.5)), *whole = floor(half);
  Value *quarter = b.CreateFMul(whole, constant(r, 0.5));
  Value *result = b.CreateSelect(b.CreateFCmpONE(half, whole), c, s);
  return b.CreateSelect(b.CreateFCmpONE(quarter, floor(quarter)), b.CreateFNeg(result), result);
}

Value *Math::sin(Value *x) { return sine(angle(x), 0); }
Value *Math::cos(Value *x) { return sine(angle(x), 1); }
Value *Math::tan(Value *x) {
  const Angle both = angle(x);
  return divide(sine(both, 0), sine(both, 1));
}

} // namespace cleave::passes::kernel
