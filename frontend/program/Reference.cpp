// The reference side of a check.
#include "frontend/program/Reference.h"
#include "ir/Phase.h"
#include "ir/graph/Graph.h"
#include "runtime/base/Error.h"
#include "runtime/device/Philox.h"
#include "runtime/plan/DTypes.h"

#include <algorithm>
#include <cstring>
#include <fmt/format.h>

namespace cleave {

Reference::Function Reference::read(const GraphModule &module, const char *name) {
  auto function = module.module().lookupSymbol<mlir::func::FuncOp>(name);
  if (!function)
    throw Error(Status::Internal, fmt::format("check: the step has no function @{}", name));
  const auto slot = [](mlir::Type type, mlir::DictionaryAttr attrs) {
    const auto text = [&](llvm::StringRef key) {
      auto value = attrs ? attrs.getAs<mlir::StringAttr>(key) : nullptr;
      return value ? value.str() : std::string();
    };
    auto tensor = llvm::cast<mlir::RankedTensorType>(type);
    Slot out{
        ir::slotKindOf(text(ir::attr::kind)), text(ir::attr::name), tensor.getShape().vec(), ir::dtypeOf(tensor), {}};
    if (auto init = attrs ? attrs.getAs<ir::InitAttr>(ir::attr::init) : nullptr) {
      out.distribution = init.getDistribution().str();
      out.a = init.getA();
      out.b = init.getB();
    }
    return out;
  };
  Function out{function.getOperation(), {}, {}};
  for (unsigned i = 0; i < function.getNumArguments(); ++i)
    out.arguments.push_back(slot(function.getArgumentTypes()[i], function.getArgAttrDict(i)));
  for (unsigned i = 0; i < function.getNumResults(); ++i)
    out.results.push_back(slot(function.getResultTypes()[i], function.getResultAttrDict(i)));
  return out;
}

Reference::Reference(const GraphModule &step, uint64_t seed, int64_t microbatches)
    : trainFunction(read(step, "train")), updateFunction(read(step, "update")), seed(seed), microbatches(microbatches) {
  if (step.module().lookupSymbol("weights"))
    weightsFunction = read(step, "weights");
}

ir::Slots Reference::initial() const {
  ir::Slots values;
  for (const Function *function : {&trainFunction, &updateFunction})
    for (const Slot &slot : function->arguments) {
      if (slot.distribution.empty() || values.count({slot.kind, slot.name}))
        continue;
      ir::HostTensor tensor(slot.shape, slot.dtype, slot.a);
      const uint64_t key = seed ^ fnv1a64(slot.name);
      for (int64_t i = 0; i < tensor.size() && slot.distribution != "constant"; ++i)
        tensor.values[i] = slot.distribution == "uniform" ? slot.a + (slot.b - slot.a) * philoxUniform(key, 0, i)
                                                          : slot.a + slot.b * philoxNormal(key, 1, i);
      tensor.round();
      values[{slot.kind, slot.name}] = std::move(tensor);
    }
  return values;
}

ir::HostTensor Reference::input(const Slot &slot, const DataSource &source, int64_t epoch,
                                const std::vector<uint32_t> &rows, int64_t first) const {
  ir::HostTensor tensor(slot.shape, slot.dtype);
  const std::vector<int64_t> sample(slot.shape.begin() + 1, slot.shape.end());
  const FieldType type = fieldTypeOf(planned(slot.dtype));
  const size_t field = findField(source, slot.name, type, sample);
  const int64_t count = ir::elementCount(sample);
  std::vector<std::byte> bytes(static_cast<size_t>(source.fields()[field].bytes()));
  for (int64_t row = 0; row < slot.shape[0]; ++row) {
    readField(source, {Split::Train, rows[first + row], epoch}, seed, field, bytes.data());
    for (int64_t i = 0; i < count; ++i)
      tensor.values[row * count + i] = loadElement(bytes.data(), i, planned(type));
  }
  tensor.round();
  return tensor;
}

static void accumulate(ir::HostTensor &sum, const ir::HostTensor &part) {
  for (int64_t i = 0; i < sum.size(); ++i)
    sum.values[i] += part.values[i];
  sum.round();
}

std::vector<ir::HostTensor> Reference::arguments(const Function &function, const ir::Slots &values,
                                                 const DataSource &source, int64_t epoch,
                                                 const std::vector<uint32_t> &rows, int64_t m) const {
  std::vector<ir::HostTensor> list;
  for (const Slot &slot : function.arguments)
    list.push_back(slot.kind == ir::SlotKind::Input ? input(slot, source, epoch, rows, m * slot.shape[0])
                                                    : values.at({slot.kind, slot.name}));
  return list;
}

LossSums Reference::train(ir::Slots &values, const DataSource &source, int64_t epoch, const std::vector<uint32_t> &rows,
                          int64_t step) const {
  ir::Slots metrics;
  const auto run = [&](const Function &function, int64_t m) {
    auto results = ir::evaluate(static_cast<mlir::Operation *>(function.operation),
                                arguments(function, values, source, epoch, rows, m),
                                {.seed = seed, .trainingStep = step, .microbatch = m});
    for (size_t i = 0; i < results.size(); ++i) {
      const Slot &slot = function.results[i];
      const bool metric = ir::isMetric(slot.kind), sum = slot.kind == ir::SlotKind::Gradient;
      ir::Slots &into = metric ? metrics : values;
      const ir::SlotKey key = metric ? ir::SlotKey{ir::SlotKind::Metric, ir::metricName(slot.kind, slot.name)}
                                     : ir::SlotKey{slot.kind, slot.name};
      if ((metric && metrics.count(key)) || (sum && m > 0))
        accumulate(into.at(key), results[i]);
      else if (metric || sum || slot.kind == ir::SlotKind::Buffer)
        into[key] = std::move(results[i]);
    }
  };
  for (int64_t m = 0; weightsFunction && m < microbatches; ++m)
    run(*weightsFunction, m);
  for (const auto &[key, weight] : metrics)
    values[key] = weight;
  for (int64_t m = 0; m < microbatches; ++m)
    run(trainFunction, m);
  LossSums sums;
  for (size_t i = 0; metrics.count({ir::SlotKind::Metric, namesOfTerm(i).first}); ++i) {
    const auto [sum, weight] = namesOfTerm(i);
    sums.terms.push_back(
        {metrics.at({ir::SlotKind::Metric, sum}).values[0], metrics.at({ir::SlotKind::Metric, weight}).values[0]});
  }
  return sums;
}

void Reference::update(ir::Slots &values, double lr, int64_t step, const LossSums &sums) const {
  std::vector<ir::HostTensor> arguments;
  for (const Slot &slot : updateFunction.arguments) {
    if (slot.kind == ir::SlotKind::Scalar || slot.kind == ir::SlotKind::Metric)
      arguments.emplace_back(slot.shape, slot.dtype,
                             slot.name == "lr"     ? lr
                             : slot.name == "step" ? static_cast<double>(step)
                                                   : sums.terms.at(0).weight);
    else
      arguments.push_back(values.at({slot.kind, slot.name}));
  }
  auto results = ir::evaluate(static_cast<mlir::Operation *>(updateFunction.operation), arguments,
                              {.seed = seed, .trainingStep = step});
  for (size_t i = 0; i < results.size(); ++i)
    values[{updateFunction.results[i].kind, updateFunction.results[i].name}] = std::move(results[i]);
}

std::vector<ir::SlotKey> Reference::order() const {
  std::vector<ir::SlotKey> buffers, gradients, rest;
  for (const Slot &slot : trainFunction.results) {
    if (slot.kind == ir::SlotKind::Buffer)
      buffers.push_back({slot.kind, slot.name});
    else if (slot.kind == ir::SlotKind::Gradient)
      gradients.push_back({slot.kind, slot.name});
  }
  for (const Slot &slot : updateFunction.results)
    rest.push_back({slot.kind, slot.name});
  std::reverse(gradients.begin(), gradients.end());
  std::vector<ir::SlotKey> all = buffers;
  all.insert(all.end(), gradients.begin(), gradients.end());
  all.insert(all.end(), rest.begin(), rest.end());
  return all;
}

} // namespace cleave
