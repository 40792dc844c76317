// A tensor as a condition of C++: FORM 1 to 7 must not compile, and the error must name the line and the way out. Form
// 0 shows the way out. Only its syntax is checked (CMakeLists.txt).
#include <cleave/cleave.h>

using namespace cleave;

struct Model : Module {
  Tensor forward(Tensor x) override {
#if FORM == 0
    Tensor bias;
    if (!bias.defined())
      bias = full({4}, 1);
    return where(logicalAnd(x > 0, logicalNot(x > 1)), x, bias);
#elif FORM == 1
    if (x > 0)
      x = -x;
#elif FORM == 2
    const bool negative = !x;
    x = negative ? -x : x;
#elif FORM == 3
    x = full({4}, x > 0 && x < 1);
#elif FORM == 4
    x = full({4}, x > 0 || x < -1);
#elif FORM == 5
    while (x > 1)
      x = 0.5 * x;
#elif FORM == 6
    x = x > 0 ? x : -x;
#elif FORM == 7
    for (; x > 1;)
      x = 0.5 * x;
#endif
    return x;
  }
};
