// Starts threads with error handling.
#pragma once
#include "runtime/base/Error.h"

#include <string>
#include <system_error>
#include <thread>
#include <utility>

namespace cleave {

/// Starts a thread for `what`, for example "rank 3 of 16". Throws an environment error if the system cannot create it
/// (too little memory for its stack, too many threads).
template <typename... Args> std::thread startThread(const std::string &what, Args &&...args) {
  try {
    return std::thread(std::forward<Args>(args)...);
  } catch (const std::system_error &error) {
    throw environmentError("no thread can be started for " + what + ": " + error.code().message());
  }
}

} // namespace cleave
