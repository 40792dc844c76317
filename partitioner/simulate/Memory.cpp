// Sums slots by kind of tensor.
#include "partitioner/simulate/Memory.h"

#include "partitioner/cost/Constants.h"
#include "runtime/plan/DTypes.h"
#include "runtime/plan/Slices.h"
#include "runtime/plan/check/Defects.h"
#include "runtime/plan/plan_generated.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <map>
#include <set>
#include <vector>

namespace cleave::partitioner {

using check::length;

namespace {

using Names = std::set<std::string_view>;

Names parameterNames(const plan::Plan &plan) {
  Names names;
  for (uint32_t t = 0; t < length(plan.tensors()); ++t)
    if (const plan::Tensor &tensor = *plan.tensors()->Get(t);
        tensor.kind() == plan::TensorKind::Parameter && tensor.name())
      names.insert(tensor.name()->string_view());
  return names;
}

/// Whether a tensor that is no parameter is one in another type, in another layout or gathered; its name says so
/// (partitioner/apply/WorkingCopies.cpp).
bool copiesParameter(const plan::Tensor &tensor, const Names &parameters) {
  std::string_view name = tensor.name() ? tensor.name()->string_view() : std::string_view();
  for (const std::string_view suffix : {".nhwc", ".whole", ".f16", ".bf16"})
    if (name.ends_with(suffix))
      name.remove_suffix(suffix.size());
  return parameters.contains(name);
}

uint64_t &partOf(MemoryParts &parts, const plan::Plan &plan, const plan::Slot &slot, const Names &parameters) {
  if (slot.tensor() < 0)
    return parts.others;
  const plan::Tensor &tensor = *plan.tensors()->Get(static_cast<uint32_t>(slot.tensor()));
  switch (tensor.kind()) {
  case plan::TensorKind::Parameter:
    return parts.parameters;
  case plan::TensorKind::Gradient:
    return parts.gradients;
  case plan::TensorKind::State:
    return parts.states;
  case plan::TensorKind::Activation:
    return copiesParameter(tensor, parameters) ? parts.parameters : parts.others;
  default:
    return parts.others;
  }
}

constexpr double gibibyte = 1 << 30;

std::string gibibytes(uint64_t bytes) { return fmt::format("{:.2f} GiB", static_cast<double>(bytes) / gibibyte); }

std::string describe(const MemoryParts &parts) {
  std::vector<std::string> words;
  for (const auto &[bytes, what] : {std::pair(parts.parameters, "parameters"),
                                    {parts.gradients, "gradients"},
                                    {parts.states, "optimizer state"},
                                    {parts.activations, "activations"},
                                    {parts.scores, "attention scores"},
                                    {parts.inputs, "inputs"},
                                    {parts.workspace, "workspace"}})
    if (bytes >= (1 << 28))
      words.push_back(fmt::format("{} {}", what, gibibytes(bytes)));
  return words.empty() ? "" : fmt::format(" ({})", fmt::join(words, ", "));
}

/// Options that would lower the memory of activations, if these take more than half, or else of tensors kept for the
/// whole run. Omits options that the plan's strategy already uses. Says if the plan would fit with fused attention.
/// `shared`: more ranks would take their memory from the same device.
std::string advice(const plan::Plan &plan, const MemoryParts &parts, uint64_t usable, bool shared = false) {
  const plan::Choices *made = plan.choices(); // null in plans of older versions
  const bool trains = std::ranges::any_of(*plan.programs(), [](const auto *one) { return length(one->train()) > 0; });
  std::vector<std::string> choices;
  if (!trains) {
    choices.push_back("a smaller batch");
  } else if ((parts.activations + parts.scores) * 2 > parts.all()) {
    choices.push_back("more microbatches");
    if (!made || made->recompute() != plan::Recomputation::Full)
      choices.push_back("--recompute full");
    if (sizeOfAxis(plan, AxisRole::Tensor) > 1 && !(made && made->sequence()))
      choices.push_back("--sequence-parallel");
  } else if (sizeOfAxis(plan, AxisRole::Data) > 1 && !(made && made->zero() == 3)) {
    choices.push_back("--zero 3");
  }
  if (shared && trains)
    choices.push_back("a smaller batch");
  if (!shared)
    choices.insert(choices.end(), {"more stages (pp)", "ranks per layer (tp)"});
  const std::string last = choices.back();
  choices.pop_back();
  const bool fitsFused = parts.scores > 0 && parts.all() - parts.scores <= usable;
  return fmt::format("{}{}{} would lower it{}", fmt::join(choices, ", "), choices.empty() ? "" : " or ", last,
                     fitsFused ? "; it fits with fused attention (fused_attention = true in the cluster file)" : "");
}

/// Walks through the training list from its end: a backward step needs scores, which the last forward step before it
/// with the same statistics and microbatch computes.
class KeptScores {
public:
  KeptScores(const plan::Program &program, const DeviceKind &kind) : program(program) {
    for (uint32_t s = 0; s < length(program.segments()); ++s)
      segments.push_back(attentionsOf(*program.segments()->Get(s), kind));
  }

  uint64_t most() {
    double most = 0;
    for (uint32_t a = length(program.train()); a-- > 0;) {
      const plan::Action &action = *program.train()->Get(a);
      for (auto one = segments[action.segment()].rbegin(); one != segments[action.segment()].rend(); ++one)
        most = std::max(most, pass(*one, action.microbatch()));
    }
    return static_cast<uint64_t>(std::min(most, 1e18)); // a valid but absurd plan may exceed uint64_t
  }

private:
  struct Attention {
    bool backward;
    int32_t statistics; ///< slot
    double bytes;
  };

  static std::vector<Attention> attentionsOf(const plan::Segment &segment, const DeviceKind &kind) {
    std::vector<Attention> all;
    for (uint32_t i = 0; i < length(segment.steps()); ++i)
      if (const plan::Attention *op = segment.steps()->Get(i)->op_as_Attention()) {
        const double scores = static_cast<double>(op->batch()) * static_cast<double>(op->heads()) *
                              static_cast<double>(op->rows()) * static_cast<double>(op->keys());
        all.push_back({op->kind() == plan::AttentionKind::Backward, op->lse(),
                       scores * keptBytesPerScore(kind, dtypeSize(op->dtype()))});
      }
    return all;
  }

  /// Returns the bytes kept during the step; sets `live` to the bytes kept before it.
  double pass(const Attention &one, int32_t microbatch) {
    const std::pair key{microbatch, one.statistics};
    if (one.backward) {
      live += needed.insert(key).second ? one.bytes : 0;
      return live;
    }
    const bool keeps = needed.erase(key) > 0;
    const double during = live + (keeps ? 0 : one.bytes);
    live -= keeps ? one.bytes : 0;
    return during;
  }

  const plan::Program &program;
  std::vector<std::vector<Attention>> segments;
  std::set<std::pair<int32_t, int32_t>> needed;
  double live = 0;
};

} // namespace

uint64_t keptScoreBytes(const plan::Program &program, const DeviceKind &kind) {
  return attentionIsFused(kind) ? 0 : KeptScores(program, kind).most();
}

uint64_t neededBytes(const plan::Program &program, const DeviceKind &kind) {
  return program.peak_bytes() + keptScoreBytes(program, kind);
}

MemoryParts memoryParts(const plan::Plan &plan, const plan::Program &program, const DeviceKind &kind) {
  MemoryParts parts;
  const Names parameters = parameterNames(plan);
  uint64_t persistent = 0;
  for (uint32_t s = 0; s < length(program.slots()); ++s) {
    const plan::Slot &slot = *program.slots()->Get(s);
    if (slot.space() != plan::Space::Persistent)
      continue;
    const uint64_t bytes = arenaBytes(slot);
    partOf(parts, plan, slot, parameters) += bytes;
    persistent += bytes;
  }
  parts.inputs = 2 * program.input_bytes();
  parts.workspace = program.workspace_bytes();
  const uint64_t fixed = persistent + parts.inputs + parts.workspace;
  parts.activations = program.peak_bytes() > fixed ? program.peak_bytes() - fixed : 0;
  parts.scores = keptScoreBytes(program, kind);
  return parts;
}

uint64_t arenaBytes(const plan::Slot &slot) { return (slot.bytes() + 63) / 64 * 64; }

uint64_t reservedBytes(const DeviceKind &kind) { return constantsOf(kind).reservedBytes; }

double usableBytes(const DeviceKind &kind) {
  return std::max(0.0, kind.memoryBytes() - static_cast<double>(reservedBytes(kind)));
}

std::pair<std::string, std::string> gibibytes(double one, double other) {
  constexpr int most = 9; // digits: bytes
  std::pair<std::string, std::string> texts;
  for (int digits = 2; digits <= most && texts.first == texts.second; ++digits)
    texts = {fmt::format("{:.{}f} GiB", one / gibibyte, digits), fmt::format("{:.{}f} GiB", other / gibibyte, digits)};
  return texts;
}

MemoryUse tightest(const plan::Plan &plan, const Cluster &cluster) {
  const auto places = cluster.places(length(plan.ranks()));
  std::map<std::pair<uint32_t, size_t>, uint64_t> needed; // by program and kind
  MemoryUse worst;
  double most = -INFINITY;
  for (uint32_t r = 0; r < places.size(); ++r) {
    const DeviceKind &kind = cluster.devices[places[r].kind];
    const uint32_t program = plan.ranks()->Get(r)->program();
    const auto [bytes, added] = needed.try_emplace({program, places[r].kind});
    if (added)
      bytes->second = neededBytes(*plan.programs()->Get(program), kind);
    const double capacity = usableBytes(kind), over = static_cast<double>(bytes->second) - capacity;
    if (over > most)
      most = over, worst = {r, bytes->second, static_cast<uint64_t>(capacity)};
  }
  return worst;
}

std::optional<MemoryLack> memoryLack(const plan::Plan &plan, const Cluster &cluster) {
  const MemoryUse worst = tightest(plan, cluster);
  if (worst.needed <= worst.capacity)
    return std::nullopt;
  const plan::Program &program = *plan.programs()->Get(plan.ranks()->Get(worst.rank)->program());
  const DeviceKind &kind = cluster.devices[cluster.places(length(plan.ranks()))[worst.rank].kind];
  const MemoryParts parts = memoryParts(plan, program, kind);
  const auto [needed, capacity] = gibibytes(static_cast<double>(worst.needed), static_cast<double>(worst.capacity));
  return MemoryLack{fmt::format("rank {} needs {} of memory{}, its device {} has {} for it", worst.rank, needed,
                                describe(parts), kind.name, capacity),
                    advice(plan, parts, worst.capacity)};
}

std::optional<MemoryLack> memoryLack(const plan::Plan &plan, const DeviceHere &device) {
  const DeviceKind kind{.name = device.name, .backend = text(device.kind), .memoryGib = device.bytes / gibibyte};
  const uint32_t ranks = length(plan.ranks());
  double all = 0;
  uint32_t most = 0;
  const auto needs = [&](uint32_t rank) {
    return neededBytes(*plan.programs()->Get(plan.ranks()->Get(rank)->program()), kind);
  };
  for (uint32_t r = 0; r < ranks; ++r) {
    all += static_cast<double>(needs(r));
    most = needs(r) > needs(most) ? r : most;
  }
  const bool shared = device.ranks > 1;
  // Which of a machine's ranks need more is not known: those on several machines are taken to need the mean.
  const double needed = shared ? all / ranks * static_cast<double>(device.ranks) : static_cast<double>(needs(most)),
               capacity = usableBytes(kind);
  if (needed <= capacity)
    return std::nullopt;
  const plan::Program &program = *plan.programs()->Get(plan.ranks()->Get(most)->program());
  const MemoryParts parts = memoryParts(plan, program, kind);
  const auto [need, has] = gibibytes(needed, capacity);
  const std::string who = shared ? fmt::format("{} ranks need {} of memory, rank {} the most", device.ranks, need, most)
                                 : fmt::format("rank {} needs {} of memory", most, need);
  return MemoryLack{
      fmt::format("{}{}, {} has {} for {}", who, describe(parts), device.name, has, shared ? "them" : "it"),
      advice(plan, parts, static_cast<uint64_t>(capacity), device.kind == Target::Kind::Cpu)};
}

std::optional<std::string> memoryProblem(const plan::Plan &plan, const Cluster &cluster) {
  const auto lack = memoryLack(plan, cluster);
  return lack ? std::optional(fmt::format("{}; {}", lack->what, lack->advice)) : std::nullopt;
}

} // namespace cleave::partitioner
