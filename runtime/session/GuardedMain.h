// The main function of a program, and its exit status.
#pragma once
#include "runtime/base/Error.h"

#include <functional>

namespace cleave {

/// The main function of a program: calls `fn`, prints exceptions as "error: ..." and returns the exit status. Under a
/// launcher a failing rank ends all ranks, and a failure common to all is printed once. Runs `fn` on a thread whose
/// stack does not depend on the user's limit. Includes prepareProcess.
int guardedMain(const std::function<int()> &fn);

/// Ends the process with this error, for failures that cannot be thrown: from any thread, also inside of a library.
[[noreturn]] void endAtOnce(const Error &error);

} // namespace cleave
