// Names and sizes of kernel graph elements.
#include "passes/codegen/KernelGraph.h"

namespace cleave::passes::kernel {

int64_t elementBytes(Element e) {
  switch (e) {
  case Element::F32:
  case Element::I32:
    return 4;
  case Element::F16:
  case Element::BF16:
    return 2;
  case Element::I64:
    return 8;
  case Element::I1:
    return 1;
  }
  return 4;
}

const char *elementName(Element e) {
  static const char *const names[] = {"f32", "f16", "bf16", "i32", "i64", "i1"};
  return names[static_cast<int>(e)];
}

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
