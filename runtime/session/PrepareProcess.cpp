// Standard streams, signals, OpenMP's setting.
#include "runtime/session/PrepareProcess.h"
#include "runtime/base/StandardStreams.h"
#include "runtime/session/Interrupt.h"
#include "runtime/session/Launcher.h"

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <unistd.h>

namespace cleave {

void prepareProcess() {
  holdStandardDescriptors();
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN); // exceeding a file-size limit should be a write error, not end the process
  endOnSignals(launchedRank());
}

/// The path by which this program was started, so that `ps` shows the same name; the kernel's link if another file is
/// there now.
static const char *ownPath() {
  const char *self = "/proc/self/exe";
  const auto given = getauxval(AT_EXECFN);
  const char *path = reinterpret_cast<const char *>(given);
  struct stat mine, there;
  const bool same = given && ::stat(self, &mine) == 0 && ::stat(path, &there) == 0 && mine.st_dev == there.st_dev &&
                    mine.st_ino == there.st_ino;
  return same ? path : self;
}

void shortenThreadWaits(int argc, char **argv) {
  prepareProcess();
  if (std::getenv("GOMP_SPINCOUNT") || std::getenv("OMP_WAIT_POLICY"))
    return;
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  const std::string mine((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  std::string given;
  for (int i = 0; i < argc; ++i)
    given.append(argv[i]).push_back('\0');
  if (mine != given)
    return;
  ::setenv("GOMP_SPINCOUNT", "5000", 1); // a fraction of a millisecond
  holdInterrupts(true);                  // an interrupt until the program is ready again is not lost
  ::execv(ownPath(), argv);              // if this fails, the program continues unchanged
  holdInterrupts(false);
}

} // namespace cleave
