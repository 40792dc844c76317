// Chooses library calls for convolutions and embedding gradients, puts concatenations together in place.
#include "passes/select/Select.h"
#include "passes/codegen/Codegen.h"
#include "passes/simplify/Simplify.h"

#include "passes/select/Detail.h"

using namespace mlir;

namespace cleave::passes {

namespace {

/// The rank-1 value that `add` adds along dimension `dim` to `value`; null where it does not.
Value biasOf(ir::AddOp add, Value value, int64_t dim) {
  Value other = add.getLhs() == value ? add.getRhs() : add.getLhs();
  auto broadcast = other.getDefiningOp<ir::BroadcastOp>();
  if (!broadcast || broadcast.getDims().size() != 1 || broadcast.getDims()[0] != dim)
    return {};
  return broadcast.getInput();
}

/// The result of `op` plus a bias along `dim`, where that is all that is done with it: the add.
ir::AddOp onlyBias(Value result, int64_t dim, Operation *op, Value &bias) {
  if (!result.hasOneUse())
    return {};
  auto add = dyn_cast<ir::AddOp>(*result.getUsers().begin());
  bias = add ? biasOf(add, result, dim) : Value();
  if (!bias || !definedBefore(bias, op))
    return {};
  return add;
}

void selectConv(ir::Conv2dOp conv, SelectOptions options) {
  SmallVector<Value> operands(conv->getOperands());
  NamedAttrList attributes = callAttributes(conv);
  Value result = conv.getResult(), bias;
  OpBuilder b(conv);
  if (ir::AddOp add = onlyBias(result, conv.getChannelsLast() ? 3 : 1, conv, bias)) {
    attributes.set("bias", b.getI64IntegerAttr(static_cast<int64_t>(operands.size())));
    operands.push_back(bias);
    result = add.getResult();
    auto relu = result.hasOneUse() ? dyn_cast<ir::ReluOp>(*result.getUsers().begin()) : ir::ReluOp();
    if (relu && options.epilogues) {
      attributes.set("epilogue", b.getStringAttr("relu"));
      result = relu.getResult();
    }
    carrySharding(result.getDefiningOp(), attributes);
  }
  replaceByCall(conv, result, operands, attributes);
}

void selectWithGradient(Operation *op) {
  SmallVector<Value> operands(op->getOperands());
  NamedAttrList attributes = callAttributes(op);
  Value result = op->getResult(0);
  OpBuilder b(op);
  if (auto [add, gradient] = onlyAccumulation(result); add) {
    attributes.set("into", b.getI64IntegerAttr(static_cast<int64_t>(operands.size())));
    attributes.set("accumulate", b.getUnitAttr());
    operands.push_back(gradient);
    carrySharding(add, attributes);
    result = add->getResult(0);
  }
  replaceByCall(op, result, operands, attributes);
}

void selectPlain(Operation *op) {
  replaceByCall(op, op->getResult(0), SmallVector<Value>(op->getOperands()), callAttributes(op));
}

/// Pieces of a concatenation that matrix products write in place; the rest is copied.
void finishConcat(ir::ConcatOp concat, const std::map<unsigned, library::CallOp> &written) {
  OpBuilder b(concat);
  std::vector<library::CallOp> calls;
  for (auto &[piece, call] : written)
    calls.push_back(call);
  int64_t start = 0;
  Strided whole = Strided::contiguous(sizesOf(concat.getResult()));
  for (auto [i, piece] : llvm::enumerate(concat.getInputs())) {
    Sizes shape = sizesOf(piece), starts(shape.size(), 0);
    starts[concat.getDim()] = start;
    start += shape[concat.getDim()];
    if (written.count(static_cast<unsigned>(i)))
      continue;
    NamedAttrList attributes = callAttributes(concat, "copy");
    attributes.set("src", viewAttr(b, Strided::contiguous(shape)));
    attributes.set("dst", viewAttr(b, whole.sliced(starts, shape)));
    attributes.set("shape", b.getDenseI64ArrayAttr(shape));
    calls.push_back(library::CallOp::create(b, concat.getLoc(), concat->getResultTypes(), ValueRange{piece},
                                            attributes.getAttrs()));
  }
  llvm::sort(calls, [](library::CallOp x, library::CallOp y) { return x->isBeforeInBlock(y); });
  for (size_t i = 1; i < calls.size(); ++i) {
    calls[i]->setAttr("into", b.getI64IntegerAttr(calls[i]->getNumOperands()));
    calls[i]->insertOperands(calls[i]->getNumOperands(), calls[i - 1]->getResult(0));
  }
  concat.getResult().replaceAllUsesWith(calls.back()->getResult(0));
}

} // namespace

Sizes sizesOf(Value value) {
  auto shape = cast<RankedTensorType>(value.getType()).getShape();
  return Sizes(shape.begin(), shape.end());
}

bool definedBefore(Value value, Operation *op) {
  Operation *defining = value.getDefiningOp();
  return !defining || (defining->getBlock() == op->getBlock() && defining->isBeforeInBlock(op));
}

DenseI64ArrayAttr viewAttr(OpBuilder &b, const Strided &view) {
  Sizes values{view.offset};
  values.insert(values.end(), view.strides.begin(), view.strides.end());
  return b.getDenseI64ArrayAttr(values);
}

NamedAttrList callAttributes(Operation *op, llvm::StringRef callee) {
  NamedAttrList attributes(op->getAttrDictionary());
  attributes.set("op", StringAttr::get(op->getContext(), callee.empty() ? op->getName().getStringRef() : callee));
  return attributes;
}

void carrySharding(Operation *from, NamedAttrList &attributes) {
  for (StringRef key : {StringRef(dist::attr::shardings), StringRef(dist::attr::globals)}) {
    attributes.erase(key);
    if (Attribute value = from->getAttr(key))
      attributes.set(key, value);
  }
}

void carrySharding(ArrayRef<Value> results, NamedAttrList &attributes) {
  for (StringRef key : {StringRef(dist::attr::shardings), StringRef(dist::attr::globals)}) {
    SmallVector<Attribute> entries;
    for (Value result : results) {
      auto array = result.getDefiningOp()->getAttrOfType<ArrayAttr>(key);
      if (size_t number = cast<OpResult>(result).getResultNumber(); array && number < array.size())
        entries.push_back(array[number]);
    }
    attributes.erase(key);
    if (entries.size() == results.size())
      attributes.set(key, ArrayAttr::get(results.front().getContext(), entries));
  }
}

library::CallOp replaceByCall(Operation *op, Value result, ValueRange operands, const NamedAttrList &attributes) {
  OpBuilder b(op);
  auto call = library::CallOp::create(b, op->getLoc(), TypeRange{result.getType()}, operands, attributes.getAttrs());
  result.replaceAllUsesWith(call->getResult(0));
  return call;
}

std::pair<Operation *, Value> onlyAccumulation(Value result) {
  if (!result.hasOneUse())
    return {};
  auto add = dyn_cast<ir::AddOp>(*result.getUsers().begin());
  if (!add || !add.getResult().hasOneUse())
    return {};
  auto gradient = dyn_cast<BlockArgument>(add.getLhs() == result ? add.getRhs() : add.getLhs());
  OpOperand &use = *add.getResult().use_begin();
  auto function = add->getParentOfType<func::FuncOp>();
  if (!gradient || !gradient.hasOneUse() || !isa<func::ReturnOp>(use.getOwner()))
    return {};
  for (StringRef key : {StringRef(ir::attr::kind), StringRef(ir::attr::name)})
    if (ir::argumentText(gradient, key) != ir::resultText(function, use.getOperandNumber(), key))
      return {};
  if (ir::argumentText(gradient, ir::attr::kind) != "gradient")
    return {};
  return {add, gradient};
}

Value productBias(ir::AddOp add, Value value, Operation *product) {
  int64_t last = static_cast<int64_t>(sizesOf(value).size()) - 1;
  Value bias = biasOf(add, value, last);
  return bias && definedBefore(bias, product) ? bias : Value();
}

void selectLibraryCalls(func::FuncOp function, SelectOptions options) {
  SmallVector<Operation *> ops;
  for (Operation &op : function.front())
    ops.push_back(&op);
  std::map<Operation *, std::map<unsigned, library::CallOp>> concats;
  for (Operation *op : ops)
    llvm::TypeSwitch<Operation *>(op)
        .Case([&](ir::MatmulOp matmul) { selectProduct(matmul, concats, options); })
        .Case([&](ir::Conv2dOp conv) { selectConv(conv, options); })
        .Case<ir::AttentionOp, ir::AttentionGradOp>([&](auto attention) { selectAttention(attention); })
        .Case<ir::Conv2dWeightGradOp, ir::EmbeddingGradOp>([&](auto gradient) { selectWithGradient(gradient); })
        .Case([&](ir::Conv2dInputGradOp gradient) { selectPlain(gradient); });
  for (auto &[concat, written] : concats)
    finishConcat(cast<ir::ConcatOp>(concat), written);
  eraseDeadOps(function);
}

/// oneDNN 2.6 on x86-64 computes in bf16 from AVX-512 on, never in fp16; NVIDIA's libraries in all.
static bool libraryHas(Type type, const std::string &target) {
  return isGpuTarget(target) || (!type.isF16() && (!type.isBF16() || target == "x86-64-v4"));
}

void select(func::FuncOp function, const std::string &target) {
  widenLibraryOps(function, [&](Type type) { return libraryHas(type, target); });
  joinPads(function);
  selectLibraryCalls(function, {.epilogues = isGpuTarget(target), .widen = isGpuTarget(target)});
}

} // namespace cleave::passes
