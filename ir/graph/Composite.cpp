// Composite ops (softmax, normalisation, losses), fusions and markers: type inference and verifiers.
#include "ir/graph/Constraints.h"

using namespace mlir;
using namespace cleave::ir;

template <typename Op> static LogicalResult verifyDim(Op op) {
  int64_t dim = op.getDim(), rank = op.getType().getRank();
  if (dim < 0 || dim >= rank)
    return op.emitOpError("C1: dim ") << dim << " is not in [0, " << rank << ")";
  return success();
}
LogicalResult SoftmaxOp::verify() { return verifyDim(*this); }
LogicalResult LogSoftmaxOp::verify() { return verifyDim(*this); }

// ---- normalisation -------------------------------------------------------------------------------------------------

LogicalResult LayerNormOp::inferReturnTypes(MLIRContext *context, std::optional<Location> loc, ValueRange operands,
                                            DictionaryAttr attributes, OpaqueProperties properties, RegionRange regions,
                                            SmallVectorImpl<Type> &types) {
  Adaptor op(operands, attributes, properties, regions);
  auto input = shapeOf(op.getInput()), weight = shapeOf(op.getWeight());
  if (input.empty() || weight != input.take_back() || weight != shapeOf(op.getBias()))
    return broken(loc, getOperationName(), "C1: the input is ", shapeText(input), ", weight ", shapeText(weight),
                  ", bias ", shapeText(shapeOf(op.getBias())));
  auto statistics = RankedTensorType::get(input.drop_back(), Float32Type::get(context));
  types.append({op.getInput().getType(), statistics, statistics});
  return success();
}

LogicalResult LayerNormGradOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc, ValueRange operands,
                                                DictionaryAttr attributes, OpaqueProperties properties,
                                                RegionRange regions, SmallVectorImpl<Type> &types) {
  Adaptor op(operands, attributes, properties, regions);
  auto input = shapeOf(op.getInput());
  if (input.empty() || shapeOf(op.getGrad()) != input || shapeOf(op.getWeight()) != input.take_back() ||
      shapeOf(op.getMean()) != input.drop_back() || shapeOf(op.getRstd()) != input.drop_back())
    return broken(loc, getOperationName(), "C1: the input is ", shapeText(input), ", grad ",
                  shapeText(shapeOf(op.getGrad())), ", weight ", shapeText(shapeOf(op.getWeight())), ", mean ",
                  shapeText(shapeOf(op.getMean())), ", rstd ", shapeText(shapeOf(op.getRstd())));
  types.append({op.getInput().getType(), op.getWeight().getType(), op.getWeight().getType()});
  return success();
}

LogicalResult BatchNormOp::inferReturnTypes(MLIRContext *context, std::optional<Location> loc, ValueRange operands,
                                            DictionaryAttr attributes, OpaqueProperties properties, RegionRange regions,
                                            SmallVectorImpl<Type> &types) {
  Adaptor op(operands, attributes, properties, regions);
  auto input = shapeOf(op.getInput());
  int64_t group = op.getGroup();
  if (input.size() < 2)
    return broken(loc, getOperationName(), "C1: the rank is ", input.size());
  auto channels = input.slice(op.getChannelsLast() ? input.size() - 1 : 1, 1);
  if (shapeOf(op.getWeight()) != channels || shapeOf(op.getBias()) != channels)
    return broken(loc, getOperationName(), "C2: the input has ", channels[0], " channels, weight is ",
                  shapeText(shapeOf(op.getWeight())), ", bias ", shapeText(shapeOf(op.getBias())));
  if (group < 0 || (group && input[0] % group))
    return broken(loc, getOperationName(), "C3: groups of ", group, " do not divide ", input[0], " samples");
  SmallVector<int64_t> shape{channels[0]};
  if (group)
    shape = {input[0] / group, channels[0]};
  auto statistics = RankedTensorType::get(shape, Float32Type::get(context));
  types.append({op.getInput().getType(), statistics, statistics});
  return success();
}

LogicalResult BatchNormGradOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc, ValueRange operands,
                                                DictionaryAttr attributes, OpaqueProperties properties,
                                                RegionRange regions, SmallVectorImpl<Type> &types) {
  Adaptor op(operands, attributes, properties, regions);
  auto input = shapeOf(op.getInput());
  int64_t group = op.getGroup();
  size_t channel = op.getChannelsLast() ? input.size() - 1 : 1;
  if (input.size() < 2 || shapeOf(op.getGrad()) != input || shapeOf(op.getWeight()) != input.slice(channel, 1))
    return broken(loc, getOperationName(), "C1: the input is ", shapeText(input), ", grad ",
                  shapeText(shapeOf(op.getGrad())), ", weight ", shapeText(shapeOf(op.getWeight())));
  if (group < 0 || (group && input[0] % group))
    return broken(loc, getOperationName(), "C2: groups of ", group, " do not divide ", input[0], " samples");
  SmallVector<int64_t> statistics{input[channel]};
  if (group)
    statistics = {input[0] / group, input[channel]};
  if (shapeOf(op.getMean()) != ArrayRef<int64_t>(statistics) ||
      shapeOf(op.getVariance()) != ArrayRef<int64_t>(statistics))
    return broken(loc, getOperationName(), "C3: mean is ", shapeText(shapeOf(op.getMean())), ", variance ",
                  shapeText(shapeOf(op.getVariance())), ", not ", shapeText(statistics));
  types.append({op.getInput().getType(), op.getWeight().getType(), op.getWeight().getType()});
  return success();
}

// ---- losses --------------------------------------------------------------------------------------------------------

static LogicalResult checkLabels(std::optional<Location> loc, StringRef name, Value logits, Value labels) {
  auto shape = shapeOf(logits);
  if (shape.empty() || shapeOf(labels) != shape.drop_back())
    return broken(loc, name, "C1: logits are ", shapeText(shape), ", labels ", shapeText(shapeOf(labels)));
  if (!elementOf(labels).isInteger(32))
    return broken(loc, name, "C2: labels are ", elementOf(labels), ", not i32");
  return success();
}

LogicalResult CrossEntropyOp::inferReturnTypes(MLIRContext *context, std::optional<Location> loc, ValueRange operands,
                                               DictionaryAttr attributes, OpaqueProperties properties,
                                               RegionRange regions, SmallVectorImpl<Type> &types) {
  Adaptor op(operands, attributes, properties, regions);
  if (failed(checkLabels(loc, getOperationName(), op.getLogits(), op.getLabels())))
    return failure();
  auto scalar = RankedTensorType::get({}, Float32Type::get(context));
  types.append({scalar, scalar, RankedTensorType::get(shapeOf(op.getLabels()), Float32Type::get(context))});
  return success();
}

LogicalResult CrossEntropyGradOp::verify() {
  if (failed(checkLabels(getLoc(), getOperationName(), getLogits(), getLabels())))
    return failure();
  if (!shapeOf(getGrad()).empty() || shapeOf(getLse()) != shapeOf(getLabels()) || getType() != getLogits().getType())
    return emitOpError("C3: grad is ") << shapeText(shapeOf(getGrad())) << ", lse " << shapeText(shapeOf(getLse()))
                                       << ", the result " << getType();
  return success();
}

LogicalResult TopCorrectOp::inferReturnTypes(MLIRContext *context, std::optional<Location> loc, ValueRange operands,
                                             DictionaryAttr attributes, OpaqueProperties properties,
                                             RegionRange regions, SmallVectorImpl<Type> &types) {
  Adaptor op(operands, attributes, properties, regions);
  if (failed(checkLabels(loc, getOperationName(), op.getLogits(), op.getLabels())))
    return failure();
  if (op.getK() < 1)
    return broken(loc, getOperationName(), "C3: k is ", op.getK(), ", not positive");
  types.push_back(RankedTensorType::get({}, Float32Type::get(context)));
  return success();
}

// ---- fusions and markers -------------------------------------------------------------------------------------------

LogicalResult FusionOp::verify() {
  Block &block = getBody().front();
  if (block.getArgumentTypes() != getInputs().getTypes())
    return emitOpError("C1: block arguments differ from the operands in number or type");
  if (block.getTerminator()->getOperandTypes() != getResults().getTypes())
    return emitOpError("C2: yielded values differ from the results in number or type");
  return success();
}

LogicalResult ShardHintOp::verify() {
  if ((int64_t)getSharding().size() != getType().getRank())
    return emitOpError("C1: ") << getSharding().size() << " entries for " << getType().getRank() << " dimensions";
  return success();
}
