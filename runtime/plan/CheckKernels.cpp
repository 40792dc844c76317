// Checks generated code as the plan declares it: the declared accesses of each kernel's arguments, and that the code
// contains the kernels. Every call is compared with its declaration in steps/Kernels.h. The code itself is never opened
// or run here.
#include "runtime/plan/CheckParts.h"
#include "runtime/plan/steps/Kernels.h"

#include <cstring>
#include <elf.h>
#include <map>
#include <optional>
#include <set>

namespace cleave::check {

namespace {

std::string declarationProblem(const plan::KernelInfo &kernel) {
  if (length(kernel.arguments()) == 0 || steps::outputsOf(kernel) == 0)
    return "it does not declare what it writes";
  bool written = false;
  for (uint32_t i = 0; i < length(kernel.arguments()); ++i) {
    const plan::KernelArgument &a = *kernel.arguments()->Get(i);
    if (written && !a.written())
      return fmt::format("argument {} is read, after one that is written", i);
    written = a.written();
    if ((kernel.extent() >= 0 && a.per_extent() > 0) || a.base() < -a.per_extent())
      return fmt::format("argument {} is {} + {} elements for each of the extent", i, a.base(), a.per_extent());
  }
  return "";
}

/// The tables of an ELF file, with bounds checks.
class Elf {
public:
  explicit Elf(std::span<const uint8_t> bytes) : bytes(bytes) {}

  /// A defect of the whole file; "" if its tables and everything they refer to are inside it.
  std::string problem(uint16_t machine) {
    if (bytes.size() < sizeof head || std::memcmp(bytes.data(), ELFMAG, SELFMAG) != 0)
      return "it is not an ELF file";
    std::memcpy(&head, bytes.data(), sizeof head);
    if (head.e_ident[EI_CLASS] != ELFCLASS64 || head.e_ident[EI_DATA] != ELFDATA2LSB || head.e_machine != machine)
      return fmt::format("it is for machine {}, the plan's target needs {}", head.e_machine, machine);
    if (!read(head.e_phoff, head.e_phnum, head.e_phentsize, segments) ||
        !read(head.e_shoff, head.e_shnum, head.e_shentsize, sections))
      return fmt::format("its tables lie outside its {} bytes", bytes.size());
    for (const Elf64_Phdr &s : segments)
      if (!inside(s.p_offset, s.p_filesz) || (s.p_type == PT_LOAD && (s.p_memsz < s.p_filesz || s.p_memsz > largest)))
        return fmt::format("a segment of bytes {} to {} of {}", s.p_offset, s.p_offset + s.p_filesz, bytes.size());
    for (const Elf64_Shdr &s : sections)
      if (s.sh_type != SHT_NOBITS && s.sh_type != SHT_NULL && !inside(s.sh_offset, s.sh_size))
        return fmt::format("a section of bytes {} to {} of {}", s.sh_offset, s.sh_offset + s.sh_size, bytes.size());
    return "";
  }

  /// Functions whose code is inside the file, by name.
  std::set<std::string> functions() const {
    std::set<std::string> found;
    for (const Elf64_Shdr &table : sections) {
      if ((table.sh_type != SHT_DYNSYM && table.sh_type != SHT_SYMTAB) || table.sh_link >= sections.size() ||
          table.sh_entsize != sizeof(Elf64_Sym))
        continue;
      const Elf64_Shdr &names = sections[table.sh_link];
      for (uint64_t at = 0; at + sizeof(Elf64_Sym) <= table.sh_size; at += sizeof(Elf64_Sym)) {
        Elf64_Sym symbol;
        std::memcpy(&symbol, bytes.data() + table.sh_offset + at, sizeof symbol);
        if (auto name = nameOf(names, symbol); name && hasBody(symbol))
          found.insert(std::move(*name));
      }
    }
    return found;
  }

private:
  bool inside(uint64_t offset, uint64_t size) const { return offset <= bytes.size() && size <= bytes.size() - offset; }

  template <typename T> bool read(uint64_t offset, uint64_t count, uint64_t size, std::vector<T> &list) const {
    if (count && (size != sizeof(T) || !inside(offset, count * sizeof(T))))
      return false;
    list.resize(count);
    if (count)
      std::memcpy(list.data(), bytes.data() + offset, count * sizeof(T));
    return true;
  }

  std::optional<std::string> nameOf(const Elf64_Shdr &names, const Elf64_Sym &symbol) const {
    if (names.sh_type != SHT_STRTAB || symbol.st_name >= names.sh_size)
      return std::nullopt;
    const char *begin = reinterpret_cast<const char *>(bytes.data()) + names.sh_offset + symbol.st_name;
    return std::string(begin, strnlen(begin, names.sh_size - symbol.st_name));
  }

  /// Whether the symbol is a function whose bytes are in a code section.
  bool hasBody(const Elf64_Sym &symbol) const {
    if (ELF64_ST_TYPE(symbol.st_info) != STT_FUNC || symbol.st_size == 0 || symbol.st_shndx == SHN_UNDEF ||
        symbol.st_shndx >= sections.size())
      return false;
    const Elf64_Shdr &section = sections[symbol.st_shndx];
    return (section.sh_flags & SHF_EXECINSTR) && symbol.st_value >= section.sh_addr &&
           symbol.st_value - section.sh_addr <= section.sh_size &&
           symbol.st_size <= section.sh_size - (symbol.st_value - section.sh_addr);
  }

  std::span<const uint8_t> bytes;
  Elf64_Ehdr head{};
  std::vector<Elf64_Phdr> segments;
  std::vector<Elf64_Shdr> sections;
};

/// If the plan has code, the code must have the hash with which the kernels were declared, and contain all of them.
void checkCode(const plan::Plan &plan, Report &report) {
  Rule rule(report, "T6");
  const std::span<const uint8_t> code = bytesOf(plan.code());
  if (!std::ranges::equal(codeHash(code, viewOf(plan.ptx())), bytesOf(plan.code_hash())))
    return report.add("code: its {} bytes are not those that the kernels were declared with", code.size());
  if (code.empty())
    return;
  constexpr uint16_t cubin = 190;
  Elf elf(code);
  const bool gpu = steps::isCuda(plan) && viewOf(plan.target()) != "emulated";
  if (std::string problem = elf.problem(gpu ? cubin : uint16_t{EM_X86_64}); !problem.empty())
    return report.add("code: {}", problem);
  const std::set<std::string> functions = elf.functions();
  for (uint32_t k = 0; k < length(plan.kernels()); ++k)
    if (!functions.count(plan.kernels()->Get(k)->symbol()->str()))
      report.add("kernel {}: the code has no function '{}'", k, plan.kernels()->Get(k)->symbol()->str());
}

} // namespace

void checkKernels(const plan::Plan &plan, Report &report) {
  Rule rule(report, "T5");
  std::map<std::string_view, uint32_t> symbols;
  for (uint32_t k = 0; k < length(plan.kernels()); ++k) {
    const plan::KernelInfo &kernel = *plan.kernels()->Get(k);
    if (viewOf(kernel.symbol()).empty())
      report.add("kernel {}: it has no symbol", k);
    else if (auto [found, fresh] = symbols.emplace(viewOf(kernel.symbol()), k); !fresh)
      report.add("kernel {}: its symbol '{}' is that of kernel {}", k, kernel.symbol()->str(), found->second);
    else if (std::string problem = declarationProblem(kernel); !problem.empty())
      report.add("kernel {}: {}", k, problem);
  }
  if (report.count() == 0)
    checkCode(plan, report);
}

} // namespace cleave::check
