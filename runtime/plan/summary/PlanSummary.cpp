// Computes a report from a plan.
#include "runtime/plan/summary/PlanSummary.h"
#include "runtime/base/Counted.h"
#include "runtime/base/Error.h"
#include "runtime/base/RankWalk.h"
#include "runtime/plan/DTypes.h"
#include "runtime/plan/Inputs.h"
#include "runtime/plan/Names.h"
#include "runtime/plan/Text.h"
#include "runtime/plan/check/Defects.h"
#include "runtime/plan/steps/Communication.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <map>
#include <set>
#include <tuple>

namespace cleave {
namespace {

const plan::Program &programAt(const plan::Plan &plan, uint32_t rank) {
  return *plan.programs()->Get(plan.ranks()->Get(rank)->program());
}

/// Calls fn(action, segment) for each action of a program's training iteration.
template <typename Fn> void eachAction(const plan::Program &program, Fn fn) {
  if (!program.train())
    return;
  for (const plan::Action *action : *program.train())
    fn(*action, *program.segments()->Get(action->segment()));
}

/// Calls fn(step) for each step of a segment.
template <typename Fn> void eachStep(const plan::Segment &segment, Fn fn) {
  if (segment.steps())
    for (const plan::Step *step : *segment.steps())
      fn(*step);
}

/// The lowest rank of every coordinate on axis pp.
std::map<uint32_t, uint32_t> representatives(const plan::Plan &plan) {
  std::map<uint32_t, uint32_t> first;
  for (uint32_t rank = 0; rank < plan.ranks()->size(); ++rank)
    first.emplace(programAt(plan, rank).stage(), rank);
  return first;
}

/// The pipeline stage that a segment belongs to.
uint32_t stageOf(const plan::Program &program, const plan::Segment &segment) {
  return segment.stage() < 0 ? program.stage() : static_cast<uint32_t>(segment.stage());
}

/// The stages that receive messages, by sender, receiver and tag; of the representatives.
std::map<std::tuple<uint32_t, uint32_t, uint32_t>, uint32_t> receivers(const plan::Plan &plan) {
  std::map<std::tuple<uint32_t, uint32_t, uint32_t>, uint32_t> stages;
  for (const auto &[position, rank] : representatives(plan)) {
    const plan::Program &program = programAt(plan, rank);
    for (uint32_t s = 0; s < check::length(program.segments()); ++s) {
      const plan::Segment &segment = *program.segments()->Get(s);
      eachStep(segment, [&](const plan::Step &step) {
        if (const auto *recv = step.op_as_Recv())
          stages.try_emplace({plan.ranks()->Get(rank)->peers()->Get(recv->peer()), rank, recv->tag()},
                             stageOf(program, segment));
      });
    }
  }
  return stages;
}

const char *kindText(plan::TensorKind kind) {
  static const char *const names[] = {"activation", "input",    "parameter", "buffer",
                                      "state",      "gradient", "scalar",    "metric"};
  return names[size_t(kind)];
}

/// The source of a collective (PlanSummary.h): its first buffer's tensor, or what it works for.
std::string sourceOf(const plan::Plan &plan, const plan::Program &program, const plan::Step &step,
                     const plan::Collective &collective) {
  const uint32_t index = collective.buffers()->Get(0)->in();
  for (uint32_t i = 0; program.metrics() && i < program.metrics()->size(); ++i)
    if (program.metrics()->Get(i)->slot() == index)
      return "loss";
  const plan::Slot &slot = *program.slots()->Get(index);
  if (slot.tensor() >= 0)
    switch (plan.tensors()->Get(uint32_t(slot.tensor()))->kind()) {
    case plan::TensorKind::Gradient:
      return "gradients";
    case plan::TensorKind::Parameter:
      return "parameters";
    case plan::TensorKind::Buffer:
      return "buffers";
    case plan::TensorKind::State:
      return "states";
    case plan::TensorKind::Scalar:
    case plan::TensorKind::Metric:
      return "loss";
    default:
      break;
    }
  switch (step.role()) {
  case plan::StepRole::InputGradient:
  case plan::StepRole::WeightGradient: // gathers what it reads
    return "activation gradients";
  case plan::StepRole::Gradients:
    return "gradients";
  case plan::StepRole::Optimizer:
  case plan::StepRole::Parameters: // gathered, because they are stored in parts
    return "parameters";
  case plan::StepRole::Metrics:
    return "loss";
  case plan::StepRole::Forward:
    break;
  }
  return "activations";
}

void addCommunication(const plan::Plan &plan, PlanSummary &report) {
  std::map<std::tuple<std::string, std::string, std::string>, PlanSummary::Collective> collectives;
  std::map<std::tuple<uint32_t, uint32_t, std::string>, PlanSummary::Message> messages;
  const auto receiver = receivers(plan);
  for (const auto &[position, rank] : representatives(plan)) {
    const plan::Program &program = programAt(plan, rank);
    const plan::Rank &who = *plan.ranks()->Get(rank);
    eachAction(program, [&](const plan::Action &, const plan::Segment &segment) {
      eachStep(segment, [&](const plan::Step &step) {
        if (const auto *collective = step.op_as_Collective()) {
          const plan::Group &group = *plan.groups()->Get(who.groups()->Get(collective->group()));
          if (group.ranks()->size() < 2 || !collective->buffers() || collective->buffers()->size() == 0)
            return;
          const std::string kind = collectiveName(collective->kind()), axis = text(group.axis());
          const std::string source = sourceOf(plan, program, step, *collective);
          auto &entry =
              collectives.try_emplace({axis, kind, source}, PlanSummary::Collective{kind, axis, source}).first->second;
          entry.bytes += steps::bytesOf(*collective);
          ++entry.count;
        } else if (const auto *send = step.op_as_Send()) {
          const uint32_t peer = who.peers()->Get(send->peer()), stage = stageOf(program, segment);
          const auto found = receiver.find({rank, peer, send->tag()});
          const uint32_t to = found != receiver.end() ? found->second : programAt(plan, peer).stage();
          const std::string path = text(plan.strings()->Get(step.path()));
          auto &entry = messages.try_emplace({stage, to, path}, PlanSummary::Message{stage, to, path}).first->second;
          entry.bytes += send->bytes();
          ++entry.count;
        }
      });
    });
  }
  for (auto &[key, entry] : collectives)
    report.collectives.push_back(std::move(entry));
  for (auto &[key, entry] : messages)
    report.messages.push_back(std::move(entry));
}

void addTensors(const plan::Plan &plan, PlanSummary &report) {
  std::set<int32_t> seen;
  for (const auto &[position, rank] : representatives(plan)) {
    const plan::Program &program = programAt(plan, rank);
    if (!program.slots())
      continue;
    for (const plan::Slot *slot : *program.slots()) {
      if (slot->tensor() < 0 || slot->space() == plan::Space::Placed || seen.contains(slot->tensor()))
        continue;
      const plan::Tensor &tensor = *plan.tensors()->Get(uint32_t(slot->tensor()));
      if (tensor.kind() == plan::TensorKind::Activation || tensor.kind() == plan::TensorKind::Gradient)
        continue;
      seen.insert(slot->tensor());
      PlanSummary::Tensor entry{
          text(tensor.name()),
          kindText(tensor.kind()),
          dtypeName(tensor.dtype()),
          tensor.parameter() >= 0 ? text(plan.tensors()->Get(uint32_t(tensor.parameter()))->name()) : std::string(),
          {},
          shardingText(plan, slot->sharding()),
          1,
          tensor.kind() == plan::TensorKind::Parameter && !tensor.trainable()};
      for (uint32_t d = 0; tensor.shape() && d < tensor.shape()->size(); ++d) {
        entry.shape.push_back(tensor.shape()->Get(d));
        entry.elements *= tensor.shape()->Get(d);
      }
      report.tensors.push_back(std::move(entry));
    }
  }
}

/// How the timeline draws a segment: a letter and a duration in forward passes; duration 0: not drawn. A whole backward
/// pass takes two forward passes.
std::pair<char, double> drawn(const plan::Segment &segment) {
  switch (segment.kind()) {
  case plan::SegmentKind::Forward:
    return {'F', 1};
  case plan::SegmentKind::Backward:
    return {'B', 2};
  case plan::SegmentKind::InputGradient:
    return {'B', 1};
  case plan::SegmentKind::WeightGradient:
    return {'W', 1};
  default:
    return {' ', 0};
  }
}

/// Messages of an action of a rank: sender, receiver, tag and microbatch.
struct ActionMessages {
  using Key = std::tuple<uint32_t, uint32_t, uint32_t, int32_t>;
  std::vector<Key> sent, received;

  ActionMessages(const plan::Plan &plan, uint32_t rank, const plan::Action &action, const plan::Segment &segment) {
    const auto *peers = plan.ranks()->Get(rank)->peers();
    eachStep(segment, [&](const plan::Step &step) {
      if (const auto *send = step.op_as_Send())
        sent.emplace_back(rank, peers->Get(send->peer()), send->tag(), action.microbatch());
      else if (const auto *recv = step.op_as_Recv())
        received.emplace_back(peers->Get(recv->peer()), rank, recv->tag(), action.microbatch());
    });
  }
};

/// Simulates the representatives' schedules: an action begins when the previous one, and the senders of what it
/// receives, have ended.
void addTimeline(const plan::Plan &plan, PlanSummary &report) {
  const auto positions = representatives(plan);
  if (positions.size() < 2)
    return;
  std::map<ActionMessages::Key, double> sent;
  std::set<ActionMessages::Key> expected;
  for (const auto &[position, rank] : positions)
    eachAction(programAt(plan, rank), [&](const plan::Action &action, const plan::Segment &segment) {
      const ActionMessages messages(plan, rank, action, segment);
      expected.insert(messages.sent.begin(), messages.sent.end());
    });

  report.timeline.resize(positions.rbegin()->first + 1);
  std::vector<double> clock(report.timeline.size());
  RankWalk walk(report.timeline.size());
  walk.run([&](size_t position, size_t next) {
    const auto found = positions.find(uint32_t(position));
    if (found == positions.end())
      return false;
    const plan::Program &program = programAt(plan, found->second);
    if (next == check::length(program.train()))
      return false;
    const plan::Action &action = *program.train()->Get(uint32_t(next));
    const plan::Segment &segment = *program.segments()->Get(action.segment());
    const ActionMessages messages(plan, found->second, action, segment);
    double begin = clock[position];
    for (const auto &key : messages.received)
      if (const auto it = sent.find(key); it != sent.end())
        begin = std::max(begin, it->second);
      else if (expected.contains(key))
        return false;
    const auto [letter, length] = drawn(segment);
    const double end = clock[position] = begin + length;
    if (length > 0)
      report.timeline[position].push_back({letter, stageOf(program, segment), action.microbatch(), begin, end});
    for (const auto &key : messages.sent) {
      sent[key] = end;
      walk.wake(programAt(plan, std::get<1>(key)).stage());
    }
    return true;
  });
}

std::optional<PlanSummary::Search> searchOf(const plan::Plan &plan) {
  const plan::Search *found = plan.search();
  if (!found)
    return std::nullopt;
  return PlanSummary::Search{.step = found->step(),
                             .estimate = found->estimate(),
                             .lower = found->lower(),
                             .least = found->least(),
                             .total = found->total(),
                             .evaluated = found->evaluated(),
                             .prunedByBound = found->pruned_by_bound(),
                             .prunedByMemory = found->pruned_by_memory(),
                             .refused = found->refused(),
                             .compiled = found->compiled(),
                             .stoppedEarly = found->stopped_early()};
}

void addFacts(const PlanFile &file, PlanSummary &report) {
  const plan::Plan &plan = file.plan();
  report.model = text(plan.model());
  report.hash = file.hash();
  report.schedule = text(plan.schedule());
  report.backend = text(plan.backend());
  report.target = text(plan.target());
  report.compiler = text(plan.compiler());
  report.ranks = plan.ranks()->size();
  report.microbatches = plan.microbatches();
  report.batch = plan.batch();
  report.evalBatch = static_cast<uint32_t>(evalBatchOf(plan));
  report.trainMixes = combinesSamples(plan, false);
  report.evalMixes = combinesSamples(plan, true);
  report.threads = plan.threads();
  report.seed = plan.seed();
  report.search = searchOf(plan);
  report.programs = plan.programs()->size();
  report.codeBytes = plan.code() ? plan.code()->size() : 0;
  report.fileBytes = file.bytes().size();
  report.mesh = meshOf(plan);
  for (uint32_t i = 0; plan.kernels() && i < plan.kernels()->size(); ++i) {
    ++report.kernels;
    report.fusedOps += plan.kernels()->Get(i)->fused();
  }
  for (uint32_t rank = 0; rank < report.ranks; ++rank) {
    const plan::Program &program = programAt(plan, rank);
    report.peakBytes.push_back(program.peak_bytes());
    report.lowerBoundBytes.push_back(program.lower_bound_bytes());
    eachAction(program, [&](const plan::Action &, const plan::Segment &segment) {
      ++report.actions;
      report.steps += segment.steps() ? segment.steps()->size() : 0;
    });
  }
  for (uint32_t i = 0; plan.stages() && i < plan.stages()->size(); ++i) {
    const plan::Stage &stage = *plan.stages()->Get(i);
    PlanSummary::Stage entry{{}, {}, stage.parameters(), stage.flops()};
    for (uint32_t k = 0; stage.layers() && k < stage.layers()->size(); ++k)
      entry.layers.push_back(stage.layers()->Get(k)->str());
    for (uint32_t k = 0; stage.ranks() && k < stage.ranks()->size(); ++k)
      entry.ranks.push_back(stage.ranks()->Get(k));
    report.stages.push_back(std::move(entry));
  }
}

} // namespace

std::string shardingText(const plan::Plan &plan, const plan::Sharding *sharding) {
  if (!sharding)
    return "whole";
  const auto axes = [&](const flatbuffers::Vector<uint8_t> *list) {
    std::string out;
    for (uint32_t i = 0; list && i < list->size(); ++i)
      out += (i ? "+" : "") + text(plan.mesh()->Get(list->Get(i))->name());
    return out;
  };
  std::string out;
  bool split = false;
  for (uint32_t d = 0; sharding->dims() && d < sharding->dims()->size(); ++d) {
    const auto *factors = sharding->dims()->Get(d)->factors();
    out += d ? ", " : "";
    for (uint32_t f = 0; factors && f < factors->size(); ++f) {
      const std::string over = axes(factors->Get(f)->axes());
      split = split || !over.empty();
      out += fmt::format("{}{}{}{}", f ? "*" : "", factors->Get(f)->size(), over.empty() ? "" : "/", over);
    }
  }
  static const char *const reductions[] = {"sum", "max", "min", "or"};
  const std::string partial = axes(sharding->partial_axes());
  out = split ? "[" + out + "]" : "whole";
  return partial.empty()
             ? out
             : fmt::format("{} partial({}, {})", out, reductions[size_t(sharding->partial_kind())], partial);
}

std::string ranksText(const Mesh &mesh) {
  std::string axes;
  for (const auto &[name, size] : mesh.axes)
    if (size > 1)
      axes += fmt::format("{}{} {}", axes.empty() ? " = " : " x ", name, size);
  return counted(uint64_t(mesh.ranks()), "rank") + axes;
}

uint64_t countParameters(const plan::Plan &plan) {
  uint64_t count = 0;
  for (uint32_t i = 0; plan.stages() && i < plan.stages()->size(); ++i)
    count += plan.stages()->Get(i)->parameters();
  return count;
}

PlanSummary summaryOf(const PlanFile &file) {
  check::Defects structure(1);
  check::checkStructure(file.plan(), structure);
  if (structure.count() > 0)
    throw environmentError(fmt::format("{}: {}", file.name(), structure.take()[0]));
  PlanSummary report;
  addFacts(file, report);
  addTensors(file.plan(), report);
  report.parameters = countParameters(file.plan());
  report.frozen = report.parameters;
  for (const PlanSummary::Tensor &tensor : report.tensors) // no rank need hold a frozen one
    if (tensor.kind == "parameter" && !tensor.frozen)
      report.frozen -= std::min(report.frozen, uint64_t(tensor.elements));
  addCommunication(file.plan(), report);
  addTimeline(file.plan(), report);
  return report;
}

} // namespace cleave
