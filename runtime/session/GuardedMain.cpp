// Exceptions become messages and exit statuses; of several ranks one prints a common message.
#include "runtime/session/GuardedMain.h"
#include "runtime/base/Error.h"
#include "runtime/base/StandardStreams.h"
#include "runtime/base/Thread.h"
#include "runtime/comm/MpiWorld.h"
#include "runtime/session/Interrupt.h"
#include "runtime/session/Launcher.h"
#include "runtime/session/PrepareProcess.h"
#include "runtime/session/ProcessWorld.h"

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <exception>
#include <fmt/format.h>
#include <mutex>
#include <new>
#include <string>
#include <system_error>
#include <thread>
#include <unistd.h>

namespace cleave {

static void printError(unsigned rank, const std::string &message) {
  fflush(stdout);
  const std::string who = rank ? fmt::format("rank {}: ", rank) : "";
  fputs(fmt::format("error: {}{}\n", who, message).c_str(), stderr); // nothing can be done if this fails
  fflush(stderr);
}

// Rank 0 prints a failure that every rank has (a missing file), and it or the launcher ends the others before they
// print. Before the ranks have met, the launcher needs longer.
static constexpr auto soon = std::chrono::milliseconds(500), late = std::chrono::milliseconds(4000);

/// Prints the message, unless rank 0 prints the same, and notifies the other ranks. MPI processes are ended by
/// MPI_Abort, because they may be blocked.
static int failAmongRanks(Status status, const std::string &message) {
  static volatile std::sig_atomic_t quiet;
  quiet = int(status);
  const unsigned rank = launchedRank();
  if (rank != 0) // the launcher may end this process while it waits for rank 0's verdict
    std::signal(SIGTERM, [](int) { _exit(quiet); });
  bool said = false;
  if (RankEndpoint *world = metWorld()) {
    world->abort(message, status);
    said = rank != 0 && world->rankZeroSays(message, std::chrono::duration<double>(soon).count());
  } else if (rank != 0 && !triedToMeet()) // otherwise the message may be this rank's alone
    std::this_thread::sleep_for(late);
  if (!said)
    printError(rank, message);
  if (mpiIsRunning()) {
    if (said) // rank 0 ends all ranks
      std::this_thread::sleep_for(late);
    abortMpi(int(status));
  }
  return int(status);
}

/// Prints the message and notifies other processes, which may be waiting for this one.
static int fail(Status status, const std::string &message) {
  bool ranks = false;
  try {
    ranks = ranksAreProcesses();
  } catch (const Error &refused) { // the message reports it; all tasks of a step find the same, and the first says it
    if (message == refused.what() && launchedRank() != 0)
      return int(status);
  }
  if (ranks)
    return failAmongRanks(status, message);
  printError(0, message);
  return int(status);
}

void endAtOnce(const Error &error) {
  static std::mutex first;
  first.lock(); // never unlocked: of several threads one ends the process
  _exit(fail(error.status, error.what()));
}

/// The exit status of `fn`; prints its exceptions.
static int guarded(const std::function<int()> &fn) {
  try {
    const int status = fn();
    finishStandardStreams();
    return status;
  } catch (const Error &e) {
    return fail(e.status, e.what());
  } catch (const std::bad_alloc &) {
    return fail(Status::Environment, "out of memory");
  } catch (const std::system_error &e) { // thrown by fmt::print: a full disk, a closed stream
    if (e.code() == std::errc::broken_pipe && outputReaderLeft())
      return int(Status::Success);
    if (e.code() == std::errc::resource_unavailable_try_again && !std::ferror(stdout)) // std::thread, std::async
      return fail(Status::Environment, noThread("the program", EAGAIN).what());
    return fail(Status::Environment, std::ferror(stdout) ? outputLost(e.code().message()) : e.what());
  } catch (const std::exception &e) {
    return fail(Status::Internal, fmt::format("internal error: {}", e.what()));
  } catch (...) {
    return fail(Status::Internal, "internal error of an unknown kind");
  }
}

int guardedMain(const std::function<int()> &fn) {
  prepareProcess();
  enlargeStacks();
  int status = 0;
  try {
    onLargeStack([&] {
      useSignalStack();
      status = guarded(fn);
    });
  } catch (const Error &e) { // there is no such thread
    return fail(e.status, e.what());
  }
  return status;
}

} // namespace cleave
