// GraphModule owns an IR module and its context, for callers that must not include MLIR's headers.
#pragma once
#include <memory>
#include <string>

namespace mlir {
class MLIRContext;
class ModuleOp;
class Operation;
} // namespace mlir

namespace cleave {

/// An IR module with its context. Movable.
class GraphModule {
public:
  GraphModule(); // empty module in a fresh context with the cleave, dist, library and func dialects loaded
  GraphModule(GraphModule &&) noexcept;
  GraphModule &operator=(GraphModule &&) noexcept;
  ~GraphModule();

  /// Parses textual IR. Throws userError with MLIR's diagnostics.
  static GraphModule parse(const std::string &text, const std::string &name);
  /// Textual IR; `parse` accepts it.
  std::string str() const;
  GraphModule clone() const;
  /// Runs the verifiers. Returns their diagnostics; empty if the module is valid.
  std::string verify() const;

  mlir::MLIRContext &context() const;
  mlir::ModuleOp module() const;
  /// Transfers the module op to the caller, who must erase it before this object, which owns the context, is
  /// destroyed.
  mlir::ModuleOp release();
  /// The module op, and a function by name (null if not found), for callers without MLIR headers.
  mlir::Operation *operation() const;
  mlir::Operation *function(const std::string &name) const;

private:
  struct Impl;
  std::unique_ptr<Impl> impl;
};

} // namespace cleave
