// Which graph ops a library can compute together with a product or a convolution.
#include "ir/library/Epilogues.h"

#include "ir/graph/Constraints.h"

using namespace mlir;

namespace cleave::library {

Value addedVector(ir::AddOp add, Value value, int64_t dim) {
  Value other = add.getLhs() == value ? add.getRhs() : add.getLhs();
  auto broadcast = other.getDefiningOp<ir::BroadcastOp>();
  if (!broadcast || broadcast.getDims().size() != 1 || broadcast.getDims()[0] != dim)
    return {};
  return broadcast.getInput();
}

Value addedBias(ir::AddOp add, Value value) {
  if (auto convolution = value.getDefiningOp<ir::Conv2dOp>())
    return addedVector(add, value, convolution.getChannelsLast() ? 3 : 1);
  Value product = value;
  while (auto reshape = product.getDefiningOp<ir::ReshapeOp>())
    product = reshape.getInput();
  if (!product.getDefiningOp<ir::MatmulOp>())
    return {};
  return addedVector(add, value, static_cast<int64_t>(ir::shapeOf(value).size()) - 1);
}

bool isActivation(Operation *op) {
  auto gelu = dyn_cast<ir::GeluOp>(op);
  return isa<ir::ReluOp>(op) || (gelu && gelu.getTanh());
}

} // namespace cleave::library
