// GraphModule: parsing, printing, cloning and verifying a module, with diagnostics collected as text.
#include "ir/GraphModule.h"

#include "ir/dist/Dist.h"
#include "ir/graph/Graph.h"
#include "ir/library/Library.h"
#include "runtime/base/Error.h"

#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/IR/OwningOpRef.h"
#include "mlir/IR/Verifier.h"
#include "mlir/Parser/Parser.h"
#include "llvm/Support/ErrorHandling.h"
#include "llvm/Support/SourceMgr.h"
#include "llvm/Support/raw_ostream.h"

#include <cstdio>
#include <cstdlib>
#include <mutex>

using namespace mlir;

namespace cleave {

// The module is declared after its context, so it is destroyed first. Clones share the context.
struct GraphModule::Impl {
  std::shared_ptr<MLIRContext> context;
  OwningOpRef<ModuleOp> module;
};

// LLVM is built without exceptions, so an allocation failure ends the process. Message and status are those used for
// every other allocation failure.
static void outOfMemory(void *, const char *, bool) {
  std::fputs("error: out of memory while compiling\n", stderr);
  std::_Exit(static_cast<int>(Status::Environment));
}

static std::shared_ptr<MLIRContext> freshContext() {
  static std::once_flag once;
  std::call_once(once, [] { llvm::install_bad_alloc_error_handler(outOfMemory); });
  auto context = std::make_shared<MLIRContext>(MLIRContext::Threading::ENABLED);
  context->loadDialect<ir::CleaveDialect, dist::DistDialect, library::LibraryDialect, func::FuncDialect>();
  return context;
}

GraphModule::GraphModule() : impl(std::make_unique<Impl>()) {
  impl->context = freshContext();
  impl->module = ModuleOp::create(UnknownLoc::get(impl->context.get()));
}
GraphModule::GraphModule(GraphModule &&) noexcept = default;
GraphModule &GraphModule::operator=(GraphModule &&) noexcept = default;
GraphModule::~GraphModule() = default;

GraphModule GraphModule::parse(const std::string &text, const std::string &name) {
  GraphModule result;
  MLIRContext *context = &result.context();
  std::string messages;
  llvm::raw_string_ostream stream(messages);
  llvm::SourceMgr sources;
  sources.AddNewSourceBuffer(llvm::MemoryBuffer::getMemBuffer(text, name), llvm::SMLoc());
  SourceMgrDiagnosticHandler handler(sources, context, stream);
  result.impl->module = parseSourceFile<ModuleOp>(sources, ParserConfig(context));
  if (!result.impl->module)
    throw userError(messages);
  return result;
}

std::string GraphModule::str() const {
  std::string text;
  llvm::raw_string_ostream stream(text);
  OpPrintingFlags flags;
  flags.enableDebugInfo();
  module().print(stream, flags);
  stream << '\n';
  return text;
}

GraphModule GraphModule::clone() const {
  GraphModule result;
  result.impl->module = nullptr;
  result.impl->context = impl->context;
  result.impl->module = module().clone();
  return result;
}

std::string GraphModule::verify() const {
  std::string messages;
  llvm::raw_string_ostream stream(messages);
  ScopedDiagnosticHandler handler(&context(), [&](Diagnostic &diagnostic) {
    stream << diagnostic.getLocation() << ": " << diagnostic << '\n';
    for (Diagnostic &note : diagnostic.getNotes())
      stream << note.getLocation() << ": note: " << note << '\n';
    return success();
  });
  if (failed(mlir::verify(module())) && messages.empty())
    stream << "the module is not valid\n";
  return messages;
}

MLIRContext &GraphModule::context() const { return *impl->context; }
ModuleOp GraphModule::release() { return impl->module.release(); }
ModuleOp GraphModule::module() const { return impl->module.get(); }
Operation *GraphModule::operation() const { return module(); }
Operation *GraphModule::function(const std::string &name) const { return module().lookupSymbol(name); }

} // namespace cleave
