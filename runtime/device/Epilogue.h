// Computes a matrix product's epilogue for one sum, in double.
#pragma once
#include "runtime/plan/plan_generated.h"

#include <cmath>

namespace cleave {

/// tanh(sqrt(2 / pi) (x + 0.044715 x^3)), used by the approximation of gelu (Hendrycks and Gimpel 2016).
inline double tanhOfGelu(double x) { return std::tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x)); }

/// `aux`: the element of the auxiliary matrix, used only by GeluGradient.
inline double epilogueOf(plan::Epilogue epilogue, double x, double aux) {
  switch (epilogue) {
  case plan::Epilogue::None:
    break;
  case plan::Epilogue::Relu:
    return x < 0 ? 0 : x;
  case plan::Epilogue::Gelu:
    return 0.5 * x * (1 + tanhOfGelu(x));
  case plan::Epilogue::GeluGradient: {
    const double t = tanhOfGelu(aux), slope = 0.79788456080286535588 * (1 + 3 * 0.044715 * aux * aux);
    return x * (0.5 * (1 + t) + 0.5 * aux * (1 - t * t) * slope);
  }
  }
  return x;
}

} // namespace cleave
