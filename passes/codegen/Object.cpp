// Object code and linking.
//
// The kernels' loops and vectors need no further transformation, so a short pipeline (mem2reg, simplification, LICM,
// CSE) replaces the standard one: it takes a third of the time and does not change the vectors.
#include "passes/codegen/Object.h"
#include "passes/codegen/Emit.h"
#include "passes/codegen/GpuEmit.h"
#include "passes/codegen/Machine.h"
#include "runtime/base/Error.h"

#include "lld/Common/Driver.h"
#include "llvm/IR/Module.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Support/raw_ostream.h"

#include <cassert>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <sys/mman.h>
#include <unistd.h>

LLD_HAS_DRIVER(elf)

namespace cleave::passes::kernel {

namespace {

std::unique_ptr<llvm::TargetMachine> targetMachine(Target cpu) {
  static std::once_flag once;
  std::call_once(once, [] {
    LLVMInitializeX86TargetInfo();
    LLVMInitializeX86Target();
    LLVMInitializeX86TargetMC();
    LLVMInitializeX86AsmPrinter();
  });
  return makeMachine("x86_64-unknown-linux-gnu", cpu.text(), "", llvm::Reloc::PIC_, llvm::CodeGenOptLevel::Default);
}

void optimize(llvm::Module &module, llvm::TargetMachine &machine) {
  runPasses(module, machine, [](llvm::PassBuilder &builder) {
    llvm::ModulePassManager passes;
    auto error = builder.parsePassPipeline(
        passes,
        "function(sroa,early-cse<memssa>,instcombine<no-verify-fixpoint>,simplifycfg,loop-mssa(loop-rotate,licm),"
        "early-cse<memssa>,instcombine<no-verify-fixpoint>,simplifycfg)");
    assert(!error && "the pass pipeline does not parse");
    llvm::consumeError(std::move(error));
    return passes;
  });
}

std::unique_ptr<llvm::Module> makeModule(llvm::LLVMContext &context, const std::vector<NamedLoopNest> &kernels,
                                         Target cpu, llvm::TargetMachine &machine) {
  auto module = std::make_unique<llvm::Module>("cleave_kernels", context);
  prepareModule(*module, machine);
  for (const NamedLoopNest &k : kernels) {
    llvm::Function *f = k.emulatedThreads ? emitGpuKernel(*k.nest, *module, k.symbol, ThreadWords::Emulated, k.batch)
                                          : emitKernel(*k.nest, *module, k.symbol);
    f->addFnAttr("target-cpu", cpu.text());
    f->addFnAttr("prefer-vector-width", cpu == Target::X86_64_v4 ? "512" : "256");
    f->addFnAttr("min-legal-vector-width", cpu == Target::X86_64_v4 ? "512" : "256");
  }
  optimize(*module, machine);
  return module;
}

/// A file in memory, named /proc/self/fd/N for lld; closed by the destructor.
class MemoryFile {
public:
  explicit MemoryFile(const std::vector<char> &bytes) : fd(memfd_create("cleave_object", MFD_CLOEXEC)) {
    size_t done = 0;
    while (fd >= 0 && done < bytes.size()) {
      ssize_t n = write(fd, bytes.data() + done, bytes.size() - done);
      if (n <= 0)
        throw environmentError("code generation: cannot write a temporary file in memory");
      done += static_cast<size_t>(n);
    }
    if (fd < 0)
      throw environmentError("code generation: cannot create a temporary file in memory");
  }
  MemoryFile(const MemoryFile &) = delete;
  MemoryFile(MemoryFile &&other) noexcept : fd(other.fd) { other.fd = -1; }
  ~MemoryFile() {
    if (fd >= 0)
      close(fd);
  }
  std::string path() const { return "/proc/self/fd/" + std::to_string(fd); }

private:
  int fd;
};

/// A new directory for the linker's output, which cannot be a memory file. The destructor removes it with its one file.
class OutputDirectory {
public:
  OutputDirectory() {
    for (const char *parent : {"/dev/shm", static_cast<const char *>(std::getenv("TMPDIR")), "/tmp"}) {
      if (!parent)
        continue;
      directory = std::string(parent) + "/cleave-XXXXXX";
      if (mkdtemp(directory.data()))
        return;
    }
    throw environmentError("code generation: cannot create a temporary directory in /dev/shm, TMPDIR or /tmp");
  }
  ~OutputDirectory() {
    unlink(file().c_str());
    rmdir(directory.c_str());
  }
  std::string file() const { return directory + "/kernels.so"; }

private:
  std::string directory;
};

} // namespace

std::vector<char> compileObject(const std::vector<NamedLoopNest> &kernels, Target cpu) {
  auto machine = targetMachine(cpu);
  llvm::LLVMContext context;
  auto module = makeModule(context, kernels, cpu, *machine);
  const auto bytes = emitCode(*module, *machine, llvm::CodeGenFileType::ObjectFile);
  return {bytes.begin(), bytes.end()};
}

std::string irText(const std::vector<NamedLoopNest> &kernels, Target cpu) {
  auto machine = targetMachine(cpu);
  llvm::LLVMContext context;
  std::string text;
  llvm::raw_string_ostream out(text);
  makeModule(context, kernels, cpu, *machine)->print(out, nullptr);
  return text;
}

std::vector<uint8_t> linkShared(const std::vector<std::vector<char>> &objects) {
  static std::mutex one; // lld keeps global state
  std::lock_guard lock(one);
  std::vector<MemoryFile> files;
  std::vector<std::string> arguments = {"ld.lld", "-shared",     "--hash-style=gnu", "--build-id=none",
                                        "-z",     "noexecstack", "--threads=1"};
  for (const auto &object : objects) {
    files.emplace_back(object);
    arguments.push_back(files.back().path());
  }
  OutputDirectory output;
  arguments.insert(arguments.end(), {"-o", output.file()});
  std::vector<const char *> pointers;
  for (const std::string &a : arguments)
    pointers.push_back(a.c_str());
  std::string messages;
  llvm::raw_string_ostream sink(messages);
  lld::Result result = lld::lldMain(pointers, sink, sink, {{lld::Gnu, &lld::elf::link}});
  if (result.retCode != 0)
    throw environmentError("code generation: the linker failed: " + messages);
  std::unique_ptr<FILE, int (*)(FILE *)> file(std::fopen(output.file().c_str(), "rb"), std::fclose);
  if (!file)
    throw environmentError("code generation: the linker's output cannot be read");
  std::vector<uint8_t> bytes;
  uint8_t block[65536];
  for (size_t n; (n = std::fread(block, 1, sizeof block, file.get())) > 0;)
    bytes.insert(bytes.end(), block, block + n);
  return bytes;
}

} // namespace cleave::passes::kernel
