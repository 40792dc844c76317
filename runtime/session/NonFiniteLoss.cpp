// Ends training because of a NaN or infinity.
#include "runtime/session/NonFiniteLoss.h"
#include "runtime/base/Error.h"
#include "runtime/base/Printable.h"
#include "runtime/checkpoint/Plan.h"
#include "runtime/executor/NonFinite.h"
#include "runtime/plan/DTypes.h"

#include <cmath>
#include <cstring>
#include <fmt/format.h>
#include <numeric>

namespace cleave {

/// Every skipped step halves the scale; this many steps take it from its maximum, 2^24, to a scale at which no fp16
/// gradient overflows.
static constexpr int64_t mostSkipped = 40;

NonFiniteLoss::NonFiniteLoss(std::shared_ptr<const PlanFile> plan, unsigned rank, RankEndpoint &world,
                             const RunOptions &options)
    : file(std::move(plan)), program(*file->plan().programs()->Get(file->plan().ranks()->Get(rank)->program())),
      rank(rank), world(world), options(options) {
  const bool asks = options.findNan || !options.checkpoint.empty();
  if (!asks)
    return;
  std::vector<uint32_t> ranks(world.size());
  std::iota(ranks.begin(), ranks.end(), 0);
  all = &world.group(ranks);
}

std::string NonFiniteLoss::see(int64_t step, const LossSums &sums) {
  if (const std::string wrong = sums.invalidIndices(); !wrong.empty() && reason.empty()) {
    reason = fmt::format("step {}: {}", step, wrong);
    mistake = true;
    return "";
  }
  const double loss = sums.meanLoss();
  ofLastStep.clear();
  if (std::isfinite(loss) || sums.empty()) {
    skipped = 0;
    return "";
  }
  const char *what = std::isnan(loss) ? "NaN" : "infinite";
  ofLastStep = fmt::format("step {}, the last one: the loss is {}", step, what);
  const bool scaled = std::isfinite(sums.lossScale); // the update was skipped
  if (options.keepGoing || (scaled && ++skipped < mostSkipped)) {
    if (std::exchange(warned, true))
      return "";
    return fmt::format("the loss of step {} is {}{}", step, what, scaled ? "; loss scaling skipped the step" : "");
  }
  if (reason.empty())
    reason = scaled ? fmt::format("step {}: the loss is {}, as in {} steps before, which loss scaling skipped", step,
                                  what, mostSkipped - 1)
                    : fmt::format("step {}: the loss is {}", step, what);
  return "";
}

/// Which checkpoint stays, after `before`; nothing without a folder of checkpoints.
std::string NonFiniteLoss::kept(const char *before, int64_t saved) const {
  if (options.checkpoint.empty())
    return "";
  return before + (saved > 0 ? fmt::format("{} keeps the checkpoint of step {}", options.checkpoint, saved)
                             : fmt::format("no checkpoint was written to {}", options.checkpoint));
}

/// Rank 0's advice, printed after the reason.
std::string NonFiniteLoss::advice(int64_t saved) const {
  std::string text = "a smaller learning rate may help";
  if (!options.findNan)
    text += "; --find-nan names its origin";
  return text + "; --keep-going continues training" + kept("; ", saved);
}

void NonFiniteLoss::end(int64_t saved) const {
  if (!ofLastStep.empty() && !options.keepGoing)
    throw environmentError(fmt::format("{} ({})", ofLastStep, advice(saved)));
}

void NonFiniteLoss::agree(const Executor &executor, int64_t saved) {
  std::string origin;
  if (all && options.findNan && !options.keepGoing) {
    int64_t mine = !reason.empty() && !mistake, any = 0;
    all->allReduce(&mine, &any, 1, plan::DType::I64, plan::ReduceKind::Max);
    if (any)
      origin = origins(executor);
  }
  if (mistake)
    throw userError(reason + kept("; ", saved));
  if (!reason.empty())
    throw environmentError(fmt::format("{}{} ({})", reason, origin, advice(saved)));
}

namespace {

/// An origin as bytes: five numbers and the text.
std::vector<uint8_t> pack(const std::shared_ptr<const NonFinite> &found) {
  if (!found)
    return {};
  const std::array<int64_t, 5> order{found->step, found->phase, found->microbatch, found->stage, found->sequence};
  std::vector<uint8_t> bytes(sizeof order);
  std::memcpy(bytes.data(), order.data(), sizeof order);
  bytes.insert(bytes.end(), found->what.begin(), found->what.end());
  return bytes;
}

std::optional<NonFinite> nonFiniteFrom(const std::vector<uint8_t> &bytes) {
  std::array<int64_t, 5> order{};
  if (bytes.size() < sizeof order)
    return std::nullopt;
  std::memcpy(order.data(), bytes.data(), sizeof order);
  return NonFinite{order[0], order[1], order[2],
                   order[3], order[4], printable(std::string(bytes.begin() + sizeof order, bytes.end()), true)};
}

/// The first origin among all ranks, on rank 0.
std::optional<NonFinite> firstOf(RankEndpoint &world, const std::shared_ptr<const NonFinite> &mine) {
  std::optional<NonFinite> first;
  for (const std::vector<uint8_t> &bytes : world.gather(pack(mine)))
    if (const auto one = nonFiniteFrom(bytes); one && (!first || *one < *first))
      first = one;
  return first;
}

} // namespace

std::string NonFiniteLoss::origins(const Executor &executor) {
  const NonFiniteOrigins mine = executor.nonFinite();
  const auto infinity = firstOf(world, mine.infinity), nan = firstOf(world, mine.nan);
  if (rank != 0) { // rank 0 will end all ranks
    world.barrier();
    return "";
  }
  const auto sentence = [](const char *what, const NonFinite &one) {
    return fmt::format("; the first {} was produced by {} in step {}", what, one.what, one.step);
  };
  std::string text;
  if (infinity && (!nan || *infinity < *nan))
    text += sentence("infinity", *infinity);
  if (nan)
    text += sentence("NaN", *nan);
  return text.empty() ? "; no step of the plan produced it: it was there at the start" : text;
}

std::string NonFiniteLoss::checkSaved(int64_t step, int64_t saved, const SlotMemory &memory) {
  if (!all)
    return "";
  int64_t mine = -1, any = -1; // tensors with values that are not finite
  for (uint32_t slot : savedSlots(file->plan(), rank))
    if (!allFinite(memory(slot), program.slots()->Get(slot)->dtype())) {
      mine = program.slots()->Get(slot)->tensor();
      break;
    }
  all->allReduce(&mine, &any, 1, plan::DType::I64, plan::ReduceKind::Max);
  if (any < 0)
    return "";
  const auto *name = file->plan().tensors()->Get(static_cast<unsigned>(any))->name();
  const std::string what = fmt::format("step {}: {} is not finite after it", step, name ? name->str() : "a tensor");
  if (options.keepGoing)
    return what + "; no checkpoint is written";
  throw environmentError(fmt::format("{} ({})", what, advice(saved)));
}

} // namespace cleave
