// Resolves all options of a job.
#include "frontend/program/Job.h"
#include "frontend/program/Options.h"
#include "frontend/trace/TraceModel.h"
#include "partitioner/cluster/Cluster.h"
#include "partitioner/cost/ScatterGather.h"
#include "partitioner/schedule/Named.h"
#include "partitioner/strategy/Request.h"
#include "runtime/base/Error.h"
#include "runtime/base/InputFile.h"
#include "runtime/checkpoint/TrainingJson.h"
#include "runtime/executor/Executor.h"
#include "runtime/plan/plan_generated.h"
#include "runtime/session/Launcher.h"

#include <algorithm>
#include <filesystem>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <limits>

namespace cleave {

namespace {

using partitioner::Request;
using Words = std::vector<std::string>;

constexpr int64_t mostSamplesOfBatch = std::numeric_limits<int32_t>::max();

// ---- optimizer ----------------------------------------------------------------------------------------------------

Optimizer namedOptimizer(const std::string &name) {
  if (name == "sgd")
    return Sgd{};
  if (name == "adam")
    return Adam{};
  return AdamW{};
}

Optimizer chooseOptimizer(const Optimizer &programs, const RunOptions &options) {
  Optimizer optimizer = programs;
  const std::string name = options.optimizer.empty() ? optimizerName(programs) : options.optimizer;
  if (name != optimizerName(programs))
    optimizer = namedOptimizer(name);
  std::visit(
      [&](auto &o) {
        o.lr = options.lr.value_or(o.lr);
        o.weightDecay = options.weightDecay.value_or(o.weightDecay);
      },
      optimizer);
  if (!options.momentum)
    return optimizer;
  Sgd *sgd = std::get_if<Sgd>(&optimizer);
  if (!sgd)
    throw userError(
        fmt::format("--momentum {}: only sgd has a momentum, the optimizer is {}", *options.momentum, name));
  sgd->momentum = *options.momentum;
  return optimizer;
}

// ---- strategy -----------------------------------------------------------------------------------------------------

const Words kinds = {"data", "model", "pipeline", "hybrid", "auto"};

std::string meshText(const Mesh &mesh) {
  std::vector<std::string> parts;
  for (const MeshAxis &axis : mesh.axes)
    parts.push_back(fmt::format("{}={}", axis.name, axis.size));
  return fmt::format("{}", fmt::join(parts, ","));
}

/// The mesh that the options ask for.
std::optional<Mesh> askedMesh(const RunOptions &options) {
  const bool kind = isStrategyKind(options.strategy);
  if (kind && options.devices < 1)
    throw userError(
        fmt::format("--strategy {}: needs --devices N, the number of devices to split over, at least 1; found {}",
                    options.strategy, options.devices));
  if (options.devices != 0 && !options.mesh.empty())
    throw userError(fmt::format("--devices {}: cannot be combined with --mesh {}", options.devices, options.mesh));
  if (options.devices != 0 && !kind)
    throw userError(fmt::format(
        "--devices {}: needs --strategy data, model, pipeline or hybrid; or give --mesh instead", options.devices));
  return options.devices > 0     ? std::optional(partitioner::meshFor(options.devices, options.strategy))
         : !options.mesh.empty() ? std::optional(partitioner::parseMesh(options.mesh))
                                 : std::nullopt;
}

/// What the options ask of the split, besides the strategy file.
Request askedOf(const RunOptions &options) {
  Request asked;
  asked.mesh = askedMesh(options);
  if (!options.schedule.empty())
    asked.schedule = options.schedule;
  asked.microbatches = options.microbatches;
  asked.chunks = options.virtualStages;
  if (options.sequenceParallel)
    asked.sequence = axisName(AxisRole::Tensor);
  asked.zero = options.zero;
  if (!options.recompute.empty())
    asked.recompute = {{partitioner::RecomputeRule::everyLayer, *partitioner::recomputationNamed(options.recompute)}};
  return asked;
}

partitioner::Strategy chooseStrategy(const RunOptions &options) {
  const bool file = !options.strategy.empty() && !isStrategyKind(options.strategy);
  const Request ofFile = file ? Request::load(options.strategy) : Request(), asked = askedOf(options);
  if (ofFile.mesh && asked.mesh && *ofFile.mesh != *asked.mesh)
    throw userError(fmt::format("--mesh {}: the strategy file {} has the mesh {}", options.mesh, options.strategy,
                                meshText(*ofFile.mesh)));
  const Request all = ofFile.with(asked);
  partitioner::Strategy strategy = all.decided();
  if (!all.chunks && all.stages.empty() && all.order.empty()) {
    const bool searched = strategy.schedule == partitioner::searchedSchedule;
    strategy.chunks = !searched ? partitioner::chunksOf(strategy.schedule) : options.cluster.empty() ? 1 : 0;
  }
  if (!strategy.sequence.empty() && strategy.mesh.size(AxisRole::Tensor) == 1)
    throw userError(fmt::format("{}: the mesh must have tp > 1, it is {}",
                                asked.sequence ? "--sequence-parallel" : "sequence", meshText(strategy.mesh)));
  if (strategy.zero && strategy.mesh.size(AxisRole::Data) == 1)
    throw userError(fmt::format("{} {}: the mesh must have dp > 1, it is {}", asked.zero ? "--zero" : "zero =",
                                strategy.zero, meshText(strategy.mesh)));
  return strategy;
}

} // namespace

void checkBackend(const std::string &backend) { requireDevice(text(Target::parseKind(backend))); }

bool isStrategyKind(const std::string &strategy) {
  return std::find(kinds.begin(), kinds.end(), strategy) != kinds.end();
}

/// Whether convolutions use channels last. Tensor cores read that layout; without tensor cores, the engines of cuDNN
/// and oneDNN for [n, c, h, w] are faster.
static bool chooseChannelsLast(const Job &job, const RunOptions &options) {
  return options.layout.empty() || options.layout == "auto"
             ? job.backend == Target::Kind::Cuda && job.precision.type != Precision::Type::Fp32
             : options.layout == "nhwc";
}

/// The size in bytes from which messages between stages are sent in slices; 0: never.
static int64_t chooseScatterGather(const RunOptions &options, const partitioner::Strategy &strategy,
                                   const std::optional<partitioner::Cluster> &cluster) {
  const std::string &when = options.scatterGather;
  if (when == "never" || when == "always")
    return when == "always";
  if (when.empty() && strategy.scatterGather)
    return *strategy.scatterGather;
  const Mesh &mesh = strategy.mesh;
  return cluster ? partitioner::scatterGatherBytes(*cluster, mesh.size(AxisRole::Data), mesh.size(AxisRole::Tensor),
                                                   mesh.size(AxisRole::Pipeline))
                 : 0;
}

/// The backend of the cluster's devices, which must agree with --backend; without a cluster, that of --backend.
static Target::Kind chooseBackend(const RunOptions &options, const std::optional<partitioner::Cluster> &cluster) {
  if (!cluster)
    return Target::parseKind(options.backend);
  const std::string &has = cluster->devices[cluster->nodes.front().devices.front().kind].backend;
  if (!options.backend.empty() && options.backend != has)
    throw userError(
        fmt::format("--backend {}: the devices of --cluster {} are for {}", options.backend, options.cluster, has));
  return Target::parseKind(has);
}

bool givesBatch(const RunOptions &options) { return options.batch || options.batchPerRank; }

int64_t globalBatch(int64_t perRank, int64_t dp) {
  if (perRank < 1 || perRank > mostSamplesOfBatch / dp)
    throw userError(
        fmt::format("--batch-per-rank {}: with dp={} must lie between 1 and {}", perRank, dp, mostSamplesOfBatch / dp));
  return perRank * dp;
}

static int64_t chooseBatch(const TrainConfig &config, const RunOptions &options, int64_t dp) {
  if (!options.batchPerRank)
    return options.batch              ? *options.batch
           : config.batchPerRank != 0 ? globalBatch(config.batchPerRank, dp)
                                      : config.batch;
  const int64_t batch = globalBatch(*options.batchPerRank, dp);
  if (options.batch && *options.batch != batch)
    throw userError(fmt::format("--batch {}: contradicts --batch-per-rank {}, which with dp={} is a global batch of {}",
                                *options.batch, *options.batchPerRank, dp, batch));
  return batch;
}

Job resolveJob(const TrainConfig &config, const RunOptions &options) {
  checkOptions(programOptions(), options);
  Job job;
  std::optional<partitioner::Cluster> cluster;
  if (!options.cluster.empty()) {
    job.cluster = readTextFile(options.cluster, Status::User, 1 << 20);
    cluster = partitioner::Cluster::parse(job.cluster, options.cluster);
  }
  job.backend = chooseBackend(options, cluster);
  if (!options.target.empty())
    job.target = Target::parse(options.target, job.backend);
  job.precision =
      Precision::parse({options.precision, options.optLevel, options.lossScale, options.reduceDtype}, job.backend);
  job.channelsLast = chooseChannelsLast(job, options);
  job.config = config;
  job.config.optimizer = chooseOptimizer(config.optimizer, options);
  job.strategy = chooseStrategy(options);
  job.strategy.scatterGather = chooseScatterGather(options, job.strategy, cluster);
  job.batch = chooseBatch(config, options, job.strategy.mesh.size(AxisRole::Data));
  job.seed = options.seed.value_or(0);
  if (job.batch < 1 || job.strategy.microbatches < 1 || job.batch % job.strategy.microbatches)
    throw userError(fmt::format("--batch {} --microbatches {}: the batch must be a multiple of the microbatches",
                                job.batch, job.strategy.microbatches));
  job.evalBatch = options.evalBatch.value_or(config.evalBatch);
  if (job.evalBatch == job.batch)
    job.evalBatch = 0;
  if (job.evalBatch < 0 || job.evalBatch % job.strategy.microbatches)
    throw userError(fmt::format("--eval-batch {} --microbatches {}: the batch must be a multiple of the microbatches",
                                job.evalBatch, job.strategy.microbatches));
  const int64_t evalRows = job.evalBatch / job.strategy.microbatches, dp = job.strategy.mesh.size(AxisRole::Data);
  if (job.evalBatch && evalRows < dp)
    throw userError(fmt::format("--eval-batch {}: a microbatch of evaluation has {} rows, fewer than dp = {}",
                                job.evalBatch, evalRows, dp));
  job.threads = options.threads ? static_cast<unsigned>(*options.threads)
                                : defaultThreads(static_cast<unsigned>(job.strategy.mesh.ranks()));
  job.code = options.code;
  if (cluster)
    cluster->places(job.strategy.mesh.ranks()); // refuses more ranks than devices
  job.data = std::make_shared<plan::DataT>(dataOf(config.data));
  job.training = std::make_shared<plan::TrainingT>(trainingOf(job.config, job.precision));
  job.printAfter = options.printAfter;
  return job;
}

// ---- descriptions stored in plans -----------------------------------------------------------------------------------

plan::DataT dataOf(const Data &data) {
  constexpr plan::DataKind kind[] = {plan::DataKind::Mnist, plan::DataKind::Text, plan::DataKind::Synthetic,
                                     plan::DataKind::Custom};
  plan::DataT stored;
  stored.kind = kind[data.index()];
  for (const DataField &field : fieldsOf(data)) {
    auto &entry = stored.fields.emplace_back(std::make_unique<plan::DataFieldT>());
    entry->name = field.name;
    entry->dtype = field.dtype == FieldType::F32 ? plan::DType::F32 : plan::DType::I32;
    entry->shape = field.shape;
    entry->classes = std::max<int64_t>(0, field.classes);
  }
  if (const Text *text = std::get_if<Text>(&data)) {
    stored.context = text->context;
    stored.vocab = text->vocab;
  }
  return stored;
}

static plan::LearningRateT rateOf(const LearningRateSchedule &schedule, double base) {
  plan::LearningRateT rate;
  rate.base = base;
  if (const StepLr *step = std::get_if<StepLr>(&schedule)) {
    rate.kind = plan::RateKind::Step;
    rate.every = step->every;
    rate.gamma = step->gamma;
  } else if (const CosineLr *cosine = std::get_if<CosineLr>(&schedule)) {
    rate.kind = cosine->warmup > 0 ? plan::RateKind::WarmupCosine : plan::RateKind::Cosine;
    rate.min = cosine->min;
    rate.warmup = cosine->warmup;
    rate.steps = cosine->steps;
  } else if (const WarmupLr *warmup =
                 std::get_if<WarmupLr>(&schedule)) { // a cosine from the base to the base is constant
    rate.kind = plan::RateKind::WarmupCosine;
    rate.min = base;
    rate.warmup = warmup->warmup;
  }
  return rate;
}

plan::TrainingT trainingOf(const TrainConfig &config, const Precision &precision) {
  plan::TrainingT stored;
  storePrecision(precision, stored);
  stored.rate = std::make_unique<plan::LearningRateT>(rateOf(config.learningRate, learningRate(config.optimizer)));
  stored.optimizer = std::make_unique<plan::OptimizerT>(optimizerOf(config));
  return stored;
}

// ---- data ---------------------------------------------------------------------------------------------------------

const Dataset *customData(const Data &data) {
  const auto *own = std::get_if<std::shared_ptr<Dataset>>(&data);
  return own ? own->get() : nullptr;
}

std::string dataPlace(const Data &data, const RunOptions &options) {
  if (options.data == "synthetic" || (options.data.empty() && customData(data)))
    return options.data;
  if (std::holds_alternative<SyntheticImages>(data)) {
    if (!options.data.empty())
      throw userError(fmt::format("--data {}: the program's data is synthetic", options.data));
    return "synthetic";
  }
  if (options.data.empty())
    throw userError("--data: needs the folder or file of the data set, or \"synthetic\"");
  std::error_code error;
  if (!std::filesystem::exists(options.data, error))
    throw userError(fmt::format("--data {}: {}", options.data, error ? error.message() : "no such file or folder"));
  return options.data;
}

} // namespace cleave
