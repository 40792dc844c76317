// The communicator checks on processes with torchrun's environment, and cases that need processes: a rank that is
// killed, stopped, or hangs. `conformance_sockets RANKS [CASE]` launches copies of itself; prints one line per case,
// exit status 1 on failure. Cases run over shared memory and, "plain", over the connections, while the other ranks wait
// in a collective and for a message.
#include "runtime/base/Error.h"
#include "runtime/comm/socket/SocketWorld.h"
#include "tests/conformance/CollectiveChecks.h"

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fmt/format.h>
#include <functional>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

using namespace cleave;

namespace {

void pause(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

Communicator &everyone(RankEndpoint &world) {
  std::vector<uint32_t> all(world.size());
  std::iota(all.begin(), all.end(), 0u);
  return world.group(all);
}

/// Runs all-reduces until something fails.
void reduceForEver(RankEndpoint &world) {
  std::vector<float> data(2'000'000, 1);
  for (;;)
    everyone(world).allReduce(data.data(), data.data(), 2'000'000, plan::DType::F32, plan::ReduceKind::Max);
}

/// From now on this process can open no file.
void fillDescriptors() {
  constexpr int most = 64;
  while (::dup(2) < most - 1) {
  }
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = most;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

/// Whether all processes can share memory, none can, or all but the last one.
enum class Way { Shared, Plain, Partly };
constexpr const char *wayNames[] = {"shared", "plain", "partly"};

/// Makes the group of all ranks, and links them.
void prepare(RankEndpoint &world, Way way) {
  if (way == Way::Plain)
    static const test::NoSegments refuse; // for the rest of this process
  if (way == Way::Partly && world.rank() + 1 == world.size())
    fillDescriptors();
  everyone(world);
  const unsigned expected = way == Way::Shared && world.size() > 1, found = test::sharedSegments();
  if (found != expected)
    throw environmentError(fmt::format("rank {} uses {} segments", world.rank(), found));
  test::linkAll(world, 0);
}

void checkAll(RankEndpoint &world) {
  auto errors = test::checkCollectives(world);
  auto more = test::checkMessages(world);
  errors.insert(errors.end(), more.begin(), more.end());
  for (const std::string &error : errors)
    std::fprintf(stderr, "%s\n", error.c_str());
  world.barrier();
  if (!errors.empty())
    std::exit(1);
}

/// A failure of the last rank; the other ranks must end with an environment error that contains `expected`.
struct Case {
  std::string name, expected;
  double timeout;                           ///< of all ranks
  std::function<void(RankEndpoint &)> last; ///< run by the last rank; the others wait for it
  bool ends;                                ///< whether the last rank ends by itself
};

const std::vector<Case> &cases() {
  static const std::vector<Case> all{
      {"killed", "failed: it was killed, most likely by SIGKILL", 60,
       [](RankEndpoint &world) {
         std::thread([] {
           pause(0.3);
           ::kill(::getpid(), SIGKILL);
         }).detach();
         reduceForEver(world);
       },
       true},
      {"terminated", "failed: it was ended by SIGTERM", 60,
       [](RankEndpoint &world) {
         std::signal(SIGTERM, [](int) {
           PeerWatch::endedBy("it was ended by SIGTERM", Status::Environment);
           ::_exit(3);
         });
         std::thread([] {
           pause(0.3);
           ::kill(::getpid(), SIGTERM);
         }).detach();
         reduceForEver(world);
       },
       true},
      {"stopped", "failed: no heartbeat for", 4, [](RankEndpoint &) { ::raise(SIGSTOP); }, false},
      {"wedged", "no answer within 1.5 s from rank", 1.5,
       [](RankEndpoint &) {
         for (;;)
           pause(1);
       },
       false},
      {"failing", "failed: planted", 60, [](RankEndpoint &) { throw environmentError("planted"); }, true},
      {"leaving", "has closed its connection", 60, [](RankEndpoint &) { pause(0.2); }, true},
  };
  return all;
}

/// Runs a rank other than the last one, which waits in a collective or for a message. If the last rank is stopped, only
/// rank 0 waits for it: it alone knows, at the end of its wait, that no heartbeats come. The others call checkPeers.
void expectFailure(RankEndpoint &world, const Case &what, bool message) {
  world.barrier();
  if (what.name == "stopped" && world.rank() != 0)
    for (;;) {
      world.checkPeers();
      pause(0.01);
    }
  char byte;
  if (message)
    world.recv(&byte, 1, world.size() - 1, 0, 0);
  reduceForEver(world);
}

int rankMain(const std::string &name, Way way, bool message) {
  const auto who = torchEnvironment();
  if (!who)
    return 2;
  SocketWorld world(*who, 60);
  world.setTimeout(60);
  prepare(world, way);
  if (name == "all") {
    checkAll(world);
    return 0;
  }
  for (const Case &what : cases())
    if (what.name == name)
      try {
        const bool last = world.rank() + 1 == world.size();
        world.setTimeout(what.timeout);
        if (!last)
          expectFailure(world, what, message);
        world.barrier();
        what.last(world);
        return 0;
      } catch (const Error &error) {
        world.abort(error.what());
        std::fprintf(stderr, "rank %u: %s\n", world.rank(), error.what());
        const bool named = std::string(error.what()).find(what.expected) != std::string::npos &&
                           std::string(error.what()).find(std::to_string(world.size() - 1)) != std::string::npos;
        return named && error.status == Status::Environment ? 3 : 1;
      }
  return 2;
}

pid_t startRank(const char *program, unsigned rank, unsigned ranks, uint16_t port, const std::string &name, Way way,
                bool message) {
  const pid_t child = ::fork();
  if (child != 0)
    return child;
  for (const auto &[variable, value] : {std::pair<const char *, unsigned>{"RANK", rank},
                                        {"LOCAL_RANK", rank},
                                        {"WORLD_SIZE", ranks},
                                        {"LOCAL_WORLD_SIZE", ranks},
                                        {"MASTER_PORT", port}})
    ::setenv(variable, std::to_string(value).c_str(), 1);
  ::setenv("MASTER_ADDR", "localhost", 1);
  ::execl(program, program, "rank", name.c_str(), std::to_string(static_cast<int>(way)).c_str(),
          message ? "message" : "collective", nullptr);
  ::_exit(127);
}

/// Runs a case. Returns the number of ranks that did not end as expected.
int launch(unsigned ranks, const std::string &name, Way way, bool message = false) {
  const char *program = "/proc/self/exe";
  const uint16_t port = Endpoint::ofSelf(listenOn(0)).port();
  const auto began = Clock::now();
  std::vector<pid_t> children;
  for (unsigned rank = 0; rank < ranks; ++rank)
    children.push_back(startRank(program, rank, ranks, port, name, way, message));
  int wrong = 0;
  const auto end = [&](unsigned rank, bool expected, const char *what) {
    int status = 0;
    ::waitpid(children[rank], &status, 0);
    const int code = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
    if (expected && code != (name == "all" ? 0 : 3)) {
      std::fprintf(stderr, "%s: rank %u of %u ended with %d%s\n", name.c_str(), rank, ranks, code, what);
      ++wrong;
    }
  };
  for (unsigned rank = 0; rank + 1 < ranks; ++rank)
    end(rank, true, "");
  const double took = std::chrono::duration<double>(Clock::now() - began).count();
  for (const Case &what : cases())
    if (what.name == name && !what.ends)
      ::kill(children.back(), SIGKILL);
  end(ranks - 1, name == "all", "");
  if (name != "all" && took > 20) {
    std::fprintf(stderr, "%s: the others noticed after %.1f s\n", name.c_str(), took);
    ++wrong;
  }
  std::fprintf(stderr, "%s, %s%s: %u ranks, %.2f s, %d wrong\n", name.c_str(), wayNames[static_cast<int>(way)],
               message ? ", a message" : "", ranks, took, wrong);
  return wrong;
}

} // namespace

int main(int argc, char **argv) {
  std::signal(SIGPIPE, SIG_IGN);
  try {
    if (argc > 4 && std::string(argv[1]) == "rank")
      return rankMain(argv[2], static_cast<Way>(std::atoi(argv[3])), std::string(argv[4]) == "message");
    const auto ranks = static_cast<unsigned>(argc > 1 ? std::atoi(argv[1]) : 2);
    const std::string only = argc > 2 ? argv[2] : "";
    int wrong = 0;
    for (const Way way : {Way::Shared, Way::Plain, Way::Partly}) {
      if (only.empty() || only == "all")
        wrong += launch(ranks, "all", way);
      for (const Case &what : cases())
        if (ranks > 1 && way != Way::Partly && (only.empty() || only == what.name))
          for (const bool message : {false, true})
            wrong += launch(ranks, what.name, way, message);
    }
    return wrong ? 1 : 0;
  } catch (const std::exception &error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
