// Runs one rank of a plan. Everything is set up when it is made: the arena is mapped, the plan's code opened from
// memory, every layout resolved into slot pointers, every library primitive created. An iteration is then a walk over a
// static list: nothing is allocated, looked up or decided.
//
// An executor is used by one thread, the one that made it (runRanks gives each rank one).
#pragma once
#include "runtime/comm/Communicator.h"
#include "runtime/plan/PlanFile.h"

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace cleave {

struct ExecutorOptions {
  unsigned threads = 0;        ///< of this rank; 0: as the plan says
  std::string device = "cpu";  ///< "cpu", "reference" (plain loops, one thread), "cuda"
  double timeoutSeconds = 600; ///< how long a rank waits for others
  bool profile = false;        ///< time every step
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

  /// Input buffer 0 or 1, inputBytes() long, filled by whoever calls train and eval; see Inputs.h.
  std::byte *inputBuffer(int which);
  size_t inputBytes() const;

  /// Writes an f32 scalar of the program, for example "lr". False: this rank has none of that name.
  bool setScalar(const std::string &name, float value);
  /// One training iteration; `step` counts from 1. Also writes the scalar "step".
  void train(int64_t step, int whichInput);
  void eval(int whichInput);
  /// An f32 scalar left by the last iteration; nothing where this rank has none of that name.
  std::optional<float> metric(const std::string &name) const;

  /// Memory of a persistent slot (index of Program.slots).
  std::span<std::byte> persistent(unsigned slot);
  const plan::Program &program() const;
  const plan::Rank &rankInfo() const;
  unsigned rank() const;
  /// Arena, input buffers and the device's workspace.
  size_t memoryBytes() const;
  std::vector<StepTime> profile() const;

private:
  struct Impl;
  std::unique_ptr<Impl> impl;
};

} // namespace cleave
