// Runs one rank: loads batches, starts iterations, returns sums.
#include "runtime/session/RankJob.h"
#include "runtime/data/EvalBatches.h"
#include "runtime/plan/plan_generated.h"

#include <array>
#include <limits>

namespace cleave {

/// The lowest rank whose program reports the loss; 0 if none does.
static unsigned metricsOwner(const plan::Plan &plan) {
  for (unsigned rank = 0; rank < plan.ranks()->size(); ++rank) {
    const auto *metrics = plan.programs()->Get(plan.ranks()->Get(rank)->program())->metrics();
    for (unsigned i = 0; metrics && i < metrics->size(); ++i)
      if (metrics->Get(i)->name()->string_view() == "loss")
        return rank;
  }
  return 0;
}

bool canEvaluate(const plan::Plan &plan) {
  for (const plan::Program *program : *plan.programs())
    if (program->eval() && program->eval()->size() > 0)
      return true;
  return false;
}

RankJob::RankJob(std::shared_ptr<const PlanFile> plan, unsigned rank, World &world, const DataSource &source,
                 SampleOrder &order, const ExecutorOptions &options)
    : file(std::move(plan)), source(source), batch(file->plan().batch()),
      rankExecutor(makeExecutor(file, rank, world, options)), loader(file->plan(), rank, source, order) {
  const unsigned from = metricsOwner(file->plan());
  owner = rank == from;
  travel = from != 0;
  if (from != 0 && (rank == from || rank == 0)) {
    const std::array<uint32_t, 2> pair{from, 0};
    toRankZero = &world.group(pair);
  }
  rankExecutor->initialise();
}

void RankJob::prepare(const BatchRef &what, int into) { loader.start(what, rankExecutor->inputBuffer(into)); }

uint64_t RankJob::train(int64_t step, float lr, const DataPosition &position, const std::optional<DataPosition> &next) {
  const auto reference = [&](const DataPosition &at) { return BatchRef{Split::Train, at.epoch, at.sample, batch}; };
  if (prepared != position) {
    loader.wait();
    prepare(reference(position), buffer);
  }
  loader.wait();
  prepared = next;
  if (next)
    prepare(reference(*next), 1 - buffer);
  rankExecutor->setScalar("lr", lr);
  rankExecutor->train(step, buffer);
  buffer = 1 - buffer;
  return rankExecutor->started();
}

LossSums RankJob::collect(LossSums sums) {
  if (!toRankZero)
    return sums;
  static_assert(sizeof sums % sizeof(int64_t) == 0);
  toRankZero->broadcast(&sums, &sums, sizeof sums / sizeof(int64_t), plan::DType::I64);
  return sums;
}

LossSums RankJob::localSums(uint64_t iteration) {
  const float none = std::numeric_limits<float>::quiet_NaN();
  const auto metric = [&](const char *name, float otherwise) {
    return rankExecutor->metric(name, iteration).value_or(otherwise);
  };
  return {metric("loss", 0), metric("weight", 0), metric("correct", none), metric("loss_scale", none),
          metric("loss_scale.skipped_steps", 0)};
}

LossSums RankJob::metrics(uint64_t iteration) { return collect(owner ? localSums(iteration) : LossSums{}); }

LossSums RankJob::evaluate(int64_t step) {
  const EvalBatches batches(source.samples(Split::Eval), batch);
  loader.wait();
  prepared.reset();
  std::vector<double> loss, weight, correct;
  uint64_t counted = rankExecutor->started();
  const auto count = [&](uint64_t upTo) {
    while (counted < upTo) {
      const LossSums one = localSums(++counted);
      loss.push_back(one.loss);
      weight.push_back(one.weight);
      correct.push_back(one.correct);
    }
  };
  if (!batches.list.empty())
    prepare(batches.list[0], buffer);
  for (size_t i = 0; i < batches.list.size(); ++i) {
    loader.wait();
    if (i + 1 < batches.list.size())
      prepare(batches.list[i + 1], 1 - buffer);
    rankExecutor->eval(buffer, {evaluationStream(step), batches.list[i].first, batches.list[i].count});
    buffer = 1 - buffer;
    count(rankExecutor->ended());
  }
  count(rankExecutor->started());
  const LossSums all{batches.total(loss), batches.total(weight), batches.total(correct)};
  return collect(owner ? all : LossSums{});
}

} // namespace cleave
