// The plan's shared tables.
#include "passes/export/Tables.h"

#include "ir/dist/Dist.h"
#include "partitioner/stages/LayerNames.h"
#include "runtime/base/Error.h"
#include "runtime/plan/DTypes.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <limits>

namespace cleave::passes {

uint64_t bytesOf(mlir::Type type) {
  auto tensor = llvm::cast<mlir::RankedTensorType>(type);
  return static_cast<uint64_t>(tensor.getNumElements()) * dtypeSize(plannedType(tensor));
}

plan::ReduceKind planned(PartialKind kind) { return static_cast<plan::ReduceKind>(kind); }
static_assert(static_cast<int>(plan::ReduceKind::Sum) == static_cast<int>(PartialKind::Sum) &&
              static_cast<int>(plan::ReduceKind::Max) == static_cast<int>(PartialKind::Max) &&
              static_cast<int>(plan::ReduceKind::Min) == static_cast<int>(PartialKind::Min) &&
              static_cast<int>(plan::ReduceKind::Or) == static_cast<int>(PartialKind::Or));

double storedNumber(double number) {
  return number == 0 && std::signbit(number) ? -std::numeric_limits<double>::denorm_min() : number;
}

std::string locationOf(mlir::Location location) {
  if (auto file = llvm::dyn_cast<mlir::FileLineColLoc>(location))
    return file.getFilename().str() + ":" + std::to_string(file.getLine()) + ":" + std::to_string(file.getColumn());
  if (auto name = llvm::dyn_cast<mlir::NameLoc>(location))
    return locationOf(name.getChildLoc());
  if (auto call = llvm::dyn_cast<mlir::CallSiteLoc>(location))
    return locationOf(call.getCallee());
  if (auto fused = llvm::dyn_cast<mlir::FusedLoc>(location))
    for (mlir::Location part : fused.getLocations())
      if (std::string text = locationOf(part); !text.empty())
        return text;
  return {};
}

uint64_t hashName(llvm::StringRef name) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (char c : name)
    hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3u;
  return hash;
}

uint32_t Tables::string(const std::string &text) {
  auto [found, fresh] = strings.try_emplace(text, static_cast<uint32_t>(plan.strings.size()));
  if (fresh)
    plan.strings.push_back(text);
  return found->second;
}

uint32_t Tables::tensor(const std::string &name, plan::TensorKind kind, plan::DType dtype,
                        const std::vector<int64_t> &shape) {
  std::string key = std::to_string(static_cast<int>(kind)) + "/" + name;
  if (kind == plan::TensorKind::Activation || kind == plan::TensorKind::Input) {
    key += "/" + std::to_string(static_cast<int>(dtype));
    for (int64_t size : shape)
      key += "," + std::to_string(size);
  }
  auto [found, fresh] = tensors.try_emplace(key, static_cast<uint32_t>(plan.tensors.size()));
  if (fresh) {
    auto &tensor = plan.tensors.emplace_back(std::make_unique<plan::TensorT>());
    tensor->name = name;
    tensor->kind = kind;
    tensor->dtype = dtype;
    tensor->shape = shape;
    tensor->layer = layerOf(name);
  }
  return found->second;
}

uint32_t Tables::layerOf(const std::string &name) { return string(partitioner::longestNamed(layers, name)); }

void Tables::linkParameters() {
  std::map<std::string, int32_t> parameters;
  for (size_t i = 0; i < plan.tensors.size(); ++i)
    if (plan.tensors[i]->kind == plan::TensorKind::Parameter)
      parameters[plan.tensors[i]->name] = static_cast<int32_t>(i);
  for (auto &tensor : plan.tensors) {
    if (tensor->kind != plan::TensorKind::State && tensor->kind != plan::TensorKind::Gradient)
      continue;
    for (std::string name = tensor->name; !name.empty(); name.resize(name.rfind('.'))) { // "<parameter>.<slot>"
      if (auto found = parameters.find(name); found != parameters.end()) {
        tensor->parameter = found->second;
        tensor->layer = plan.tensors[static_cast<size_t>(found->second)]->layer;
        break;
      }
      if (name.rfind('.') == std::string::npos)
        break;
    }
  }
}

Label Tables::label(mlir::Type local, mlir::Attribute shardingAttr, mlir::Attribute globalAttr,
                    const std::vector<int64_t> &coords) const {
  Label label;
  auto localType = llvm::cast<mlir::RankedTensorType>(local);
  std::vector<int64_t> localShape = localType.getShape().vec();
  mlir::RankedTensorType globalType = localType;
  if (auto attribute = llvm::dyn_cast_or_null<mlir::TypeAttr>(globalAttr))
    globalType = llvm::cast<mlir::RankedTensorType>(attribute.getValue());
  label.global = globalType.getShape().vec();
  auto attribute = llvm::dyn_cast_or_null<dist::ShardingAttr>(shardingAttr);
  if (!attribute) {
    label.known = label.global == localShape;
    label.sharding = Sharding::replicated(label.global);
    return label;
  }
  const Sharding *fits = attribute.forType(globalType);
  label.sharding = fits ? *fits : *Sharding::parse(attribute.getText().str()); // checked by the attribute's verifier
  std::erase_if(label.sharding.partialAxes, [&](const std::string &axis) { return mesh.size(axis) == 1; });
  label.known = fits && label.sharding.localShape(mesh, coords) == localShape;
  if (!label.known) {
    label.global.clear();
    label.sharding.dims.clear();
  }
  return label;
}

std::vector<uint8_t> Tables::axisIndices(const std::vector<std::string> &axes) const {
  std::vector<uint8_t> indices;
  for (const std::string &name : axes)
    for (size_t i = 0; i < mesh.axes.size(); ++i)
      if (mesh.axes[i].name == name)
        indices.push_back(static_cast<uint8_t>(i));
  return indices;
}

std::unique_ptr<plan::ShardingT> Tables::sharding(const Label &label) const {
  if (mesh.ranks() == 1 || (!label.known && label.sharding.partialAxes.empty()))
    return nullptr; // nothing to store
  auto result = std::make_unique<plan::ShardingT>();
  for (const DimSharding &dim : label.sharding.dims) {
    auto &out = result->dims.emplace_back(std::make_unique<plan::DimT>());
    for (const Factor &factor : dim.factors) {
      auto &made = out->factors.emplace_back(std::make_unique<plan::FactorT>());
      made->size = factor.size;
      made->axes = axisIndices(factor.axes);
    }
  }
  result->partial_axes = axisIndices(label.sharding.partialAxes);
  result->partial_kind = planned(label.sharding.partialKind);
  return result;
}

uint32_t Tables::group(const GroupAxes &group, const std::vector<int64_t> &coords) {
  std::vector<int64_t> at = coords;
  std::vector<size_t> along; // mesh axes in the group's order
  for (const std::string &axis : group.axes) {
    auto named = [&](const MeshAxis &a) { return a.name == axis; };
    along.push_back(std::find_if(mesh.axes.begin(), mesh.axes.end(), named) - mesh.axes.begin());
    at[along.back()] = 0;
  }
  auto [known, first] = groupsAt.try_emplace({group, at});
  if (!first)
    return known->second;
  std::vector<uint32_t> ranks;
  for (int64_t place = 0; place < mesh.size(group.axes); ++place) {
    int64_t rest = place;
    for (size_t i = along.size(); i-- > 0; rest /= mesh.axes[along[i]].size)
      at[along[i]] = rest % mesh.axes[along[i]].size;
    int64_t stage = mesh.coordinate(AxisRole::Pipeline, at);
    if (group.stages.empty() || std::find(group.stages.begin(), group.stages.end(), stage) != group.stages.end())
      ranks.push_back(static_cast<uint32_t>(mesh.rank(at)));
  }
  std::string name;
  for (const std::string &axis : group.axes)
    name += (name.empty() ? "" : "+") + axis;
  auto [found, fresh] = groups.try_emplace({name, ranks}, static_cast<uint32_t>(plan.groups.size()));
  if (fresh) {
    auto &made = plan.groups.emplace_back(std::make_unique<plan::GroupT>());
    made->axis = name;
    made->ranks = ranks;
  }
  return known->second = found->second;
}

} // namespace cleave::passes
