// Runs one rank: loads batches, starts iterations, returns sums.
#include "runtime/session/RankJob.h"
#include "runtime/base/ParseNumber.h"
#include "runtime/data/EvalBatches.h"
#include "runtime/plan/plan_generated.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <fmt/format.h>
#include <limits>
#include <set>
#include <string_view>

namespace cleave {

double LossSums::meanLoss() const {
  double mean = empty() ? std::numeric_limits<double>::quiet_NaN() : 0;
  for (const Term &term : terms)
    mean += term.empty() ? 0 : term.sum / term.weight;
  return mean;
}

std::pair<std::string, std::string> namesOfTerm(size_t term) {
  const std::string number = term ? "." + std::to_string(term) : "";
  return {"loss" + number, "weight" + number};
}

static std::set<std::string> metricsOf(const plan::Plan &plan, unsigned rank) {
  const auto *metrics = plan.programs()->Get(plan.ranks()->Get(rank)->program())->metrics();
  std::set<std::string> names;
  for (unsigned i = 0; metrics && i < metrics->size(); ++i)
    names.insert(metrics->Get(i)->name()->str());
  return names;
}

constexpr std::string_view topPrefix = "correct.", invalidPrefix = "invalid.";

double LossSums::accuracy() const {
  const auto found = counts.find("correct");
  return found == counts.end() ? std::numeric_limits<double>::quiet_NaN() : found->second / terms.at(0).weight;
}

TopAccuracies LossSums::topAccuracies() const {
  TopAccuracies parts;
  for (const auto &[name, count] : counts)
    if (name.starts_with(topPrefix))
      if (const auto k = parseNumber<int64_t>(std::string_view(name).substr(topPrefix.size())))
        parts[*k] = count / terms.at(0).weight;
  return parts;
}

std::string LossSums::invalidIndices() const {
  for (const auto &[name, count] : counts)
    if (const std::string reader = readerOfInvalid(name, count); !reader.empty())
      return fmt::format("{:.0f} {} of {}", count, count == 1 ? "index" : "indices", reader);
  return "";
}

std::string readerOfInvalid(const std::string &name, double count) {
  return name.starts_with(invalidPrefix) && count != 0 ? name.substr(invalidPrefix.size()) : "";
}

std::vector<std::string> countsOf(const plan::Plan &plan, unsigned rank) {
  std::vector<std::string> counts;
  for (const std::string &name : metricsOf(plan, rank))
    if (name == "correct" || name.starts_with(topPrefix) || name.starts_with(invalidPrefix))
      counts.push_back(name);
  return counts;
}

/// The number of the loss's terms that the rank's program reports.
static size_t termsOf(const plan::Plan &plan, unsigned rank) {
  const std::set<std::string> names = metricsOf(plan, rank);
  size_t terms = 0;
  while (names.count(namesOfTerm(terms).first))
    ++terms;
  return terms;
}

/// The lowest rank whose program reports the loss; 0 if none does.
static unsigned metricsOwner(const plan::Plan &plan) {
  for (unsigned rank = 0; rank < plan.ranks()->size(); ++rank)
    if (termsOf(plan, rank) > 0)
      return rank;
  return 0;
}

bool canTrain(const plan::Plan &plan) {
  return std::ranges::any_of(*plan.programs(),
                             [](const auto *one) { return one->train() && one->train()->size() > 0; });
}

bool canEvaluate(const plan::Plan &plan) {
  return std::ranges::any_of(*plan.programs(), [](const auto *one) { return one->eval() && one->eval()->size() > 0; });
}

bool evaluatesAverages(const plan::Plan &plan) {
  return plan.training() && plan.training()->optimizer() && plan.training()->optimizer()->ema() > 0;
}

RankJob::RankJob(std::shared_ptr<const PlanFile> plan, unsigned rank, RankEndpoint &world, const DataSource &source,
                 SampleOrder &order, const ExecutorOptions &options, unsigned workers)
    : file(std::move(plan)), source(source), batch(file->plan().batch()),
      rankExecutor(makeExecutor(file, rank, world, options)), agreement(world, source, order, batch),
      loader(file->plan(), rank, source, order, workers) {
  const unsigned from = metricsOwner(file->plan());
  terms = std::max<size_t>(1, termsOf(file->plan(), from));
  counts = countsOf(file->plan(), from);
  owner = rank == from;
  travel = from != 0;
  if (from != 0 && (rank == from || rank == 0)) {
    const std::array<uint32_t, 2> pair{from, 0};
    toRankZero = &world.group(pair);
  }
  rankExecutor->initialise();
}

void RankJob::prepare(const BatchRef &what, int into) { loader.start(what, rankExecutor->inputBuffer(into)); }

void RankJob::prepareStep(int64_t step, const DataPosition &at, int into) {
  sums = agreement.due(step);
  loader.start({Split::Train, at.epoch, at.sample, batch}, rankExecutor->inputBuffer(into),
               sums ? &checksums : nullptr);
}

uint64_t RankJob::train(int64_t step, float lr, const DataPosition &position, const std::optional<DataPosition> &next) {
  if (prepared != position) {
    loader.wait();
    prepareStep(step, position, buffer);
  }
  const auto began = std::chrono::steady_clock::now();
  loader.wait();
  waited += std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  if (sums)
    agreement.compare(checksums, step, position.epoch, position.sample);
  prepared = next;
  if (next)
    prepareStep(step + 1, *next, 1 - buffer);
  rankExecutor->setScalar("lr", lr);
  rankExecutor->train(step, buffer);
  buffer = 1 - buffer;
  return rankExecutor->started();
}

LossSums RankJob::collect(LossSums sums) {
  if (!toRankZero)
    return sums;
  std::vector<double> values = {sums.lossScale, sums.skippedSteps};
  for (const LossSums::Term &term : sums.terms)
    values.insert(values.end(), {term.sum, term.weight});
  for (const std::string &name : counts)
    values.push_back(sums.counts.at(name));
  static_assert(sizeof(double) == sizeof(int64_t));
  toRankZero->broadcast(values.data(), values.data(), int64_t(values.size()), plan::DType::I64);
  sums.lossScale = values[0], sums.skippedSteps = values[1];
  for (size_t i = 0; i < terms; ++i)
    sums.terms[i] = {values[2 + 2 * i], values[3 + 2 * i]};
  for (size_t i = 0; i < counts.size(); ++i)
    sums.counts[counts[i]] = values[2 + 2 * terms + i];
  return sums;
}

LossSums RankJob::nothing() const {
  LossSums sums;
  sums.terms.resize(terms);
  for (const std::string &name : counts)
    sums.counts[name] = 0;
  return sums;
}

LossSums RankJob::localSums(uint64_t iteration) {
  const float none = std::numeric_limits<float>::quiet_NaN();
  const auto metric = [&](const std::string &name, float otherwise) {
    return rankExecutor->metric(name, iteration).value_or(otherwise);
  };
  LossSums sums;
  for (size_t i = 0; i < terms; ++i) {
    const auto [sum, weight] = namesOfTerm(i);
    sums.terms.push_back({metric(sum, 0), metric(weight, 0)});
  }
  for (const std::string &name : counts)
    sums.counts[name] = metric(name, none);
  sums.lossScale = metric("loss_scale", none);
  sums.skippedSteps = metric("loss_scale.skipped_steps", 0);
  return sums;
}

LossSums RankJob::metrics(uint64_t iteration) { return collect(owner ? localSums(iteration) : nothing()); }

LossSums RankJob::evaluate(int64_t step) {
  const EvalBatches batches(source.samples(Split::Eval), evalBatchOf(file->plan()));
  loader.wait();
  prepared.reset();
  std::vector<LossSums> each; // by batch
  uint64_t counted = rankExecutor->started();
  const auto count = [&](uint64_t upTo) {
    while (counted < upTo)
      each.push_back(localSums(++counted));
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
  if (!owner)
    return collect(nothing());
  LossSums all = nothing();
  const auto total = [&](const auto &of) {
    std::vector<double> values;
    for (const LossSums &one : each)
      values.push_back(of(one));
    return batches.total(values);
  };
  for (size_t t = 0; t < terms; ++t)
    all.terms[t] = {total([&](const LossSums &one) { return one.terms[t].sum; }),
                    total([&](const LossSums &one) { return one.terms[t].weight; })};
  for (const std::string &name : counts)
    all.counts[name] = total([&](const LossSums &one) { return one.counts.at(name); });
  return collect(all);
}

} // namespace cleave
