// Tables that all programs of a plan share: strings, tensors, groups; and the conversion of types and shardings to the
// schema.
#pragma once
#include "ir/dist/Sharding.h"
#include "ir/graph/Graph.h"
#include "runtime/plan/DTypes.h"
#include "runtime/plan/plan_generated.h"

#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Location.h"

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace cleave::passes {

inline plan::DType plannedType(mlir::Type type) { return planned(ir::dtypeOf(type)); }
/// Bytes of a tensor of this type in memory.
uint64_t bytesOf(mlir::Type type);
plan::ReduceKind planned(PartialKind kind);
/// "file.cpp:12:5"; empty if the location has no file.
std::string locationOf(mlir::Location location);
/// A number as it is stored in a plan. FlatBuffers leaves out a field that equals its default, and -0 equals 0, so -0
/// is stored as the negative number nearest to it, which every element type rounds to -0.
double storedNumber(double number);
/// FNV-1a, 64 bits.
uint64_t hashName(llvm::StringRef name);

/// The meaning of a piece of memory: its part of a global tensor, and its pending reductions.
struct Label {
  std::vector<int64_t> global; // empty if `known` is false
  bool known = false;          // the sharding gives exactly the local shape
  Sharding sharding;           // resolved if known
  bool operator==(const Label &) const = default;
};

/// The ranks that differ only along `axes`; if `stages` is not empty, only those of these stages.
struct GroupAxes {
  std::vector<std::string> axes;
  std::vector<int64_t> stages;
  auto operator<=>(const GroupAxes &) const = default;
};

class Tables {
public:
  /// `layers`: all layers of the model.
  Tables(plan::PlanT &plan, const Mesh &mesh, std::set<std::string> layers)
      : plan(plan), mesh(mesh), layers(std::move(layers)) {}

  uint32_t string(const std::string &text);

  /// `name` and `kind` identify a tensor; activations also `shape` and `dtype`.
  uint32_t tensor(const std::string &name, plan::TensorKind kind, plan::DType dtype, const std::vector<int64_t> &shape);
  plan::TensorT &at(uint32_t tensor) { return *plan.tensors[tensor]; }
  /// Links states and gradients to their parameters. Call when all are registered.
  void linkParameters();
  /// The layer in whose module a tensor of this name is, as an index of Plan.strings; of "" if in none.
  uint32_t layerOf(const std::string &name);

  /// Makes a label from the attributes `dist.sharding` and `dist.global` (either may be null). `coords`: of any rank of
  /// the class.
  Label label(mlir::Type local, mlir::Attribute sharding, mlir::Attribute global,
              const std::vector<int64_t> &coords) const;
  std::unique_ptr<plan::ShardingT> sharding(const Label &label) const;
  /// Indices in Plan.mesh of axes by name.
  std::vector<uint8_t> axisIndices(const std::vector<std::string> &axes) const;

  /// The group of the rank at `coords`, ranks in member order: an index of Plan.groups.
  uint32_t group(const GroupAxes &group, const std::vector<int64_t> &coords);

  plan::PlanT &plan;
  const Mesh &mesh;

private:
  const std::set<std::string> layers;
  std::map<std::string, uint32_t> strings;
  std::map<std::string, uint32_t> tensors;
  std::map<std::pair<std::string, std::vector<uint32_t>>, uint32_t> groups;
  /// Group numbers by coordinates, with the coordinates along the group's own axes set to 0, so that each group has one
  /// entry instead of one per member.
  std::map<std::pair<GroupAxes, std::vector<int64_t>>, uint32_t> groupsAt;
};

} // namespace cleave::passes
