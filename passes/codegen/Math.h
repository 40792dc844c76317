// Elementary functions as LLVM IR on f32 scalars or vectors, without calls: polynomials fitted for this project
// (weighted minimax, mpmath), each accurate to a few units in the last place. NaN gives NaN; infinities as in libm.
#pragma once
#include "llvm/IR/IRBuilder.h"

#include <string>

namespace cleave::passes::kernel {

/// The unit that computes the functions. GPUs have instructions for 2^x, 1/x, x^(1/2) and x^(-1/2), accurate to two
/// units in the last place; polynomials there would take longer than the memory accesses. A CPU that emulates a GPU
/// uses the same formulas.
enum class MathUnit { Cpu, Gpu, PlayedGpu };

class Math {
public:
  explicit Math(llvm::IRBuilder<> &builder, MathUnit unit = MathUnit::Cpu) : b(builder), unit(unit) {}
  llvm::Value *exp(llvm::Value *x); // 0 below -104, infinity above 89
  llvm::Value *log(llvm::Value *x);
  llvm::Value *log1p(llvm::Value *x);
  llvm::Value *expm1(llvm::Value *x);
  llvm::Value *tanh(llvm::Value *x);
  llvm::Value *sinh(llvm::Value *x);
  llvm::Value *erf(llvm::Value *x);
  llvm::Value *sin(llvm::Value *x);
  llvm::Value *cos(llvm::Value *x);
  llvm::Value *tan(llvm::Value *x);
  llvm::Value *atan2(llvm::Value *y, llvm::Value *x);
  llvm::Value *sigmoid(llvm::Value *x);
  llvm::Value *gelu(llvm::Value *x, bool tanhForm);
  llvm::Value *geluDerivative(llvm::Value *x, bool tanhForm);
  llvm::Value *pow(llvm::Value *x, llvm::Value *y); // on a CPU libm, lane by lane, unless y is 2, 3, 0.5, 1 or -0.5
  llvm::Value *sqrt(llvm::Value *x);
  llvm::Value *rsqrt(llvm::Value *x);
  llvm::Value *remainder(llvm::Value *x, llvm::Value *y); // NaN if x / y overflows, inaccurate from 2^46
  llvm::Value *divide(llvm::Value *x, llvm::Value *y);
  llvm::Value *abs(llvm::Value *x);
  llvm::Value *relu(llvm::Value *x);
  llvm::Value *silu(llvm::Value *x);
  llvm::Value *max(llvm::Value *x, llvm::Value *y); // NaN if either is
  llvm::Value *min(llvm::Value *x, llvm::Value *y);
  llvm::Value *constant(llvm::Value *like, double value);
  llvm::Value *fma(llvm::Value *x, llvm::Value *y, llvm::Value *z);

private:
  struct ExpParts {
    llvm::Value *fraction; // e^r - 1, |r| <= ln 2 / 2
    llvm::Value *exponent; // n, an integer as float; e^x = (fraction + 1) * 2^n
  };
  ExpParts expParts(llvm::Value *x);
  llvm::Value *smallExpm1(llvm::Value *x); // |x| <= 40
  /// x = quarters * pi/2 + rest, |rest| a little above pi/4 at most. `quarters` is an integer as float, modulo 4 for
  /// |x| > 1e5. The rest is NaN if x is infinite.
  struct Angle {
    llvm::Value *rest, *quarters;
  };
  Angle angle(llvm::Value *x);     // by a function that is inlined later
  Angle nearAngle(llvm::Value *x); // |x| <= 1e5
  Angle farAngle(llvm::Value *x);  // 1e5 < |x|, finite
  llvm::Function *makeAngle(llvm::Module &module, llvm::Type *type, const std::string &name);
  llvm::Value *sine(Angle angle, int more); // sin(angle + more * pi/2)
  llvm::Value *scale(llvm::Value *mantissa, llvm::Value *n);
  llvm::Value *polynomial(llvm::Value *x, std::initializer_list<double> coefficients); // lowest first
  llvm::Value *evenFraction(llvm::Value *x, std::initializer_list<double> p, std::initializer_list<double> q);
  llvm::Value *logistic2(llvm::Value *t);
  llvm::Value *geluTanhFactor(llvm::Value *x, llvm::Value *square);
  llvm::Value *bits(llvm::Value *x);
  llvm::Value *integer(llvm::Value *like, int64_t value); // i32 of the same width
  llvm::Value *copySign(llvm::Value *magnitude, llvm::Value *sign);
  /// x limited to [low, high]; NaN stays NaN.
  llvm::Value *clamp(llvm::Value *x, double low, double high);

  /// The GPU's instruction, or its emulation.
  llvm::Value *power2(llvm::Value *x);
  llvm::Value *reciprocal(llvm::Value *x);
  llvm::Value *expByPower2(llvm::Value *x);

  llvm::IRBuilder<> &b;
  MathUnit unit;
};

} // namespace cleave::passes::kernel
