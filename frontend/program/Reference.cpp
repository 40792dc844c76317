// The reference side of a check.
#include "frontend/program/Reference.h"
#include "ir/graph/Graph.h"
#include "runtime/base/Error.h"
#include "runtime/device/Philox.h"

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
    Slot out{text(ir::attr::kind), text(ir::attr::name), tensor.getShape().vec(), ir::dtypeOf(tensor), {}};
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
}

TensorMap Reference::initial() const {
  TensorMap values;
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
  const bool integer = slot.dtype == DType::I32;
  const size_t field = findField(source, slot.name, integer ? FieldType::I32 : FieldType::F32, sample);
  const int64_t count = ir::elementCount(sample);
  std::vector<std::byte> bytes(static_cast<size_t>(count) * 4);
  for (int64_t row = 0; row < slot.shape[0]; ++row) {
    readField(source, {Split::Train, rows[first + row], epoch}, seed, field, bytes.data());
    for (int64_t i = 0; i < count; ++i) {
      float real;
      int32_t whole;
      std::memcpy(&real, &bytes[4 * i], 4);
      std::memcpy(&whole, &bytes[4 * i], 4);
      tensor.values[row * count + i] = integer ? whole : real;
    }
  }
  tensor.round();
  return tensor;
}

static void accumulate(ir::HostTensor &sum, const ir::HostTensor &part) {
  for (int64_t i = 0; i < sum.size(); ++i)
    sum.values[i] += part.values[i];
  sum.round();
}

StepSums Reference::train(TensorMap &values, const DataSource &source, int64_t epoch, const std::vector<uint32_t> &rows,
                          int64_t step) const {
  StepSums sums;
  for (int64_t m = 0; m < microbatches; ++m) {
    std::vector<ir::HostTensor> arguments;
    for (const Slot &slot : trainFunction.arguments)
      arguments.push_back(slot.kind == "input" ? input(slot, source, epoch, rows, m * slot.shape[0])
                                               : values.at({slot.kind, slot.name}));
    auto results = ir::evaluate(static_cast<mlir::Operation *>(trainFunction.operation), arguments,
                                {.seed = seed, .trainingStep = step, .microbatch = m});
    for (size_t i = 0; i < results.size(); ++i) {
      const Slot &slot = trainFunction.results[i];
      if (slot.kind == "loss")
        sums.loss += results[i].values[0];
      else if (slot.kind == "weight")
        sums.weight += results[i].values[0];
      else if ((slot.kind == "gradient" || slot.kind == "magnitude") && m > 0)
        accumulate(values.at({slot.kind, slot.name}), results[i]);
      else if (slot.kind == "gradient" || slot.kind == "magnitude" || slot.kind == "buffer")
        values[{slot.kind, slot.name}] = std::move(results[i]);
    }
  }
  return sums;
}

void Reference::update(TensorMap &values, double lr, int64_t step, double weight) const {
  std::vector<ir::HostTensor> arguments;
  for (const Slot &slot : updateFunction.arguments) {
    if (slot.kind == "scalar" || slot.kind == "metric")
      arguments.emplace_back(slot.shape, slot.dtype,
                             slot.name == "lr"     ? lr
                             : slot.name == "step" ? static_cast<double>(step)
                                                   : weight);
    else
      arguments.push_back(values.at({slot.kind, slot.name}));
  }
  auto results = ir::evaluate(static_cast<mlir::Operation *>(updateFunction.operation), arguments,
                              {.seed = seed, .trainingStep = step});
  for (size_t i = 0; i < results.size(); ++i)
    values[{updateFunction.results[i].kind, updateFunction.results[i].name}] = std::move(results[i]);
}

std::vector<TensorKey> Reference::order() const {
  std::vector<TensorKey> buffers, gradients, rest;
  for (const Slot &slot : trainFunction.results) {
    if (slot.kind == "buffer")
      buffers.emplace_back(slot.kind, slot.name);
    else if (slot.kind == "gradient")
      gradients.emplace_back(slot.kind, slot.name);
  }
  for (const Slot &slot : updateFunction.results)
    rest.emplace_back(slot.kind, slot.name);
  std::reverse(gradients.begin(), gradients.end());
  std::vector<TensorKey> all = buffers;
  all.insert(all.end(), gradients.begin(), gradients.end());
  all.insert(all.end(), rest.begin(), rest.end());
  return all;
}

} // namespace cleave
