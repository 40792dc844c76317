// Chooses library calls for convolutions and embedding gradients; writes the pieces of concatenations in place.
#include "passes/rewrite/Values.h"
#include "passes/select/Selection.h"
#include "passes/simplify/Simplify.h"

using namespace mlir;

namespace cleave::passes {

namespace {

/// If the only use of the convolution's result is to have a bias added: the add and the bias.
std::pair<ir::AddOp, Value> onlyBias(ir::Conv2dOp conv) {
  Value result = conv.getResult();
  auto add = result.hasOneUse() ? dyn_cast<ir::AddOp>(*result.getUsers().begin()) : ir::AddOp();
  Value bias = add ? library::addedBias(add, result) : Value();
  if (!bias || !definedBefore(bias, conv))
    return {};
  return {add, bias};
}

/// Replaces `result`, the result of `op` or of an op after it, with that of the call.
void replaceResult(Operation *op, Value result, Operation *call) {
  carryMarks(op, call);
  carryShardings({result}, call);
  result.replaceAllUsesWith(call->getResult(0));
}

void selectConv(ir::Conv2dOp conv, SelectOptions options) {
  OpBuilder b(conv);
  Value result = conv.getResult();
  auto epilogue = library::Epilogue::None;
  auto [add, bias] = onlyBias(conv);
  if (add) {
    result = add.getResult();
    auto relu = result.hasOneUse() ? dyn_cast<ir::ReluOp>(*result.getUsers().begin()) : ir::ReluOp();
    if (relu && options.epilogues) {
      epilogue = library::Epilogue::Relu;
      result = relu.getResult();
    }
  }
  replaceResult(conv, result,
                library::Conv2dOp::create(b, conv.getLoc(), result.getType(), conv.getInput(), conv.getWeight(), bias,
                                          conv.getStride(), conv.getPadding(), conv.getDilation(), conv.getGroups(),
                                          conv.getChannelsLast(), epilogue));
}

/// Makes the gradient f32 if its only use, after transposes, is a cast to f32.
void widenGradient(ir::Conv2dWeightGradOp conv) {
  SmallVector<Operation *> chain = renamingsOf(conv.getResult());
  chain.insert(chain.begin(), conv);
  Value last = chain.back()->getResult(0);
  if (!last.hasOneUse() || !isWidening(*last.getUsers().begin()))
    return;
  auto cast = mlir::cast<ir::CastOp>(*last.getUsers().begin());
  for (Operation *op : chain) {
    Value result = op->getResult(0);
    result.setType(tensorType(result).clone(getElementTypeOrSelf(cast.getResult())));
    dropShardings(op);
  }
  cast.getResult().replaceAllUsesWith(last);
  cast.erase();
}

void selectConv(ir::Conv2dWeightGradOp conv, SelectOptions options) {
  if (options.widenConvolutions)
    widenGradient(conv);
  OpBuilder b(conv);
  auto [add, gradient] = onlyAccumulation(conv.getResult());
  Value result = add ? add->getResult(0) : Value(conv.getResult());
  replaceResult(conv, result,
                library::Conv2dWeightGradOp::create(b, conv.getLoc(), result.getType(), conv.getGrad(), conv.getInput(),
                                                    gradient, conv.getStride(), conv.getPadding(), conv.getDilation(),
                                                    conv.getGroups(), conv.getChannelsLast(), add != nullptr));
}

void selectEmbedding(ir::EmbeddingGradOp op) {
  OpBuilder b(op);
  auto [add, gradient] = onlyAccumulation(op.getResult());
  Value result = add ? add->getResult(0) : Value(op.getResult());
  replaceResult(op, result,
                library::EmbeddingGradOp::create(b, op.getLoc(), result.getType(), op.getGrad(), op.getIds(),
                                                 op.getStart(), gradient, add != nullptr));
}

/// Concatenations of so many pieces, such as those of an unrolled loop, are copies on CPUs: a kernel would look for the
/// piece of every element.
constexpr size_t fewestCopied = 8;

/// Makes the call write into the memory of `into`.
void setInto(Operation *call, Value into) {
  if (auto product = dyn_cast<library::MatmulOp>(call))
    product.getIntoMutable().assign(into);
  else
    cast<library::CopyOp>(call).getIntoMutable().assign(into);
}

/// Chains the calls that write pieces of a concatenation; copies the other pieces.
void finishConcat(ir::ConcatOp concat, const std::map<unsigned, Operation *> &written) {
  OpBuilder b(concat);
  std::vector<Operation *> calls;
  for (auto &[piece, call] : written)
    calls.push_back(call);
  int64_t start = 0;
  const Strided whole = Strided::contiguous(sizesOf(concat.getResult()));
  auto view = [&](const Strided &strided) { return library::ViewAttr::get(b.getContext(), strided); };
  for (auto [i, piece] : llvm::enumerate(concat.getInputs())) {
    Sizes shape = sizesOf(piece), starts(shape.size(), 0);
    starts[concat.getDim()] = start;
    start += shape[concat.getDim()];
    if (written.count(static_cast<unsigned>(i)))
      continue;
    calls.push_back(library::CopyOp::create(b, concat.getLoc(), concat.getType(), piece,
                                            view(Strided::contiguous(shape)), Value(),
                                            view(whole.sliced(starts, shape)), shape));
    carryMarks(concat, calls.back());
  }
  llvm::sort(calls, [](Operation *x, Operation *y) { return x->isBeforeInBlock(y); });
  for (size_t i = 1; i < calls.size(); ++i)
    setInto(calls[i], calls[i - 1]->getResult(0));
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

void carryMarks(Operation *op, Operation *call) { call->setDiscardableAttrs(op->getDiscardableAttrDictionary()); }

bool isWidening(Operation *op) {
  auto cast = dyn_cast<ir::CastOp>(op);
  if (!cast || !cast.getResult().hasOneUse() || !getElementTypeOrSelf(cast.getResult()).isF32() ||
      !isa<Float16Type, BFloat16Type>(getElementTypeOrSelf(cast.getInput())))
    return false;
  return isa<func::ReturnOp>(*cast.getResult().getUsers().begin()) || onlyAccumulation(cast.getResult()).first;
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
  if (ir::argumentKind(gradient) != ir::SlotKind::Gradient)
    return {};
  return {add, gradient};
}

void selectLibraryCalls(func::FuncOp function, SelectOptions options) {
  SmallVector<Operation *> ops;
  for (Operation &op : function.front())
    ops.push_back(&op);
  WrittenPieces concats;
  for (Operation *op : ops)
    llvm::TypeSwitch<Operation *>(op)
        .Case([&](ir::MatmulOp matmul) { selectProduct(matmul, concats, options); })
        .Case([&](ir::Conv2dOp conv) { selectConv(conv, options); })
        .Case([&](ir::Conv2dWeightGradOp conv) { selectConv(conv, options); })
        .Case<ir::AttentionOp, ir::AttentionGradOp>([&](auto attention) { selectAttention(attention); })
        .Case([&](ir::EmbeddingGradOp gradient) { selectEmbedding(gradient); })
        .Case([&](ir::ConcatOp concat) {
          if (options.copyPieces && concat.getInputs().size() >= fewestCopied)
            concats[concat];
        });
  for (auto &[concat, written] : concats)
    finishConcat(cast<ir::ConcatOp>(concat), written);
  eraseDeadOps(function);
}

static bool libraryHas(Type type, Target target) {
  return type.isF16() ? target.multipliesFp16() : !type.isBF16() || target.multipliesBf16();
}

void select(func::FuncOp function, Target target) {
  joinPads(function);
  joinSteps(function);
  widenLibraryOps(function, [&](Type type) { return libraryHas(type, target); });
  selectLibraryCalls(function,
                     {.epilogues = target.gpu(), .widenConvolutions = !target.gpu(), .copyPieces = !target.gpu()});
}

} // namespace cleave::passes
