// Compares parameters and ops by module path.
#include "tools/cleave/ModelChanges.h"

#include "runtime/plan/Text.h"
#include "runtime/plan/check/Defects.h"
#include "runtime/plan/plan_generated.h"
#include "tools/cleave/Commands.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <map>
#include <set>
#include <tuple>

namespace cleave::tool {
namespace {

/// What a plan has of the model.
struct Model {
  struct Op {
    std::string location;
    std::multiset<std::string> does; ///< in the forward pass of a microbatch, on the first ranks that have it
  };
  std::map<std::string, Op> ops; ///< by module path
  std::map<std::string, std::string> parameters;

  std::string locationOf(const std::string &path) const {
    for (std::string module = path;; module.erase(module.rfind('.'))) {
      if (const auto found = ops.find(module); found != ops.end())
        return found->second.location;
      const auto below = ops.lower_bound(module + ".");
      if (below != ops.end() && below->first.starts_with(module + "."))
        return below->second.location;
      if (module.find('.') == std::string::npos)
        return "";
    }
  }

  /// Whether a module, or one in it, is there.
  bool has(const std::string &path) const {
    const auto begins = [&](const auto &map) {
      const auto below = map.lower_bound(path);
      return below != map.end() && (below->first == path || below->first.starts_with(path + "."));
    };
    if (begins(ops) || begins(parameters))
      return true;
    const auto below = ops.lower_bound(path + ".");
    return below != ops.end() && below->first.starts_with(path + ".");
  }
};

/// What a step of the forward pass computes, with its sizes; empty if it belongs to the split rather than to the model.
std::string workOf(const plan::Plan &plan, const plan::Step &step) {
  if (const auto *op = step.op_as_Matmul())
    return fmt::format("product {} x {} x {}", op->m(), op->n(), op->k());
  if (const auto *op = step.op_as_Conv())
    return fmt::format("convolution {} x {} to {}, {} x {}, stride {}", op->ic(), op->ih(), op->oc(), op->kh(),
                       op->kw(), op->stride_h());
  if (const auto *op = step.op_as_Pool())
    return fmt::format("pooling {} x {}", op->kh(), op->kw());
  if (const auto *op = step.op_as_Attention())
    return fmt::format("attention {} heads, {} x {}{}", op->heads(), op->rows(), op->keys(),
                       op->causal() ? ", causal" : "");
  if (const auto *op = step.op_as_Embedding())
    return fmt::format("lookup {} x {}", op->rows(), op->width());
  if (const auto *op = step.op_as_Gather())
    return fmt::format("gather {} of {}", op->count(), op->extent());
  if (step.op_as_Random())
    return "random numbers";
  if (const auto *op = step.op_as_Kernel())
    return fmt::format("{} of {} elements", text(plan.kernels()->Get(op->kernel())->ops()), op->extent());
  return "";
}

std::string stringOf(const plan::Plan &plan, uint32_t index) {
  return index < check::length(plan.strings()) ? text(plan.strings()->Get(index)) : "";
}

void addStep(Model &model, const plan::Plan &plan, const plan::Step &step) {
  const std::string work = workOf(plan, step), paths = stringOf(plan, step.path());
  if (work.empty())
    return;
  for (size_t at = 0; at <= paths.size();) { // of each part where ops of several modules are fused
    const size_t end = std::min(paths.find(" + ", at), paths.size());
    if (const std::string path = paths.substr(at, end - at); !path.empty()) {
      Model::Op &op = model.ops[path];
      if (op.location.empty() || paths == path)
        op.location = stringOf(plan, step.location());
      op.does.insert(work);
    }
    at = end + 3;
  }
}

Model modelOf(const plan::Plan &plan) {
  Model model;
  for (uint32_t t = 0; t < check::length(plan.tensors()); ++t) {
    const plan::Tensor &tensor = *plan.tensors()->Get(t);
    if (tensor.kind() != plan::TensorKind::Parameter && tensor.kind() != plan::TensorKind::Buffer)
      continue;
    std::vector<int64_t> shape;
    if (tensor.shape())
      shape.assign(tensor.shape()->begin(), tensor.shape()->end());
    const bool frozen = tensor.kind() == plan::TensorKind::Parameter && !tensor.trainable();
    model.parameters[text(tensor.name())] =
        fmt::format("{} [{}]{}", plan::EnumNameDType(tensor.dtype()), fmt::join(shape, ", "), frozen ? ", not trained" : "");
  }
  std::set<uint32_t> stages;
  for (uint32_t p = 0; p < check::length(plan.programs()); ++p) {
    const plan::Program &program = *plan.programs()->Get(p);
    if (!stages.insert(program.stage()).second)
      continue; // others of this position run the same ops
    for (uint32_t s = 0; s < check::length(program.segments()); ++s) {
      const plan::Segment &segment = *program.segments()->Get(s);
      if (segment.kind() == plan::SegmentKind::Forward)
        for (uint32_t i = 0; i < check::length(segment.steps()); ++i)
          addStep(model, plan, *segment.steps()->Get(i));
    }
  }
  return model;
}

std::string worksText(const std::multiset<std::string> &works, const std::multiset<std::string> &others) {
  std::vector<std::string> own;
  std::ranges::set_difference(works, others, std::back_inserter(own));
  return own.empty() ? "-" : fmt::format("{}", fmt::join(own, "; "));
}

/// Equal changes of equal layers as one.
std::vector<ModelChange> folded(const std::vector<ModelChange> &all) {
  std::map<std::tuple<std::string, std::string, std::string, std::string>, size_t> places;
  std::vector<ModelChange> lines;
  for (const ModelChange &one : all) {
    const auto [place, fresh] =
        places.try_emplace({layerPattern(one.path), one.what, one.a + " " + one.b, one.location}, lines.size());
    if (fresh)
      lines.push_back(one);
    else
      lines[place->second].path = layerPattern(one.path), ++lines[place->second].times;
  }
  return lines;
}

} // namespace

std::vector<ModelChange> modelChanges(const plan::Plan &first, const plan::Plan &second, bool same) {
  const Model a = modelOf(first), b = modelOf(second);
  std::vector<ModelChange> all;
  std::set<std::string> names;
  for (const Model *model : {&a, &b})
    for (const auto &[name, type] : model->parameters)
      names.insert(name);
  for (const std::string &name : names) {
    const auto before = a.parameters.find(name), after = b.parameters.find(name);
    if (before == a.parameters.end())
      all.push_back({name, "new", "", after->second, b.locationOf(name)});
    else if (after == b.parameters.end())
      all.push_back({name, "gone", before->second, "", a.locationOf(name)});
    else if (before->second != after->second)
      all.push_back({name, "changed", before->second, after->second, b.locationOf(name)});
  }
  // A module of which nothing is left in the other plan, nor parameters that are listed already.
  const auto onlyIn = [&](const Model &own, const Model &other, const char *what) {
    for (const auto &[path, op] : own.ops)
      if (const auto below = own.parameters.lower_bound(path + ".");
          !other.has(path) && (below == own.parameters.end() || !below->first.starts_with(path + "."))) {
        const std::string does = fmt::format("{}", fmt::join(op.does, "; "));
        const bool added = &own == &b;
        all.push_back({path, what, added ? "" : does, added ? does : "", op.location});
      }
  };
  onlyIn(a, b, "gone"), onlyIn(b, a, "new");
  if (same)
    for (const auto &[path, op] : b.ops)
      if (const auto before = a.ops.find(path); before != a.ops.end() && before->second.does != op.does)
        all.push_back({path, "changed", worksText(before->second.does, op.does),
                       worksText(op.does, before->second.does), op.location});
  return folded(all);
}

} // namespace cleave::tool
