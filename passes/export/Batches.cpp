// Finds dependences between steps, forms groups of independent steps, and reorders the segment.
#include "passes/export/Batches.h"

#include "passes/export/ProgramBuilder.h"

#include <algorithm>
#include <map>
#include <queue>
#include <set>
#include <tuple>

namespace cleave::passes {

namespace {

class Batches {
public:
  Batches(const std::vector<StepUse> &steps, bool orderedFirst)
      : steps(steps), orderedFirst(orderedFirst), before(steps.size()) {
    findDependences();
    for (size_t step = 0; step < steps.size(); ++step)
      place(step);
  }

  /// The groups in topological order; ties are broken by their last steps.
  std::vector<std::vector<size_t>> order() const {
    std::vector<std::set<size_t>> after(groups.size());
    std::vector<size_t> waiting(groups.size(), 0);
    for (size_t step = 0; step < steps.size(); ++step)
      for (size_t earlier : before[step])
        waiting[groupOf[step]] += after[groupOf[earlier]].insert(groupOf[step]).second;
    const std::vector<bool> first = orderedFirst ? orderedGroups() : std::vector<bool>(groups.size());
    using Entry = std::tuple<bool, size_t, size_t>; // whether others come first, last step, group
    std::priority_queue<Entry, std::vector<Entry>, std::greater<>> ready;
    const auto push = [&](size_t group) { ready.push({!first[group], groups[group].back(), group}); };
    for (size_t group = 0; group < groups.size(); ++group)
      if (waiting[group] == 0)
        push(group);
    std::vector<std::vector<size_t>> result;
    while (!ready.empty()) {
      const size_t group = std::get<2>(ready.top());
      ready.pop();
      result.push_back(groups[group]);
      for (size_t next : after[group])
        if (--waiting[next] == 0)
          push(next);
    }
    return result;
  }

private:
  void findDependences() {
    struct Slot {
      std::vector<size_t> writer, readers; // at most one; readers since that write
    };
    std::map<uint32_t, Slot> slots;
    std::vector<size_t> lastOrdered;
    for (size_t step = 0; step < steps.size(); ++step) {
      auto follow = [&](const std::vector<size_t> &earlier) {
        before[step].insert(before[step].end(), earlier.begin(), earlier.end());
      };
      for (uint32_t slot : steps[step].reads)
        follow(slots[slot].writer);
      for (uint32_t slot : steps[step].writes) {
        follow(slots[slot].writer);
        follow(slots[slot].readers);
      }
      if (steps[step].ordered) {
        follow(lastOrdered);
        lastOrdered = {step};
      }
      for (uint32_t slot : steps[step].reads)
        slots[slot].readers.push_back(step);
      for (uint32_t slot : steps[step].writes)
        slots[slot] = {{step}, {}};
    }
  }

  /// Whether each group has an ordered step, or must run before one.
  std::vector<bool> orderedGroups() const {
    std::vector<size_t> ordered;
    for (size_t step = 0; step < steps.size(); ++step)
      if (steps[step].ordered)
        ordered.push_back(step);
    return withEarlier(std::move(ordered));
  }

  /// Whether each group has one of the steps, or must run before one.
  std::vector<bool> withEarlier(std::vector<size_t> open) const {
    std::vector<bool> seen(groups.size(), false);
    while (!open.empty()) {
      const size_t group = groupOf[open.back()];
      open.pop_back();
      if (seen[group])
        continue;
      seen[group] = true;
      for (size_t member : groups[group])
        open.insert(open.end(), before[member].begin(), before[member].end());
    }
    return seen;
  }

  void place(size_t step) {
    if (steps[step].kernel >= 0) {
      std::vector<size_t> &candidates = byKernel[steps[step].kernel];
      const std::vector<bool> earlier = withEarlier(before[step]);
      const auto found =
          std::find_if(candidates.begin(), candidates.end(), [&](size_t group) { return !earlier[group]; });
      if (found != candidates.end()) {
        groups[*found].push_back(step);
        groupOf.push_back(*found);
        return;
      }
      candidates.push_back(groups.size());
    }
    groupOf.push_back(groups.size());
    groups.push_back({step});
  }

  const std::vector<StepUse> &steps;
  const bool orderedFirst;
  std::vector<std::vector<size_t>> before; // direct dependences of each step
  std::vector<std::vector<size_t>> groups; // of steps, in order
  std::vector<size_t> groupOf;
  std::map<int64_t, std::vector<size_t>> byKernel;
};

constexpr uint64_t mostPlaced = 64 << 10; // bytes of a placed slot whose lifetime a batch may extend

/// Steps other than kernels are assumed to write all slots that they touch, and to keep their order. Only fills need
/// not, so that those at the beginning of an iteration do not delay collectives.
StepUse useOf(const ProgramBuilder &program, const plan::StepT &step, const std::vector<uint32_t> &touched) {
  const plan::KernelT *kernel = step.op.AsKernel();
  if (!kernel)
    return {-1, step.op.type != plan::StepOp::Fill, touched, touched};
  StepUse use{kernel->kernel, false, {}, {}};
  const size_t inputs = kernel->args.size() - kernel->outputs;
  for (size_t i = 0; i < kernel->args.size(); ++i) {
    const uint32_t slot = kernel->args[i];
    const plan::SlotT &info = *program.program->slots[slot];
    (i < inputs ? use.reads : use.writes).push_back(slot);
    if (info.space == plan::Space::Placed && info.bytes > mostPlaced)
      use.kernel = -1;
  }
  return use;
}

/// The distinct paths of the steps, at most three (fused ops may have several paths already).
std::string joinPaths(const plan::PlanT &plan, const std::vector<const plan::StepT *> &steps) {
  static const std::string plus = " + ";
  std::vector<std::string> paths;
  for (const plan::StepT *step : steps) {
    const std::string text = plan.strings[step->path] + plus;
    for (size_t begin = 0, end; (end = text.find(plus, begin)) != std::string::npos; begin = end + plus.size())
      if (std::string path = text.substr(begin, end - begin);
          !path.empty() && path != "..." && std::find(paths.begin(), paths.end(), path) == paths.end())
        paths.push_back(std::move(path));
  }
  std::string text;
  for (size_t i = 0; i < paths.size() && i < 3; ++i)
    text += (i ? plus : "") + paths[i];
  return text + (paths.size() > 3 ? plus + "..." : "");
}

} // namespace

std::vector<std::vector<size_t>> batchSteps(const std::vector<StepUse> &steps, bool orderedFirst) {
  return Batches(steps, orderedFirst).order();
}

void batchKernels(ProgramBuilder &program, SegmentDraft &draft) {
  std::vector<std::unique_ptr<plan::StepT>> &steps = draft.segment->steps;
  std::vector<StepUse> uses;
  for (size_t i = 0; i < steps.size(); ++i)
    uses.push_back(useOf(program, *steps[i], draft.touched[i]));
  std::vector<std::unique_ptr<plan::StepT>> made;
  std::vector<std::vector<uint32_t>> touched;
  std::vector<size_t> placeOf(steps.size());
  // At the beginning of an iteration, the other steps hide the collectives.
  for (const std::vector<size_t> &group : batchSteps(uses, draft.segment->kind == plan::SegmentKind::Begin)) {
    for (size_t step : group)
      placeOf[step] = made.size();
    if (group.size() == 1) {
      made.push_back(std::move(steps[group[0]]));
      touched.push_back(std::move(draft.touched[group[0]]));
      continue;
    }
    auto batch = std::make_unique<plan::StepT>();
    plan::KernelBatchT op;
    std::vector<const plan::StepT *> members;
    std::set<uint32_t> slots;
    batch->location = steps[group[0]]->location;
    for (bool writes : {false, true}) // the order of a batch's accesses
      for (size_t step : group) {
        const auto &values = steps[step]->values;
        const auto results = values.end() - steps[step]->op.AsKernel()->outputs;
        batch->values.insert(batch->values.end(), writes ? results : values.begin(), writes ? values.end() : results);
      }
    for (size_t step : group) {
      auto call = std::make_unique<plan::KernelT>(std::move(*steps[step]->op.AsKernel()));
      call->kernel = program.kernels.batched(call->kernel);
      op.calls.push_back(std::move(call));
      members.push_back(steps[step].get());
      slots.insert(draft.touched[step].begin(), draft.touched[step].end());
      if (steps[step]->location != batch->location)
        batch->location = program.tables.string("");
    }
    batch->path = program.tables.string(joinPaths(program.tables.plan, members));
    batch->role = members.front()->role;
    batch->layer = members.front()->layer, batch->last_layer = members.back()->last_layer;
    batch->op.Set(std::move(op));
    made.push_back(std::move(batch));
    touched.emplace_back(slots.begin(), slots.end());
  }
  for (SentMessage &message : draft.sends)
    message.step = placeOf[message.step];
  steps = std::move(made);
  draft.touched = std::move(touched);
}

} // namespace cleave::passes
