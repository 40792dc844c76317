// Resolves all options of a job.
#include "frontend/program/ResolvedOptions.h"
#include "frontend/program/CheckConfig.h"
#include "frontend/program/Options.h"
#include "frontend/program/PlanDescriptions.h"
#include "frontend/trace/TraceModel.h"
#include "partitioner/cluster/Cluster.h"
#include "partitioner/cluster/KnownGpus.h"
#include "partitioner/cost/ScatterGather.h"
#include "partitioner/schedule/Named.h"
#include "partitioner/strategy/DecisionTable.h"
#include "runtime/base/Error.h"
#include "runtime/base/InputFile.h"
#include "runtime/base/MachineMemory.h"
#include "runtime/data/PictureSource.h"
#include "runtime/executor/Executor.h"
#include "runtime/plan/Text.h"
#include "runtime/plan/plan_generated.h"
#include "runtime/session/Launcher.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <limits>

namespace cleave {

namespace {

using partitioner::Strategy;
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

/// The kind of a program's schedule, as --lr-schedule names it.
std::string scheduleName(const LearningRateSchedule &schedule) {
  return std::holds_alternative<StepLr>(schedule)     ? "step"
         : std::holds_alternative<CosineLr>(schedule) ? "cosine"
                                                      : "constant";
}

LearningRateSchedule chooseSchedule(const LearningRateSchedule &programs, const RunOptions &options) {
  LearningRateSchedule schedule = programs;
  if (!options.lrSchedule.empty() && options.lrSchedule != scheduleName(programs)) {
    if (options.lrSchedule == "step")
      schedule = StepLr{.everyEpochs = 30};
    else if (options.lrSchedule == "cosine")
      schedule = CosineLr{};
    else
      schedule = ConstantLr{};
  }
  if (options.warmupEpochs && std::holds_alternative<ConstantLr>(schedule))
    schedule = WarmupLr{.warmup = 0};
  if (options.everyEpochs && !std::holds_alternative<StepLr>(schedule))
    throw userError(fmt::format("--every-epochs {}: only the schedule step has steps, the schedule is {}",
                                *options.everyEpochs, scheduleName(schedule)));
  std::visit(
      [&](auto &s) {
        if constexpr (requires { s.warmupEpochs; })
          s.warmupEpochs = options.warmupEpochs.value_or(s.warmupEpochs);
        if constexpr (requires { s.everyEpochs; })
          s.everyEpochs = options.everyEpochs.value_or(s.everyEpochs);
      },
      schedule);
  return schedule;
}

// ---- strategy -----------------------------------------------------------------------------------------------------

constexpr const char *searchedKind = "auto";
constexpr const char *byOption = "command line"; ///< the origin of what options ask for

/// The number of devices that the options ask for; 0: they leave it open. Throws if they contradict each other.
int64_t devicesOf(const RunOptions &options) {
  if (options.mesh.empty())
    return options.devices;
  const int64_t ranks = partitioner::parseMesh(options.mesh).ranks();
  if (options.devices != 0 && options.devices != ranks)
    throw userError(fmt::format("--devices {}: --mesh {} has {} devices", options.devices, options.mesh, ranks));
  return ranks;
}

/// The mesh that the options ask for; `searched`: without --mesh, a kind of strategy is a restriction of a search.
std::optional<Mesh> askedMesh(const RunOptions &options, bool searched = false) {
  const bool kind =
      isStrategyKind(options.strategy) && options.strategy != searchedKind && (!searched || !options.mesh.empty());
  const int64_t devices = devicesOf(options);
  const auto mesh = options.mesh.empty() ? std::nullopt : std::optional(partitioner::parseMesh(options.mesh));
  if (!kind)
    return mesh;
  if (devices < 1)
    throw userError(fmt::format("--strategy {}: needs --devices N, the number of devices to split over, at least 1; "
                                "found {}",
                                options.strategy, devices));
  const Mesh ofKind = partitioner::meshFor(devices, options.strategy);
  if (mesh && *mesh != ofKind)
    throw userError(fmt::format("--strategy {}: splits {} devices as {}, --mesh {} does not", options.strategy, devices,
                                partitioner::meshText(ofKind), options.mesh));
  return ofKind;
}

/// What the options ask of the split, besides the strategy file.
Strategy askedOf(const RunOptions &options, bool searched = false) {
  Strategy asked;
  asked.mesh = askedMesh(options, searched);
  for (const Option &option : programOptions())
    for (const partitioner::DecisionOption &decision : partitioner::decisionOptions())
      if (const auto value = decision.option == option.name ? valueOf(option, options) : std::nullopt)
        decision.ask(asked, *value);
  if (searched && !asked.mesh && isStrategyKind(options.strategy) && options.strategy != searchedKind)
    asked.kind = options.strategy;
  return asked.askedBy(byOption);
}

/// Whether a plan says what else is asked of the split.
bool repeats(const RunOptions &options) {
  return !options.like.empty() && !isStrategyFile(options.strategy) && options.strategy != searchedKind;
}

/// Whether a file does: a strategy file, or a plan.
bool hasRequest(const RunOptions &options) { return isStrategyFile(options.strategy) || repeats(options); }

/// What the file and the options ask for together; they must agree on the mesh.
Strategy fileWith(const RunOptions &options, const Strategy &asked) {
  if (repeats(options)) {
    Strategy stored =
        Strategy::parse(text(PlanFile::load(options.like)->plan().strategy()), "the strategy of " + options.like);
    const bool moves = options.devices > 0 && stored.mesh && stored.mesh->ranks() != options.devices;
    if (moves || !options.strategy.empty()) // to another number of devices, or another kind of mesh
      stored.origins["mesh"] = stored.origins["stages"] = "search";
    return stored.askedAgain(asked);
  }
  const Strategy file = Strategy::load(options.strategy).askedBy("file");
  if (file.mesh && asked.mesh && *file.mesh != *asked.mesh)
    throw userError(fmt::format("--mesh {}: the strategy file {} has the mesh {}", options.mesh, options.strategy,
                                partitioner::meshText(*file.mesh)));
  if (file.mesh && options.devices != 0 && file.mesh->ranks() != options.devices)
    throw userError(fmt::format("--devices {}: the strategy file {} has the mesh {}", options.devices, options.strategy,
                                partitioner::meshText(*file.mesh)));
  return file.with(asked);
}

/// Refuses what a mesh cannot have. `asked`: the part of `all` that options ask for.
void checkAxes(const Strategy &all, const Strategy &asked, const Mesh &mesh) {
  const partitioner::Decisions decided = all.decided();
  for (const partitioner::DecisionRow *row : partitioner::excludedBy(mesh, decided))
    throw userError(fmt::format("{}: the mesh must have {} > 1, it is {}", row->refused(decided, row->given(asked)),
                                axisName(*row->axis), partitioner::meshText(mesh)));
}

/// Whether a request leaves nothing to a search.
bool isComplete(const Strategy &pins) {
  return pins.mesh && std::ranges::none_of(partitioner::decisionTable(), [&](const partitioner::DecisionRow &row) {
           return partitioner::stateOf(row, pins, true) == partitioner::RowState::Open;
         });
}

/// What is left to the search; nullopt: nothing. With a cluster, or a number of devices, and no mesh on the command
/// line, it is what neither the options nor a strategy file decide. Without training, only the mesh may be open.
std::optional<partitioner::SpaceRequest> chooseSearch(const RunOptions &options, passes::Purpose purpose,
                                                      const partitioner::Cluster *cluster) {
  const bool kind = isStrategyKind(options.strategy), automatic = options.strategy == searchedKind;
  bool file = hasRequest(options),
       open = options.strategy.empty() && options.mesh.empty() && (cluster || options.devices > 0);
  if (isStrategyFile(options.strategy) && options.mesh.empty() && options.devices > 0)
    open = !Strategy::load(options.strategy).mesh;
  if (repeats(options)) // a plan whose strategy was given is not searched, unless its mesh no longer suits
    file = open = PlanFile::load(options.like)->plan().search() ||
                  ((cluster || !kind) && !fileWith(options, askedOf(options, true)).mesh);
  if (!automatic && !open && !(cluster && (file || kind)))
    return std::nullopt;
  if (!cluster && devicesOf(options) == 0)
    throw userError("--strategy auto: needs --devices N, --mesh AXES or --cluster FILE: the devices to split over");
  const Strategy asked = askedOf(options, true);
  partitioner::SpaceRequest request;
  request.pins = file ? fileWith(options, asked) : asked;
  if (purpose != passes::Purpose::Training && request.pins.mesh)
    return std::nullopt;
  if (request.pins.schedule == partitioner::searchedSchedule && request.pins.order.empty()) {
    if (request.pins.mesh && !automatic) // the rest has its defaults
      return std::nullopt;
    request.ownOrders = true;
    request.pins.schedule.reset();
  }
  if (isComplete(request.pins))
    return std::nullopt;
  if (request.pins.mesh)
    checkAxes(request.pins, asked, *request.pins.mesh);
  else if (options.batchPerRank)
    throw userError(fmt::format("--batch-per-rank {}: the search needs the batch of all ranks, --batch; or give --mesh",
                                *options.batchPerRank));
  request.devices = request.pins.mesh     ? request.pins.mesh->ranks()
                    : options.devices > 0 ? options.devices
                    : cluster             ? cluster->deviceCount()
                                          : 1;
  return request;
}

// ---- devices ------------------------------------------------------------------------------------------------------

/// Where no cluster is given, a search assumes processors of one machine, with rounded constants: the plan stores them,
/// and the same request gives the same plan. Their memory is not known.
partitioner::Cluster assumedCluster(int64_t devices) {
  using namespace partitioner;
  Cluster cluster{.name = "one machine"};
  cluster.devices.push_back(
      {.name = "cpu", .backend = "cpu", .memoryGib = 64, .memoryGbPerS = 10, .peakTflops = {0.1, 0, 0.1, 0.1}});
  cluster.nodes.push_back({.devices = {{.kind = 0, .count = devices}}, .inside = Link{.gbPerS = 5, .latencyUs = 5}});
  return cluster;
}

/// What a plan is made for where no cluster file says it: this machine's GPUs; for a search on processors, assumed
/// ones. Of these only the memory is known, and only if they are this machine's.
std::optional<partitioner::Cluster> chooseDevices(ResolvedOptions &resolved, RunsOn place,
                                                  const std::optional<CudaDevices> &gpus) {
  constexpr double unknown = 1ll << 50; // bytes, more than any plan needs
  const int64_t ranks = resolved.toSearch ? resolved.toSearch->devices : resolved.strategy.mesh.ranks();
  const bool searches = resolved.toSearch && resolved.purpose == passes::Purpose::Training;
  if (resolved.backend == Target::Kind::Cuda && (searches || place == RunsOn::ThisMachine)) {
    auto cluster = gpus ? partitioner::clusterOfGpus(gpus->name, gpus->bytes, gpus->count) : std::nullopt;
    if (cluster && ranks <= gpus->count)
      return cluster;
    if (searches)
      throw userError(fmt::format("--strategy auto: needs --cluster FILE for devices of backend cuda, or give --mesh: "
                                  "this machine has {}",
                                  !gpus     ? "none"
                                  : cluster ? fmt::format("{} of {} GPUs", gpus->count, ranks)
                                            : fmt::format("\"{}\", whose rates are not known", gpus->name)));
  }
  if (place == RunsOn::ThisMachine && resolved.backend == Target::Kind::Cpu) {
    const int64_t here = ranksAreProcesses() ? std::max(1l, launched().here) : ranks; // at least this one
    resolved.device = {.name = "this machine", .kind = Target::Kind::Cpu, .bytes = machineMemory(), .ranks = here};
  } else if (place == RunsOn::ThisMachine && gpus)
    resolved.device = {.name = gpus->name, .kind = Target::Kind::Cuda, .bytes = gpus->bytes};
  else if (searches)
    resolved.device = {.name = "any machine", .kind = resolved.backend, .bytes = unknown};
  return searches ? std::optional(assumedCluster(ranks)) : std::nullopt;
}

// ---- strategy, where nothing is searched --------------------------------------------------------------------------

partitioner::Decisions chooseStrategy(const RunOptions &options) {
  const Strategy asked = askedOf(options), all = hasRequest(options) ? fileWith(options, asked) : asked;
  partitioner::Decisions strategy = all.decided();
  partitioner::checkStageCount(strategy);
  if (!all.chunks && all.stages.empty() && all.order.empty()) {
    const bool searched = strategy.schedule == partitioner::searchedSchedule;
    strategy.chunks = !searched ? partitioner::chunksOf(strategy.schedule) : options.cluster.empty() ? 1 : 0;
  }
  checkAxes(all, asked, strategy.mesh);
  return strategy;
}

} // namespace

void checkBackend(const std::string &backend) { requireDevice(text(Target::parseKind(backend))); }

bool isStrategyKind(const std::string &strategy) {
  return strategy == searchedKind ||
         std::ranges::find(partitioner::meshKinds, strategy) != std::end(partitioner::meshKinds);
}

bool isStrategyFile(const std::string &strategy) { return !strategy.empty() && !isStrategyKind(strategy); }

/// Whether convolutions use channels last. CPUs' kernels and tensor cores read that layout; without tensor cores,
/// cuDNN's engines for [n, c, h, w] are faster.
static bool chooseChannelsLast(const ResolvedOptions &resolved, const RunOptions &options) {
  return options.layout.empty() || options.layout == "auto"
             ? resolved.backend == Target::Kind::Cpu || resolved.precision.type != Precision::Type::Fp32
             : options.layout == "nhwc";
}

/// The backend of the cluster's devices, which must agree with --backend; without a cluster, that of --backend.
static Target::Kind chooseBackend(const RunOptions &options, const partitioner::Cluster *cluster) {
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
  if (!options.batchPerRank && !options.batch && config.batchPerRank == 0)
    if (const std::string wrong = problemOfWhole(fmt::format("{}", config.batch), 1, mostSamplesOfBatch);
        !wrong.empty())
      throw userError(fmt::format("TrainConfig: batch is {}, {}", config.batch, wrong));
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

/// Chooses the batches of training and of evaluation, which must divide into the strategy's microbatches.
static void chooseBatches(ResolvedOptions &resolved, const TrainConfig &config, const RunOptions &options) {
  resolved.batch = chooseBatch(config, options, resolved.strategy.mesh.size(AxisRole::Data));
  if (resolved.batch < 1 || resolved.strategy.microbatches < 1 || resolved.batch % resolved.strategy.microbatches)
    throw userError(fmt::format("--batch {} --microbatches {}: the batch must be a multiple of the microbatches",
                                resolved.batch, resolved.strategy.microbatches));
  resolved.evalBatch = options.evalBatch.value_or(config.evalBatch);
  if (resolved.evalBatch == resolved.batch)
    resolved.evalBatch = 0;
  if (resolved.evalBatch < 0 || resolved.evalBatch % resolved.strategy.microbatches)
    throw userError(fmt::format("--eval-batch {} --microbatches {}: the batch must be a multiple of the microbatches",
                                resolved.evalBatch, resolved.strategy.microbatches));
  const int64_t evalRows = resolved.evalBatch / resolved.strategy.microbatches,
                dp = resolved.strategy.mesh.size(AxisRole::Data);
  if (resolved.evalBatch && evalRows < dp)
    throw userError(fmt::format("--eval-batch {}: a microbatch of evaluation has {} rows, fewer than dp = {}",
                                resolved.evalBatch, evalRows, dp));
  if (resolved.toSearch)
    resolved.toSearch->batch = resolved.batch, resolved.toSearch->evalBatch = resolved.evalBatch;
}

ResolvedOptions resolveOptions(const TrainConfig &config, const RunOptions &options, passes::Purpose purpose,
                               RunsOn place) {
  checkOptions(programOptions(), options);
  checkConfig(config);
  ResolvedOptions resolved;
  resolved.purpose = purpose;
  const std::string &madeFor = options.cluster.empty() ? options.like : options.cluster;
  if (const std::string toml = !options.cluster.empty() ? readTextFile(options.cluster, Status::User, 1 << 20)
                               : !options.like.empty()  ? text(PlanFile::load(options.like)->plan().cluster())
                                                        : std::string();
      !toml.empty())
    resolved.cluster = partitioner::ClusterFile::parse(toml, madeFor);
  const partitioner::Cluster *cluster = resolved.cluster ? &resolved.cluster->cluster : nullptr;
  resolved.backend = chooseBackend(options, cluster);
  if (!options.target.empty())
    resolved.target = Target::parse(options.target, resolved.backend);
  // Asked once: that takes a context of the device.
  const std::optional<CudaDevices> gpus =
      resolved.backend == Target::Kind::Cuda && (!resolved.target || !cluster) ? cudaDevices() : std::nullopt;
  if (gpus && !resolved.target)
    resolved.target = gpus->target;
  resolved.precision =
      Precision::parse({options.precision, options.optLevel, options.lossScale, options.reduceDtype}, resolved.backend);
  resolved.channelsLast = chooseChannelsLast(resolved, options);
  resolved.winograd = options.winograd == "never"    ? plan::WinogradUse::Never
                      : options.winograd == "always" ? plan::WinogradUse::Always
                                                     : plan::WinogradUse::Auto;
  resolved.config = config;
  resolved.config.optimizer = chooseOptimizer(config.optimizer, options);
  resolved.config.ema = options.ema.value_or(config.ema);
  resolved.config.learningRate = chooseSchedule(config.learningRate, options);
  resolved.toSearch = chooseSearch(options, purpose, cluster);
  resolved.strategy = resolved.toSearch ? resolved.toSearch->pins.decided() : chooseStrategy(options);
  if (!cluster)
    if (const auto devices = chooseDevices(resolved, place, gpus)) {
      resolved.cluster = std::make_shared<const partitioner::ClusterFile>(devices->toToml(), *devices);
      cluster = &resolved.cluster->cluster;
    }
  if (options.scatterGather == "auto") { // whatever a file says
    resolved.strategy.scatterGather.reset(), resolved.strategy.origins.erase("scatter_gather");
    if (resolved.toSearch)
      resolved.toSearch->pins.scatterGather.reset(), resolved.toSearch->pins.origins.erase("scatter_gather");
  }
  if (cluster && !resolved.toSearch && !resolved.strategy.scatterGather)
    resolved.strategy.scatterGather = partitioner::scatterGatherBytes(*cluster, resolved.strategy.mesh);
  chooseBatches(resolved, config, options);
  if (config.learningRateBatch > 0 && !options.lr && config.optimizer.index() == resolved.config.optimizer.index())
    std::visit([&](auto &o) { o.lr *= double(resolved.batch) / double(config.learningRateBatch); },
               resolved.config.optimizer);
  resolved.seed = options.seed.value_or(0);
  resolved.threads = options.threads
                         ? static_cast<unsigned>(*options.threads)
                         : defaultThreads(static_cast<unsigned>(resolved.toSearch ? resolved.toSearch->devices
                                                                                  : resolved.strategy.mesh.ranks()));
  resolved.code = options.code;
  if (cluster)
    cluster->places(resolved.strategy.mesh.ranks()); // refuses more ranks than devices
  auto data = std::make_shared<plan::DataT>(dataOf(config.data));
  if (std::holds_alternative<Pictures>(config.data) && !options.data.empty())
    data->class_names = classNamesAt(options.data);
  resolved.data = std::move(data);
  resolved.training = std::make_shared<plan::TrainingT>(trainingOf(resolved.config, resolved.precision));
  resolved.printAfter = options.printAfter;
  resolved.alternatives = options.alternatives;
  if (options.alternatives && !cluster)
    throw userError("--alternatives: needs --cluster FILE, the hardware on which plans are compared");
  resolved.dumpProblems = options.dumpProblems;
  if (!options.dumpProblems.empty() && !resolved.toSearch)
    throw userError(fmt::format("--dump-problems {}: only a search solves problems, and everything is decided",
                                options.dumpProblems));
  return resolved;
}

} // namespace cleave
