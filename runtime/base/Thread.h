// Starts threads: with error handling, a name, and stacks that are large enough.
#pragma once
#include "runtime/base/Error.h"

#include <functional>
#include <pthread.h>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

namespace cleave {

/// The error of a thread for `what` that the system cannot start; `code`: of pthread_create.
Error noThread(const std::string &what, int code);

/// Starts a thread for `what`, for example "rank 3 of 16". Throws an environment error if the system cannot create it
/// (too little memory for its stack, too many threads). Debuggers and `top -H` show the first 15 characters of the
/// name.
template <typename... Args> std::thread startThread(const std::string &what, Args &&...args) {
  try {
    std::thread thread(std::forward<Args>(args)...);
    pthread_setname_np(thread.native_handle(), what.substr(0, 15).c_str());
    return thread;
  } catch (const std::system_error &error) {
    throw noThread(what, error.code().value());
  }
}

/// From now on a new thread of this process gets a stack of at least 8 MiB, even if the user's limit (`ulimit -s`) is
/// lower.
void enlargeStacks();

/// Calls `fn` on a thread with a stack of 64 MiB and returns when it has ended; throws what it throws, and as
/// startThread.
void onLargeStack(const std::function<void()> &fn);

} // namespace cleave
