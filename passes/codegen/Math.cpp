// Elementary functions in LLVM IR.
#include "passes/codegen/Math.h"

#include "llvm/IR/Intrinsics.h"
#include "llvm/IR/IntrinsicsNVPTX.h"
#include "llvm/IR/IntrinsicsX86.h"
#include "llvm/IR/Module.h"

#include <cmath>

namespace cleave::passes::kernel {

using llvm::Value;

Value *Math::constant(Value *like, double value) { return llvm::ConstantFP::get(like->getType(), value); }

Value *Math::integer(Value *like, int64_t value) {
  llvm::Type *type = b.getInt32Ty();
  if (auto *vector = llvm::dyn_cast<llvm::VectorType>(like->getType()))
    type = llvm::VectorType::get(type, vector->getElementCount());
  return llvm::ConstantInt::get(type, static_cast<uint64_t>(value), true);
}

Value *Math::bits(Value *x) { return b.CreateBitCast(x, integer(x, 0)->getType()); }

Value *Math::fma(Value *x, Value *y, Value *z) {
  return b.CreateIntrinsic(llvm::Intrinsic::fma, {x->getType()}, {x, y, z});
}

Value *Math::abs(Value *x) { return b.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, x); }

Value *Math::sqrt(Value *x) {
  return unit == MathUnit::Gpu ? b.CreateIntrinsic(llvm::Intrinsic::nvvm_sqrt_approx_f, {x})
                               : static_cast<Value *>(b.CreateUnaryIntrinsic(llvm::Intrinsic::sqrt, x));
}

Value *Math::rsqrt(Value *x) {
  return unit == MathUnit::Gpu ? static_cast<Value *>(b.CreateIntrinsic(llvm::Intrinsic::nvvm_rsqrt_approx_f, {x}))
                               : b.CreateFDiv(constant(x, 1), sqrt(x));
}

Value *Math::divide(Value *x, Value *y) {
  return unit == MathUnit::Gpu ? static_cast<Value *>(b.CreateIntrinsic(llvm::Intrinsic::nvvm_div_full, {x, y}))
                               : b.CreateFDiv(x, y);
}

/// x - y n with FMA is exact, also if the quotient n was rounded; then another quotient reduces what is left.
Value *Math::remainder(Value *x, Value *y) {
  Value *rest = x, *zero = constant(x, 0), *infinity = constant(x, INFINITY);
  for (int step = 0; step < 2; ++step)
    rest = fma(b.CreateFNeg(b.CreateUnaryIntrinsic(llvm::Intrinsic::trunc, divide(rest, y))), y, rest);
  Value *whole = b.CreateAnd(b.CreateFCmpOEQ(abs(y), infinity), b.CreateFCmpONE(abs(x), infinity));
  rest = b.CreateSelect(whole, x, rest); // 0 * infinity
  Value *wrong = b.CreateXor(b.CreateFCmpOLT(rest, zero), b.CreateFCmpOLT(y, zero));
  return b.CreateSelect(b.CreateAnd(wrong, b.CreateFCmpONE(rest, zero)), b.CreateFAdd(rest, y), rest);
}

Value *Math::power2(Value *x) {
  return unit == MathUnit::Gpu ? b.CreateIntrinsic(llvm::Intrinsic::nvvm_ex2_approx, {x->getType()}, {x})
                               : static_cast<Value *>(b.CreateUnaryIntrinsic(llvm::Intrinsic::exp2, x));
}

Value *Math::reciprocal(Value *x) {
  return unit == MathUnit::Gpu ? static_cast<Value *>(b.CreateIntrinsic(llvm::Intrinsic::nvvm_rcp_approx_ftz_f, {x}))
                               : b.CreateFDiv(constant(x, 1), x);
}

Value *Math::relu(Value *x) {
  Value *zero = constant(x, 0);
  return b.CreateSelect(b.CreateFCmpOGT(zero, x), zero, x);
}

Value *Math::silu(Value *x) { return b.CreateFMul(x, sigmoid(x)); }

/// On a CPU three instructions, of which two depend on y (the partial result of a reduction); on a GPU one.
Value *Math::max(Value *x, Value *y) {
  if (unit == MathUnit::Gpu)
    return b.CreateBinaryIntrinsic(llvm::Intrinsic::maximum, x, y);
  Value *larger = b.CreateSelect(b.CreateFCmpOGT(x, y), x, y); // y if either is NaN
  return b.CreateSelect(b.CreateFCmpUNO(x, x), x, larger);
}

Value *Math::min(Value *x, Value *y) {
  if (unit == MathUnit::Gpu)
    return b.CreateBinaryIntrinsic(llvm::Intrinsic::minimum, x, y);
  Value *smaller = b.CreateSelect(b.CreateFCmpOLT(x, y), x, y);
  return b.CreateSelect(b.CreateFCmpUNO(x, x), x, smaller);
}

Value *Math::clamp(Value *x, double low, double high) {
  Value *l = constant(x, low), *h = constant(x, high);
  x = b.CreateSelect(b.CreateFCmpOGT(l, x), l, x);
  return b.CreateSelect(b.CreateFCmpOLT(h, x), h, x);
}

Value *Math::copySign(Value *magnitude, Value *sign) {
  Value *mask = integer(sign, INT32_MIN);
  return b.CreateBitCast(b.CreateOr(bits(magnitude), b.CreateAnd(bits(sign), mask)), magnitude->getType());
}

Value *Math::polynomial(Value *x, std::initializer_list<double> coefficients) {
  auto it = coefficients.end();
  Value *result = constant(x, *--it);
  while (it != coefficients.begin())
    result = fma(result, x, constant(x, *--it));
  return result;
}

/// mantissa * 2^n for integer n, -252 <= n <= 254. One instruction with AVX-512 (16 lanes).
Value *Math::scale(Value *mantissa, Value *n) {
  auto *vector = llvm::dyn_cast<llvm::FixedVectorType>(n->getType());
  if (vector && vector->getNumElements() == 16)
    return b.CreateIntrinsic(llvm::Intrinsic::x86_avx512_mask_scalef_ps_512, {},
                             {mantissa, n, constant(n, 0), b.getInt16(0xffff), b.getInt32(4)});
  // NaN would make the conversion poison.
  Value *safe = b.CreateSelect(b.CreateFCmpORD(n, n), n, constant(n, 0));
  Value *exponent = b.CreateFPToSI(safe, integer(n, 0)->getType());
  auto power = [&](Value *e) {
    return b.CreateBitCast(b.CreateShl(b.CreateAdd(e, integer(n, 127)), 23), n->getType());
  };
  Value *half = b.CreateAShr(exponent, 1), *rest = b.CreateSub(exponent, half);
  return b.CreateFMul(b.CreateFMul(mantissa, power(half)), power(rest));
}

/// x = n ln 2 + r with ln 2 split in two parts (Cody and Waite 1980), then a polynomial of degree 6.
Math::ExpParts Math::expParts(Value *x) {
  Value *n = b.CreateUnaryIntrinsic(llvm::Intrinsic::nearbyint, b.CreateFMul(x, constant(x, 1.44269504088896341)));
  Value *r = fma(n, constant(x, -0.693145751953125), x);
  r = fma(n, constant(x, -1.42860682030941723e-6), r);
  Value *q = polynomial(r, {0.5, 0.166665181517601, 0.04166620597243309, 0.008368954062461853, 0.0013950594002380967});
  Value *fraction = fma(b.CreateFMul(r, r), q, r);
  return {fraction, n};
}

/// 2^t (1 + d ln 2), where x log2 e = t + d: the rounded product t alone would lose digits for large x.
Value *Math::expByPower2(Value *x) {
  x = b.CreateBinaryIntrinsic(llvm::Intrinsic::maximum, x, constant(x, -104));
  x = b.CreateBinaryIntrinsic(llvm::Intrinsic::minimum, x, constant(x, 89));
  Value *t = b.CreateFMul(x, constant(x, 1.44269502162933349609));
  Value *d = fma(x, constant(x, 1.44269502162933349609), b.CreateFNeg(t));
  d = fma(x, constant(x, 1.92596299112661746887e-8), d);
  return b.CreateFMul(power2(t), fma(d, constant(x, 0.69314718055994531), constant(x, 1)));
}

Value *Math::exp(Value *x) {
  if (unit != MathUnit::Cpu)
    return expByPower2(x);
  ExpParts parts = expParts(clamp(x, -104, 89));
  return scale(b.CreateFAdd(parts.fraction, constant(x, 1)), parts.exponent);
}

Value *Math::log(Value *x) {
  // Subnormals are scaled up; then x = 2^e * (1 + f) with sqrt(1/2) <= 1 + f < sqrt(2).
  Value *tiny = b.CreateFCmpOLT(x, constant(x, 1.17549435e-38));
  Value *scaled = b.CreateSelect(tiny, b.CreateFMul(x, constant(x, 8388608.0)), x);
  Value *word = bits(scaled);
  Value *shifted = b.CreateSub(word, integer(x, 0x3f3504f3));
  Value *e = b.CreateAShr(shifted, 23);
  Value *m = b.CreateBitCast(b.CreateSub(word, b.CreateShl(e, 23)), x->getType());
  Value *exponent = b.CreateSIToFP(e, x->getType());
  exponent = b.CreateFSub(exponent, b.CreateSelect(tiny, constant(x, 23), constant(x, 0)));
  Value *f = b.CreateFSub(m, constant(x, 1)), *f2 = b.CreateFMul(f, f);
  Value *p = polynomial(f, {0.3333331048488617, -0.24999986588954926, 0.20002226531505585, -0.16669249534606934,
                            0.14218655228614807, -0.12384366989135742, 0.1187300980091095, -0.1178971379995346,
                            0.06915183365345001});
  Value *low = fma(exponent, constant(x, 1.42860682030941723e-6), b.CreateFMul(b.CreateFMul(f2, f), p));
  low = fma(f2, constant(x, -0.5), low);
  Value *result = fma(exponent, constant(x, 0.693145751953125), b.CreateFAdd(f, low));
  Value *infinity = llvm::ConstantFP::getInfinity(x->getType());
  result = b.CreateSelect(b.CreateFCmpOEQ(x, infinity), infinity, result);
  result =
      b.CreateSelect(b.CreateFCmpOEQ(x, constant(x, 0)), llvm::ConstantFP::getInfinity(x->getType(), true), result);
  return b.CreateSelect(b.CreateFCmpUGE(x, constant(x, 0)), b.CreateSelect(b.CreateFCmpUNO(x, x), x, result),
                        llvm::ConstantFP::getNaN(x->getType()));
}

/// With u = 1 + x, the factor x / (u - 1) corrects the rounding error of the sum (Goldberg 1991, theorem 4).
Value *Math::log1p(Value *x) {
  Value *one = constant(x, 1), *u = b.CreateFAdd(x, one), *rest = b.CreateFSub(u, one);
  Value *itself = b.CreateOr(b.CreateFCmpOEQ(rest, constant(x, 0)), b.CreateFCmpOEQ(x, constant(x, INFINITY)));
  return b.CreateSelect(itself, x, b.CreateFMul(log(u), divide(x, rest)));
}

Value *Math::smallExpm1(Value *x) {
  ExpParts parts = expParts(x);
  Value *power = scale(constant(x, 1), parts.exponent);
  return fma(parts.fraction, power, b.CreateFSub(power, constant(x, 1)));
}

Value *Math::expm1(Value *x) {
  Value *small = copySign(abs(smallExpm1(clamp(x, -40, 40))), x);
  return b.CreateSelect(b.CreateFCmpOGT(x, constant(x, 40)), exp(x), small);
}

/// With t = e^|x| - 1: sinh |x| = (t + t / (t + 1)) / 2, which is accurate for small x. For large x the half of e^|x|
/// as a product, because e^|x| overflows earlier.
Value *Math::sinh(Value *x) {
  Value *size = abs(x), *half = constant(x, 0.5), *t = smallExpm1(clamp(size, 0, 40));
  Value *small = b.CreateFMul(b.CreateFAdd(t, divide(t, b.CreateFAdd(t, constant(x, 1)))), half);
  Value *root = exp(b.CreateFMul(size, half)), *large = b.CreateFMul(b.CreateFMul(root, half), root);
  return copySign(b.CreateSelect(b.CreateFCmpOGT(size, constant(x, 40)), large, small), x);
}

/// With t = e^(2|x|) - 1: tanh |x| = t / (t + 2), which is accurate for small x.
Value *Math::tanh(Value *x) {
  Value *t = smallExpm1(clamp(b.CreateFMul(abs(x), constant(x, 2)), 0, 40));
  return copySign(divide(t, b.CreateFAdd(t, constant(x, 2))), x);
}

Value *Math::sigmoid(Value *x) {
  if (unit != MathUnit::Cpu) // adding 1 hides the exponent's rounding error, except in results near 0
    return reciprocal(b.CreateFAdd(constant(x, 1), power2(b.CreateFMul(x, constant(x, -1.44269504088896341)))));
  return b.CreateFDiv(constant(x, 1), b.CreateFAdd(constant(x, 1), exp(b.CreateFNeg(x))));
}

/// With a = min / max of |x| and |y|: a + a^3 P(a^2), reflected into the octant of (x, y).
Value *Math::atan2(Value *y, Value *x) {
  Value *zero = constant(x, 0), *sizeX = abs(x), *sizeY = abs(y), *steep = b.CreateFCmpOGT(sizeY, sizeX);
  Value *low = b.CreateSelect(steep, sizeX, sizeY), *high = b.CreateSelect(steep, sizeY, sizeX);
  // Two zeros or two infinities have no quotient.
  Value *diagonal = b.CreateSelect(b.CreateFCmpOEQ(high, zero), zero, constant(x, 1));
  Value *a = b.CreateSelect(b.CreateFCmpOEQ(low, high), diagonal, divide(low, high)), *square = b.CreateFMul(a, a);
  Value *p =
      polynomial(square, {-0.33333152532577515, 0.19993773102760315, -0.14211055636405945, 0.10666004568338394,
                          -0.07552214711904526, 0.043211862444877625, -0.016367929056286812, 0.0029206923209130764});
  Value *angle = fma(b.CreateFMul(a, square), p, a);
  angle = b.CreateSelect(steep, b.CreateFSub(constant(x, 1.5707963267948966), angle), angle);
  Value *left = b.CreateICmpSLT(bits(x), integer(x, 0));
  return copySign(b.CreateSelect(left, b.CreateFSub(constant(x, 3.1415926535897932), angle), angle), y);
}

/// P(x^2) / Q(x^2). The functions below are the sum of a line, which is nearly exact where they end, and of x times
/// such a fraction, which is small there, so that the roundings of P and Q do not matter.
Value *Math::evenFraction(Value *x, std::initializer_list<double> p, std::initializer_list<double> q) {
  Value *square = b.CreateFMul(x, x);
  return divide(polynomial(square, p), polynomial(square, q));
}

/// Fitted up to 3.8 with a relative error of 1.2e-8. At 3.98 the sum is 1 + 4e-7, so that the limit is 1 in spite of
/// roundings.
Value *Math::erf(Value *x) {
  Value *y = clamp(x, -3.98, 3.98);
  Value *fraction =
      evenFraction(y, {0.878379166, 0.0616416149, 0.0241872445, -5.20328649e-05, 2.7521844e-06, -7.65209006e-06},
                   {1, 0.498381168, 0.112486556, 0.0146660833, 0.00113495323, 3.92118127e-05});
  return clamp(fma(y, fraction, b.CreateFMul(y, constant(x, 0.25))), -1, 1);
}

namespace {
constexpr double tanhScale = 0.79788456080286536, tanhCubic = 0.044715; // sqrt(2 / pi)
constexpr double log2e = 1.44269504088896341;
} // namespace

/// 1 / (1 + 2^t), |t| <= 140. Rounding errors of t are those of a power that is added to 1.
Value *Math::logistic2(Value *t) {
  Value *one = constant(t, 1), *power;
  if (unit != MathUnit::Cpu) {
    power = power2(t);
  } else { // a relative error of 9e-8, of which the sum leaves a quarter
    Value *n = b.CreateUnaryIntrinsic(llvm::Intrinsic::nearbyint, t);
    power = scale(polynomial(b.CreateFSub(t, n), {1, 0.69314697759155454, 0.24022242080381678, 0.055507337541069716,
                                                  0.0096715128685391481, 0.0013264723946801551}),
                  n);
  }
  return reciprocal(b.CreateFAdd(one, power));
}

/// (1 + tanh u) / 2 = 1 / (1 + e^-2u), which is 0 or 1 from |x| = 10.5 on.
Value *Math::geluTanhFactor(Value *x, Value *square) {
  constexpr double factor = -2 * log2e * tanhScale;
  return logistic2(b.CreateFMul(x, fma(square, constant(x, factor * tanhCubic), constant(x, factor))));
}

/// x (1 + erf(x / sqrt(2))) / 2. The second factor is fitted up to 5.5 with an absolute error of 7e-9; at -5.6 the sum
/// is -2e-8.
Value *Math::gelu(Value *x, bool tanhForm) {
  if (tanhForm) {
    Value *y = clamp(x, -10.5, 10.5);
    return b.CreateFMul(x, geluTanhFactor(y, b.CreateFMul(y, y)));
  }
  Value *y = clamp(x, -5.6, 5.6);
  Value *fraction =
      evenFraction(y, {0.30894205, 0.0112128798, 0.00209906488, -7.95505571e-07, -2.75481455e-07, -8.50204458e-08},
                   {1, 0.251512617, 0.0286436919, 0.00188420829, 7.36313086e-05, 1.19744038e-06});
  Value *factor = fma(y, fraction, fma(y, constant(x, 0.09), constant(x, 0.5))), *zero = constant(x, 0);
  return b.CreateFMul(x, b.CreateSelect(b.CreateFCmpOGT(zero, factor), zero, factor));
}

/// The first form is fitted up to 6 with an absolute error of 4e-9.
Value *Math::geluDerivative(Value *x, bool tanhForm) {
  if (!tanhForm) {
    Value *y = clamp(x, -6.07, 6.07);
    Value *fraction = evenFraction(
        y,
        {0.717884541, -0.0468027852, 0.0103272432, -0.000115111943, 1.4468902e-05, 9.76502079e-08, -1.00657518e-08,
         -1.05169422e-10},
        {1, 0.305283695, 0.0441303067, 0.0039710463, 0.000245283154, 1.03055227e-05, 3.3885425e-07, 1.31461897e-09});
    Value *sum = fma(y, fraction, fma(y, constant(x, 0.08), constant(x, 0.5)));
    return b.CreateSelect(b.CreateFCmpOLT(x, constant(x, -6.07)), constant(x, 0), sum);
  }
  Value *y = clamp(x, -10.5, 10.5), *square = b.CreateFMul(y, y), *s = geluTanhFactor(y, square);
  Value *slope = fma(square, constant(x, 6 * tanhScale * tanhCubic), constant(x, 2 * tanhScale)); // 2 du/dx
  // s + x * s (1 - s) * 2 u'
  return fma(b.CreateFMul(y, slope), fma(b.CreateFNeg(s), s, s), s);
}

Value *Math::pow(Value *x, Value *y) {
  auto splat = [&](double &value) {
    auto *c = llvm::dyn_cast<llvm::Constant>(y);
    if (c && c->getType()->isVectorTy())
      c = c->getSplatValue();
    auto *fp = llvm::dyn_cast_or_null<llvm::ConstantFP>(c);
    if (fp)
      value = fp->getValueAPF().convertToFloat();
    return fp != nullptr;
  };
  double exponent = 0;
  if (splat(exponent)) {
    if (exponent == 1)
      return x;
    if (exponent == 2)
      return b.CreateFMul(x, x);
    if (exponent == 3)
      return b.CreateFMul(b.CreateFMul(x, x), x);
    if (std::abs(exponent) == 0.5) { // unlike the root, the power is defined at -infinity, and at -0 as at 0
      Value *root = b.CreateFAdd(x, constant(x, 0));
      root = exponent > 0 ? sqrt(root) : rsqrt(root);
      Value *low = llvm::ConstantFP::getInfinity(x->getType(), true);
      return b.CreateSelect(b.CreateFCmpOEQ(x, low), constant(x, exponent > 0 ? INFINITY : 0), root);
    }
  }
  // Computes |x|^y = e^(y log |x|); negative for odd y if x has a minus sign; NaN for negative finite x if y is not an
  // integer; 1 if y is 0 or x is 1.
  if (unit != MathUnit::Cpu) {
    Value *zero = constant(x, 0), *one = constant(x, 1), *whole = b.CreateUnaryIntrinsic(llvm::Intrinsic::floor, y);
    Value *halved = b.CreateFMul(y, constant(y, 0.5));
    Value *odd = b.CreateAnd(b.CreateFCmpOEQ(whole, y),
                             b.CreateFCmpONE(b.CreateUnaryIntrinsic(llvm::Intrinsic::floor, halved), halved));
    Value *size = abs(x), *power = exp(b.CreateFMul(y, log(size))), *minus = b.CreateICmpSLT(bits(x), integer(x, 0));
    Value *result = b.CreateSelect(b.CreateAnd(minus, odd), b.CreateFNeg(power), power);
    Value *below = b.CreateAnd(b.CreateFCmpOLT(x, zero), b.CreateFCmpONE(size, constant(x, INFINITY)));
    Value *undefined = b.CreateAnd(below, b.CreateFCmpUNE(whole, y));
    result = b.CreateSelect(undefined, llvm::ConstantFP::getNaN(x->getType()), result);
    return b.CreateSelect(b.CreateOr(b.CreateFCmpOEQ(y, zero), b.CreateFCmpOEQ(x, one)), one, result);
  }
  llvm::Type *f = b.getFloatTy();
  llvm::FunctionCallee powf = b.GetInsertBlock()->getModule()->getOrInsertFunction("powf", f, f, f);
  auto *vector = llvm::dyn_cast<llvm::FixedVectorType>(x->getType());
  if (!vector)
    return b.CreateCall(powf, {x, y});
  Value *result = llvm::PoisonValue::get(vector);
  for (unsigned i = 0; i < vector->getNumElements(); ++i)
    result = b.CreateInsertElement(result,
                                   b.CreateCall(powf, {b.CreateExtractElement(x, i), b.CreateExtractElement(y, i)}), i);
  return result;
}

} // namespace cleave::passes::kernel
