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
#include "runtime/plan/PlanFile.h"

#include <cstddef>
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
  std::string tuning = {};     ///< cuda: file of measured choices; empty: the user's cache; "off": library defaults
};

/// One run of a step in one of the last `traceIterations` iterations; `begin`: seconds since the first timed step.
struct TraceEvent {
  std::string segment, kind, path;
  uint32_t stream;
  int32_t microbatch;
  double begin, seconds;
};
constexpr size_t traceIterations = 4;

/// Throws a user error that names what is missing if no executor can run on this device here.
void requireDevice(const std::string &name);
/// The code target of this machine's first CUDA device; none where there is no device.
std::optional<Target> cudaTarget();

class Runner;

/// Host time in seconds to enqueue an iteration on an asynchronous device, without waits.
struct HostTime {
  double start;  ///< total: inputs, scalars, the launch, metrics, events
  double launch; ///< of the total: launching the captured graphs, or each step without graphs
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
  double seconds, flops; ///< flops: of one call
};

class Executor {
public:
  /// The plan must have been checked (Check.h). Throws if the device is missing, the code needs another processor, or
  /// there is not enough memory.
  Executor(std::shared_ptr<const PlanFile> plan, unsigned rank, World &world, const ExecutorOptions &options = {});
  ~Executor();

  /// Zeroes the arena and initialises parameters, buffers and states as their tensors specify, by global element index.
  void initialise();

  /// Input buffer 0 or 1, with inputBytes() bytes; the caller fills it before train or eval; see Inputs.h. Waits until
  /// no enqueued iteration needs its content.
  std::byte *inputBuffer(int which);
  size_t inputBytes() const;

  /// Writes an f32 scalar of the program, for example "lr". Returns false if this rank has no scalar of that name.
  bool setScalar(const std::string &name, float value);
  /// Runs one training iteration; `step` counts from 1. Also writes the scalar "step".
  void train(int64_t step, int whichInput);
  void eval(int whichInput);
  /// Number of iterations started since construction, and number of those known to have completed.
  uint64_t started() const;
  uint64_t ended();
  /// Of the last iteration started; nullopt on a host, which executes the iteration itself.
  std::optional<HostTime> hostTime() const;
  /// Waits until all iterations have completed. Call before destruction, so that this rank does not leave others in a
  /// collective; an executor destroyed earlier counts as failed.
  void wait();
  /// An f32 metric of iteration `iteration` (1 for the first; at most `metricsKept` old, on a host only the last), or
  /// of the last. Waits for it. nullopt if this rank has no metric of that name.
  std::optional<float> metric(const std::string &name, uint64_t iteration);
  std::optional<float> metric(const std::string &name);
  static constexpr uint64_t metricsKept = 16;

  /// Memory of a persistent slot (index of Program.slots). On a GPU a new copy, valid until writeBack() or the next
  /// iteration.
  std::span<std::byte> persistent(unsigned slot);
  /// Call after changing memory returned by persistent(): copies it back to the device.
  void writeBack();
  const plan::Program &program() const;
  const plan::Rank &rankInfo() const;
  unsigned rank() const;
  /// Arena, input buffers and the device's workspace.
  size_t memoryBytes() const;
  std::vector<StepTime> profile();
  /// Only when profiling.
  std::vector<TraceEvent> trace();
  /// Only with findNonFinite.
  NonFiniteOrigins nonFinite() const;

private:
  std::unique_ptr<Runner> runner;
};

} // namespace cleave
