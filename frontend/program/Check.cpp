// Compares a plan with its graph, step by step.
#include "frontend/program/Check.h"
#include "frontend/program/Given.h"
#include "frontend/program/Reference.h"
#include "runtime/base/Error.h"
#include "runtime/comm/LocalWorld.h"
#include "runtime/plan/Check.h"
#include "runtime/plan/DTypes.h"
#include "runtime/plan/Slices.h"
#include "runtime/plan/plan_generated.h"
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

/// Allowed differences between plan and interpreter, relative to a tensor's largest element or to the loss. They differ
/// because sums are taken in another order, and because half types sometimes round to the other neighbour.
struct Tolerance {
  double tensor = 1e-3, loss = 1e-4;
  /// Compare tensors by the norm of the difference. (If rounding changes a sign or which element is the maximum, single
  /// elements change a lot.)
  bool norm = false;
  /// Gradients below this fraction of the largest gradient are noise. (The gradient of a bias before a normalisation is
  /// zero except for rounding.)
  double noise = 1e-3;
  /// The terms of a gradient may cancel: another order of addition causes errors relative to the sum of their absolute
  /// values. This fraction of that sum counts as the size of the element.
  double summed = 0.02;
};

Tolerance toleranceOf(const plan::Plan &plan) {
  const plan::Precision type = plan.training() ? plan.training()->precision() : plan::Precision::Fp32;
  return type == plan::Precision::Bf16   ? Tolerance{0.1, 1e-2, true, 0.5, 0.1}
         : type == plan::Precision::Fp16 ? Tolerance{0.05, 2e-3, true, 0.5, 0.1}
                                         : Tolerance{};
}

const char *kindName(plan::TensorKind kind) {
  switch (kind) {
  case plan::TensorKind::Parameter:
    return "parameter";
  case plan::TensorKind::Buffer:
    return "buffer";
  case plan::TensorKind::State:
    return "state";
  case plan::TensorKind::Gradient:
    return "gradient";
  default:
    return "";
  }
}

/// A rank's piece of a tensor: indices of elements in the whole tensor, and their values.
struct Piece {
  unsigned rank;
  std::vector<int64_t> indices;
  std::vector<double> values;
};
using Pieces = std::map<TensorKey, std::vector<Piece>>;

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
    const std::string kind = kindName(tensor.kind());
    const plan::Sharding *sharding = slot.sharding();
    if (kind.empty())
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

std::string place(int64_t index, const std::vector<int64_t> &shape) {
  std::vector<int64_t> at(shape.size());
  for (size_t d = shape.size(); d-- > 0; index /= shape[d])
    at[d] = index % shape[d];
  return fmt::format("[{}]", fmt::join(at, ", "));
}

double largestOf(const ir::HostTensor &tensor) {
  double largest = 0;
  for (double value : tensor.values)
    largest = std::max(largest, std::abs(value));
  return largest;
}

double normOf(const ir::HostTensor &tensor) {
  double squares = 0;
  for (double value : tensor.values)
    squares += value * value;
  return std::sqrt(squares);
}

class Comparison {
public:
  Comparison(CheckResult &result, Tolerance tolerance) : result(result), tolerance(tolerance) {}

  /// Compares every rank's piece of a tensor with the reference. Elements below `floor` are noise. `magnitude`: the sum
  /// of absolute terms of each element.
  void compare(const TensorKey &key, const ir::HostTensor &expected, const std::vector<Piece> &pieces, int64_t step,
               double floor, const ir::HostTensor *magnitude) {
    const double largest = std::max({1e-6, floor, largestOf(expected)});
    ++result.tensors;
    std::vector<bool> held(expected.values.size());
    const double norm = std::max(normOf(expected), magnitude ? tolerance.summed * normOf(*magnitude) : 0);
    for (const Piece &piece : pieces) {
      double squares = 0;
      for (size_t i = 0; i < piece.indices.size(); ++i) {
        held[piece.indices[i]] = true;
        const double want = expected.values[piece.indices[i]], got = piece.values[i];
        const double scale = std::max(largest, magnitude ? tolerance.summed * magnitude->values[piece.indices[i]] : 0);
        double apart = std::isnan(want) && std::isnan(got) ? 0 : std::abs(want - got) / scale;
        if (tolerance.norm)
          apart *= scale / std::max({1e-6, floor, norm});
        squares += apart * apart;
        if (tolerance.norm)
          apart = std::sqrt(squares);
        if (apart > result.largest)
          result.largest = apart;
        if (!(apart <= tolerance.tensor) && result.difference.empty())
          result.difference =
              fmt::format("the {} {} differs after step {}: on rank {} element {} is {:.9g}, the graph says {:.9g}",
                          key.first, key.second, step, piece.rank, place(piece.indices[i], expected.shape), got, want);
      }
    }
    const auto missing = std::find(held.begin(), held.end(), false);
    if (missing != held.end() && result.difference.empty())
      result.difference = fmt::format("no rank holds element {} of the {} {}",
                                      place(missing - held.begin(), expected.shape), key.first, key.second);
  }

  double noise() const { return tolerance.noise; }

  void loss(double got, double want, int64_t step) {
    ++result.tensors;
    if (!(std::abs(got - want) <= tolerance.loss * std::max(1.0, std::abs(want))) && result.difference.empty())
      result.difference =
          fmt::format("the loss differs in step {}: it is {:.9g}, the graph says {:.9g}", step, got, want);
  }

private:
  CheckResult &result;
  Tolerance tolerance;
};

/// Copies the plan's values to the reference, so that both sides start the next step with equal values.
void adopt(TensorMap &values, const TensorKey &key, const std::vector<Piece> &pieces) {
  ir::HostTensor &tensor = values.at(key);
  for (const Piece &piece : pieces)
    for (size_t i = 0; i < piece.indices.size(); ++i)
      tensor.values[piece.indices[i]] = piece.values[i];
}

/// Both sides of a check and the current step.
class Check {
public:
  Check(std::shared_ptr<const PlanFile> plan, const GraphModule &step, const DataSource &source)
      : file(std::move(plan)), source(source), order(source.samples(Split::Train), file->plan().seed()),
        rate(learningRateOf(file->plan())), reference(step, file->plan().seed(), file->plan().microbatches()),
        values(reference.initial()) {}

  CheckResult run(int64_t steps, unsigned threads);

private:
  void compareStep(int64_t step, int64_t steps, const DataPosition &at, const LossSums &sums, CheckResult &result);

  std::shared_ptr<const PlanFile> file;
  const DataSource &source;
  SampleOrder order;
  plan::LearningRateT rate;
  Reference reference;
  TensorMap values;
  Pieces pieces;
  std::mutex mutex;
};

void Check::compareStep(int64_t step, int64_t steps, const DataPosition &at, const LossSums &sums,
                        CheckResult &result) {
  const auto epoch = order.of(at.epoch);
  const std::vector<uint32_t> rows(epoch->begin() + at.sample, epoch->begin() + at.sample + file->plan().batch());
  Comparison comparison(result, toleranceOf(file->plan()));
  const StepSums expected = reference.train(values, source, at.epoch, rows, step);
  comparison.loss(sums.meanLoss(), expected.loss / expected.weight, step);
  const std::vector<TensorKey> keys = reference.order();
  double gradients = 0; // the largest element of all gradients
  for (const TensorKey &key : keys)
    if (key.first == "gradient")
      gradients = std::max(gradients, largestOf(values.at(key)));
  const auto compare = [&](const TensorKey &key) {
    const auto found = pieces.find(key);
    if (found == pieces.end() && key.first == "gradient") // a gradient of one microbatch is not kept after the update
      return;
    const std::vector<Piece> none, &held = found == pieces.end() ? none : found->second;
    const auto magnitude = values.find({"magnitude", key.second});
    const bool gradient = key.first == "gradient";
    comparison.compare(key, values.at(key), held, step, gradient ? comparison.noise() * gradients : 0,
                       gradient && magnitude != values.end() ? &magnitude->second : nullptr);
    adopt(values, key, held);
  };
  for (const TensorKey &key : keys)
    if (key.first == "buffer" || key.first == "gradient")
      compare(key);
  reference.update(values, rateAt(rate, step, steps), step, expected.weight);
  for (const TensorKey &key : keys)
    if (key.first == "parameter" || key.first == "state")
      compare(key);
}

CheckResult Check::run(int64_t steps, unsigned threads) {
  const plan::Plan &plan = file->plan();
  const int64_t batch = plan.batch(), samples = source.samples(Split::Train);
  if (batch > samples)
    throw userError(fmt::format("--batch {}: a batch must not be larger than the {} training samples", batch, samples));
  const unsigned ranks = plan.ranks()->size();
  LocalWorld world(ranks);
  CheckResult result;
  TrainOptions options;
  options.threads = threads;
  runRanks(world, [&](unsigned rank) {
    RankJob job(file, rank, world[rank], source, order, executorOptions(plan, options));
    DataPosition at;
    for (int64_t step = 1; step <= steps; ++step) {
      const LossSums sums =
          job.metrics(job.train(step, static_cast<float>(rateAt(rate, step, steps)), at, std::nullopt));
      collect(plan, job.executor(), pieces, mutex);
      world[rank].barrier();
      if (rank == 0) {
        compareStep(step, steps, at, sums, result);
        pieces.clear();
      }
      world[rank].barrier();
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
