// Assigns a slot to every value of a segment.
#include "ir/dist/Dist.h"
#include "ir/graph/Graph.h"
#include "passes/export/Segment.h"
#include "passes/select/Select.h"
#include "runtime/base/Error.h"

#include <algorithm>

using namespace mlir;

namespace cleave::passes {

bool isNoOp(Operation *op, const Mesh &mesh) {
  auto alone = [&](ArrayAttr axes) { return mesh.size(axesOf(axes)) == 1; };
  if (isa<ir::ReshapeOp, ir::ShardHintOp>(op))
    return true;
  if (auto reduce = dyn_cast<dist::AllReduceOp>(op))
    return alone(reduce.getAxes());
  if (auto gather = dyn_cast<dist::AllGatherOp>(op))
    return alone(gather.getAxes());
  if (auto scatter = dyn_cast<dist::ReduceScatterOp>(op))
    return alone(scatter.getAxes());
  if (auto exchange = dyn_cast<dist::AllToAllOp>(op))
    return alone(exchange.getAxes());
  if (auto slice = dyn_cast<dist::ShardSliceOp>(op))
    return alone(slice.getAxes());
  return false;
}

SlotAssignment::SlotAssignment(ProgramBuilder &program, func::FuncOp function, const std::set<std::string> &readLater)
    : program(program), function(function), keptSlots(program.sentSlots) {
  for (const auto &[name, slot] : program.stash)
    if (readLater.count(name))
      keptSlots.insert(slot);
  findUses();
  assignArguments();
  findTargets();
  for (Operation &op : function.front()) {
    if (isNoOp(&op, program.tables.mesh) || isa<dist::ShardOffsetOp>(op))
      continue;
    for (OpResult result : op.getResults())
      assignResult(result);
  }
  finish();
}

Value SlotAssignment::root(Value value) const {
  while (Operation *op = value.getDefiningOp()) {
    if (!isNoOp(op, program.tables.mesh))
      break;
    value = op->getOperand(cast<OpResult>(value).getResultNumber());
  }
  return value;
}

void SlotAssignment::findUses() {
  int64_t position = 0;
  for (Operation &op : function.front()) {
    positions[&op] = position;
    if (!isNoOp(&op, program.tables.mesh))
      for (Value operand : op.getOperands())
        lastUse[root(operand)] = position;
    if (isa<dist::SendOp>(op))
      sent.insert(root(op.getOperand(0)));
    if (isa<ir::FusionOp>(op))
      kernels.emplace(&op, program.kernels.add(&op));
    ++position;
  }
}

void SlotAssignment::bind(Value value, uint32_t slot) {
  slots[value] = slot;
  auto last = lastUse.find(value);
  int64_t &until = busyUntil.try_emplace(slot, -1).first->second;
  until = std::max(until, last == lastUse.end() ? -1 : last->second);
  if (sent.contains(value))
    keptSlots.insert(slot);
}

void SlotAssignment::assignArguments() {
  for (BlockArgument argument : function.getArguments()) {
    unsigned index = argument.getArgNumber();
    const ir::SlotKind kind = ir::argumentKind(function, index);
    std::string name = ir::argumentText(function, index, ir::attr::name).str();
    if (kind == ir::SlotKind::Stash) {
      if (argument.use_empty())
        continue;
      auto found = program.stash.find(name);
      if (found == program.stash.end())
        throw Error(Status::Internal, "plan export: " + function.getName().str() + " reads \"" + name +
                                          "\", which no earlier segment stashes");
      bind(argument, found->second);
      continue;
    }
    if (!isPersistentKind(kind) && argument.use_empty())
      continue; // an unused input
    Label label = program.tables.label(argument.getType(), function.getArgAttr(index, dist::attr::sharding),
                                       function.getArgAttr(index, dist::attr::global), program.coords);
    uint32_t slot = program.namedSlot(kind, name, argument.getType(), label);
    program.describe(slot, function, index);
    bind(argument, slot);
  }
}

Label SlotAssignment::labelOf(OpResult result) const {
  auto entry = [&](StringRef key) -> Attribute {
    auto array = result.getOwner()->getAttrOfType<ArrayAttr>(key);
    return array && result.getResultNumber() < array.size() ? array[result.getResultNumber()] : Attribute();
  };
  Attribute sharding = entry(dist::attr::shardings), global = entry(dist::attr::globals);
  if (!isa_and_nonnull<dist::ShardingAttr>(sharding))
    return {}; // unknown
  return program.tables.label(result.getType(), sharding, global, program.coords);
}

/// The label of a returned value. The ops that share its bytes may have none, but only those of its own shape count.
Label SlotAssignment::labelAs(Value returned) const {
  for (Value value = returned; value.getType() == returned.getType();) {
    auto result = dyn_cast<OpResult>(value);
    if (!result)
      break;
    if (Label label = labelOf(result); label.known)
      return label;
    if (!isNoOp(result.getOwner(), program.tables.mesh))
      break;
    value = result.getOwner()->getOperand(result.getResultNumber());
  }
  return {};
}

/// Finds the named slots of results, and the values that should be written there.
void SlotAssignment::findTargets() {
  Operation *end = function.front().getTerminator();
  for (OpOperand &operand : end->getOpOperands()) {
    unsigned index = operand.getOperandNumber();
    const ir::SlotKind kind = ir::resultKind(function, index);
    if (!isPersistentKind(kind))
      continue;
    std::string name = ir::resultText(function, index, ir::attr::name).str();
    targets.try_emplace(root(operand.get()),
                        program.namedSlot(kind, name, operand.get().getType(), labelAs(operand.get())));
  }
}

void SlotAssignment::assignResult(OpResult result) {
  for (auto choose : {&SlotAssignment::intoSlot, &SlotAssignment::targetSlot, &SlotAssignment::reusedSlot})
    if (auto slot = (this->*choose)(result))
      return bind(result, *slot);
  auto path = result.getOwner()->getAttrOfType<StringAttr>(ir::attr::path);
  bind(result, newActivation(path ? path.getValue().str() : result.getOwner()->getName().stripDialect().str(), result));
}

uint32_t SlotAssignment::newCopy(const std::string &name, Value value, uint32_t slot) const {
  auto result = dyn_cast<OpResult>(value);
  if (result && cast<RankedTensorType>(value.getType()).getShape() != ArrayRef(program.slot(slot).shape))
    return newActivation(name, result); // a view of the slot, or the value of which the slot's tensor is a view
  uint32_t copy = program.newSlot(name, value.getType(), program.labels[slot], plan::Space::Placed);
  program.slot(copy).tensor = program.slot(slot).tensor;
  return copy;
}

uint32_t SlotAssignment::newActivation(const std::string &name, OpResult result) const {
  Label label = labelOf(result);
  uint32_t slot = program.newSlot(name, result.getType(), label, plan::Space::Placed);
  if (label.known)
    program.slot(slot).tensor = static_cast<int32_t>(
        program.tables.tensor(name, plan::TensorKind::Activation, plannedType(result.getType()), label.global));
  return slot;
}

std::optional<uint32_t> SlotAssignment::intoSlot(OpResult result) {
  auto call = dyn_cast<library::Call>(result.getOwner());
  if (!call || !call.getInto() || result.getResultNumber() != 0)
    return std::nullopt;
  return slotOf(call.getInto());
}

/// Operands of `op` by slot, cached: an op that sums all gradients has thousands of operands and asks per result.
const std::map<uint32_t, SmallVector<unsigned, 1>> &SlotAssignment::readersOf(Operation *op) {
  if (operandsOf == op)
    return operandsBySlot;
  operandsOf = op;
  operandsBySlot.clear();
  for (OpOperand &operand : op->getOpOperands())
    if (hasSlot(operand.get()))
      operandsBySlot[slotOf(operand.get())].push_back(operand.getOperandNumber());
  return operandsBySlot;
}

/// Whether `result` may overwrite the content of `slot`: no later op reads it, and this op reads it only as its kernel
/// allows (or reduces it in place).
bool SlotAssignment::mayReplace(OpResult result, uint32_t slot) {
  Operation *op = result.getOwner();
  auto busy = busyUntil.find(slot);
  if (busy == busyUntil.end())
    return true;
  if (busy->second > positions.at(op))
    return false;
  const auto read = readersOf(op).find(slot);
  if (read == operandsBySlot.end())
    return true;
  if (read->second.size() > 1)
    return false;
  const unsigned reading = read->second.front();
  if (isa<dist::AllReduceOp>(op))
    return reading == result.getResultNumber();
  auto kernel = kernels.find(op);
  std::pair<unsigned, unsigned> pair{result.getResultNumber(), reading};
  return kernel != kernels.end() && llvm::is_contained(kernel->second.mayAlias, pair) &&
         overwritten.insert({op, pair.second}).second;
}

std::optional<uint32_t> SlotAssignment::targetSlot(OpResult result) {
  auto target = targets.find(result);
  if (target == targets.end() || !mayReplace(result, target->second))
    return std::nullopt;
  return target->second;
}

/// The slot of a fusion's operand whose last use this is, if it has the same label. Values that are sent get a new
/// slot, because they live longer.
std::optional<uint32_t> SlotAssignment::reusedSlot(OpResult result) {
  auto kernel = kernels.find(result.getOwner());
  if (kernel == kernels.end() || sent.contains(result))
    return std::nullopt;
  for (auto [written, read] : kernel->second.mayAlias) {
    if (written != result.getResultNumber())
      continue;
    Value operand = root(result.getOwner()->getOperand(read));
    uint32_t slot = slotOf(operand);
    if (program.slot(slot).space != plan::Space::Placed || program.slot(slot).bytes != bytesOf(result.getType()) ||
        program.slot(slot).dtype != plannedType(result.getType()) || !(program.labels[slot] == labelOf(result)))
      continue;
    if (!keptSlots.count(slot) && mayReplace(result, slot))
      return slot;
  }
  return std::nullopt;
}

std::vector<SlotAssignment::Target> SlotAssignment::copies() const {
  std::vector<Target> apart;
  for (const Target &target : leaves)
    if (slotOf(target.value) != target.slot)
      apart.push_back(target);
  return apart;
}

/// Registers stashed values by name, and marks named tensors that were not written in place for copying.
void SlotAssignment::finish() {
  Operation *end = function.front().getTerminator();
  for (OpOperand &operand : end->getOpOperands()) {
    unsigned index = operand.getOperandNumber();
    const ir::SlotKind kind = ir::resultKind(function, index);
    std::string name = ir::resultText(function, index, ir::attr::name).str();
    uint32_t slot = slotOf(operand.get());
    if (isPersistentKind(kind)) {
      leaves.push_back({operand.get(), program.namedSlot(kind, name, operand.get().getType(), {})});
      continue;
    }
    if (program.slot(slot).space == plan::Space::Persistent) // it may change before it is read
      slot = newCopy(name, operand.get(), slot);
    program.stash[name] = slot;
    leaves.push_back({operand.get(), slot});
  }
}

} // namespace cleave::passes
