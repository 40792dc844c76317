// The library dialect: registration, verifiers, counts of floating-point operations.
#include "ir/library/Library.h"

#include "ir/graph/Constraints.h"

#include "mlir/IR/DialectImplementation.h"
#include "llvm/ADT/TypeSwitch.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "ir/library/LibraryDialect.cpp.inc"
#include "ir/library/LibraryEnums.cpp.inc"
#include "ir/library/LibraryInterfaces.cpp.inc"

#define GET_ATTRDEF_CLASSES
#include "ir/library/LibraryAttrs.cpp.inc"

#define GET_OP_CLASSES
#include "ir/library/LibraryOps.cpp.inc"

using namespace mlir;
using namespace cleave::library;
using cleave::ir::elementOf;
using cleave::ir::shapeOf;
using cleave::ir::shapeText;

void LibraryDialect::initialize() {
  addAttributes<
#define GET_ATTRDEF_LIST
#include "ir/library/LibraryAttrs.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "ir/library/LibraryOps.cpp.inc"
      >();
}

LogicalResult ViewAttr::verify(function_ref<InFlightDiagnostic()> emitError, int64_t offset,
                               ArrayRef<int64_t> strides) {
  if (offset < 0 || llvm::any_of(strides, [](int64_t stride) { return stride < 0; }))
    return emitError() << "a view's offset and strides are not negative";
  return success();
}

namespace {

bool allPositive(ArrayRef<int64_t> sizes) {
  return llvm::all_of(sizes, [](int64_t size) { return size > 0; });
}

/// A view of `shape` onto the memory of `value`, and its name in messages.
struct Window {
  StringRef name;
  Value value;
  ViewAttr view;
  SmallVector<int64_t> shape;
};

/// Checks C`first`: one stride per dimension; and C`first + 1`: the view ends at the tensor's last element or before.
LogicalResult checkInside(Operation *op, const Window &window, int first) {
  const ArrayRef<int64_t> strides = window.view.getStrides();
  if (strides.size() != window.shape.size())
    return op->emitOpError() << "C" << first << ": the view of " << window.name << " has " << strides.size()
                             << " strides for the " << window.shape.size() << " dimensions " << shapeText(window.shape);
  int64_t last = window.view.getOffset();
  for (auto [size, stride] : llvm::zip(window.shape, strides))
    last += (size - 1) * stride;
  const int64_t elements = cast<RankedTensorType>(window.value.getType()).getNumElements();
  if (last >= elements)
    return op->emitOpError() << "C" << first + 1 << ": the view of " << window.name << " reaches element " << last
                             << " of " << elements;
  return success();
}

/// Whether different indices of the view are different elements: with dimensions sorted by stride, each stride is
/// larger than the offset that all dimensions before it reach together.
bool isInjective(const Window &window) {
  std::vector<std::pair<int64_t, int64_t>> dims; // stride, size
  for (auto [size, stride] : llvm::zip(window.shape, window.view.getStrides()))
    if (size > 1)
      dims.emplace_back(stride, size);
  std::sort(dims.begin(), dims.end());
  int64_t reach = 0; // the largest offset that the dimensions so far reach
  for (auto [stride, size] : dims) {
    if (stride <= reach)
      return false;
    reach += (size - 1) * stride;
  }
  return true;
}

LogicalResult checkInjective(Operation *op, const Window &window, int rule) {
  if (isInjective(window))
    return success();
  return op->emitOpError() << "C" << rule << ": elements of " << window.name << " overlap";
}

LogicalResult checkSameElement(Operation *op, int rule, std::initializer_list<Value> values) {
  Type expected = elementOf(*values.begin());
  for (Value value : values)
    if (value && elementOf(value) != expected)
      return op->emitOpError() << "C" << rule << ": element types are " << expected << " and " << elementOf(value);
  return success();
}

/// Checks C`rule`: `into` is present exactly if the op accumulates, and has the result's type.
LogicalResult checkAccumulation(Operation *op, int rule, Value into, bool accumulate, Value result) {
  if (into && into.getType() != result.getType())
    return op->emitOpError() << "C" << rule << ": into is " << into.getType() << ", the result " << result.getType();
  if (accumulate != (into != nullptr))
    return op->emitOpError() << "C" << rule << ": into and accumulate come together";
  return success();
}

} // namespace

// ---- matrix products ------------------------------------------------------------------------------------------------

namespace {

/// C4: whether a library can use the last two dimensions as a matrix as they are, or (unless `rowsOnly`) transposed.
bool isMatrix(const Window &window, bool rowsOnly) {
  const size_t r = window.shape.size();
  const int64_t rows = window.shape[r - 2], columns = window.shape[r - 1];
  const int64_t rowStride = window.view.getStrides()[r - 2], columnStride = window.view.getStrides()[r - 1];
  return (columnStride == 1 && rowStride >= columns) || (!rowsOnly && rowStride == 1 && columnStride >= rows);
}

LogicalResult checkTypes(MatmulOp op) {
  if (failed(checkSameElement(op, 6, {op.getA(), op.getB()})) ||
      failed(checkSameElement(op, 6, {op.getResult(), op.getBias(), op.getInto()})))
    return failure();
  Type from = elementOf(op.getA()), to = elementOf(op.getResult());
  if (from != to && !to.isF32())
    return op.emitOpError("C6: a product of ") << from << " has results of " << to;
  return success();
}

LogicalResult checkOperands(MatmulOp op) {
  if (Value bias = op.getBias(); bias && shapeOf(bias) != ArrayRef<int64_t>(static_cast<int64_t>(op.getN())))
    return op.emitOpError("C7: bias is ") << shapeText(shapeOf(bias)) << ", columns " << op.getN();
  if (Value into = op.getInto(); into && into.getType() != op.getResult().getType())
    return op.emitOpError("C8: into is ") << into.getType() << ", the result " << op.getResult().getType();
  if (op.getAccumulate() && !op.getInto())
    return op.emitOpError("C8: accumulate without into");
  return success();
}

LogicalResult checkEpilogue(MatmulOp op) {
  const Epilogue epilogue = op.getEpilogue();
  if ((epilogue == Epilogue::GeluGradient) != (op.getAux() != nullptr))
    return op.emitOpError("C9: aux and gelu_gradient come together");
  if ((op.getAux() || op.auxResult()) != op.getAuxView().has_value())
    return op.emitOpError("C9: a view of aux and aux come together");
  if (epilogue != Epilogue::None && (!op.getBatch().empty() || op.getAccumulate()))
    return op.emitOpError("C9: an epilogue of a batched or accumulating product");
  if (op.getSumRows() && (!op.getBatch().empty() || epilogue != Epilogue::None))
    return op.emitOpError("C10: sum_rows of a batched product or one with an epilogue");
  if (op.getSumRows() != (op.rowSums() != nullptr) ||
      (op.rowSums() && shapeOf(op.rowSums()) != ArrayRef<int64_t>(static_cast<int64_t>(op.getM()))))
    return op.emitOpError("C10: sum_rows gives ") << op.getM() << " elements as the second result";
  if (op.auxResult() && epilogue != Epilogue::Gelu)
    return op.emitOpError("C11: a second result without gelu or sum_rows");
  return success();
}

} // namespace

LogicalResult MatmulOp::verify() {
  const auto m = static_cast<int64_t>(getM()), n = static_cast<int64_t>(getN()), k = static_cast<int64_t>(getK());
  if (!allPositive(getBatch()) || !allPositive({m, n, k}))
    return emitOpError("C1: the sizes are batch ") << shapeText(getBatch()) << ", " << shapeText({m, n, k});
  auto window = [&](StringRef name, Value value, ViewAttr view, int64_t rows, int64_t columns) {
    Window made{name, value, view, SmallVector<int64_t>(getBatch())};
    made.shape.append({rows, columns});
    return made;
  };
  SmallVector<Window> windows{window("a", getA(), getAView(), m, k), window("b", getB(), getBView(), k, n),
                              window("c", getResult(), getCView(), m, n)};
  if (Value aux = getAux() ? getAux() : auxResult(); aux && getAuxView())
    windows.push_back(window("aux", aux, *getAuxView(), m, n));
  for (auto [i, each] : llvm::enumerate(windows)) {
    if (failed(checkInside(*this, each, 2)))
      return failure();
    if (!isMatrix(each, i >= 2))
      return emitOpError("C4: ") << each.name << " has no rows that a library can step over";
  }
  if (failed(checkInjective(*this, windows[2], 5)) || failed(checkTypes(*this)) || failed(checkOperands(*this)))
    return failure();
  return checkEpilogue(*this);
}

// ---- convolutions ---------------------------------------------------------------------------------------------------

namespace {

/// Checks C1 to C5 of the convolution; C6: `result` has the convolution's shape; C7: element types are equal.
template <typename Op> LogicalResult checkConv(Op op, Value input, Value weight, Value result, StringRef name) {
  auto shape =
      cleave::ir::convShape(op.getLoc(), op.getOperationName(), shapeOf(input), shapeOf(weight), op.getStride(),
                            op.getPadding(), op.getDilation(), op.getGroups(), op.getChannelsLast());
  if (failed(shape))
    return failure();
  if (ArrayRef<int64_t>(*shape) != shapeOf(result))
    return op.emitOpError("C6: ") << name << " is " << shapeText(shapeOf(result)) << ", the convolution's shape "
                                  << shapeText(*shape);
  return success();
}

} // namespace

LogicalResult Conv2dOp::verify() {
  if (failed(checkConv(*this, getInput(), getWeight(), getResult(), "the result")) ||
      failed(checkSameElement(*this, 7, {getInput(), getWeight(), getResult()})))
    return failure();
  const int64_t channels = shapeOf(getWeight())[0];
  if (getBias() && (shapeOf(getBias()) != ArrayRef<int64_t>(channels)))
    return emitOpError("C8: bias is ") << shapeText(shapeOf(getBias())) << ", output channels " << channels;
  if (getEpilogue() != Epilogue::None && (getEpilogue() != Epilogue::Relu || !getBias()))
    return emitOpError("C9: the epilogue is ")
           << stringifyEpilogue(getEpilogue()) << ", with" << (getBias() ? " a" : "out") << " bias";
  return success();
}

LogicalResult Conv2dWeightGradOp::verify() {
  if (failed(checkConv(*this, getInput(), getResult(), getGrad(), "grad")) ||
      failed(checkSameElement(*this, 7, {getInput(), getGrad()})))
    return failure();
  if (Type from = elementOf(getInput()), to = elementOf(getResult()); from != to && !to.isF32())
    return emitOpError("C7: a gradient from operands of ") << from << " has elements of " << to;
  return checkAccumulation(*this, 8, getInto(), getAccumulate(), getResult());
}

// ---- attention ------------------------------------------------------------------------------------------------------

namespace {

template <typename Op> SmallVector<int64_t> rowsOf(Op op) {
  return {static_cast<int64_t>(op.getBatch()), static_cast<int64_t>(op.getHeads()), static_cast<int64_t>(op.getRows()),
          static_cast<int64_t>(op.getWidth())};
}

template <typename Op> SmallVector<int64_t> keysOf(Op op) {
  SmallVector<int64_t> shape = rowsOf(op);
  shape[2] = static_cast<int64_t>(op.getKeys());
  return shape;
}

/// Checks C2, C3 and C6 of bias and keep.
template <typename Op> LogicalResult checkExtras(Op op) {
  SmallVector<int64_t> scores = rowsOf(op);
  scores[3] = static_cast<int64_t>(op.getKeys());
  const std::tuple<StringRef, Value, std::optional<ViewAttr>> extras[] = {{"bias", op.getBias(), op.getBiasView()},
                                                                          {"keep", op.getKeep(), op.getKeepView()}};
  for (const auto &[name, value, view] : extras) {
    if (static_cast<bool>(value) != view.has_value())
      return op.emitOpError("C6: ") << name << (value ? " comes without" : " is absent, but not") << " its view";
    if (!value)
      continue;
    if (failed(checkInside(op, {name, value, *view, scores}, 2)))
      return failure();
    if (view->getStrides().back() != 1)
      return op.emitOpError("C2: the last stride of ") << name << " is " << view->getStrides().back();
  }
  if (op.getBias() && !elementOf(op.getBias()).isF32())
    return op.emitOpError("C6: bias is ") << op.getBias().getType();
  const double dropout = op.getDropout().convertToDouble();
  if (!(dropout >= 0 && dropout < 1) || (dropout > 0) != static_cast<bool>(op.getKeep()))
    return op.emitOpError("C6: dropout is ") << dropout << (op.getKeep() ? " with keep" : " without keep");
  return success();
}

/// Checks C1 to C6. The last `written` windows are the op's results.
template <typename Op> LogicalResult checkAttention(Op op, ArrayRef<Window> windows, size_t written, Value lse) {
  SmallVector<int64_t> rows = rowsOf(op), keys = keysOf(op);
  if (!allPositive(rows) || !allPositive(keys) || (op.getCausal() && rows[2] > keys[2]))
    return op.emitOpError("C1: q is ") << shapeText(rows) << ", k " << shapeText(keys)
                                       << (op.getCausal() ? ", causal" : "");
  for (auto [i, window] : llvm::enumerate(windows)) {
    if (failed(checkInside(op, window, 2)))
      return failure();
    if (window.view.getStrides().back() != 1)
      return op.emitOpError("C2: the last stride of ") << window.name << " is " << window.view.getStrides().back();
    if (i + written >= windows.size() && failed(checkInjective(op, window, 4)))
      return failure();
    if (failed(checkSameElement(op, 5, {windows.front().value, window.value})))
      return failure();
  }
  rows.pop_back();
  if (!elementOf(lse).isF32() || shapeOf(lse) != ArrayRef<int64_t>(rows))
    return op.emitOpError("C5: lse is ") << lse.getType() << ", the rows are " << shapeText(rows);
  return checkExtras(op);
}

} // namespace

LogicalResult AttentionOp::verify() {
  const SmallVector<int64_t> rows = rowsOf(*this), keys = keysOf(*this);
  return checkAttention(*this,
                        {Window{"q", getQ(), getQView(), rows}, Window{"k", getK(), getKView(), keys},
                         Window{"v", getV(), getVView(), keys}, Window{"the result", getResult(), getOutView(), rows}},
                        1, getLse());
}

LogicalResult AttentionGradOp::verify() {
  if (getResults().size() != 1 && getResults().size() != 3)
    return emitOpError("C7: there are ") << getResults().size() << " results, not one or three";
  const SmallVector<int64_t> rows = rowsOf(*this), keys = keysOf(*this);
  return checkAttention(*this,
                        {Window{"grad", getGrad(), getGradView(), rows}, Window{"q", getQ(), getQView(), rows},
                         Window{"k", getK(), getKView(), keys}, Window{"v", getV(), getVView(), keys},
                         Window{"out", getOut(), getOutView(), rows}, Window{"dq", gradient(0), getDqView(), rows},
                         Window{"dk", gradient(1), getDkView(), keys}, Window{"dv", gradient(2), getDvView(), keys}},
                        3, getLse());
}

// ---- look-ups and copies --------------------------------------------------------------------------------------------

LogicalResult EmbeddingGradOp::verify() {
  if (failed(cleave::ir::checkEmbeddingGrad(*this, getGrad(), getIds(), getResult())))
    return failure();
  if (failed(checkSameElement(*this, 3, {getGrad(), getResult()})) ||
      failed(checkAccumulation(*this, 4, getInto(), getAccumulate(), getResult())))
    return failure();
  if (getStart() && !shapeOf(getStart()).empty())
    return emitOpError("C5: start is ") << shapeText(shapeOf(getStart()));
  return success();
}

LogicalResult CopyOp::verify() {
  if (!allPositive(getShape()))
    return emitOpError("C1: the sizes are ") << shapeText(getShape());
  const SmallVector<int64_t> shape(getShape());
  const Window source{"the source", getSource(), getSourceView(), shape},
      result{"the result", getResult(), getResultView(), shape};
  if (failed(checkInside(*this, source, 2)) || failed(checkInside(*this, result, 2)) ||
      failed(checkInjective(*this, result, 4)) || failed(checkSameElement(*this, 5, {getSource(), getResult()})))
    return failure();
  if (getInto() && getInto().getType() != getResult().getType())
    return emitOpError("C6: into is ") << getInto().getType() << ", the result " << getResult().getType();
  return success();
}
