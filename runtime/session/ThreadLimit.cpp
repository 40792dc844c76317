// Libraries that end the process if they cannot start a thread (libgomp, LLVM) do so with texts and statuses of their
// own. Their calls come here first, so that a limit on threads is an error like any other.
//
// Not part of builds with sanitizers, which need the function for themselves.
#include "runtime/base/Thread.h"
#include "runtime/session/GuardedMain.h"

#include <atomic>
#include <dlfcn.h>
#include <pthread.h>
#include <string_view>

namespace cleave {

/// What cannot go on without a thread if this address called for it; empty for callers that report failures.
static std::string_view workOf(void *address) {
  Dl_info caller{};
  if (::dladdr(address, &caller) == 0 || !caller.dli_fname)
    return "";
  std::string_view file = caller.dli_fname;
  file.remove_prefix(file.rfind('/') + 1); // npos + 1 is 0
  if (file.starts_with("libgomp"))
    return "the kernels";
  return file.starts_with("libLLVM") || file.starts_with("libMLIR") ? "the compiler" : "";
}

} // namespace cleave

/// Takes the place of the C library's function, which it calls.
extern "C" int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *),
                              void *argument) noexcept {
  using Function = decltype(&pthread_create);
  static constinit std::atomic<Function> known{nullptr};
  Function next = known;
  if (!next)
    known = next = reinterpret_cast<Function>(::dlsym(RTLD_NEXT, "pthread_create"));
  const int code = next(thread, attributes, start, argument);
  if (code != 0)
    if (const auto work = cleave::workOf(__builtin_return_address(0)); !work.empty())
      cleave::endAtOnce(cleave::noThread(std::string(work), code));
  return code;
}
