// Object code and linking.
//
// The kernels' loops and vectors need no further transformation, so a short pipeline (inlining of Math's helper,
// mem2reg, simplification, LICM, CSE) replaces the standard one: it takes a third of the time and does not change the
// vectors.
#include "passes/codegen/Object.h"
#include "passes/codegen/CodegenSources.inc"
#include "passes/codegen/Machine.h"
#include "passes/codegen/cpu/Emit.h"
#include "passes/codegen/gpu/GpuEmit.h"
#include "runtime/base/Error.h"
#include "runtime/base/ScratchFile.h"
#include "runtime/base/Thread.h"

#include "lld/Common/Driver.h"
#include "llvm/Config/llvm-config.h"
#include "llvm/IR/Module.h"
#include "llvm/Object/ArchiveWriter.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Support/raw_ostream.h"

#include <cassert>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <mutex>
#include <span>
#include <sys/stat.h>
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
    LLVMInitializeX86AsmParser();
  });
  return makeMachine("x86_64-unknown-linux-gnu", cpu.text(), "", llvm::Reloc::PIC_, llvm::CodeGenOptLevel::Default);
}

void optimize(llvm::Module &module, llvm::TargetMachine &machine) {
  runPasses(module, machine, [](llvm::PassBuilder &builder) {
    llvm::ModulePassManager passes;
    auto error = builder.parsePassPipeline(
        passes,
        "always-inline,"
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
    if (k.emulatedThreads)
      emitGpuKernel(*k.nest, *module, k.symbol, ThreadWords::Emulated, k.batch);
    else
      emitKernel(*k.nest, k.sizes, *module, k.symbol);
  }
  for (llvm::Function &f : *module) {
    if (f.isDeclaration())
      continue;
    f.addFnAttr("target-cpu", cpu.text());
    f.addFnAttr("prefer-vector-width", cpu == Target::X86_64_v4 ? "512" : "256");
    f.addFnAttr("min-legal-vector-width", cpu == Target::X86_64_v4 ? "512" : "256");
  }
  optimize(*module, machine);
  return module;
}

/// The linker's output: it writes to a pipe, which needs no room on a disk. (It cannot write to a file in memory, and
/// it maps the regular files that it writes, so that a full disk would be a signal.)
class OutputPipe {
public:
  OutputPipe() {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0)
      throw environmentError(fmt::format("code generation: no pipe for the linker's output: {}", std::strerror(errno)));
    readEnd = ends[0];
    writeEnd = ends[1];
    name = "/proc/self/fd/" + std::to_string(writeEnd);
    if (::access(name.c_str(), W_OK) != 0)
      openNamed();
    reader = startThread("the linker's output", [this] { read(); });
  }
  ~OutputPipe() {
    if (reader.joinable())
      finish();
    ::close(readEnd);
    if (!folder.empty()) {
      ::unlink(name.c_str());
      ::rmdir(folder.c_str());
    }
  }
  OutputPipe(const OutputPipe &) = delete;
  const std::string &path() const { return name; }
  /// What was written; call once, when the linker has ended.
  std::vector<uint8_t> finish() {
    ::close(writeEnd);
    reader.join();
    return std::move(bytes);
  }

private:
  /// A pipe with a name, for a machine without /proc.
  void openNamed() {
    ::close(readEnd);
    ::close(writeEnd);
    readEnd = writeEnd = -1;
    std::string problems;
    for (const std::string &parent : scratchFolders()) {
      folder = parent + "/cleave-XXXXXX";
      name = ::mkdtemp(folder.data()) ? folder + "/kernels.so" : "";
      if (!name.empty() && ::mkfifo(name.c_str(), 0600) == 0) {
        readEnd = ::open(name.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC); // does not wait for a writer
        writeEnd = ::open(name.c_str(), O_WRONLY | O_CLOEXEC);
        ::fcntl(readEnd, F_SETFL, 0);
        return;
      }
      problems += fmt::format("; {}: {}", parent, std::strerror(errno));
      if (!name.empty())
        ::rmdir(folder.c_str());
    }
    folder.clear();
    throw environmentError("code generation: there is no place for the linker's output: /proc is missing" + problems);
  }
  void read() {
    uint8_t block[65536];
    for (ssize_t got; (got = ::read(readEnd, block, sizeof block)) != 0;)
      if (got > 0)
        bytes.insert(bytes.end(), block, block + got);
      else if (errno != EINTR)
        return;
  }

  int readEnd = -1, writeEnd = -1;
  std::string name, folder;
  std::vector<uint8_t> bytes;
  std::thread reader;
};

} // namespace

struct ObjectCompiler::Impl {
  Target cpu;
  std::unique_ptr<llvm::TargetMachine> machine; // keeps what LLVM knows of the processor, which takes 0.3 ms to make
  std::vector<char> emit(llvm::Module &module) const {
    const auto bytes = emitCode(module, *machine, llvm::CodeGenFileType::ObjectFile);
    return {bytes.begin(), bytes.end()};
  }
};

ObjectCompiler::ObjectCompiler(Target cpu) : impl(new Impl{cpu, targetMachine(cpu)}) {}
ObjectCompiler::~ObjectCompiler() = default;

std::vector<char> ObjectCompiler::compile(const std::vector<NamedLoopNest> &kernels) {
  llvm::LLVMContext context;
  return impl->emit(*makeModule(context, kernels, impl->cpu, *impl->machine));
}

std::vector<char> ObjectCompiler::assemble(const std::string &text) {
  llvm::LLVMContext context;
  llvm::Module module("cleave_kernels", context);
  prepareModule(module, *impl->machine);
  module.setModuleInlineAsm(text);
  return impl->emit(module);
}

std::string assemblyOf(const std::vector<SizedKernel> &kernels) {
  std::string text;
  for (size_t k = 0; k < kernels.size(); ++k) {
    const auto &[symbol, code, sizes] = kernels[k];
    // The fifth argument is in r8.
    text += fmt::format(".section .rodata\n.p2align 3\n.Lsizes{}:\n.quad {}\n"
                        ".text\n.p2align 4\n.globl {}\n.type {}, @function\n.hidden {}\n{}:\n"
                        "leaq .Lsizes{}(%rip), %r8\njmp {}\n.size {}, .-{}\n",
                        k, fmt::join(sizes.words(), ", "), symbol, symbol, code, symbol, k, code, symbol, symbol);
  }
  return text;
}

const std::string &codeIdentity() {
  static const std::string identity = [] {
    std::string text = "sources " CLEAVE_CODEGEN_SOURCES ", LLVM " LLVM_VERSION_STRING;
    // A library with corrections may have the same version.
    Dl_info library{};
    struct stat info {};
    if (::dladdr(reinterpret_cast<const void *>(&LLVMInitializeX86Target), &library) &&
        ::stat(library.dli_fname, &info) == 0)
      text += fmt::format(", {} bytes of {}.{}", info.st_size, info.st_mtim.tv_sec, info.st_mtim.tv_nsec);
    return text;
  }();
  return identity;
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
  std::vector<llvm::NewArchiveMember>
      members; // of one archive: there may be more kernels than a process may open files
  for (const auto &object : objects)
    members.emplace_back(llvm::MemoryBufferRef({object.data(), object.size()}, "kernel.o"));
  const auto archive = llvm::cantFail(llvm::writeArchiveToBuffer(members, llvm::SymtabWritingMode::NoSymtab,
                                                                 llvm::object::Archive::K_GNU,
                                                                 /*Deterministic=*/true, /*Thin=*/false));
  const llvm::StringRef bytes = archive->getBuffer();
  const ScratchFile file("code generation: the objects cannot be stored", {bytes.bytes_begin(), bytes.size()});
  OutputPipe output;
  const std::vector<std::string> arguments = {"ld.lld",    "-shared",     "--hash-style=gnu", "--build-id=none",
                                              "-z",        "noexecstack", "--threads=1",      "--whole-archive",
                                              file.path(), "-o",          output.path()};
  std::vector<const char *> pointers;
  for (const std::string &a : arguments)
    pointers.push_back(a.c_str());
  std::string messages;
  llvm::raw_string_ostream sink(messages);
  lld::Result result = lld::lldMain(pointers, sink, sink, {{lld::Gnu, &lld::elf::link}});
  if (result.retCode != 0)
    throw environmentError("code generation: the linker failed: " + messages);
  return output.finish();
}

} // namespace cleave::passes::kernel
