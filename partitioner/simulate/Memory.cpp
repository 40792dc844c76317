// Sums slots by what their tensors are for.
#include "partitioner/simulate/Memory.h"

#include "partitioner/cost/Constants.h"
#include "runtime/plan/CheckParts.h"
#include "runtime/plan/plan_generated.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <vector>

namespace cleave::partitioner {

using check::length;

namespace {

uint64_t &partOf(MemoryParts &parts, const plan::Plan &plan, const plan::Slot &slot) {
  if (slot.tensor() < 0)
    return parts.others;
  switch (plan.tensors()->Get(static_cast<uint32_t>(slot.tensor()))->kind()) {
  case plan::TensorKind::Parameter:
    return parts.parameters;
  case plan::TensorKind::Gradient:
    return parts.gradients;
  case plan::TensorKind::State:
    return parts.states;
  default:
    return parts.others;
  }
}

std::string gibibytes(uint64_t bytes) { return fmt::format("{:.2f} GiB", static_cast<double>(bytes) / (1 << 30)); }

std::string describe(const MemoryParts &parts) {
  std::vector<std::string> words;
  for (const auto &[bytes, what] : {std::pair(parts.parameters, "parameters"),
                                    {parts.gradients, "gradients"},
                                    {parts.states, "optimizer state"},
                                    {parts.activations, "activations"},
                                    {parts.inputs, "inputs"},
                                    {parts.workspace, "workspace"}})
    if (bytes >= (1 << 28))
      words.push_back(fmt::format("{} {}", what, gibibytes(bytes)));
  return words.empty() ? "" : fmt::format(" ({})", fmt::join(words, ", "));
}

/// What would lower it: of what stays for the whole run, or of the activations.
std::string advice(const MemoryParts &parts) {
  return parts.activations * 2 > parts.all()
             ? "more microbatches, --recompute full, more stages (pp) or ranks per layer (tp) would lower it"
             : "more stages (pp), ranks per layer (tp) or --zero would lower it";
}

} // namespace

MemoryParts memoryParts(const plan::Plan &plan, const plan::Program &program) {
  MemoryParts parts;
  uint64_t persistent = 0;
  for (uint32_t s = 0; s < length(program.slots()); ++s) {
    const plan::Slot &slot = *program.slots()->Get(s);
    if (slot.space() != plan::Space::Persistent)
      continue;
    const uint64_t bytes = (slot.bytes() + 63) / 64 * 64; // every slot begins at a multiple of 64
    partOf(parts, plan, slot) += bytes;
    persistent += bytes;
  }
  parts.inputs = 2 * program.input_bytes();
  parts.workspace = program.workspace_bytes();
  const uint64_t fixed = persistent + parts.inputs + parts.workspace;
  parts.activations = program.peak_bytes() > fixed ? program.peak_bytes() - fixed : 0;
  return parts;
}

uint64_t reservedBytes(const DeviceKind &kind) { return constantsOf(kind).reservedBytes; }

std::optional<std::string> memoryProblem(const plan::Plan &plan, const Cluster &cluster) {
  const auto places = cluster.places(length(plan.ranks()));
  std::optional<uint32_t> worst;
  double most = 0;
  for (uint32_t r = 0; r < places.size(); ++r) {
    const DeviceKind &kind = cluster.devices[places[r].kind];
    const plan::Program &program = *plan.programs()->Get(plan.ranks()->Get(r)->program());
    const double over = static_cast<double>(program.peak_bytes() + reservedBytes(kind)) - kind.memoryBytes();
    if (over > most)
      most = over, worst = r;
  }
  if (!worst)
    return std::nullopt;
  const plan::Program &program = *plan.programs()->Get(plan.ranks()->Get(*worst)->program());
  const DeviceKind &kind = cluster.devices[places[*worst].kind];
  const MemoryParts parts = memoryParts(plan, program);
  const auto usable =
      static_cast<uint64_t>(std::max(0.0, kind.memoryBytes() - static_cast<double>(reservedBytes(kind))));
  return fmt::format("rank {} needs {} of memory{}, its device {} has {} for it; {}", *worst,
                     gibibytes(program.peak_bytes()), describe(parts), kind.name, gibibytes(usable), advice(parts));
}

} // namespace cleave::partitioner
