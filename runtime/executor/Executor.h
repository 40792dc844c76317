// Runs one rank of a plan. Everything is set up when it is made: the arena is mapped, the plan's code opened from
// memory, every layout resolved into slot pointers, every library primitive created. An iteration is then a walk over a
// static list (on a GPU a captured graph): nothing is allocated, looked up or decided.
//
// On a host an iteration has ended when train or eval returns. On a GPU it has only been started: the host may be an
// iteration ahead, and what it asks for (a metric, a slot's memory, an input buffer) waits for what it needs.
//
// An executor is used by one thread, the one that made it (runRanks gives each rank one).
#pragma once
#include "runtime/comm/Communicator.h"
#include "runtime/plan/PlanFile.h"

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace cleave {

struct ExecutorOptions {
  unsigned threads = 0;        ///< of this rank; 0: as the plan says
  std::string device = "cpu";  ///< "cpu", "reference" (plain loops, one thread), "cuda"
  double timeoutSeconds = 600; ///< how long a rank waits for others
  bool profile = false;        ///< time every step
  bool findNonFinite = false;  ///< cpu, reference: look for the step that makes the first NaN or infinity; slow
  bool graph = true;           ///< cuda: iterations as captured graphs; off: step by step, with the same bits
  bool deterministic = true;   ///< cuda: only library algorithms that repeat bit for bit
  int localRank = -1;          ///< cuda: which of the machine's devices; -1: as the launcher says
  std::string tuning = {};     ///< cuda: file of measured choices; empty: the user's cache; "off": the libraries' first
};

/// One run of a step; `begin`: seconds since the first that was timed. Of the last `traceIterations` iterations.
struct TraceEvent {
  std::string segment, kind, path;
  uint32_t stream;
  int32_t microbatch;
  double begin, seconds;
};
constexpr size_t traceIterations = 4;

/// Throws where no executor can run on this device here: a user error that names what is missing.
void requireDevice(const std::string &name);
/// The code target of this machine's first CUDA device ("sm_90"); empty where there is none.
std::string cudaTarget();

class Runner;

/// What the host did to start an iteration on a device that runs ahead, in seconds, without what it waited for.
struct HostTime {
  double start;  ///< all of it: inputs, scalars, the launch, metrics, events
  double launch; ///< of it, starting the captured graphs, or each step where there are none
};

struct NonFinite;
/// The first steps that made a NaN and an infinity, in the last iteration or in what it began with (NonFinite.h).
struct NonFiniteOrigins {
  std::shared_ptr<const NonFinite> nan, infinity; ///< null: none was found
};

/// Time of one step of the plan, summed over all its runs.
struct StepTime {
  std::string segment, kind, path;
  uint64_t calls;
  double seconds, flops; ///< flops: of one call
};

class Executor {
public:
  /// The plan has been checked (Check.h). Errors: the device is missing, the code needs another processor, memory.
  Executor(std::shared_ptr<const PlanFile> plan, unsigned rank, World &world, const ExecutorOptions &options = {});
  ~Executor();

  /// Zeroes the arena and fills parameters, buffers and states as their tensors say, by global element index.
  void initialise();

  /// Input buffer 0 or 1, inputBytes() long, filled by whoever calls train and eval; see Inputs.h. Waits until no
  /// iteration that was started still needs what it holds.
  std::byte *inputBuffer(int which);
  size_t inputBytes() const;

  /// Writes an f32 scalar of the program, for example "lr". False: this rank has none of that name.
  bool setScalar(const std::string &name, float value);
  /// One training iteration; `step` counts from 1. Also writes the scalar "step".
  void train(int64_t step, int whichInput);
  void eval(int whichInput);
  /// How many iterations were started since this was made, and how many of them are known to have ended.
  uint64_t started() const;
  uint64_t ended();
  /// Of the last iteration that was started; none on a host, where an iteration is the host's own work.
  std::optional<HostTime> hostTime() const;
  /// Waits until all have ended: before an executor goes, or this rank would leave the others in a collective. One that
  /// goes earlier counts as failed.
  void wait();
  /// An f32 scalar left by iteration `iteration` (1 for the first; at most `metricsKept` old, on a host the last one),
  /// or by the last; waits for it. Nothing where this rank has none of that name.
  std::optional<float> metric(const std::string &name, uint64_t iteration);
  std::optional<float> metric(const std::string &name);
  static constexpr uint64_t metricsKept = 16;

  /// Memory of a persistent slot (index of Program.slots). On a GPU a copy, made now, which lives until writeBack() or
  /// the next iteration.
  std::span<std::byte> persistent(unsigned slot);
  /// After the memory that persistent() gave was changed: what is a copy goes back to the device.
  void writeBack();
  const plan::Program &program() const;
  const plan::Rank &rankInfo() const;
  unsigned rank() const;
  /// Arena, input buffers and the device's workspace.
  size_t memoryBytes() const;
  std::vector<StepTime> profile();
  /// When profiling.
  std::vector<TraceEvent> trace();
  /// When looking for them.
  NonFiniteOrigins nonFinite() const;

private:
  std::unique_ptr<Runner> runner;
};

} // namespace cleave
