// Names and facts of the kinds of kernel graph nodes.
#include "passes/codegen/nest/KernelGraph.h"

namespace cleave::passes::kernel {

namespace {
struct Kind {
  const char *name;
  double cycles = 0;
  bool exact = false;
};
constexpr Kind kinds[] = {{"input"},     {"constant"}, {"iota"},
#define CLEAVE_ELEMENTWISE(Name, mnemonic, cycles, exact) {#mnemonic, cycles, exact},
#include "ir/graph/GraphElementwise.inc"
                          {"broadcast"}, {"reshape"},  {"transpose"}, {"slice"}, {"pad"}, {"concat"}, {"reduce"}};
} // namespace

const char *nodeName(NodeKind kind) { return kinds[static_cast<int>(kind)].name; }
double cyclesOf(NodeKind kind) { return kinds[static_cast<int>(kind)].cycles; }
bool isExact(NodeKind kind) { return kinds[static_cast<int>(kind)].exact; }

int64_t elementCount(const std::vector<int64_t> &shape) {
  int64_t count = 1;
  for (int64_t size : shape)
    count *= size;
  return count;
}

} // namespace cleave::passes::kernel
