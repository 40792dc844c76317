// One walk in program order over a function. Every float value has a claim on the type of what is made of it:
// a strong value keeps f32, an activation goes to the half type when it is used, a neutral one (a parameter, a
// constant) takes the type of the other operands.
#include "passes/precision/Precision.h"

#include "passes/rewrite/Emitter.h"
#include "runtime/base/Error.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/Pass.h"

#include <fmt/format.h>
#include <map>

using namespace mlir;

namespace cleave::passes {
namespace {

enum class Claim { Neutral, Activation, Strong };

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
    for (Operation *op : ops)
      visit(op);
    visitReturn();
  }

private:
  func::FuncOp function;
  Type half, single;
  int64_t level;
  Emitter e;
  DenseMap<Value, Claim> claims; // of f32 values
  std::map<std::pair<const void *, const void *>, Value> casts;

  Type elementOf(Value value) { return tensorType(value).getElementType(); }
  bool isHalf(Value value) { return elementOf(value) == half; }
  Claim claimOf(Value value) {
    auto found = claims.find(value);
    return found == claims.end() ? Claim::Neutral : found->second;
  }

  void visitArgument(BlockArgument argument) {
    auto kind = function.getArgAttrOfType<StringAttr>(argument.getArgNumber(), ir::attr::kind);
    if (!isFloat(argument))
      return;
    if (kind.getValue() == "parameter") {
      claims[argument] = Claim::Neutral;
      if (level == 3)
        argument.setType(tensorType(argument).clone(half));
    } else {
      claims[argument] = kind.getValue() == "input" && level > 1 ? Claim::Activation : Claim::Strong;
    }
  }

  /// `value` in another type, for `user`: made once, right behind the value; but what an argument becomes is made for
  /// every user, as it belongs to the user's layer and stage. (Simplification shares what is equal within a stage.)
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
    if (auto broadcast = dyn_cast_if_present<ir::BroadcastOp>(def); broadcast && claimOf(value) == Claim::Neutral) {
      Value narrow = as(broadcast.getInput(), type, def); // the few, not the many
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
    for (OpOperand &operand : op->getOpOperands())
      operand.set(as(operand.get(), type, op));
  }

  /// Results in the types that follow from the operands, whose float type is now `type`.
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

  static bool isProduct(Operation *op) { return isa<ir::MatmulOp, ir::Conv2dOp, ir::AttentionOp>(op); }
  /// Where half precision loses what the op is for: sums of many terms, and functions that spread small differences.
  static bool isDelicate(Operation *op) {
    return isa<ir::ReduceOp, ir::SoftmaxOp, ir::LogSoftmaxOp, ir::ExpOp, ir::LogOp, ir::PowOp, ir::RsqrtOp>(op);
  }
  static bool isNorm(Operation *op) { return isa<ir::LayerNormOp, ir::BatchNormOp>(op); }

  void visit(Operation *op) {
    if (llvm::none_of(op->getOperands(), [](Value v) { return isFloat(v); }))
      return; // constants, indices, random numbers
    if (isa<ir::CrossEntropyOp, ir::TopOneCorrectOp>(op)) {
      if (level == 1)
        operands(op, single);
      else
        loosen(op->getOpOperand(0));
      return results(op, single, Claim::Strong);
    }
    if (textAttr(op, ir::attr::path) == "loss")
      return compute(op, single, Claim::Strong);
    if (isa<ir::CastOp>(op)) { // the user's own
      for (Value result : op->getResults())
        if (isFloat(result) && !isHalf(result))
          claims[result] = Claim::Strong;
      return;
    }
    if (isa<ir::EmbeddingOp>(op)) // looked up as stored, then used as the activation it is
      return results(op, elementOf(op->getOperand(0)), level > 1 ? Claim::Activation : Claim::Strong);
    if (isProduct(op))
      return compute(op, half, Claim::Strong); // attention's lse is f32
    if (isNorm(op))
      return norm(op);
    if (isDelicate(op) && !neutral(op))
      return compute(op, single, claimsStrong(op) || level == 1 ? Claim::Strong : Claim::Activation);
    follow(op);
  }

  bool neutral(Operation *op) {
    return llvm::all_of(op->getOperands(),
                        [&](Value v) { return !isFloat(v) || (!isHalf(v) && claimOf(v) == Claim::Neutral); });
  }
  bool claimsStrong(Operation *op) {
    return llvm::any_of(op->getOperands(),
                        [&](Value v) { return isFloat(v) && !isHalf(v) && claimOf(v) == Claim::Strong; });
  }

  /// An activation in the half type.
  void loosen(OpOperand &operand) {
    if (!isHalf(operand.get()) && claimOf(operand.get()) == Claim::Activation)
      operand.set(as(operand.get(), half, operand.getOwner()));
  }

  /// Statistics and parameters are f32; the result is as the input.
  void norm(Operation *op) {
    if (level == 1)
      return compute(op, single, Claim::Strong);
    loosen(op->getOpOperand(0));
    for (OpOperand &operand : op->getOpOperands().drop_front())
      operand.set(as(operand.get(), single, op));
    results(op, single, Claim::Strong);
  }

  void follow(Operation *op) {
    bool anyHalf = false, activation = false;
    for (Value v : op->getOperands())
      if (isFloat(v)) {
        anyHalf |= isHalf(v);
        activation |= !isHalf(v) && claimOf(v) == Claim::Activation;
      }
    if (claimsStrong(op))
      compute(op, single, Claim::Strong);
    else if (anyHalf || activation)
      compute(op, half, Claim::Strong);
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

struct PrecisionPass : PassWrapper<PrecisionPass, OperationPass<ModuleOp>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(PrecisionPass)
  PrecisionPass() = default;
  PrecisionPass(const PrecisionPass &other) : PassWrapper(other) {}

  StringRef getArgument() const override { return "precision"; }
  StringRef getDescription() const override { return "element types of the traced model by optimisation level"; }
  void runOnOperation() override {
    try {
      applyPrecision(getOperation(), {half, level});
    } catch (const Error &error) {
      getOperation().emitError(error.what());
      signalPassFailure();
    }
  }
  Option<std::string> half{*this, "half", llvm::cl::desc("bf16 or fp16"), llvm::cl::init("bf16")};
  Option<int64_t> level{*this, "level", llvm::cl::desc("0 to 3"), llvm::cl::init(1)};
};

} // namespace

void applyPrecision(ModuleOp module, const PrecisionOptions &options) {
  if (options.level < 0 || options.level > 3)
    throw userError(fmt::format("precision: the level is 0 to 3, found {}", options.level));
  if (options.level == 0)
    return;
  if (options.half != "bf16" && options.half != "fp16")
    throw userError(fmt::format("precision: the half type is bf16 or fp16, found {}", options.half));
  Type half = options.half == "bf16" ? Type(BFloat16Type::get(module.getContext()))
                                     : Type(Float16Type::get(module.getContext()));
  for (const char *name : {"forward", "eval"})
    if (auto function = module.lookupSymbol<func::FuncOp>(name))
      Rewriter(function, half, options.level).run();
}

std::unique_ptr<Pass> createPrecisionPass() { return std::make_unique<PrecisionPass>(); }

} // namespace cleave::passes
