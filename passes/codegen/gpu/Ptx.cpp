// Generates PTX and cubins.
#include "passes/codegen/gpu/Ptx.h"
#include "passes/codegen/Machine.h"
#include "passes/codegen/gpu/GpuEmit.h"
#include "runtime/base/Error.h"

#include "llvm/IR/Module.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Program.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Support/raw_ostream.h"

#include <cassert>
#include <cstdlib>
#include <fmt/format.h>
#include <mutex>
#include <regex>

namespace cleave::passes::kernel {

static std::unique_ptr<llvm::TargetMachine> gpuMachine(Target chip) {
  assert(chip.gpu() && chip != Target::Emulated && "a GPU's target");
  static std::once_flag once;
  std::call_once(once, [] {
    LLVMInitializeNVPTXTargetInfo();
    LLVMInitializeNVPTXTarget();
    LLVMInitializeNVPTXTargetMC();
    LLVMInitializeNVPTXAsmPrinter();
  });
  return makeMachine("nvptx64-nvidia-cuda", chip.text(), chip == Target::Sm100 ? "+ptx86" : "+ptx78", std::nullopt,
                     llvm::CodeGenOptLevel::Aggressive);
}

std::string ptxOf(const std::vector<NamedLoopNest> &kernels, Target chip) {
  auto machine = gpuMachine(chip);
  llvm::LLVMContext context;
  llvm::Module module("cleave_kernels", context);
  prepareModule(module, *machine);
  for (const NamedLoopNest &k : kernels)
    emitGpuKernel(*k.nest, module, k.symbol, ThreadWords::Ptx, k.batch);
  runPasses(module, *machine, [](llvm::PassBuilder &builder) {
    return builder.buildPerModuleDefaultPipeline(llvm::OptimizationLevel::O2);
  });
  const auto text = emitCode(module, *machine, llvm::CodeGenFileType::AssemblyFile);
  return {text.begin(), text.end()};
}

std::string findPtxas() {
  if (auto found = llvm::sys::findProgramByName("ptxas"))
    return *found;
  const char *home = std::getenv("CUDA_HOME");
  for (const std::string &folder : {std::string(home ? home : ""), std::string("/usr/local/cuda")})
    if (!folder.empty())
      if (auto found = llvm::sys::findProgramByName("ptxas", {folder + "/bin"}))
        return *found;
  return {};
}

namespace {

/// A temporary file, removed by the destructor.
class Temporary {
public:
  explicit Temporary(const char *suffix) {
    if (llvm::sys::fs::createTemporaryFile("cleave", suffix, path))
      throw environmentError("code generation: cannot create a temporary file");
  }
  Temporary(const Temporary &) = delete;
  ~Temporary() { llvm::sys::fs::remove(path); }
  std::string name() const { return path.str().str(); }
  std::string read() const {
    auto buffer = llvm::MemoryBuffer::getFile(path);
    return buffer ? (*buffer)->getBuffer().str() : std::string();
  }

private:
  llvm::SmallString<64> path;
};

/// "Function properties for NAME", "N bytes spill stores, N bytes spill loads", "Used N registers, ..., N bytes smem".
std::vector<KernelResources> readResources(const std::string &report) {
  static const std::regex name("Function properties for '?([A-Za-z0-9_$]+)"),
      spills("([0-9]+) bytes spill stores, ([0-9]+) bytes spill loads"), used("Used ([0-9]+) registers"),
      shared("([0-9]+) bytes smem");
  std::vector<KernelResources> kernels;
  std::smatch match;
  std::istringstream lines(report);
  for (std::string line; std::getline(lines, line);) {
    if (std::regex_search(line, match, name))
      kernels.push_back({match[1], 0, 0, 0});
    if (kernels.empty())
      continue;
    if (std::regex_search(line, match, spills))
      kernels.back().spillBytes = std::stoi(match[1]) + std::stoi(match[2]);
    if (std::regex_search(line, match, used))
      kernels.back().registers = std::stoi(match[1]);
    if (std::regex_search(line, match, shared))
      kernels.back().sharedBytes = std::stoi(match[1]);
  }
  return kernels;
}

/// Sets the minimum number of blocks per multiprocessor to 1; a higher one limits registers and makes ptxas spill.
void loosen(std::string &ptx, const std::string &symbol) {
  static constexpr std::string_view hint = ".minnctapersm ";
  const size_t entry = ptx.find(".entry " + symbol + "("), body = ptx.find('{', entry), at = ptx.find(hint, entry);
  if (entry == std::string::npos || at >= body)
    return;
  const size_t number = at + hint.size();
  ptx.replace(number, ptx.find_first_not_of("0123456789", number) - number, "1");
}

Cubin assembleAsIs(const std::string &ptx, Target chip) {
  const std::string program = findPtxas();
  if (program.empty())
    throw environmentError(
        "code generation: ptxas is missing; it comes with the CUDA toolkit, in PATH or CUDA_HOME/bin");
  Temporary in("ptx"), out("cubin"), log("txt");
  {
    std::error_code error;
    llvm::raw_fd_ostream file(in.name(), error);
    file << ptx;
    file.close();
    if (error || file.has_error())
      throw environmentError("code generation: a temporary file cannot be written");
  }
  const std::string architecture = "-arch=" + chip.text(), inName = in.name(), outName = out.name(),
                    logName = log.name();
  const llvm::StringRef arguments[] = {program, "-v", "-O3", architecture, inName, "-o", outName};
  const std::optional<llvm::StringRef> redirects[] = {llvm::StringRef(""), llvm::StringRef(logName),
                                                      llvm::StringRef(logName)};
  const int status = llvm::sys::ExecuteAndWait(program, arguments, std::nullopt, redirects);
  const std::string report = log.read();
  if (status != 0)
    throw environmentError(
        fmt::format("code generation: ptxas refused a kernel for {}: {}", chip.text(), report.substr(0, 1000)));
  const std::string bytes = out.read();
  return {{bytes.begin(), bytes.end()}, readResources(report)};
}

} // namespace

Cubin assemble(const std::string &ptx, Target chip) {
  constexpr int mostSpilled = 32;
  Cubin made = assembleAsIs(ptx, chip);
  std::string looser = ptx;
  for (const KernelResources &kernel : made.kernels)
    if (kernel.spillBytes > mostSpilled)
      loosen(looser, kernel.symbol);
  return looser == ptx ? std::move(made) : assembleAsIs(looser, chip);
}

} // namespace cleave::passes::kernel
