// The plan's machine code, loaded from memory.
#pragma once
#include "runtime/base/ScratchFile.h"
#include "runtime/device/Device.h"
#include "runtime/plan/PlanFile.h"

#include <memory>
#include <optional>

namespace cleave {

/// The code of one plan, loaded for the lifetime of this object. Shared by the ranks of a process.
class Code {
public:
  /// Loads the code, once per process and plan. A plan without code gives an empty table. Throws environment errors if
  /// the processor does not support the code, the object does not load, or a kernel is missing.
  static std::shared_ptr<const Code> open(const std::shared_ptr<const PlanFile> &plan);
  ~Code();
  const KernelTable &kernels() const { return table; }

private:
  Code() = default;
  std::shared_ptr<const PlanFile> plan;
  void *library = nullptr;
  std::optional<ScratchFile> object; ///< of the library
  KernelTable table;
};

} // namespace cleave
