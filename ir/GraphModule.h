// Owns a module of IR with its context, for callers that should not see MLIR.
#pragma once
#include <memory>
#include <string>

namespace mlir {
class MLIRContext;
class ModuleOp;
class Operation;
} // namespace mlir

namespace cleave {

/// A module of IR and the context it lives in. Movable.
class GraphModule {
public:
  GraphModule(); // empty module in a fresh context with the cleave, dist and func dialects loaded
  GraphModule(GraphModule &&) noexcept;
  GraphModule &operator=(GraphModule &&) noexcept;
  ~GraphModule();

  /// Parses textual IR. Throws userError with MLIR's diagnostics.
  static GraphModule parse(const std::string &text, const std::string &name);
  /// Textual IR, round-trips through `parse`.
  std::string str() const;
  GraphModule clone() const;
  /// Verifies; returns the diagnostics, empty when valid.
  std::string verify() const;

  mlir::MLIRContext &context() const;
  mlir::ModuleOp module() const;
  /// Hands the module op to the caller, who must erase it before this goes, which keeps its context.
  mlir::ModuleOp release();
  /// The module op, and a function by name (null if there is none), for callers without MLIR's headers.
  mlir::Operation *operation() const;
  mlir::Operation *function(const std::string &name) const;

private:
  struct Impl;
  std::unique_ptr<Impl> impl;
};

} // namespace cleave
