// One rank of a plan on one kind of device: the implementation of Executor, which differs in where memory is and how
// work is started.
#pragma once
#include "runtime/executor/Executor.h"

#include <deque>
#include <memory>

namespace cleave {

class Runner {
public:
  Runner(std::shared_ptr<const PlanFile> file, unsigned rank, World &world, const ExecutorOptions &options);
  virtual ~Runner() = default;

  virtual void initialise() = 0;
  virtual std::byte *inputBuffer(int which) = 0;
  virtual bool setScalar(const std::string &name, float value) = 0;
  virtual void train(int64_t step, int whichInput) = 0;
  virtual void eval(int whichInput) = 0;
  virtual uint64_t started() const = 0;
  virtual uint64_t ended() = 0;
  virtual std::optional<HostTime> hostTime() const { return std::nullopt; }
  virtual void wait() = 0;
  virtual std::optional<float> metric(const std::string &name, uint64_t iteration) = 0;
  virtual std::span<std::byte> persistent(unsigned slot) = 0;
  virtual void writeBack() = 0;
  virtual size_t memoryBytes() const = 0;
  virtual NonFiniteOrigins nonFinite() const { return {}; }

  std::shared_ptr<const PlanFile> file;
  unsigned rankIndex;
  World &world;
  ExecutorOptions options;
  const plan::Plan &plan;
  const plan::Rank &rank;
  const plan::Program &program;

  // Only when profiling.
  std::vector<std::vector<StepTime>> times;   ///< per segment and step; only segments that ran
  std::deque<std::vector<TraceEvent>> traced; ///< per iteration, the last ones

protected:
  /// Begins another iteration; drops the oldest.
  void beginTrace();
  /// Records a run of a step of segment `segment` (index of Program.segments).
  void noteStep(uint32_t segment, uint32_t step, int32_t microbatch, double begin, double seconds);
  /// This rank's groups in the plan's order, so that all members create them in the same order.
  std::vector<std::vector<uint32_t>> groups() const;
};

/// Devices "cpu" and "reference".
std::unique_ptr<Runner> makeHostRunner(std::shared_ptr<const PlanFile> file, unsigned rank, World &world,
                                       const ExecutorOptions &options);
/// Device "cuda" (runtime/cuda); throws a user error if this build does not support it or the machine has no GPU.
std::unique_ptr<Runner> makeCudaRunner(std::shared_ptr<const PlanFile> file, unsigned rank, World &world,
                                       const ExecutorOptions &options);

/// Throws the error of makeCudaRunner if there is no device.
void requireCuda();

} // namespace cleave
