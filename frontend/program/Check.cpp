// Compares a plan with its graph, step by step.
#include "frontend/program/Check.h"
#include "frontend/program/Reference.h"
#include "frontend/program/StoredOptions.h"
#include "passes/export/TensorKinds.h"
#include "runtime/base/Error.h"
#include "runtime/comm/LocalWorld.h"
#include "runtime/plan/DTypes.h"
#include "runtime/plan/Slices.h"
#include "runtime/plan/check/Check.h"
#include "runtime/plan/plan_generated.h"
#include "runtime/plan/steps/Steps.h"
#include "runtime/session/LearningRate.h"
#include "runtime/session/RankJob.h"
#include "runtime/session/Setup.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <mutex>

namespace cleave {

namespace {

/// How long ranks wait for the comparison of a step, in which the reference runs several times: as long as it takes.
constexpr double comparisonSeconds = 1e6;

/// What the types of a plan's graph mean for rounding: matrix products may round operands to TF32, gradients may be
/// summed in a half type.
ir::Bounds::Types typesOf(const plan::Plan &plan) {
  const plan::Training *training = plan.training();
  const plan::Precision precision = training ? training->precision() : plan::Precision::Fp32,
                        reduce = training ? training->reduce() : plan::Precision::Fp32;
  return {.addends = reduce == plan::Precision::Fp16   ? DType::F16
                     : reduce == plan::Precision::Bf16 ? DType::BF16
                                                       : DType::F32,
          .coarse = precision == plan::Precision::Tf32 ? 0x1p13 : 1};
}

bool usesWinograd(const plan::Plan &plan) {
  for (const plan::Program *program : *plan.programs())
    for (const plan::Segment *segment : *program->segments())
      for (uint32_t i = 0; i < check::length(segment->steps()); ++i) // not set where there are none
        if (const plan::Conv *conv = segment->steps()->Get(i)->op_as_Conv(); conv && conv->winograd())
          return true;
  return false;
}

/// A rank's piece of a tensor: indices of elements in the whole tensor, and their values.
struct Piece {
  unsigned rank;
  std::vector<int64_t> indices;
  std::vector<double> values;
};
using Pieces = std::map<ir::SlotKey, std::vector<Piece>>;

std::vector<int64_t> shapeOf(const plan::Tensor &tensor) {
  return tensor.shape() ? std::vector<int64_t>(tensor.shape()->begin(), tensor.shape()->end()) : std::vector<int64_t>();
}

/// Calls fn(global index, local index) for every element of a box.
template <class F>
void forEachElement(const Box &box, const std::vector<int64_t> &global, const std::vector<int64_t> &local, F fn) {
  int64_t count = 1;
  for (int64_t size : box.size)
    count *= size;
  const auto globalStrides = ir::stridesOf(global), localStrides = ir::stridesOf(local);
  for (int64_t flat = 0; flat < count; ++flat) {
    int64_t rest = flat, globalAt = 0, localAt = 0;
    for (size_t d = box.size.size(); d-- > 0; rest /= box.size[d]) {
      const int64_t i = rest % box.size[d];
      globalAt += (box.globalStart[d] + i) * globalStrides[d];
      localAt += (box.localStart[d] + i) * localStrides[d];
    }
    fn(globalAt, localAt);
  }
}

/// Collects every persistent slot of a rank after a step. Gradients are declared partial, because microbatches
/// accumulate into them, but after the step they are reduced.
void collect(const plan::Plan &plan, Executor &executor, Pieces &pieces, std::mutex &mutex) {
  const plan::Program &program = executor.program;
  const std::vector<uint32_t> sizes = meshSizes(plan);
  const std::vector<uint32_t> coords(executor.rank.coords()->begin(), executor.rank.coords()->end());
  for (unsigned s = 0; s < program.slots()->size(); ++s) {
    const plan::Slot &slot = *program.slots()->Get(s);
    if (slot.space() != plan::Space::Persistent || slot.tensor() < 0)
      continue;
    const plan::Tensor &tensor = *plan.tensors()->Get(static_cast<unsigned>(slot.tensor()));
    const ir::SlotKind kind = passes::keptKindOf(tensor.kind());
    const plan::Sharding *sharding = slot.sharding();
    if (kind == ir::SlotKind::None)
      continue;
    const std::vector<int64_t> global = shapeOf(tensor), local = localShape(sharding, global, sizes, coords);
    Piece piece{executor.rankIndex, {}, {}};
    const std::byte *memory = executor.persistent(s).data();
    for (const Box &box : localBoxes(sharding, global, sizes, coords))
      forEachElement(box, global, local, [&](int64_t globalAt, int64_t localAt) {
        piece.indices.push_back(globalAt);
        piece.values.push_back(loadElement(memory, localAt, slot.dtype()));
      });
    std::lock_guard lock(mutex);
    pieces[{kind, tensor.name()->str()}].push_back(std::move(piece));
  }
}

/// The sums and weights of the loss's terms, as tensors.
ir::Slots tensorsOf(const LossSums &sums) {
  ir::Slots tensors;
  for (size_t i = 0; i < sums.terms.size(); ++i) {
    const auto [sum, weight] = namesOfTerm(i);
    tensors[{ir::SlotKind::Metric, sum}] = ir::HostTensor({}, DType::F32, sums.terms[i].sum);
    tensors[{ir::SlotKind::Metric, weight}] = ir::HostTensor({}, DType::F32, sums.terms[i].weight);
  }
  return tensors;
}

/// Counts the tensors and records the largest difference relative to each tensor's largest element.
void measure(const ir::HostTensor &expected, const Piece &piece, CheckResult &result) {
  double largest = 1e-6;
  for (const double value : expected.values)
    largest = std::max(largest, std::abs(value));
  for (size_t i = 0; i < piece.indices.size(); ++i) {
    const double apart = std::abs(piece.values[i] - expected.values[static_cast<size_t>(piece.indices[i])]) / largest;
    result.largest = std::isnan(apart) ? result.largest : std::max(result.largest, apart);
  }
}

/// The first difference of the ranks' pieces of a tensor from the reference; "" if there is none.
std::string differenceOf(const ir::SlotKey &key, const ir::HostTensor &expected, const ir::HostTensor &spread,
                         const std::vector<Piece> &pieces, int64_t step) {
  std::vector<bool> held(expected.values.size());
  for (const Piece &piece : pieces) {
    for (const int64_t index : piece.indices)
      held[static_cast<size_t>(index)] = true;
    if (const auto found = ir::firstOutside(expected, &spread, piece.indices, piece.values))
      return fmt::format(
          "the {} {} differs after step {}: on rank {} element {} is {:.9g}, the graph says {:.9g}, within {:.3g}",
          text(key.kind), key.name, step, piece.rank, ir::placeText(found->index, expected.shape), found->got,
          found->want, found->bound);
  }
  const auto missing = std::find(held.begin(), held.end(), false);
  return missing == held.end()
             ? ""
             : fmt::format("no rank holds element {} of the {} {}",
                           ir::placeText(missing - held.begin(), expected.shape), text(key.kind), key.name);
}

/// Copies the plan's values to the reference, so that what follows begins with equal values. The reference has not all
/// that a plan holds: not the parts of ZeRO, and nothing that only an evaluation reads.
void adopt(ir::Slots &values, const ir::SlotKey &key, const std::vector<Piece> &pieces) {
  const auto known = values.find(key);
  if (known == values.end())
    return;
  for (const Piece &piece : pieces)
    for (size_t i = 0; i < piece.indices.size(); ++i)
      known->second.values[static_cast<size_t>(piece.indices[i])] = piece.values[i];
}

/// Both sides of a check and the current step.
class Check {
public:
  Check(std::shared_ptr<const PlanFile> plan, const GraphModule &step, const DataSource &source)
      : file(std::move(plan)), source(source), order(source.samples(Split::Train), file->plan().seed()),
        rate(learningRateOf(file->plan())), reference(step, file->plan().seed(), file->plan().microbatches()),
        values(reference.initial()) {
    resolveEpochs(rate, source.samples(Split::Train) / file->plan().batch());
  }

  CheckResult run(int64_t steps, unsigned threads);

private:
  void compareStep(int64_t step, int64_t steps, const DataPosition &at, const LossSums &sums, CheckResult &result);
  ir::Slots reckon(int64_t epoch, const std::vector<uint32_t> &rows, int64_t step, double lr) const;
  std::string difference(const ir::Bounds &bounds, int64_t step) const;

  std::shared_ptr<const PlanFile> file;
  const DataSource &source;
  SampleOrder order;
  plan::LearningRateT rate;
  Reference reference;
  ir::Slots values; ///< at the beginning of the step
  Pieces pieces;    ///< of the plan, after the step
  std::mutex mutex;
};

/// The reference's step under the current rounding. The optimizer gets the plan's gradients where the plan keeps them.
ir::Slots Check::reckon(int64_t epoch, const std::vector<uint32_t> &rows, int64_t step, double lr) const {
  ir::Slots now = values;
  const LossSums sums = reference.train(now, source, epoch, rows, step);
  ir::Slots found = now;
  for (auto &[key, tensor] : tensorsOf(sums))
    found[key] = std::move(tensor);
  for (const auto &[key, held] : pieces)
    if (key.kind == ir::SlotKind::Gradient)
      adopt(now, key, held);
  reference.update(now, lr, step, sums);
  for (auto &[key, tensor] : now)
    if (key.kind == ir::SlotKind::Parameter || key.kind == ir::SlotKind::State)
      found[key] = std::move(tensor);
  return found;
}

/// In the order of execution, so that the cause is found before its consequences.
std::string Check::difference(const ir::Bounds &bounds, int64_t step) const {
  std::vector<ir::SlotKey> keys = reference.order();
  for (const auto &[key, held] : pieces)
    if (key.kind == ir::SlotKind::Metric)
      keys.insert(keys.begin(), key);
  for (const ir::SlotKey &key : keys) {
    const auto held = pieces.find(key);
    if (held == pieces.end() &&
        key.kind == ir::SlotKind::Gradient) // a gradient of one microbatch is not kept after the update
      continue;
    const std::string text = differenceOf(key, bounds.exact[0].at(key), bounds.spread[0].at(key),
                                          held == pieces.end() ? std::vector<Piece>() : held->second, step);
    if (!text.empty())
      return text;
  }
  return "";
}

void Check::compareStep(int64_t step, int64_t steps, const DataPosition &at, const LossSums &sums,
                        CheckResult &result) {
  const auto epoch = order.of(at.epoch);
  const std::vector<uint32_t> rows(epoch->begin() + at.sample, epoch->begin() + at.sample + file->plan().batch());
  for (const auto &[key, tensor] : tensorsOf(sums))
    pieces[key] = {Piece{0, {0}, tensor.values}};
  const ir::Run run = [&] { return std::vector{reckon(at.epoch, rows, step, rateAt(rate, step, steps))}; };
  const ir::Bounds::Types types = typesOf(file->plan());
  ir::Bounds bounds = // more runs where one is not enough
      ir::Bounds::ofDouble(run, 1, usesWinograd(file->plan())).inTypes(types);
  do
    result.difference = difference(bounds, step);
  while (!result.difference.empty() && bounds.widenInTypes(run, types));
  if (!result.difference.empty() && bounds.leavesRange(run, types, 0))
    result.difference.clear();
  values = bounds.exact[0];
  for (const auto &[key, held] : pieces) {
    const auto known = values.find(key);
    result.tensors += known != values.end();
    for (const Piece &piece : held)
      if (known != values.end())
        measure(known->second, piece, result);
    adopt(values, key, held);
  }
}

CheckResult Check::run(int64_t steps, unsigned threads) {
  const plan::Plan &plan = file->plan();
  const int64_t batch = plan.batch(), samples = source.samples(Split::Train);
  if (batch > samples)
    throw userError(fmt::format("--batch {}: a batch must not be larger than the {} training samples", batch, samples));
  const unsigned ranks = plan.ranks()->size();
  LocalWorld world(ranks);
  CheckResult result;
  RunOptions options;
  options.threads = threads;
  runRanks(world, [&](unsigned rank) {
    RankJob job(file, rank, world[rank], source, order, executorOptions(plan, options, rank));
    DataPosition at;
    for (int64_t step = 1; step <= steps; ++step) {
      const LossSums sums =
          job.metrics(job.train(step, static_cast<float>(rateAt(rate, step, steps)), at, std::nullopt));
      collect(plan, job.executor(), pieces, mutex);
      world[rank].barrier();
      world[rank].setTimeout(comparisonSeconds);
      if (rank == 0) {
        if (const std::string wrong = sums.invalidIndices(); !wrong.empty())
          throw userError(fmt::format("step {}: {}", step, wrong));
        compareStep(step, steps, at, sums, result);
        pieces.clear();
      }
      world[rank].barrier();
      world[rank].setTimeout(options.waitSeconds());
      at.sample += batch;
      at.settle(samples, batch);
      if (!result.difference.empty())
        break;
    }
  });
  return result;
}

} // namespace

CheckResult checkPlanAgainstGraph(std::shared_ptr<const PlanFile> plan, const GraphModule &step,
                                  const DataSource &source, int64_t steps, unsigned threads) {
  checkPlanOrThrow(plan->plan(), plan->name());
  return Check(std::move(plan), step, source).run(steps, threads);
}

} // namespace cleave
