// Facts of values and ops.
#include "passes/rewrite/Values.h"

#include "ir/dist/Dist.h"

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

void carryShardings(llvm::ArrayRef<Value> replaced, Operation *op) {
  for (llvm::StringRef name : {dist::attr::shardings, dist::attr::globals}) {
    llvm::SmallVector<Attribute> entries;
    for (Value result : replaced) {
      auto array = result.getDefiningOp()->getAttrOfType<ArrayAttr>(name);
      const size_t number = cast<OpResult>(result).getResultNumber();
      entries.push_back(array && number < array.size() ? array[number] : UnitAttr::get(op->getContext()));
    }
    if (llvm::all_of(entries, llvm::IsaPred<UnitAttr>))
      op->removeDiscardableAttr(name);
    else
      op->setDiscardableAttr(name, ArrayAttr::get(op->getContext(), entries));
  }
}

} // namespace cleave::passes
