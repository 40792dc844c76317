// The three parts of the plan checker and what they share. See Check.h for what is checked.
#pragma once
#include "runtime/plan/Check.h"
#include "runtime/plan/DTypes.h"
#include "runtime/plan/plan_generated.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <span>

namespace cleave::check {

/// A text of a plan with every control character as "?", so that it moves no cursor and starts no line.
std::string printable(std::string text);

/// Collects defects up to a limit.
class Report {
public:
  explicit Report(size_t most) : most(most) {}
  template <typename... Args> void add(fmt::format_string<Args...> format, Args &&...args) {
    ++found;
    if (errors.size() >= most)
      return;
    std::string text = printable(fmt::format(format, std::forward<Args>(args)...)) + fmt::format(" (rule {})", rule);
    if (std::find(errors.begin(), errors.end(), text) == errors.end()) // ranks share programs and their defects
      errors.push_back(std::move(text));
  }
  bool full() const { return errors.size() >= most; }
  size_t count() const { return found; }
  std::vector<std::string> take() { return std::move(errors); }

private:
  friend class Rule;
  const char *rule = "T1";
  size_t most, found = 0;
  std::vector<std::string> errors;
};

/// The rule of docs/plan.md by which what is found is wrong, as long as this lives.
class Rule {
public:
  Rule(Report &report, const char *number) : report(report), before(report.rule) { report.rule = number; }
  ~Rule() { report.rule = before; }
  Rule(const Rule &) = delete;
  Rule &operator=(const Rule &) = delete;

private:
  Report &report;
  const char *before;
};

constexpr uint64_t largest = uint64_t{1} << 46; // bytes or elements; products of what passes stay in 64 bits
constexpr uint32_t mostDims = 12;

/// Whether these sizes and their product are in [0, largest].
bool sane(std::initializer_list<int64_t> sizes);

/// How a step uses a slot.
struct Access {
  enum Kind { Read, Write, Unknown } kind; ///< Unknown: an argument of a kernel that does not say what it writes
  uint32_t slot;
  uint64_t begin, bytes; ///< from the first byte touched to the last; a kernel's arguments: to the slot's end
  /// A strided window: runs of `run` bytes, repeated `count` times every `stride` bytes, innermost first. None: all of
  /// it.
  struct Repeat {
    uint64_t count, stride;
  };
  std::vector<Repeat> repeats{};
  uint64_t run = 0;
  bool twice = false;       ///< a window that names some byte twice
  bool accumulated = false; ///< a read of what the step's own output held
  int part = -1;            ///< of a collective: its buffer; of a batch of kernels: its call
};

/// Everything a step reads and writes, reads first. An accumulating output is a read and a write. With `plan`, whose
/// kernels are sound, arguments of kernels end where their declaration says.
void forEachAccess(const plan::Step &step, const plan::Program &program, const std::function<void(const Access &)> &fn,
                   const plan::Plan *plan = nullptr);

/// The same of a step that is being built, but for what is touched of each slot.
std::vector<Access> accessesOf(const plan::StepT &step);

/// Where values that a segment makes begin (Step.values).
constexpr uint32_t firstMade = uint32_t{1} << 31;

/// Length of a flatbuffer vector that may be absent.
template <typename T> uint32_t length(const T *vector) { return vector ? vector->size() : 0; }

/// Bytes of a flatbuffer vector that may be absent.
inline std::span<const uint8_t> bytesOf(const flatbuffers::Vector<uint8_t> *vector) {
  return vector ? std::span(vector->data(), vector->size()) : std::span<const uint8_t>();
}

/// Elements of a slot, whose sizes are sound.
inline uint64_t elementsOf(const plan::Slot &slot) {
  uint64_t all = 1;
  for (uint32_t d = 0; d < length(slot.shape()); ++d)
    all *= static_cast<uint64_t>(slot.shape()->Get(d));
  return all;
}

/// Bytes of the value in a slot, which may be less than the slot has room for.
inline uint64_t valueBytes(const plan::Slot &slot) { return elementsOf(slot) * dtypeSize(slot.dtype()); }

/// "program 0, segment 3 (forward), step 5 (Matmul)"
std::string placeOf(uint32_t program, const plan::Program &info, uint32_t segment, uint32_t step);

/// No text has a control character; what is meant for several lines may have their ends and tabs.
void checkTexts(const plan::Plan &plan, Report &report);
/// Mesh, tensors, groups and each rank's tables as such. Everything else runs only when this finds nothing.
void checkTables(const plan::Plan &plan, Report &report);
/// What kernels declare, and that the code has them. Part of the tables.
void checkKernels(const plan::Plan &plan, Report &report);
/// A call against what its kernel declares; "" where it is sound. Slots of the program are known to be there.
std::string callProblem(const plan::Plan &plan, const plan::Program &program, const plan::Kernel &call);
/// Bytes that a call touches of its argument `index`, from where the argument begins.
uint64_t argumentBytes(const plan::Plan &plan, const plan::Kernel &call, uint32_t index);
/// What a program relies on that differs between the ranks that run it, against the first of them, whose program
/// checkStructure follows: lengths of tables, sizes of groups, shares, local shapes.
void checkRanks(const plan::Plan &plan, Report &report);
/// A collective runs over the axes that the graph names, not only over as many ranks: what is wrong with its group among
/// those of `rank` (null: no rank runs it), whose index is sound.
std::string axesProblem(const plan::Plan &plan, const plan::Rank *rank, const plan::Collective &op);
/// Mesh axes along which the members of each group differ, one bit each.
std::vector<uint32_t> groupAxes(const plan::Plan &plan);
/// Everything that later parts rely on: indices, sizes, names. Later parts run only when this finds nothing.
void checkStructure(const plan::Plan &plan, Report &report);
/// Every step reads the values that it names, and every segment leaves those that it names.
void checkValues(const plan::Plan &plan, Report &report);
/// Values in memory along each program's actions.
void checkMemory(const plan::Plan &plan, const CheckOptions &options, Report &report);
/// Partial values.
void checkPartials(const plan::Plan &plan, Report &report);
/// The schedule as a whole, the sum of every gradient, and its update.
void checkTraining(const plan::Plan &plan, Report &report);
/// Plans for GPUs: streams, waits, order of messages, workspace.
void checkStreams(const plan::Plan &plan, Report &report);
/// All ranks together: collectives and messages.
void checkCommunication(const plan::Plan &plan, Report &report);

} // namespace cleave::check
