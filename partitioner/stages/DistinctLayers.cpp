// Compares layers by a text of their ops, and erases repeated ones.
#include "partitioner/stages/DistinctLayers.h"

#include "ir/graph/Graph.h"
#include "partitioner/sharding/Pinned.h"
#include "runtime/base/Error.h"

#include "llvm/ADT/BitVector.h"
#include "llvm/ADT/MapVector.h"

#include <map>

using namespace mlir;

namespace cleave::partitioner {
namespace {

/// The text with the layer's own path left out, which is in attributes of its ops and in names of its parameters.
std::string withoutPath(std::string text, const std::string &path) {
  for (size_t at = 0; !path.empty() && (at = text.find(path, at)) != std::string::npos;)
    text.erase(at, path.size());
  return text;
}

/// Equal for layers of one kind. Operands are numbered: results of the layer's ops, and values from outside by first
/// use.
std::string signatureOf(const Layer &layer) {
  DenseMap<Value, int> numbers, outside;
  std::string text;
  llvm::raw_string_ostream out(text);
  for (Operation *op : layer.ops) {
    out << op->getName().getStringRef();
    for (const NamedAttribute attribute : op->getAttrDictionary())
      if (auto string = dyn_cast<StringAttr>(attribute.getValue()))
        out << ' ' << attribute.getName().getValue() << '=' << withoutPath(string.str(), layer.path);
      else // equal attributes are one object
        out << ' ' << attribute.getName().getValue() << '=' << attribute.getValue().getAsOpaquePointer();
    for (Value operand : op->getOperands()) {
      if (const auto own = numbers.find(operand); own != numbers.end()) {
        out << " %" << own->second;
        continue;
      }
      const int number = outside.try_emplace(operand, static_cast<int>(outside.size())).first->second;
      out << " ^" << number << ':' << operand.getType();
      if (auto argument = dyn_cast<BlockArgument>(operand))
        out << ir::text(ir::argumentKind(argument));
    }
    for (Value result : op->getResults()) {
      out << " -> " << result.getType();
      numbers[result] = static_cast<int>(numbers.size());
    }
    out << '\n';
  }
  return text;
}

/// The numbers of the rules that apply to a layer or its parameters.
std::string rulesOf(const Layer &layer, const Decisions &pinned) {
  std::string text;
  for (size_t r = 0; r < pinned.recompute.size(); ++r)
    if (matches(pinned.recompute[r].pattern, layer.path))
      text += " recompute " + std::to_string(r);
  if (pinned.shard.empty())
    return text;
  for (Operation *op : layer.ops)
    for (Value operand : op->getOperands())
      if (auto argument = dyn_cast<BlockArgument>(operand))
        for (size_t r = 0; r < pinned.shard.size(); ++r)
          if (matches(pinned.shard[r].pattern, ir::argumentText(argument, ir::attr::name).str()))
            text += " shard " + std::to_string(r);
  return text;
}

double bytesOfType(Type type) {
  auto tensor = cast<RankedTensorType>(type);
  return static_cast<double>(tensor.getNumElements()) * std::max(1u, tensor.getElementTypeBitWidth() / 8);
}

/// For each layer, the bytes of the values that are computed up to it and read after it. Views are not counted: they
/// are rematerialised.
std::vector<double> crossingBytes(const std::vector<Layer> &layers) {
  DenseMap<Operation *, size_t> layerOf;
  for (size_t i = 0; i < layers.size(); ++i)
    for (Operation *op : layers[i].ops)
      layerOf[op] = i;
  // The last layer that reads a value, itself or by a view, which is made again in the layer of its user.
  const auto lastOf = [&](Value value, auto self) -> size_t {
    size_t last = 0;
    for (Operation *user : value.getUsers())
      if (isView(user) && !isa<ir::CastOp>(user))
        last = std::max(last, self(user->getResult(0), self));
      else if (const auto found = layerOf.find(user); found != layerOf.end())
        last = std::max(last, found->second);
    return last;
  };
  DenseMap<Value, size_t> sentTo; // computed values and their views -> the last layer to which they are sent
  std::vector<double> bytes(layers.size());
  for (size_t i = 0; i < layers.size(); ++i)
    for (Operation *op : layers[i].ops) {
      const auto source = op->getNumOperands() ? sentTo.find(op->getOperand(0)) : sentTo.end();
      const bool view = isView(op), cast = isa<ir::CastOp>(op);
      if (op->getOperands().empty() || (view && source == sentTo.end())) // of parameters, inputs or constants
        continue;
      const size_t before = view ? source->second : i; // a cast of what is sent as well is made there
      for (Value result : op->getResults()) {
        const size_t last = view && !cast ? before : std::max(before, lastOf(result, lastOf));
        for (size_t k = std::max(i, before); k < last; ++k)
          bytes[k] += bytesOfType(result.getType());
        sentTo[result] = last;
      }
    }
  return bytes;
}

/// Finds parameters that several layers read. The owner is the layer whose path its name has, else the first reader.
void findTied(const std::vector<Layer> &layers, std::vector<LayerOutline> &outline) {
  llvm::MapVector<Value, SmallVector<size_t>> readers;
  for (size_t i = 0; i < layers.size(); ++i)
    for (Operation *op : layers[i].ops)
      for (Value operand : op->getOperands())
        if (auto argument = dyn_cast<BlockArgument>(operand);
            argument && ir::argumentKind(argument) == ir::SlotKind::Parameter)
          if (auto &all = readers[operand]; all.empty() || all.back() != i)
            all.push_back(i);
  const auto ownerOf = [&](Value parameter, ArrayRef<size_t> all) {
    const StringRef name = ir::argumentText(cast<BlockArgument>(parameter), ir::attr::name);
    const auto named = llvm::find_if(all, [&](size_t i) { return name.starts_with(layers[i].path + "."); });
    return named == all.end() ? all.front() : *named;
  };
  std::vector<double> bytes(layers.size());
  for (const auto &[parameter, all] : readers)
    bytes[ownerOf(parameter, all)] += bytesOfType(parameter.getType());
  for (const auto &[parameter, all] : readers)
    for (const size_t i : all)
      if (const size_t owner = ownerOf(parameter, all); owner != i) {
        outline[i].tiedTo = static_cast<int64_t>(owner);
        outline[i].tiedShare += bytesOfType(parameter.getType()) / bytes[owner];
      }
}

std::vector<LayerOutline> outlineOf(const std::vector<Layer> &layers, const std::vector<double> &crossing) {
  std::vector<LayerOutline> outline;
  for (size_t i = 0; i < layers.size(); ++i) {
    LayerOutline &one = outline.emplace_back(LayerOutline{layers[i].path, layers[i].path, static_cast<int>(i),
                                                          layers[i].mark, layers[i].parameters, 0, crossing[i]});
    for (Operation *op : layers[i].ops)
      one.flops += flopsOf(op);
  }
  findTied(layers, outline);
  return outline;
}

/// Whether every layer that stays has an op on which the function's results depend.
bool allAreUsed(func::FuncOp forward, const std::vector<Layer> &layers, const std::vector<bool> &removed) {
  DenseSet<Operation *> live;
  SmallVector<Operation *> work{forward.getBody().front().getTerminator()};
  while (!work.empty())
    for (Value operand : work.pop_back_val()->getOperands())
      if (Operation *op = operand.getDefiningOp(); op && live.insert(op).second)
        work.push_back(op);
  for (size_t i = 0; i < layers.size(); ++i)
    if (!removed[i] && llvm::none_of(layers[i].ops, [&](Operation *op) { return live.contains(op); }))
      return false;
  return true;
}

/// Drops the arguments and results that belong to removed layers.
void eraseNames(func::FuncOp forward, const std::vector<Layer> &layers, const std::vector<bool> &removed) {
  const auto belongs = [&](StringRef name) {
    for (size_t i = 0; i < layers.size(); ++i)
      if (removed[i] && name.starts_with(layers[i].path + "."))
        return true;
    return false;
  };
  Operation *end = forward.getBody().front().getTerminator();
  BitVector results(forward.getNumResults()), arguments(forward.getNumArguments());
  for (unsigned i = 0; i < forward.getNumResults(); ++i)
    if (ir::resultKind(forward, i) == ir::SlotKind::Buffer && belongs(ir::resultText(forward, i, ir::attr::name)))
      results.set(i);
  end->eraseOperands(results);
  (void)forward.eraseResults(results);
  for (BlockArgument argument : forward.getArguments())
    if (argument.use_empty() && belongs(ir::argumentText(argument, ir::attr::name)))
      arguments.set(argument.getArgNumber());
  (void)forward.eraseArguments(arguments);
}

} // namespace

std::vector<LayerOutline> outlineOf(ModuleOp module, const Decisions &pinned) {
  auto forward = module.lookupSymbol<func::FuncOp>("forward");
  const std::vector<Layer> layers = layersOf(forward, layerNames(forward, layersNamed(pinned)));
  return outlineOf(layers, crossingBytes(layers));
}

std::vector<size_t> pinnedBegins(ModuleOp module, const Decisions &pinned) {
  auto forward = module.lookupSymbol<func::FuncOp>("forward");
  const std::vector<Layer> layers = layersOf(forward, layerNames(forward, layersNamed(pinned)));
  for (const RecomputeRule &rule : pinned.recompute)
    if (rule.pattern != RecomputeRule::everyLayer &&
        llvm::none_of(layers, [&](const Layer &layer) { return matches(rule.pattern, layer.path); }))
      throw userError(placed(rule.where) + "recompute: no layer of the model matches \"" + rule.pattern + "\"");
  int64_t marks = 0;
  for (const Layer &layer : layers)
    marks = std::max(marks, layer.mark + 1);
  Decisions staged = pinned;
  const auto count = pinned.stages.empty() ? marks : static_cast<int64_t>(pinned.stages.size());
  if (count < 2)
    return {};
  setAxis(staged.mesh, axisName(AxisRole::Pipeline), count, "stages");
  staged.chunks = 1, staged.schedule = Decisions{}.schedule;
  OwningOpRef<ModuleOp> copy = module.clone();
  staged = assignStages(*copy, std::move(staged));
  std::map<LayerUse, int64_t> stageOf;
  for (size_t s = 0; s < staged.stages.size(); ++s)
    for (const std::string &entry : staged.stages[s])
      stageOf[*LayerUse::parse(entry)] = static_cast<int64_t>(s);
  std::vector<size_t> begins{0};
  std::map<std::string, int64_t> uses;
  for (size_t i = 0; i < layers.size(); ++i) {
    const auto found = stageOf.find({layers[i].path, ++uses[layers[i].path]});
    const int64_t stage = found == stageOf.end() ? layers[i].mark : found->second;
    while (stage >= std::ssize(begins))
      begins.push_back(i);
  }
  return begins;
}

std::vector<LayerOutline> keepDistinctLayers(ModuleOp module, const Decisions &pinned) {
  auto forward = module.lookupSymbol<func::FuncOp>("forward");
  if (auto eval = module.lookupSymbol<func::FuncOp>("eval"))
    eval.erase();
  const std::vector<Layer> layers = layersOf(forward, layerNames(forward, layersNamed(pinned)));
  std::vector<LayerOutline> outline = outlineOf(layers, crossingBytes(layers));

  std::map<std::string, std::vector<size_t>> kinds;
  for (size_t i = 0; i < layers.size(); ++i)
    if (!layers[i].path.empty() && isListMember(layers[i].path))
      kinds[signatureOf(layers[i]) + rulesOf(layers[i], pinned)].push_back(i);
  std::vector<bool> removed(layers.size());
  std::vector<size_t> standIn(layers.size()); // of a removed layer: an earlier use, also if its path occurs again later
  for (const auto &[signature, alike] : kinds) {
    const size_t kept = 2 + alike.size() % 2;
    for (const size_t i : alike)
      outline[i].kind = outline[alike.front()].kind;
    for (size_t k = kept; k < alike.size(); ++k) {
      removed[alike[k]] = true;
      standIn[alike[k]] = alike[kept - 2 + (k - kept) % 2];
      outline[alike[k]].kept = layers[standIn[alike[k]]].path;
    }
  }
  // A reader of a removed layer reads the layer that stands for it, which comes before.
  for (size_t i = 0; i < layers.size(); ++i)
    for (size_t k = 0; removed[i] && k < layers[i].ops.size(); ++k)
      layers[i].ops[k]->replaceAllUsesWith(layers[standIn[i]].ops[k]->getResults());
  if (!allAreUsed(forward, layers, removed))
    return {};
  for (size_t i = layers.size(); i-- > 0;)
    if (removed[i])
      for (Operation *op : llvm::reverse(layers[i].ops))
        op->erase();
  eraseNames(forward, layers, removed);
  return outline;
}

} // namespace cleave::partitioner
