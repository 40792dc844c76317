// cleave-opt: reads IR, runs passes, prints IR. MLIR's own driver with Cleave's dialects and passes.
#include "ir/dist/Dist.h"
#include "ir/graph/Graph.h"
#include "ir/library/Library.h"
#include "passes/pipeline/Register.h"
#include "runtime/base/AtomicFile.h"
#include "runtime/base/Error.h"
#include "runtime/base/FileRoles.h"
#include "runtime/base/StandardStreams.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Pass/PassRegistry.h"
#include "mlir/Tools/mlir-opt/MlirOptMain.h"
#include "mlir/Transforms/Passes.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/ErrorHandling.h"
#include "llvm/Support/raw_ostream.h"

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sys/stat.h>
#include <unistd.h>

/// The argument that names a device, which LLVM would read until memory is exhausted; null if there is none.
static const char *endlessInput(int argc, char **argv) {
  struct stat device {
  }, null{};
  ::stat("/dev/null", &null);
  for (int i = 1; i < argc; ++i) {
    const bool output = !std::strcmp(argv[i - 1], "-o");
    if (output || ::stat(argv[i], &device) != 0 || !(S_ISCHR(device.st_mode) || S_ISBLK(device.st_mode)))
      continue;
    struct stat standard {};
    const bool input = ::fstat(STDIN_FILENO, &standard) == 0 && standard.st_rdev == device.st_rdev; // "/dev/stdin"
    if (!input && device.st_rdev != null.st_rdev)
      return argv[i];
  }
  return nullptr;
}

/// Called by LLVM before it ends the process: output that cannot be written, or no memory.
static void endOn(void *, const char *reason, bool) {
  if (cleave::outputReaderLeft()) // it is no error if the reader of the output has left
    std::_Exit(static_cast<int>(cleave::Status::Success));
  std::fprintf(stderr, "error: %s\n", reason);
  std::_Exit(static_cast<int>(cleave::Status::Environment));
}

/// Begins the help with Cleave's passes and their options. MLIR's help follows, without the options of LLVM's back
/// ends, which --help-hidden lists.
static void beginHelp(int argc, char **argv) {
  for (int i = 1; i < argc; ++i)
    if (!std::strcmp(argv[i], "--help") || !std::strcmp(argv[i], "-help") || !std::strcmp(argv[i], "-h")) {
      llvm::outs() << "Cleave's passes, of which every one is described in passes/Passes.td. They run in the order in "
                      "which they are named.\n";
      mlir::printRegisteredPasses(); // no others are registered yet
      llvm::outs() << '\n';
      for (auto &[name, option] : llvm::cl::getRegisteredOptions())
        if (name != "help" && name != "version")
          option->setHiddenFlag(llvm::cl::Hidden);
      return;
    }
}

/// Runs MLIR's driver. An output file is written beside its name, and renamed if no pass failed.
static bool run(int argc, char **argv, mlir::DialectRegistry &registry) {
  const auto [input, output] = mlir::registerAndParseCLIOptions(argc, argv, "Cleave's optimizer driver\n", registry);
  struct stat there {};
  if (output == "-" || (::stat(output.c_str(), &there) == 0 && !S_ISREG(there.st_mode)))
    return succeeded(mlir::MlirOptMain(argc, argv, input, output, registry));
  cleave::FileRoles files;
  files.reads("the input", input);
  files.writes("-o", output);
  files.check();
  cleave::AtomicFile file(output);
  if (failed(mlir::MlirOptMain(argc, argv, input, file.temporaryPath(), registry)))
    return false;
  file.commit();
  return true;
}

int main(int argc, char **argv) {
  cleave::holdStandardDescriptors();
  std::signal(SIGPIPE, SIG_IGN);
  llvm::install_fatal_error_handler(endOn);
  llvm::install_bad_alloc_error_handler(endOn);
  if (const char *device = endlessInput(argc, argv)) {
    std::fprintf(stderr, "error: %s: a regular file expected, found a device\n", device);
    return static_cast<int>(cleave::Status::User);
  }
  mlir::DialectRegistry registry;
  registry.insert<cleave::ir::CleaveDialect, cleave::dist::DistDialect, cleave::library::LibraryDialect,
                  mlir::func::FuncDialect>();
  cleave::passes::registerPasses();
  beginHelp(argc, argv);
  mlir::registerTransformsPasses(); // canonicalize, cse, symbol-dce, ...
  auto status = cleave::Status::User;
  try {
    if (run(argc, argv, registry))
      status = cleave::Status::Success;
  } catch (const cleave::Error &error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    status = error.status;
  }
  llvm::errs().clear_error(); // lost messages are no error
  return static_cast<int>(status);
}
