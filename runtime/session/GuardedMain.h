// The main function of a program, and its exit status.
#pragma once
#include <functional>

namespace cleave {

/// The main function of a program: calls `fn`, prints exceptions as "error: ..." and returns the exit status. Under a
/// launcher a failing rank ends all ranks, and a failure common to all is printed once. Runs `fn` on a thread whose
/// stack does not depend on the user's limit. Includes prepareProcess.
int guardedMain(const std::function<int()> &fn);

} // namespace cleave
