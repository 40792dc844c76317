// One walk in program order over a function. Every float value has a claim that determines the type of its users: a
// strong value keeps f32; an activation is converted to the half type when it is used; a computed value (a sum and its
// dependents) is converted when an op combines it with a half value or an activation; a neutral value (a parameter, a
// constant) takes the type of the other operands.
#include "passes/precision/Precision.h"

#include "ir/Phase.h"
#include "ir/graph/Marks.h"
#include "passes/precision/LossScale.h"
#include "passes/rewrite/ThrowingPass.h"
#include "passes/rewrite/Values.h"
#include "runtime/base/Error.h"

#include "mlir/IR/BuiltinOps.h"

#include <fmt/format.h>
#include <map>

using namespace mlir;

namespace cleave::passes {

#define GEN_PASS_DEF_PRECISIONPASS
#include "passes/Passes.h.inc"

namespace {

enum class Claim { Neutral, Computed, Activation, Strong };

class Rewriter {
public:
  Rewriter(func::FuncOp function, Type half, int64_t level)
      : function(function), half(half), single(Float32Type::get(function.getContext())), level(level),
        e(OpBuilder(function)) {}

  void run() {
    for (BlockArgument argument : function.getArguments())
      visitArgument(argument);
    SmallVector<Operation *> ops;
    for (Operation &op : function.front().without_terminator())
      ops.push_back(&op);
    for (Operation *op : llvm::reverse(ops))
      if (onlySummed(op))
        summed.insert(op);
    for (Operation *op : ops)
      visit(op);
    visitReturn();
  }

private:
  func::FuncOp function;
  Type half, single;
  int64_t level;
  GraphBuilder e;
  DenseMap<Value, Claim> claims; // of f32 values
  DenseSet<Operation *> summed;  // arithmetic that only delicate ops use
  std::map<std::pair<const void *, const void *>, Value> casts;

  Type elementOf(Value value) { return tensorType(value).getElementType(); }
  bool isHalf(Value value) { return elementOf(value) == half; }
  Claim claimOf(Value value) {
    auto found = claims.find(value);
    return found == claims.end() ? Claim::Neutral : found->second;
  }

  void visitArgument(BlockArgument argument) {
    const ir::SlotKind kind = ir::argumentKind(argument);
    if (!isFloat(argument))
      return;
    if (kind == ir::SlotKind::Parameter) {
      claims[argument] = Claim::Neutral;
      if (level == 3)
        argument.setType(tensorType(argument).clone(half));
    } else {
      claims[argument] = kind == ir::SlotKind::Input && level > 1 ? Claim::Activation : Claim::Strong;
    }
  }

  /// `value` in another type, for `user`. Converted once, directly after its definition; arguments are converted for
  /// every user, because the conversion belongs to the user's layer and stage. (Simplification shares equal ops within
  /// a stage.)
  Value as(Value value, Type type, Operation *user) {
    if (!isFloat(value) || elementOf(value) == type)
      return value;
    if (isa<BlockArgument>(value)) {
      e.setOrigin(user);
      e.builder().setInsertionPoint(user);
      return e.cast(value, type);
    }
    Value &known = casts[{value.getAsOpaquePointer(), type.getAsOpaquePointer()}];
    if (known)
      return known;
    Operation *def = value.getDefiningOp();
    if (auto broadcast = dyn_cast_if_present<ir::BroadcastOp>(def); broadcast && claimOf(value) < Claim::Activation) {
      Value narrow = as(broadcast.getInput(), type, def); // convert before the broadcast, on fewer elements
      e.setOrigin(def);
      e.builder().setInsertionPointAfter(def);
      return casts[{value.getAsOpaquePointer(), type.getAsOpaquePointer()}] =
                 e.op<ir::BroadcastOp>(tensorType(value).clone(type), narrow, broadcast.getDims()).getResult();
    }
    e.setOrigin(def);
    e.builder().setInsertionPointAfter(def);
    return known = e.cast(value, type);
  }

  void operands(Operation *op, Type type) {
    auto attention = dyn_cast<ir::AttentionOp>(op);
    for (OpOperand &operand : op->getOpOperands()) {
      const bool bias = attention && attention.getBias() && operand.getOperandNumber() == 3;
      operand.set(as(operand.get(), bias ? single : type, op));
    }
  }

  /// Sets the result types implied by the operands, whose float type is now `type`.
  void results(Operation *op, Type type, Claim claim) {
    if (auto inferring = dyn_cast<InferTypeOpInterface>(op)) {
      SmallVector<Type> types;
      bool good = succeeded(inferring.inferReturnTypes(op->getContext(), op->getLoc(), op->getOperands(),
                                                       op->getAttrDictionary(), op->getPropertiesStorage(),
                                                       op->getRegions(), types));
      if (!good)
        throw Error(Status::Internal, fmt::format("precision: {} refuses its operands in another type",
                                                  op->getName().getStringRef().str()));
      for (auto [result, inferred] : llvm::zip_equal(op->getResults(), types))
        result.setType(inferred);
    } else {
      for (Value result : op->getResults())
        if (isFloat(result))
          result.setType(tensorType(result).clone(type));
    }
    for (Value result : op->getResults())
      if (isFloat(result) && !isHalf(result))
        claims[result] = claim;
  }

  void compute(Operation *op, Type type, Claim claim) {
    operands(op, type);
    results(op, type, claim);
  }

  static bool isProduct(Operation *op) {
    return isa<ir::MatmulOp, ir::Conv2dOp, ir::Conv2dInputGradOp, ir::AttentionOp>(op);
  }
  static bool isDelicate(Operation *op) { return op->hasTrait<ir::Delicate>(); }
  /// Arithmetic that only delicate ops use, such as the squares of a norm. A half type would round values that are
  /// summed in f32 anyway, and fp16 would overflow at 256 squared.
  bool onlySummed(Operation *op) {
    return isa<ir::AddOp, ir::SubOp, ir::MulOp, ir::DivOp, ir::ShardHintOp>(op) && isFloat(op->getResult(0)) &&
           !op->use_empty() &&
           llvm::all_of(op->getUsers(), [&](Operation *user) { return isDelicate(user) || summed.contains(user); });
  }
  static bool isNorm(Operation *op) { return isa<ir::LayerNormOp, ir::BatchNormOp>(op); }

  void visit(Operation *op) {
    if (llvm::none_of(op->getOperands(), [](Value v) { return isFloat(v); })) {
      if (isa<ir::CastOp>(op) && isFloat(op->getResult(0)) && !elementOf(op->getOperand(0)).isInteger(1))
        claims[op->getResult(0)] = Claim::Strong; // counts and positions, which exceed the range of half types
      return;                                     // constants, indices, random numbers
    }
    if (isa<ir::CrossEntropyOp, ir::TopCorrectOp>(op)) {
      if (level == 1)
        operands(op, single);
      else
        loosen(op->getOpOperand(0), Claim::Activation);
      return results(op, single, Claim::Strong);
    }
    if (textAttr(op, ir::attr::path) == "loss")
      return compute(op, single, Claim::Strong);
    if (isa<ir::CastOp>(op)) { // a user's cast, or a marker at the start or end of a composite
      const bool activation = op->hasAttr(ir::attr::activation) && level > 1;
      for (Value result : op->getResults())
        if (isFloat(result) && !isHalf(result))
          claims[result] = activation ? Claim::Activation : Claim::Strong;
      return;
    }
    if (isa<ir::ShardHintOp>(op)) // concerns the layout, not the type
      return results(op, elementOf(op->getOperand(0)), claimOf(op->getOperand(0)));
    if (isa<ir::EmbeddingOp>(op)) // looked up as stored, then used as an activation
      return results(op, elementOf(op->getOperand(0)), level > 1 ? Claim::Activation : Claim::Strong);
    if (isProduct(op) && !op->hasAttr(ir::attr::single))
      return compute(op, half, Claim::Strong); // attention's lse is f32
    if (isNorm(op))
      return norm(op);
    if (isDelicate(op) && !neutral(op))
      return compute(op, single, anyClaims(op, Claim::Strong) || level == 1 ? Claim::Strong : Claim::Computed);
    follow(op);
  }

  bool neutral(Operation *op) {
    return llvm::all_of(op->getOperands(),
                        [&](Value v) { return !isFloat(v) || (!isHalf(v) && claimOf(v) == Claim::Neutral); });
  }
  /// Whether an f32 operand has this claim.
  bool anyClaims(Operation *op, Claim wanted) {
    return llvm::any_of(op->getOperands(), [&](Value v) { return isFloat(v) && !isHalf(v) && claimOf(v) == wanted; });
  }

  /// Converts the operand to the half type if its claim is at least `least`, but not strong.
  void loosen(OpOperand &operand, Claim least) {
    const Claim claim = claimOf(operand.get());
    if (!isHalf(operand.get()) && claim >= least && claim != Claim::Strong)
      operand.set(as(operand.get(), half, operand.getOwner()));
  }

  /// Statistics and parameters are f32; the result has the input's type.
  void norm(Operation *op) {
    if (level == 1)
      return compute(op, single, Claim::Strong);
    loosen(op->getOpOperand(0), Claim::Computed);
    for (OpOperand &operand : op->getOpOperands().drop_front())
      operand.set(as(operand.get(), single, op));
    results(op, single, Claim::Strong);
  }

  void follow(Operation *op) {
    const bool anyHalf = llvm::any_of(op->getOperands(), [&](Value v) { return isFloat(v) && isHalf(v); });
    if (anyClaims(op, Claim::Strong))
      compute(op, single, Claim::Strong);
    else if (summed.contains(op) && !neutral(op))
      compute(op, single, level == 1 ? Claim::Strong : Claim::Computed);
    else if (anyHalf || anyClaims(op, Claim::Activation))
      compute(op, half, Claim::Strong);
    else if (anyClaims(op, Claim::Computed))
      compute(op, single, Claim::Computed);
    else
      results(op, single, Claim::Neutral);
  }

  void visitReturn() {
    Operation *terminator = function.front().getTerminator();
    auto types = function.getResultTypes();
    for (OpOperand &result : terminator->getOpOperands())
      result.set(
          as(result.get(), cast<RankedTensorType>(types[result.getOperandNumber()]).getElementType(), terminator));
    function.setType(FunctionType::get(function.getContext(), TypeRange(function.front().getArguments()), types));
  }
};

/// The MLIR type of a precision. tf32 values are stored as f32.
Type elementType(MLIRContext *context, Precision::Type type) {
  return type == Precision::Type::Bf16   ? Type(BFloat16Type::get(context))
         : type == Precision::Type::Fp16 ? Type(Float16Type::get(context))
                                         : Type(Float32Type::get(context));
}

struct PrecisionPass : ThrowingPass<impl::PrecisionPassBase<PrecisionPass>> {
  using ThrowingPass::ThrowingPass;

  void work() override {
    ir::requirePhase(getOperation(), "precision", ir::Phase::Traced);
    applyPrecision(getOperation(), half, level);
    if (!lossScale.empty())
      setLossScale(getOperation(), LossScale::parse(lossScale));
    if (!reduceType.empty())
      getOperation()->setAttr(ir::attr::reduceDtype,
                              TypeAttr::get(elementType(&getContext(), Precision::typeOf("reduce-dtype", reduceType))));
  }
};

} // namespace

void applyPrecision(ModuleOp module, Precision::Type half, int64_t level) {
  if (level < 0 || level > 3)
    throw userError(fmt::format("precision: the level must be 0 to 3, found {}", level));
  if (level == 0)
    return;
  if (half != Precision::Type::Bf16 && half != Precision::Type::Fp16)
    throw userError(fmt::format("precision: the half type is bf16 or fp16, found {}", text(half)));
  for (const char *name : {"forward", "eval"})
    if (auto function = module.lookupSymbol<func::FuncOp>(name))
      Rewriter(function, elementType(module.getContext(), half), level).run();
}

} // namespace cleave::passes
