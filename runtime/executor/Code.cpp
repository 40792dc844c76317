// Opens a plan's shared object through a file in memory.
#include "runtime/executor/Code.h"

#include "runtime/base/Error.h"
#include "runtime/base/ScratchFile.h"
#include "runtime/base/Target.h"
#include "runtime/plan/Text.h"
#include "runtime/plan/plan_generated.h"

#include <fmt/format.h>

#include <dlfcn.h>
#include <map>
#include <mutex>

namespace cleave {

namespace {

/// Whether this processor supports `target`.
bool processorHas(const std::string &target) {
  const std::optional<Target> named = Target::named(target);
  return target.empty() || (named && named->runsHere());
}

} // namespace

std::shared_ptr<const Code> Code::open(const std::shared_ptr<const PlanFile> &file) {
  static std::mutex mutex;
  static std::map<const PlanFile *, std::weak_ptr<const Code>> opened;
  std::lock_guard lock(mutex);
  std::erase_if(opened, [](const auto &entry) { return entry.second.expired(); });
  if (auto found = opened.find(file.get()); found != opened.end())
    if (auto code = found->second.lock())
      return code;
  const plan::Plan &plan = file->plan();
  std::shared_ptr<Code> code(new Code);
  code->plan = file;
  if (plan.code() && plan.code()->size()) {
    std::string target = text(plan.target());
    if (!processorHas(target))
      throw environmentError(
          fmt::format("plan '{}': its code is for '{}', which this processor does not support", file->name(), target));
    // The file stays as long as the library: glibc identifies libraries by name, and a later plan whose file gets the
    // same number would receive this plan's code.
    code->object.emplace(fmt::format("plan '{}': its code cannot be loaded", file->name()),
                         std::span(plan.code()->data(), plan.code()->size()),
                         [&](const std::string &path) -> std::string {
                           code->library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
                           return code->library ? "" : ::dlerror();
                         });
    if (plan.kernels())
      for (const plan::KernelInfo *kernel : *plan.kernels()) {
        void *symbol = ::dlsym(code->library, kernel->symbol()->c_str());
        if (!symbol)
          throw environmentError(
              fmt::format("plan '{}': its code has no kernel '{}'", file->name(), kernel->symbol()->str()));
        code->table.push_back(reinterpret_cast<KernelFunction>(symbol));
      }
  }
  opened[file.get()] = code;
  return code;
}

Code::~Code() {
  if (library)
    ::dlclose(library);
}

} // namespace cleave
