// Ranks that wait for jobs: threads with a queue of one job, or this process.
#include "runtime/session/Predict.h"
#include "runtime/base/Error.h"
#include "runtime/base/Thread.h"
#include "runtime/checkpoint/Checkpoint.h"
#include "runtime/data/Loader.h"
#include "runtime/executor/Executor.h"
#include "runtime/plan/check/Check.h"
#include "runtime/plan/plan_generated.h"
#include "runtime/session/Launcher.h"
#include "runtime/session/ProcessWorld.h"
#include "runtime/session/RankJob.h"
#include "runtime/session/Setup.h"

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <fmt/format.h>
#include <map>
#include <mutex>
#include <numeric>
#include <optional>
#include <set>

namespace cleave {

int64_t PredictedOutput::elements() const {
  return std::accumulate(shape.begin(), shape.end(), int64_t(1), std::multiplies<>());
}

namespace {

/// The loaders' data source: the data set of the current call, with any order of fields and any split.
class Feed final : public DataSource {
public:
  explicit Feed(const plan::Plan &plan);
  void use(const DataSource &from, Split which);

  const std::vector<DataField> &fields() const override { return list; }
  int64_t samples(Split) const override { return source->samples(split); }
  void read(const SampleId &sample, Random &random, std::span<std::byte *const> to) const override {
    std::vector<std::byte *> list(source->fields().size());
    for (size_t field = 0; field < to.size(); ++field)
      list[fieldOf[field]] = to[field];
    source->read({split, sample.index, sample.epoch}, random, list);
  }

private:
  std::vector<DataField> list;
  std::vector<size_t> fieldOf; ///< of `list`, in the current data set
  const DataSource *source = nullptr;
  Split split = Split::Eval;
};

Feed::Feed(const plan::Plan &plan) {
  std::set<std::string> read;
  for (unsigned rank = 0; rank < plan.ranks()->size(); ++rank)
    for (const InputPart &part : inputParts(plan, rank, true))
      read.insert(part.field);
  for (DataField &field : DataSpec::of(plan).fields)
    if (read.count(field.name))
      list.push_back(std::move(field));
}

void Feed::use(const DataSource &from, Split which) {
  std::vector<size_t> found;
  for (const DataField &field : list)
    found.push_back(findField(from, field.name, field.dtype, field.shape));
  fieldOf = std::move(found);
  source = &from;
  split = which;
}

/// One call of Prediction::run.
struct Job {
  int64_t first, count;
  const Prediction::Take &take;
  int64_t number; ///< of the call, 0 the first
};

/// State shared by the ranks of this process.
struct Shared {
  Shared(std::shared_ptr<const PlanFile> plan, const RunOptions &options);

  std::shared_ptr<const PlanFile> file;
  RunOptions options;
  std::optional<Manifest> manifest;
  Feed feed;
  SampleOrder order{0, 0}; ///< required by the loader; the training split is not used here
  std::vector<PredictedOutput> outputs;
  std::vector<unsigned> owners; ///< of outputs: the lowest rank that holds each
  std::mutex taking;
  std::string invalid; ///< the function that read invalid indices in the current call; empty: none did
};

/// Slots of the outputs in a rank's program, by name.
std::map<std::string, uint32_t> outputSlots(const plan::Plan &plan, unsigned rank) {
  std::map<std::string, uint32_t> slots;
  const auto *list = plan.programs()->Get(plan.ranks()->Get(rank)->program())->metrics();
  for (unsigned i = 0; list && i < list->size(); ++i)
    if (const std::string name = list->Get(i)->name()->str(); name == "output" || name.starts_with("output."))
      slots[name] = list->Get(i)->slot();
  return slots;
}

Shared::Shared(std::shared_ptr<const PlanFile> plan, const RunOptions &given)
    : file(std::move(plan)), options(given), feed(file->plan()) {
  const plan::Plan &p = file->plan();
  if (!options.checkpoint.empty())
    manifest = readManifest(options.checkpoint, options.atStep);
  for (;;) {
    const std::string name = outputs.empty() ? "output" : fmt::format("output.{}", outputs.size());
    unsigned owner = 0;
    while (owner < p.ranks()->size() && !outputSlots(p, owner).count(name))
      ++owner;
    if (owner == p.ranks()->size())
      break;
    const plan::Program &program = *p.programs()->Get(p.ranks()->Get(owner)->program());
    const auto *shape = program.slots()->Get(outputSlots(p, owner).at(name))->shape();
    const bool ofBatch = !shape || shape->size() == 0;
    if (!ofBatch && shape->Get(0) != p.batch())
      throw environmentError(
          fmt::format("{}: {} must have a row for each of {} samples", file->name(), name, p.batch()));
    outputs.push_back({name, {}, ofBatch});
    if (!ofBatch)
      outputs.back().shape.assign(shape->begin() + 1, shape->end());
    owners.push_back(owner);
  }
  if (outputs.empty())
    throw userError(fmt::format("{}: the plan has no outputs, so it is not a prediction", file->name()));
}

/// One rank.
class PredictRank {
public:
  PredictRank(Shared &shared, unsigned rank, RankEndpoint &world);
  void run(const Job &job);

private:
  void give(const Job &job, int64_t rows);
  /// Whether the last iteration did; Shared::invalid says which.
  bool readInvalidIndices() const;

  Shared &shared;
  unsigned rank;
  std::unique_ptr<Executor> executor;
  std::map<std::string, uint32_t> slots; ///< of outputs
  std::vector<std::string> counts;       ///< of invalid indices
  std::vector<Communicator *> toAll;     ///< per output: broadcasts from its owner; null if ranks are threads
  std::vector<float> received;
  Loader loader; ///< declared last: must stop before its buffers are freed
  int buffer = 0;
};

PredictRank::PredictRank(Shared &shared, unsigned rank, RankEndpoint &world)
    : shared(shared), rank(rank),
      executor(makeExecutor(shared.file, rank, world, executorOptions(shared.file->plan(), shared.options, rank))),
      slots(outputSlots(shared.file->plan(), rank)), counts(countsOf(shared.file->plan(), rank)),
      loader(shared.file->plan(), rank, shared.feed, shared.order, workersOf(shared.options)) {
  for (unsigned owner : shared.owners) {
    std::vector<uint32_t> all{owner};
    for (unsigned other = 0; other < world.size(); ++other)
      if (other != owner)
        all.push_back(other);
    toAll.push_back(ranksAreProcesses() && all.size() > 1 ? &world.group(all) : nullptr);
  }
  executor->initialise();
  waitForSlowRanks(world, shared.options.waitSeconds());
  if (shared.manifest)
    loadCheckpoint(shared.options.checkpoint, *shared.manifest, shared.file->plan(), rank, LoadWhat::WhatIsRead,
                   [&](unsigned slot) { return executor->persistent(slot); });
  executor->writeBack();
  world.barrier();
  world.setTimeout(shared.options.waitSeconds());
}

void PredictRank::run(const Job &job) {
  const int64_t batch = shared.file->plan().batch();
  const auto prepare = [&](int64_t at, int into) {
    const int64_t rows = std::min(batch, job.count - at);
    loader.start({Split::Eval, 0, job.first + at, rows}, executor->inputBuffer(into));
  };
  if (job.count > 0)
    prepare(0, buffer);
  for (int64_t at = 0; at < job.count; at += batch) {
    loader.wait();
    if (at + batch < job.count)
      prepare(at + batch, 1 - buffer);
    const int64_t rows = std::min(batch, job.count - at);
    executor->eval(buffer, {predictionStream(job.number), job.first + at, rows});
    buffer = 1 - buffer;
    if (readInvalidIndices()) { // as every rank finds
      loader.wait();
      break;
    }
    give(job, rows);
  }
  executor->wait();
}

bool PredictRank::readInvalidIndices() const {
  for (const std::string &name : counts)
    if (std::string reader = readerOfInvalid(name, executor->metric(name).value_or(0)); !reader.empty()) {
      const std::lock_guard lock(shared.taking);
      shared.invalid = std::move(reader);
      return true;
    }
  return false;
}

void PredictRank::give(const Job &job, int64_t rows) {
  for (size_t i = 0; i < shared.outputs.size(); ++i) {
    const bool owner = shared.owners[i] == rank;
    if (!owner && !toAll[i])
      continue;
    const auto count =
        size_t(shared.outputs[i].count(rows, shared.file->plan().batch()) * shared.outputs[i].elements());
    std::span<const float> mine;
    if (owner) {
      const auto memory = executor->persistent(slots.at(shared.outputs[i].name));
      mine = {reinterpret_cast<const float *>(memory.data()), count};
    }
    if (toAll[i]) {
      received.assign(mine.begin(), mine.end());
      received.resize(count);
      toAll[i]->broadcast(received.data(), received.data(), int64_t(count), plan::DType::F32);
      mine = received;
    }
    std::lock_guard lock(shared.taking);
    job.take(i, mine);
  }
}

/// Ranks as threads that wait for jobs until they are told to stop.
class Workers {
public:
  explicit Workers(Shared &shared) : shared(shared), ranks(shared.file->plan().ranks()->size()) {
    thread = startThread("a prediction", [this] { live(); });
    std::unique_lock lock(mutex);
    changed.wait(lock, [this] { return waiting == ranks || failure; });
    if (failure) {
      lock.unlock();
      thread.join();
      std::rethrow_exception(failure);
    }
  }
  ~Workers() {
    end();
    if (thread.joinable())
      thread.join();
  }

  void run(const Job &given) {
    std::unique_lock lock(mutex);
    if (!failure) {
      job = &given;
      waiting = 0;
      ++posted;
      changed.notify_all();
      changed.wait(lock, [this] { return waiting == ranks || failure; });
    }
    if (failure)
      std::rethrow_exception(failure);
  }

private:
  void end() {
    {
      std::lock_guard lock(mutex);
      stop = true;
    }
    changed.notify_all();
  }
  void live() {
    std::exception_ptr caught;
    try {
      runPlanRanks(ranks, [this](unsigned rank, RankEndpoint &world) {
        try {
          work(rank, world);
        } catch (...) { // other ranks would wait for a job forever
          end();
          throw;
        }
      });
    } catch (...) {
      caught = std::current_exception();
    }
    {
      std::lock_guard lock(mutex);
      failure = caught;
    }
    changed.notify_all();
  }
  void work(unsigned rank, RankEndpoint &world) {
    PredictRank mine(shared, rank, world);
    for (uint64_t done = 0;; ++done) {
      std::unique_lock lock(mutex);
      ++waiting;
      changed.notify_all();
      changed.wait(lock, [&] { return posted > done || stop; });
      if (stop)
        return;
      lock.unlock();
      mine.run(*job);
    }
  }

  Shared &shared;
  unsigned ranks;
  std::mutex mutex;
  std::condition_variable changed;
  const Job *job = nullptr;
  uint64_t posted = 0;  ///< number of jobs so far
  unsigned waiting = 0; ///< ranks that have finished the last job
  bool stop = false;
  std::exception_ptr failure;
  std::thread thread;
};

} // namespace

struct Prediction::Impl {
  Shared shared;
  std::mutex calling; ///< held by a call: the ranks and their data source serve one at a time
  int64_t calls = 0;
  std::unique_ptr<Workers> workers;  ///< if ranks are threads
  std::unique_ptr<PredictRank> rank; ///< if ranks are processes

  Impl(std::shared_ptr<const PlanFile> plan, const RunOptions &options) : shared(std::move(plan), options) {
    if (ranksAreProcesses())
      runPlanRanks(shared.file->plan().ranks()->size(), [&](unsigned number, RankEndpoint &world) {
        rank = std::make_unique<PredictRank>(shared, number, world); // the process's world outlives it
      });
    else
      workers = std::make_unique<Workers>(shared);
  }
};

Prediction::Prediction(std::shared_ptr<const PlanFile> plan, const RunOptions &options) {
  checkPlanOrThrow(plan->plan(), plan->name());
  impl = std::make_unique<Impl>(std::move(plan), options);
}
Prediction::~Prediction() = default;

const std::vector<PredictedOutput> &Prediction::outputs() const { return impl->shared.outputs; }
const std::vector<DataField> &Prediction::inputs() const { return impl->shared.feed.fields(); }
const plan::Plan &Prediction::plan() const { return impl->shared.file->plan(); }
int64_t Prediction::batch() const { return impl->shared.file->plan().batch(); }

void Prediction::run(const DataSource &source, Split split, int64_t first, int64_t count, const Take &take) {
  if (first < 0 || count < 0 || first > source.samples(split) || count > source.samples(split) - first)
    throw userError(fmt::format("prediction: samples {} to {} of a split that has {}", first, first + count,
                                source.samples(split)));
  requireWholeBatches(plan(), count, true);
  const std::lock_guard one(impl->calling);
  impl->shared.feed.use(source, split);
  const Job job{first, count, take, impl->calls++};
  if (impl->workers)
    impl->workers->run(job);
  else
    runPlanRanks(impl->shared.file->plan().ranks()->size(), [&](unsigned, RankEndpoint &) { impl->rank->run(job); });
  if (const std::string reader = std::exchange(impl->shared.invalid, ""); !reader.empty())
    throw userError("prediction: indices of " + reader);
}

} // namespace cleave
