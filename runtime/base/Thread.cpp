// Stacks of a size that does not depend on the user's limit.
#include "runtime/base/Thread.h"

#include <cerrno>
#include <cstring>
#include <exception>
#include <pthread.h>

namespace cleave {

static constexpr size_t programStack = size_t{64} << 20, leastStack = size_t{8} << 20;

Error noThread(const std::string &what, int code) {
  return environmentError("no thread can be started for " + what + ": " + std::strerror(code) +
                          (code == EAGAIN ? "; a limit on processes, threads or memory is reached (ulimit -u, "
                                            "ulimit -v, pids.max of a container)"
                                          : ""));
}

void enlargeStacks() {
  pthread_attr_t attributes;
  size_t bytes = 0;
  if (pthread_getattr_default_np(&attributes) != 0)
    return;
  if (pthread_attr_getstacksize(&attributes, &bytes) == 0 && bytes < leastStack &&
      pthread_attr_setstacksize(&attributes, leastStack) == 0)
    pthread_setattr_default_np(&attributes);
  pthread_attr_destroy(&attributes);
}

namespace {
struct Call {
  const std::function<void()> &fn;
  std::exception_ptr thrown;
};
} // namespace

static void *run(void *argument) {
  Call &call = *static_cast<Call *>(argument);
  try {
    call.fn();
  } catch (...) {
    call.thrown = std::current_exception();
  }
  return nullptr;
}

void onLargeStack(const std::function<void()> &fn) {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, programStack);
  pthread_t thread;
  Call call{fn, nullptr};
  const int code = pthread_create(&thread, &attributes, run, &call);
  pthread_attr_destroy(&attributes);
  if (code != 0)
    throw noThread("the program", code);
  pthread_join(thread, nullptr);
  if (call.thrown)
    std::rethrow_exception(call.thrown);
}

} // namespace cleave
