// Facts of values and ops.
#include "passes/rewrite/Values.h"

#include <numeric>

using namespace mlir;

namespace cleave::passes {

int64_t product(Dims sizes) { return std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<>()); }

bool isFloat(Value value) { return isa<FloatType>(tensorType(value).getElementType()); }

std::string locationText(Location location) {
  std::string text;
  location->walk([&](Location part) {
    auto file = dyn_cast<FileLineColLoc>(part);
    if (!file)
      return WalkResult::advance();
    text =
        file.getFilename().str() + ":" + std::to_string(file.getLine()) + ":" + std::to_string(file.getColumn()) + ": ";
    return WalkResult::interrupt();
  });
  return text;
}

llvm::StringRef textAttr(Operation *op, llvm::StringRef name) {
  auto attribute = op->getAttrOfType<StringAttr>(name);
  return attribute ? attribute.getValue() : llvm::StringRef();
}

} // namespace cleave::passes
