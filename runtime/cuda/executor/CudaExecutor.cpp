// A rank on a GPU. Device memory consists of an arena and two input buffers, each with a pinned copy on the host. The
// iteration is captured once per input buffer and then launched by one call. The host does not wait for the device, but
// is at most two iterations ahead, because it refills the pinned copy of an input buffer only after the previous
// transfer from it has completed.
#include "runtime/base/Error.h"
#include "runtime/cuda/comm/Communication.h"
#include "runtime/cuda/driver/Launch.h"
#include "runtime/cuda/executor/Lanes.h"
#include "runtime/cuda/executor/StepOps.h"
#include "runtime/executor/Backends.h"
#include "runtime/executor/Initialise.h"
#include "runtime/executor/Memory.h"
#include "runtime/executor/Resolved.h"
#include "runtime/executor/SharedTuning.h"

#include <fmt/format.h>

#include <array>
#include <cassert>
#include <chrono>
#include <cstring>
#include <exception>
#include <limits>
#include <set>

namespace cleave {

using namespace cuda;

namespace {

constexpr size_t stepsInGraph = 20000;

using Clock = std::chrono::steady_clock;

/// Host data of an iteration: what random numbers depend on, then one f32 per scalar of the program.
struct ScalarRing {
  static constexpr size_t entries = 4; ///< more than the iterations by which the host can be ahead
  PinnedMemory memory;
  size_t stride = 0;
  std::byte *entry(uint64_t iteration) const { return memory.data() + iteration % entries * stride; }
};

/// Results of the last iterations: the program's metrics. Metrics close to each other share one copy.
struct MetricRing {
  struct Copy {
    uint64_t offset;  ///< in the arena
    size_t bytes, at; ///< in an entry
  };
  static constexpr uint64_t farthest = 256; ///< maximum gap in bytes between metrics of one copy
  PinnedMemory memory;
  size_t stride = 0;
  std::vector<Copy> copies;
  std::map<std::string, size_t> places; ///< in an entry
  std::byte *entry(uint64_t iteration) const { return memory.data() + iteration % Executor::metricsKept * stride; }
  void make(const plan::Program &program);
  void fetch(const std::byte *arena, uint64_t iteration, CUstream stream);
};

void MetricRing::make(const plan::Program &program) {
  std::map<uint64_t, std::vector<std::string>> byOffset;
  if (program.metrics())
    for (const plan::NamedSlot *named : *program.metrics())
      byOffset[program.slots()->Get(named->slot())->offset()].push_back(named->name()->str());
  for (const auto &[offset, names] : byOffset) {
    if (copies.empty() || offset > copies.back().offset + copies.back().bytes + farthest)
      copies.push_back({offset, 0, stride});
    Copy &copy = copies.back();
    copy.bytes = offset + sizeof(float) - copy.offset;
    stride = copy.at + copy.bytes;
    for (const std::string &name : names)
      places[name] = copy.at + offset - copy.offset;
  }
  memory = PinnedMemory(Executor::metricsKept * stride, "metrics");
}

void MetricRing::fetch(const std::byte *arena, uint64_t iteration, CUstream stream) {
  for (const Copy &copy : copies)
    check(driver().memcpyDtoHAsync(entry(iteration) + copy.at, devicePointer(arena + copy.offset), copy.bytes, stream),
          "cuMemcpyDtoHAsync");
}

struct NamedScalar {
  std::string name;
  uint64_t offset; ///< in the arena
  float value = 0;
  bool changed = false;
};

class CudaExecutor final : public Executor {
public:
  CudaExecutor(std::shared_ptr<const PlanFile> file, unsigned rank, RankEndpoint &world,
               const ExecutorOptions &options);
  ~CudaExecutor() override;

  void initialise() override;
  std::byte *inputBuffer(int which) override;
  bool setScalar(const std::string &name, float value) override;
  void train(int64_t step, int whichInput) override;
  void eval(int whichInput, const RandomRows &samples) override;
  uint64_t started() const override { return iterations; }
  uint64_t ended() override;
  std::optional<HostTime> hostTime() const override { return timeOfHost; }
  void wait() override { waitForAll(); }
  std::optional<float> metric(const std::string &name, uint64_t iteration) override;
  std::span<std::byte> persistent(unsigned slot) override;
  void writeBack() override;
  size_t memoryBytes() const override { return arena.size() + inputs[0].size() + inputs[1].size() + workspace.size(); }

private:
  /// The train or the eval list, and its captured graphs per input buffer.
  struct Mode {
    std::vector<ResolvedAction> *actions;
    std::unique_ptr<Lane> lane;
    std::array<std::vector<Graph>, 2> graphs;
    RangeName name;
    bool warm = false; ///< has run before, so libraries have loaded their code
  };

  void requireMemory();
  bool exchangesMessages() const;
  void startLibraries();
  void makeOps();
  void makeScalars();
  void run(Mode &mode, const RandomRows &random, int which);
  void waitForScalars();
  void sendScalars(const RandomRows &random);
  void sendInput(int which);
  void launch(Mode &mode, int which);
  void capture(Mode &mode, int which);
  void runTimed(Mode &mode, int which);
  void waitFor(const Event &event, const char *what);
  void waitForAll();

  Context context;
  Tuning tuning;
  Queue queue;
  std::map<uint32_t, Stream> streams; ///< 0 is the compute stream
  Stream copies;
  std::unique_ptr<Communication> communication;
  Module code;
  std::unique_ptr<StepOps> steps;
  std::unique_ptr<Resolved> resolved;
  DeviceMemory arena, inputs[2], workspace, control;
  PinnedMemory hostInputs[2];
  Event arrived[2], consumed[2];
  Event origin; ///< of the trace, when profiling
  std::chrono::steady_clock::time_point originTime;
  std::array<Event, Executor::metricsKept> ends;
  ScalarRing scalarRing;
  std::vector<NamedScalar> scalars;
  MetricRing metricRing;
  Mode training, evaluation;
  const RangeName captureName = rangeName("capture"), launchName = rangeName("launch");
  uint64_t iterations = 0, finished = 0;
  std::optional<HostTime> timeOfHost;
  bool starting = false; ///< an iteration is being enqueued, or its enqueueing failed
  const int uncaught = std::uncaught_exceptions();
  std::map<unsigned, std::vector<std::byte>> copiesOfSlots;
};

CudaExecutor::CudaExecutor(std::shared_ptr<const PlanFile> planFile, unsigned rankIndex, RankEndpoint &world,
                           const ExecutorOptions &options)
    : Executor(std::move(planFile), rankIndex, world, options), context(deviceOf(options, rankIndex)),
      tuning(options.tuning) {
  requireMemory();
  streams.emplace(0, Stream::make());
  copies = Stream::make();
  queue.stream = streams.at(0).get();
  code = loadCode(*file, context);
  communication = std::make_unique<Communication>(plan, rank, world, groups(), options.timeoutSeconds);
  makeWithTuning(plan, rankIndex, world, tuning, false, [&] { makeOps(); });
  if (world.size() > 1)
    requireMemory(); // NCCL has already allocated its memory
  arena = DeviceMemory(program.arena_bytes(), "the arena");
  for (size_t which = 0; which < 2; ++which) {
    inputs[which] = DeviceMemory(program.input_bytes(), "an input buffer");
    hostInputs[which] = PinnedMemory(program.input_bytes(), "an input buffer");
    arrived[which] = Event::make();
    consumed[which] = Event::make();
  }
  resolved->place(arena.data(), {inputs[0].data(), inputs[1].data()});
  workspace = DeviceMemory(steps->workspaceBytes(), "the library workspace");
  control = DeviceMemory(64, "the place of random numbers");
  queue.workspace = workspace.data();
  queue.random = reinterpret_cast<const RandomRows *>(control.data());
  communication->registerMemory(arena.data(), arena.size());
  for (Event &end : ends)
    end = Event::make();
  makeScalars();
  const auto mode = [&](std::vector<ResolvedAction> &actions, const char *name) {
    // A graph completes only when all of its messages have arrived, and the peer may send some in its next graph. Use
    // one graph if messages are exchanged.
    const size_t most = exchangesMessages() ? std::numeric_limits<size_t>::max() : stepsInGraph;
    return Mode{&actions, std::make_unique<Lane>(plan, actions, streams, most), {}, rangeName(name)};
  };
  training = mode(resolved->train, "train");
  evaluation = mode(resolved->eval, "eval");
  if (exchangesMessages())
    startLibraries();
}

bool CudaExecutor::exchangesMessages() const { return rank.peers() && rank.peers()->size() > 0; }

/// Runs each library's step once, on arbitrary data. On first use the driver may load a library's code, for which it
/// may wait until the device is idle. During an iteration that would deadlock if a pending message comes from a rank
/// that waits for this one.
void CudaExecutor::startLibraries() {
  std::set<const ResolvedSegment *> seen;
  for (const auto *actions : {&resolved->train, &resolved->eval})
    for (const ResolvedAction &action : *actions)
      if (seen.insert(action.segment).second)
        for (uint32_t s = 0; s < action.segment->ops.size(); ++s) {
          if (StepOps::usesLibrary(*action.segment->info->steps()->Get(s)))
            action.segment->ops[s]->run(action.tables[0], {});
        }
  streams.at(0).synchronize();
}

CudaExecutor::~CudaExecutor() {
  world.detach();
  // An iteration that was not enqueued completely or has not completed indicates a failure: other ranks may be gone,
  // and device work that waits for them must be aborted before memory and code are freed. Errors have already been
  // reported.
  bool failed = starting || std::uncaught_exceptions() > uncaught;
  for (uint64_t i = finished + 1; i <= iterations; ++i)
    failed |= driver().eventQuery(ends[i % ends.size()].get()) != CUDA_SUCCESS;
  const auto destroyGraphs = [this] { // before the communicators they use
    for (Mode *mode : {&training, &evaluation})
      mode->graphs = {};
  };
  if (failed)
    communication->abandon(destroyGraphs);
  else
    destroyGraphs();
  driver().ctxSynchronize();
  communication.reset(); // deregisters the arena
}

/// Checks the plan's memory before allocating anything.
void CudaExecutor::requireMemory() {
  const uint64_t needed = program.arena_bytes() + 2 * program.input_bytes() + program.workspace_bytes();
  const size_t available = context.freeBytes();
  if (needed > available)
    throw environmentError(fmt::format("cuda: rank {} needs {} bytes of device memory (arena {}, inputs 2 x {}, "
                                       "workspace {}), '{}' has {} free; {}",
                                       rankIndex, needed, program.arena_bytes(), program.input_bytes(),
                                       program.workspace_bytes(), context.name(), available, lessMemory));
}

void CudaExecutor::makeOps() {
  std::vector<CUfunction> kernels;
  if (plan.code() && plan.code()->size() && plan.kernels())
    for (const plan::KernelInfo *kernel : *plan.kernels())
      kernels.push_back(code.function(kernel->symbol()->str()));
  const bool tf32 = plan.training() && plan.training()->precision() == plan::Precision::Tf32;
  steps = std::make_unique<StepOps>(context, queue, tuning,
                                    StepOptions{.tf32 = tf32,
                                                .deterministic = options.deterministic,
                                                .workspaceLimit = static_cast<size_t>(program.workspace_bytes())},
                                    std::move(kernels));
  resolved = std::make_unique<Resolved>(plan, program, rank, [&](const plan::Step &step, SlotScope &scope) {
    auto op = communication->make(step, scope, queue, steps->kernels());
    return op ? std::move(op) : steps->make(step, scope);
  });
}

void CudaExecutor::makeScalars() {
  if (program.scalars())
    for (const plan::NamedSlot *named : *program.scalars())
      scalars.push_back({named->name()->str(), program.slots()->Get(named->slot())->offset()});
  scalarRing.stride = sizeof(RandomRows) + 4 * scalars.size();
  scalarRing.memory = PinnedMemory(ScalarRing::entries * scalarRing.stride, "scalars");
  metricRing.make(program);
}

// ---- waiting -----------------------------------------------------------------------------------------------------

void CudaExecutor::waitFor(const Event &event, const char *what) {
  communication->wait(event, what, options.timeoutSeconds);
}

void CudaExecutor::waitForAll() {
  if (iterations > finished)
    waitFor(ends[iterations % ends.size()], "an iteration");
  finished = iterations;
}

uint64_t CudaExecutor::ended() {
  while (finished < iterations && ends[(finished + 1) % ends.size()].done())
    ++finished;
  communication->lookForFailure();
  return finished;
}

std::optional<float> CudaExecutor::metric(const std::string &name, uint64_t iteration) {
  assert(iteration >= 1 && iteration <= iterations && iterations - iteration < Executor::metricsKept &&
         "metrics of the last iterations are kept");
  const auto found = metricRing.places.find(name);
  if (found == metricRing.places.end())
    return std::nullopt;
  if (iteration > finished) {
    waitFor(ends[iteration % ends.size()], "an iteration");
    finished = iteration;
  }
  float value;
  std::memcpy(&value, metricRing.entry(iteration) + found->second, sizeof value);
  return value;
}

// ---- memory as the host sees it ------------------------------------------------------------------------------------

void CudaExecutor::initialise() {
  const CUstream stream = queue.stream;
  if (arena.size())
    check(driver().memsetD8Async(devicePointer(arena.data()), 0, arena.size(), stream), "cuMemsetD8Async");
  std::vector<std::byte> memory;
  for (uint32_t s = 0; program.slots() && s < program.slots()->size(); ++s) {
    const plan::Slot &slot = *program.slots()->Get(s);
    const bool begins = slot.space() == plan::Space::Persistent && slot.tensor() >= 0 && slot.bytes() > 0 &&
                        plan.tensors()->Get(static_cast<uint32_t>(slot.tensor()))->init();
    if (!begins)
      continue;
    memory.assign(slot.bytes(), std::byte{0});
    initialiseSlot(plan, rank, slot, memory.data(), std::max(1u, options.threads));
    check(driver().memcpyHtoDAsync(devicePointer(arena.data() + slot.offset()), memory.data(), memory.size(), stream),
          "cuMemcpyHtoDAsync");
    streams.at(0).synchronize(); // before the memory is used again
  }
  streams.at(0).synchronize();
}

std::byte *CudaExecutor::inputBuffer(int which) {
  assert((which == 0 || which == 1) && "there are two input buffers");
  waitFor(arrived[which], "the iteration that reads an input buffer");
  return hostInputs[which].data();
}

bool CudaExecutor::setScalar(const std::string &name, float value) {
  bool found = false;
  for (NamedScalar &scalar : scalars)
    if (scalar.name == name) {
      scalar.changed |= std::memcmp(&scalar.value, &value, sizeof value) != 0 || iterations == 0;
      scalar.value = value;
      found = true;
    }
  return found;
}

std::span<std::byte> CudaExecutor::persistent(unsigned slot) {
  const plan::Slot &info = *program.slots()->Get(slot);
  assert(info.space() == plan::Space::Persistent && "only persistent slots have a place of their own");
  waitForAll();
  auto &copy = copiesOfSlots[slot];
  copy.resize(info.bytes());
  if (!copy.empty())
    check(driver().memcpyDtoHAsync(copy.data(), devicePointer(arena.data() + info.offset()), copy.size(), queue.stream),
          "cuMemcpyDtoHAsync");
  streams.at(0).synchronize();
  return copy;
}

void CudaExecutor::writeBack() {
  for (const auto &[slot, copy] : copiesOfSlots)
    if (!copy.empty())
      check(driver().memcpyHtoDAsync(devicePointer(arena.data() + program.slots()->Get(slot)->offset()), copy.data(),
                                     copy.size(), queue.stream),
            "cuMemcpyHtoDAsync");
  streams.at(0).synchronize();
  copiesOfSlots.clear();
}

// ---- iterations ----------------------------------------------------------------------------------------------------

/// Waits until the ring's entry for this iteration may be overwritten.
void CudaExecutor::waitForScalars() {
  if (iterations > ScalarRing::entries && finished + ScalarRing::entries <= iterations)
    waitFor(ends[(iterations - ScalarRing::entries) % ends.size()], "an iteration");
}

void CudaExecutor::sendScalars(const RandomRows &random) {
  std::byte *entry = scalarRing.entry(iterations);
  std::memcpy(entry, &random, sizeof random);
  const auto send = [&](const std::byte *to, const std::byte *from, size_t bytes) {
    check(driver().memcpyHtoDAsync(devicePointer(to), from, bytes, queue.stream), "cuMemcpyHtoDAsync");
  };
  send(control.data(), entry, sizeof random);
  entry += sizeof random;
  for (NamedScalar &scalar : scalars) {
    if (scalar.changed) {
      std::memcpy(entry, &scalar.value, sizeof scalar.value);
      send(arena.data() + scalar.offset, entry, sizeof scalar.value);
      scalar.changed = false;
    }
    entry += sizeof scalar.value;
  }
}

void CudaExecutor::sendInput(int which) {
  if (inputs[which].size() == 0)
    return;
  consumed[which].holdUp(copies.get());
  check(driver().memcpyHtoDAsync(devicePointer(inputs[which].data()), hostInputs[which].data(), inputs[which].size(),
                                 copies.get()),
        "cuMemcpyHtoDAsync");
  arrived[which].record(copies.get());
  arrived[which].holdUp(queue.stream);
}

void CudaExecutor::capture(Mode &mode, int which) {
  const CUstream stream = queue.stream;
  const Range range(captureName);
  for (const Lane::Piece &piece : mode.lane->pieces()) {
    Graph::begin(stream);
    try {
      mode.lane->enqueue(piece, queue, which);
      mode.graphs[static_cast<size_t>(which)].push_back(Graph::end(stream));
    } catch (...) {
      queue.stream = stream;
      Graph::abandon(stream);
      throw;
    }
  }
}

void CudaExecutor::launch(Mode &mode, int which) {
  if (options.profile)
    return runTimed(mode, which);
  if (!options.graph || !mode.warm) {
    for (const Lane::Piece &piece : mode.lane->pieces())
      mode.lane->enqueue(piece, queue, which);
    mode.warm = true;
    return;
  }
  auto &graphs = mode.graphs[static_cast<size_t>(which)];
  if (graphs.empty())
    capture(mode, which);
  for (size_t i = 0; i < graphs.size(); ++i) {
    const Range range(launchName, static_cast<int64_t>(i));
    graphs[i].launch(queue.stream);
  }
}

void CudaExecutor::run(Mode &mode, const RandomRows &random, int which) {
  assert((which == 0 || which == 1) && "there are two input buffers");
  context.makeCurrent();
  const Range range(mode.name, &mode == &training ? static_cast<int64_t>(random.stream) : 0);
  copiesOfSlots.clear();
  starting = true;
  ++iterations;
  waitForScalars();
  const Clock::time_point begin = Clock::now();
  sendInput(which);
  sendScalars(random);
  const Clock::time_point ready = Clock::now();
  try {
    launch(mode, which);
  } catch (const Error &) {
    world.checkPeers(); // another rank's failure may be the cause
    throw;
  }
  const Clock::time_point launched = Clock::now();
  consumed[which].record(queue.stream);
  metricRing.fetch(arena.data(), iterations, queue.stream);
  ends[iterations % ends.size()].record(queue.stream);
  const auto seconds = [](Clock::duration time) { return std::chrono::duration<double>(time).count(); };
  timeOfHost = {seconds(Clock::now() - begin), seconds(launched - ready)};
  starting = false;
}

void CudaExecutor::train(int64_t step, int whichInput) {
  setScalar("step", static_cast<float>(step));
  run(training, {static_cast<uint64_t>(step)}, whichInput);
}

void CudaExecutor::eval(int whichInput, const RandomRows &samples) { run(evaluation, samples, whichInput); }

// ---- profile -------------------------------------------------------------------------------------------------------

/// Runs step by step, with a pair of events around each; reads the times at the end.
void CudaExecutor::runTimed(Mode &mode, int which) {
  struct Timed {
    size_t action, step;
    Event begin, end;
  };
  std::vector<Timed> timed;
  if (!origin) {
    origin = Event::make(true);
    origin.record(queue.stream);
    waitFor(origin, "the trace's first event");
    originTime = std::chrono::steady_clock::now();
  }
  beginTrace(&mode == &training, originTime);
  const Lane::Around around = [&](size_t action, size_t step, CUstream stream, bool before) {
    if (before)
      timed.push_back({action, step, Event::make(true), Event::make(true)});
    (before ? timed.back().begin : timed.back().end).record(stream);
  };
  for (const Lane::Piece &piece : mode.lane->pieces())
    mode.lane->enqueue(piece, queue, which, &around);
  const Event end = Event::make();
  end.record(queue.stream);
  waitFor(end, "an iteration");
  for (const Timed &one : timed) {
    const ResolvedAction &action = (*mode.actions)[one.action];
    noteStep(action.info->segment(), static_cast<uint32_t>(one.step), action.microbatch,
             one.begin.millisecondsSince(origin) / 1e3, one.end.millisecondsSince(one.begin) / 1e3);
  }
}

} // namespace

std::unique_ptr<Executor> makeCudaExecutor(std::shared_ptr<const PlanFile> file, unsigned rank, RankEndpoint &world,
                                           const ExecutorOptions &options) {
  return std::make_unique<CudaExecutor>(std::move(file), rank, world, options);
}

} // namespace cleave
