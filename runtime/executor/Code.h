// The plan's machine code, opened from memory.
#pragma once
#include "runtime/device/Device.h"
#include "runtime/plan/PlanFile.h"

#include <memory>

namespace cleave {

/// Code of one plan, open as long as this lives. Ranks of one process share it.
class Code {
public:
  /// Opens the code, once per process and plan. A plan without code gives an empty table. Environment errors: the
  /// processor lacks what the code needs, the object does not open, a kernel is missing.
  static std::shared_ptr<const Code> open(const std::shared_ptr<const PlanFile> &plan);
  ~Code();
  const KernelTable &kernels() const { return table; }

private:
  Code() = default;
  std::shared_ptr<const PlanFile> plan;
  void *library = nullptr;
  int memory = -1; // file descriptor of the library
  KernelTable table;
};

} // namespace cleave
