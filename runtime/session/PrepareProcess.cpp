// Standard streams, signals, OpenMP's setting.
#include "runtime/session/PrepareProcess.h"
#include "runtime/base/StandardStreams.h"
#include "runtime/session/Interrupt.h"
#include "runtime/session/Launcher.h"

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>

namespace cleave {

void prepareProcess() {
  holdStandardDescriptors();
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN); // exceeding a file-size limit should be a write error, not end the process
  endOnSignals(launchedRank());
}

} // namespace cleave

/// Takes the place of the C library's function, which it calls. GNU OpenMP reads its settings when it is loaded, before
/// any code of the program could change the environment.
extern "C" char *getenv(const char *name) noexcept {
  using Function = char *(*)(const char *);
  static constinit std::atomic<Function> known{nullptr};
  Function next = known;
  if (!next)
    known = next = reinterpret_cast<Function>(::dlsym(RTLD_NEXT, "getenv"));
  static char spins[] = "5000"; // a fraction of a millisecond
  char *value = next(name);
  return value || std::strcmp(name, "GOMP_SPINCOUNT") != 0 || next("OMP_WAIT_POLICY") ? value : spins;
}
