// Names of kernel graph nodes.
#include "passes/codegen/KernelGraph.h"

namespace cleave::passes::kernel {

const char *nodeName(NodeKind kind) {
  static const char *const names[] = {"input",     "constant", "iota",      "neg",   "abs",       "exp",     "log",
                                      "sqrt",      "rsqrt",    "tanh",      "erf",   "sin",       "cos",     "sigmoid",
                                      "relu",      "silu",     "gelu",      "cast",  "gelu_grad", "add",     "sub",
                                      "mul",       "div",      "max",       "min",   "pow",       "compare", "select",
                                      "broadcast", "reshape",  "transpose", "slice", "pad",       "concat",  "reduce"};
  return names[static_cast<int>(kind)];
}

int64_t elementCount(const std::vector<int64_t> &shape) {
  int64_t count = 1;
  for (int64_t size : shape)
    count *= size;
  return count;
}

} // namespace cleave::passes::kernel
