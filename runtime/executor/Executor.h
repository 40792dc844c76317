// Runs one rank of a plan. Construction sets up everything: it maps the arena, loads the plan's code from memory,
// resolves every layout to slot pointers and creates every library primitive. An iteration is then a walk over a static
// list (on a GPU a captured graph) without allocations, lookups or decisions.
//
// On a host an iteration has completed when train or eval returns. On a GPU it has only been enqueued: the host may be
// up to two iterations ahead. Functions that read results (metrics, a slot's memory) or need an input buffer wait as
// necessary.
//
// An executor must be used by the thread that created it (runRanks gives each rank one).
#pragma once
#include "runtime/base/Target.h"
#include "runtime/comm/Communicator.h"
#include "runtime/device/RandomRows.h"
#include "runtime/plan/PlanFile.h"

#include <chrono>
#include <cstddef>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace cleave {

struct ExecutorOptions {
  unsigned threads = 0;        ///< of this rank; 0: as in the plan
  std::string device = "cpu";  ///< "cpu", "reference" (plain loops, one thread), "cuda"
  double timeoutSeconds = 600; ///< timeout of waits for other ranks
  bool profile = false;        ///< measure the time of every step
  bool findNonFinite = false;  ///< cpu, reference: find the step that produces the first NaN or infinity; slow
  bool graph = true;           ///< cuda: iterations as captured graphs; false: step by step, with the same bits
  bool deterministic = true;   ///< cuda: only library algorithms with bit-identical results
  int localRank = -1;          ///< cuda: device number on the machine; -1: from the launcher
  std::string tuning = {};     ///< file of measured choices; empty: the user's cache; "off": choices by rule
};

/// One run of a step of segment `segment` (index of Program.segments) in iteration `iteration` (0: the first that is
/// kept). `begin`: seconds since RankTrace::origin.
struct TraceEvent {
  uint32_t segment, step;
  int32_t microbatch;
  uint32_t iteration;
  double begin, seconds;
};
/// The last `traceIterations` iterations of one kind: of training, if there was any, otherwise of evaluation.
struct RankTrace {
  bool training = false;
  uint32_t iterations = 0;
  std::chrono::steady_clock::time_point origin;
  std::vector<TraceEvent> events;
};
constexpr size_t traceIterations = 4;

/// Throws a user error that names what is missing if no executor can run on this device on this machine.
void requireDevice(const std::string &name);
/// The CUDA devices of this machine.
struct CudaDevices {
  std::string name; ///< of the first one, as the driver says it: "NVIDIA H200"
  Target target;    ///< of its code
  double bytes = 0; ///< of its memory
  int64_t count = 0;
};
/// nullopt without a device.
std::optional<CudaDevices> cudaDevices();

/// Host time in seconds to enqueue an iteration on an asynchronous device, without waits.
struct HostTime {
  double start;  ///< total: inputs, scalars, the launch, metrics, events
  double launch; ///< part of the total: launching the captured graphs, or each step without graphs
};

struct NonFinite;
/// The first steps that produced a NaN and an infinity, in the last iteration or its initial state (NonFinite.h).
struct NonFiniteOrigins {
  std::shared_ptr<const NonFinite> nan, infinity; ///< null if none was found
};

/// Time of one step of the plan, summed over all runs.
struct StepTime {
  std::string segment, kind, path;
  uint64_t calls;
  double seconds, flops; ///< flops: per call
};

/// One rank of a plan on one kind of device; created by makeExecutor.
class Executor {
public:
  virtual ~Executor() = default;

  /// Zeroes the arena and initialises parameters, buffers and states as their tensors specify, by global element index.
  virtual void initialise() = 0;

  /// Input buffer 0 or 1, with inputBytes() bytes; the caller fills it before train or eval; see Inputs.h. Waits until
  /// no enqueued iteration needs its content.
  virtual std::byte *inputBuffer(int which) = 0;
  size_t inputBytes() const;

  /// Writes an f32 scalar of the program, for example "lr". Returns false if this rank has no scalar of that name.
  virtual bool setScalar(const std::string &name, float value) = 0;
  /// Runs one training iteration; `step` counts from 1. Also writes the scalar "step".
  virtual void train(int64_t step, int whichInput) = 0;
  /// Runs one batch of an evaluation or prediction; `samples`: those of its rows, and the stream of random numbers.
  virtual void eval(int whichInput, const RandomRows &samples) = 0;
  /// Number of iterations started since construction, and number of those known to have completed.
  virtual uint64_t started() const = 0;
  virtual uint64_t ended() = 0;
  /// Host time of the last iteration started; nullopt on a host device, which executes the iteration itself.
  virtual std::optional<HostTime> hostTime() const { return std::nullopt; }
  /// Waits until all iterations have completed. Call before destruction, so that this rank does not leave others in a
  /// collective; an executor destroyed earlier counts as failed.
  virtual void wait() = 0;
  /// An f32 metric of iteration `iteration` (1 for the first; among the last `metricsKept`, on a host only the last).
  /// Waits for the iteration. nullopt if this rank has no metric of that name.
  virtual std::optional<float> metric(const std::string &name, uint64_t iteration) = 0;
  /// The metric of the last iteration.
  std::optional<float> metric(const std::string &name) { return metric(name, started()); }
  static constexpr uint64_t metricsKept = 16;

  /// Memory of a persistent slot (index of Program.slots). On a GPU a new copy, valid until writeBack() or the next
  /// iteration.
  virtual std::span<std::byte> persistent(unsigned slot) = 0;
  /// Call after changing memory returned by persistent(): copies it back to the device.
  virtual void writeBack() = 0;
  /// Bytes of the memory that the plan describes: arena, input buffers and, on a GPU, the workspace; equal to
  /// Program.peak_bytes. (On a host, oneDNN uses scratch memory in addition.)
  virtual size_t memoryBytes() const = 0;
  /// Only when profiling: the time of every step that ran.
  std::vector<StepTime> profile() const;
  /// Only when profiling.
  RankTrace trace() const;
  /// Only with findNonFinite.
  virtual NonFiniteOrigins nonFinite() const { return {}; }

  const std::shared_ptr<const PlanFile> file;
  const plan::Plan &plan;
  const unsigned rankIndex;
  const plan::Rank &rank;
  const plan::Program &program; ///< the program of this rank

protected:
  /// Throws a user error if the number of ranks of the world and of the plan differ.
  Executor(std::shared_ptr<const PlanFile> file, unsigned rank, RankEndpoint &world, const ExecutorOptions &options);

  /// Begins the trace of another iteration; drops the oldest if there are `traceIterations`. `origin`: time 0 of its
  /// steps.
  void beginTrace(bool training, std::chrono::steady_clock::time_point origin);
  /// Records a run of a step of segment `segment` (index of Program.segments).
  void noteStep(uint32_t segment, uint32_t step, int32_t microbatch, double begin, double seconds);
  /// This rank's groups in the plan's order, in which all members must create them.
  std::vector<std::vector<uint32_t>> groups() const;

  RankEndpoint &world;
  const ExecutorOptions options;

private:
  std::vector<std::vector<StepTime>> times;   ///< by segment and step; only segments that ran
  std::deque<std::vector<TraceEvent>> traced; ///< the events of the last iterations
  bool tracedTraining = false, tracing = false;
  std::chrono::steady_clock::time_point traceOrigin;
};

/// The plan must have been checked (Check.h). Throws an error if the plan is for another device or number of ranks, the
/// device is missing, the code needs another processor, or there is not enough memory.
std::unique_ptr<Executor> makeExecutor(std::shared_ptr<const PlanFile> plan, unsigned rank, RankEndpoint &world,
                                       const ExecutorOptions &options = {});

} // namespace cleave
