// Ranks as MPI processes: the only file that includes mpi.h.
//
// The collectives' algorithms are in Exchange.h. Waits poll, so that a deadline or another rank's failure ends them.
// Failures are sent over separate connections (PeerWatch.h), as without MPI; if an MPI call does not return, a thread
// ends the process.
#include "runtime/comm/MpiWorld.h"

#include "runtime/base/Error.h"
#include "runtime/base/Thread.h"
#include "runtime/comm/Exchange.h"
#include "runtime/comm/SharedMessages.h"
#include "runtime/comm/socket/Heartbeats.h"
#include "runtime/comm/socket/PeerWatch.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#define OMPI_SKIP_MPICXX 1 // only the C functions: the library of the C++ ones is not linked
#include <mpi.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <filesystem>
#include <functional>
#include <glob.h>
#include <map>
#include <numeric>
#include <poll.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <thread>
#include <unistd.h>

namespace cleave {

namespace {

constexpr size_t pieceBytes = size_t{1} << 30; // maximum per MPI message
constexpr int spinsBeforeYield = 200;
constexpr uint32_t yieldsBeforeSleep = 20; // of waits in shared memory

std::atomic<bool> anyFailure{false};

void check(int code, const char *what) {
  if (code == MPI_SUCCESS)
    return;
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(code, text, &length);
  throw environmentError(fmt::format("mpi: {}: {}", what, std::string(text, static_cast<size_t>(length))));
}

/// Finalises MPI at exit. After a failure, other ranks may be gone, so this does not wait for them indefinitely.
void finalise() {
  int initialised = 0, finalised = 0;
  MPI_Initialized(&initialised);
  MPI_Finalized(&finalised);
  if (!initialised || finalised)
    return;
  if (anyFailure.load())
    std::thread([] {
      ::sleep(5);
      ::_exit(static_cast<int>(Status::Environment));
    }).detach();
  MPI_Finalize();
}

/// Ends the process if an MPI call does not return: at a deadline, or some time after another rank has failed. MPI
/// calls cannot be interrupted.
class Watchdog {
public:
  /// `alarm`: a descriptor that becomes readable on failure (-1: none). `seconds` counts from the alarm, or from now if
  /// there is none. `say` returns the message.
  Watchdog(int alarm, double seconds, std::function<std::string()> say)
      : alarm(alarm), seconds(seconds), say(std::move(say)), ends(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)),
        thread(startThread("the watchdog", [this] { watch(); })) {}
  ~Watchdog() {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = ::write(ends.fd(), &one, sizeof one);
    thread.join();
  }
  Watchdog(const Watchdog &) = delete;

private:
  bool endsBefore(Clock::time_point deadline) const {
    pollfd end{ends.fd(), POLLIN, 0};
    while (Clock::now() < deadline)
      if (::poll(&end, 1, millisecondsUntil(deadline)) > 0)
        return true;
    return false;
  }
  void watch() {
    if (alarm >= 0) {
      pollfd both[2] = {{ends.fd(), POLLIN, 0}, {alarm, POLLIN, 0}};
      while (::poll(both, 2, -1) <= 0) {
      }
      if (both[0].revents)
        return;
    }
    if (endsBefore(deadlineIn(seconds)))
      return;
    std::fputs(fmt::format("error: {}\n", say()).c_str(), stderr);
    std::fflush(stderr);
    if (alarm < 0) // the launcher ends all ranks after the first exits: let every waiting rank print its message
      std::this_thread::sleep_for(std::chrono::seconds(1));
    ::_exit(static_cast<int>(Status::Environment));
  }

  int alarm;
  double seconds;
  std::function<std::string()> say;
  Socket ends;
  std::thread thread;
};

/// "rank 1 of 4", as far as the launcher's environment tells before MPI_Init.
std::string ownName() {
  const auto first = [](std::initializer_list<const char *> names) {
    for (const char *name : names)
      if (const char *text = std::getenv(name); text && *text)
        return std::string(text);
    return std::string();
  };
  const std::string rank = first({"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"});
  const std::string size = first({"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"});
  return rank.empty() ? "this process" : "rank " + rank + (size.empty() ? "" : " of " + size);
}

void initialise(double seconds) {
  int initialised = 0;
  MPI_Initialized(&initialised);
  if (initialised)
    return;
  const Watchdog dog(-1, seconds, [=] {
    return fmt::format(
        "mpi: {} has waited for {} s in MPI_Init, which some ranks of the job have not called. Waiting ranks "
        "print this message, missing ranks do not: see their messages, if any, for the reason",
        ownName(), seconds);
  });
  int provided = 0;
  if (MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided) != MPI_SUCCESS)
    throw environmentError("mpi: MPI_Init failed");
  std::atexit(finalise);
}

class MpiCommunicator;

class MpiWorld final : public ExchangeEndpoint {
public:
  MpiWorld(unsigned expected, double seconds);
  ~MpiWorld() override;
  unsigned rank() const override { return me; }
  unsigned size() const override { return ranks; }
  Communicator &group(std::span<const uint32_t> list) override;
  void setTimeout(double value) override {
    seconds = value;
    watch->setSilence(value);
  }
  void setSilence(double value) override { watch->setSilence(value); }
  void setThreads(unsigned) override {}
  void link(std::span<const MessagePeer> peers) override;
  void send(const void *data, size_t bytes, unsigned peer, uint32_t tag, int32_t microbatch) override;
  void waitSend(uint32_t tag, int32_t microbatch) override;
  void waitAllSends() override;
  void recv(void *data, size_t bytes, unsigned peer, uint32_t tag, int32_t microbatch) override;
  void reserveSends(size_t count) override {
    sending.reserve(count);
    pool.reserve(count);
  }
  void checkMessage(uint32_t tag, int32_t microbatch) const override;
  void detach() override;
  void abort(const std::string &message, Status status = Status::Environment) override;
  void checkPeers() override;
  std::string failure() const override { return watch->firstFailure(); }
  bool rankZeroSays(const std::string &message, double limit) const override {
    return watch->rankZeroSays(message, limit);
  }
  void barrier() override;

  /// What a wait is for, and the ranks that it may be waiting for.
  struct Awaited {
    std::string what;
    std::vector<unsigned> ranks;
  };
  /// All of `list` but this rank.
  std::vector<unsigned> others(std::span<const uint32_t> list) const;
  /// Polls until the request has completed; `describe` returns what it waits for.
  template <typename Describe>
  void wait(MPI_Request &request, Describe describe, MPI_Status *status = MPI_STATUS_IGNORE);
  /// Waits for a rank in shared memory.
  template <typename Describe> void waitShared(const SharedWait &awaited, Describe describe);
  /// Lets sends move on.
  void moveMessages() {
    shared.move();
    if (int ignored; !sending.empty())
      check(MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, messages, &ignored, MPI_STATUS_IGNORE), "send");
  }
  ExchangeScratch scratch{1};

private:
  void broadcastBytes(std::byte *data, size_t bytes) override;
  template <typename Test, typename Rest, typename Describe> void wait(Test test, Rest rest, Describe describe);
  struct Sending {
    unsigned peer;
    uint32_t tag;
    int32_t microbatch;
    MPI_Request request;
    Outgoing *frame = nullptr; ///< through shared memory, without a request
  };
  void waitFor(Sending &sent);
  template <typename Done, typename Describe> void waitMessage(unsigned peer, Done done, Describe describe);
  [[noreturn]] void fail(const std::string &text);

  MPI_Comm messages = MPI_COMM_NULL;
  unsigned me = 0, ranks = 0;
  int largestTag = 32767;
  double seconds = 60;
  std::unique_ptr<PeerWatch> watch;
  std::unique_ptr<Watchdog> dog;
  std::vector<uint32_t> everyone;
  std::vector<Sending> sending;
  EarlyBuffers buffers;
  SharedMessages shared;
  OutgoingPool pool;
  std::map<std::vector<uint32_t>, std::unique_ptr<MpiCommunicator>> communicators;
};

class MpiCommunicator final : public ExchangeCommunicator {
public:
  MpiCommunicator(MpiWorld &world, std::span<const uint32_t> list, int tag);
  ~MpiCommunicator() override {
    if (comm != MPI_COMM_NULL && !anyFailure.load())
      MPI_Comm_free(&comm);
  }
  void barrier() override;

private:
  void exchange(const std::byte *from, std::byte *to) override;
  void gatherBytes(const std::byte *from, std::byte *to) override;
  void broadcastBytes(std::byte *data, size_t bytes) override;
  void waitShared(const SharedWait &awaited) override {
    world.waitShared(awaited, [&] {
      return MpiWorld::Awaited{fmt::format("ranks {}", fmt::join(ranks, ", ")), {ranks[awaited.member]}};
    });
  }
  void moveMessages() override { world.moveMessages(); }
  void wait(MPI_Request &request) {
    world.wait(request, [&] {
      return MpiWorld::Awaited{fmt::format("ranks {}", fmt::join(ranks, ", ")), world.others(ranks)};
    });
  }

  MpiWorld &world;
  MPI_Comm comm = MPI_COMM_NULL;
  std::vector<uint32_t> ranks;
};

MpiCommunicator::MpiCommunicator(MpiWorld &world, std::span<const uint32_t> list, int tag)
    : ExchangeCommunicator(static_cast<unsigned>(list.size()), placeInGroup(list, world.rank()), world.scratch),
      world(world), ranks(list.begin(), list.end()) {
  std::vector<int> members(ranks.begin(), ranks.end());
  MPI_Group all, group;
  check(MPI_Comm_group(MPI_COMM_WORLD, &all), "group");
  check(MPI_Group_incl(all, static_cast<int>(members.size()), members.data(), &group), "group");
  check(MPI_Comm_create_group(MPI_COMM_WORLD, group, tag, &comm), "communicator");
  MPI_Group_free(&group);
  MPI_Group_free(&all);
  MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
}

void MpiCommunicator::barrier() {
  MPI_Request request;
  check(MPI_Ibarrier(comm, &request), "barrier");
  wait(request);
}

void MpiCommunicator::exchange(const std::byte *from, std::byte *to) {
  MPI_Request request;
  check(MPI_Ialltoallv(from, sends.bytes.data(), sends.places.data(), MPI_BYTE, to, receives.bytes.data(),
                       receives.places.data(), MPI_BYTE, comm, &request),
        "exchange");
  wait(request);
}

void MpiCommunicator::gatherBytes(const std::byte *from, std::byte *to) {
  MPI_Request request;
  check(MPI_Iallgatherv(from, receives.bytes[member()], MPI_BYTE, to, receives.bytes.data(), receives.places.data(),
                        MPI_BYTE, comm, &request),
        "gather");
  wait(request);
}

void MpiCommunicator::broadcastBytes(std::byte *data, size_t bytes) {
  for (size_t begin = 0; begin < bytes; begin += pieceBytes) {
    MPI_Request request;
    check(MPI_Ibcast(data + begin, static_cast<int>(std::min(pieceBytes, bytes - begin)), MPI_BYTE, 0, comm, &request),
          "broadcast");
    wait(request);
  }
}

/// Whether all ranks run on this host.
static bool onOneHost(unsigned ranks) {
  MPI_Comm shared;
  int size = 0;
  check(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &shared), "split by host");
  MPI_Comm_size(shared, &size);
  MPI_Comm_free(&shared);
  return static_cast<unsigned>(size) == ranks;
}

MpiWorld::MpiWorld(unsigned expected, double limit) {
  initialise(limit);
  int value = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &value);
  ranks = static_cast<unsigned>(value);
  MPI_Comm_rank(MPI_COMM_WORLD, &value);
  me = static_cast<unsigned>(value);
  if (expected && expected != ranks)
    throw userError(fmt::format(
        "mpi: the launcher started {} processes, of which {} sees {}: it may be the launcher of another MPI", expected,
        mpiVersion(), ranks));
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  check(MPI_Comm_dup(MPI_COMM_WORLD, &messages), "communicator");
  const auto share = [](std::vector<uint8_t> &bytes) {
    uint64_t count = bytes.size();
    check(MPI_Bcast(&count, sizeof count, MPI_BYTE, 0, MPI_COMM_WORLD), "broadcast");
    bytes.resize(count);
    check(MPI_Bcast(bytes.data(), static_cast<int>(count), MPI_BYTE, 0, MPI_COMM_WORLD), "broadcast");
  };
  watch = std::make_unique<PeerWatch>(me, connectHeartbeats(me, ranks, onOneHost(ranks), share, limit));
  constexpr double patience = 3; // seconds in which a waiting thread may notice the failure itself
  dog = std::make_unique<Watchdog>(watch->alarm(), patience, [this] { return watch->firstFailure(); });
  int *bound = nullptr, found = 0;
  MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &bound, &found);
  if (found)
    largestTag = *bound;
  everyone.resize(ranks);
  std::iota(everyone.begin(), everyone.end(), 0u);
  scratch = ExchangeScratch(ranks);
  reserveSends(64);
}

MpiWorld::~MpiWorld() {
  communicators.clear();
  if (!anyFailure.load()) {
    MPI_Comm_free(&messages);
  }
}

Communicator &MpiWorld::group(std::span<const uint32_t> list) {
  std::vector<uint32_t> key(list.begin(), list.end());
  auto &communicator = communicators[key];
  if (!communicator) {
    // Any tag that the members agree on: equal member lists mean the same group.
    uint32_t hash = 2166136261u;
    for (uint32_t rank : key)
      hash = (hash ^ rank) * 16777619u;
    communicator = std::make_unique<MpiCommunicator>(*this, key, static_cast<int>(hash % 32749u));
  }
  const double kept = std::exchange(seconds, ExchangeCommunicator::sharingSeconds);
  communicator->share(ranks);
  seconds = kept;
  return *communicator;
}

void MpiWorld::checkPeers() {
  if (!watch->failed())
    return;
  anyFailure.store(true);
  dog.reset(); // this thread will report the failure
  watch->check();
}

void MpiWorld::fail(const std::string &text) {
  checkPeers(); // an earlier failure takes precedence
  abort(text);
  throw environmentError(text);
}

std::vector<unsigned> MpiWorld::others(std::span<const uint32_t> list) const {
  std::vector<unsigned> found(list.begin(), list.end());
  std::erase(found, me);
  return found;
}

/// `rest` returns whether it took long enough to look for failures and at the time.
template <typename Test, typename Rest, typename Describe>
void MpiWorld::wait(Test test, Rest rest, Describe describe) {
  watch->setWaiting(true);
  const auto deadline = deadlineIn(seconds);
  for (uint32_t i = 1; !test(); ++i) {
    if (!rest(i))
      continue;
    checkPeers();
    if (Clock::now() > deadline) {
      const Awaited awaited = describe();
      fail(watch->expired(seconds, awaited.what, awaited.ranks));
    }
  }
  watch->setWaiting(false);
}

template <typename Describe> void MpiWorld::wait(MPI_Request &request, Describe describe, MPI_Status *status) {
  const auto test = [&] {
    int done = 0;
    check(MPI_Test(&request, &done, status), "wait");
    return done != 0;
  };
  for (int i = 0; i < spinsBeforeYield; ++i)
    if (test())
      return;
  const auto rest = [&](uint32_t i) {
    shared.move();
    ::sched_yield();
    return i % 256 == 0;
  };
  wait(test, rest, describe);
}

template <typename Describe> void MpiWorld::waitShared(const SharedWait &awaited, Describe describe) {
  const auto rest = [&](uint32_t i) {
    moveMessages();
    if (i >= yieldsBeforeSleep)
      awaited.rest();
    else
      ::sched_yield();
    return i >= yieldsBeforeSleep;
  };
  wait([&] { return awaited.done(); }, rest, describe);
}

/// Waits for a message through shared memory, to or from a rank.
template <typename Done, typename Describe> void MpiWorld::waitMessage(unsigned peer, Done done, Describe describe) {
  if (shared.spin(done))
    return;
  const auto rest = [&, idle = 0u](uint32_t) mutable {
    idle = shared.move() ? 0 : idle + 1;
    if (idle < yieldsBeforeSleep) {
      ::sched_yield();
      return false;
    }
    moveMessages();
    shared.rest(peer);
    return true;
  };
  wait(done, rest, describe);
}

void MpiWorld::link(std::span<const MessagePeer> peers) {
  const double kept = std::exchange(seconds, ExchangeCommunicator::sharingSeconds);
  shared.link(*this, peers, buffers);
  seconds = kept;
}

/// Encodes (tag, microbatch) as one MPI tag.
static int messageTag(uint32_t tag, int32_t microbatch, int largest) {
  constexpr int64_t microbatches = 1 << 13;
  int64_t value = tag * microbatches + microbatch + 1;
  if (microbatch < -1 || microbatch + 1 >= microbatches || value > largest)
    throw environmentError(
        fmt::format("mpi: message tag {} of microbatch {} exceeds mpi's largest tag", tag, microbatch));
  return static_cast<int>(value);
}

void MpiWorld::checkMessage(uint32_t tag, int32_t microbatch) const { messageTag(tag, microbatch, largestTag); }

void MpiWorld::send(const void *data, size_t bytes, unsigned peer, uint32_t tag, int32_t microbatch) {
  if (Connection *const memory = shared.with(peer)) {
    Outgoing &frame = pool.take();
    sending.push_back({peer, tag, microbatch, MPI_REQUEST_NULL, &frame});
    return memory->start(frame, {0, tag, microbatch, bytes}, data);
  }
  int name = messageTag(tag, microbatch, largestTag);
  size_t begin = 0;
  do {
    size_t piece = std::min(pieceBytes, bytes - begin);
    Sending &sent = sending.emplace_back(Sending{peer, tag, microbatch, MPI_REQUEST_NULL});
    check(MPI_Isend(static_cast<const std::byte *>(data) + begin, static_cast<int>(piece), MPI_BYTE,
                    static_cast<int>(peer), name, messages, &sent.request),
          "send");
    begin += piece;
  } while (begin < bytes);
}

void MpiWorld::waitFor(Sending &sent) {
  const auto describe = [&] {
    return Awaited{fmt::format("{} to be received by rank {}", messageName(sent.tag, sent.microbatch), sent.peer),
                   {sent.peer}};
  };
  if (!sent.frame)
    return wait(sent.request, describe);
  waitMessage(
      sent.peer, [&] { return sent.frame->done; }, describe);
  pool.giveBack(*sent.frame);
}

void MpiWorld::waitSend(uint32_t tag, int32_t microbatch) {
  for (size_t i = 0; i < sending.size();) {
    if (sending[i].tag != tag || sending[i].microbatch != microbatch) {
      ++i;
      continue;
    }
    waitFor(sending[i]);
    sending.erase(sending.begin() + static_cast<std::ptrdiff_t>(i));
  }
}

void MpiWorld::waitAllSends() {
  while (!sending.empty()) {
    waitFor(sending.back());
    sending.pop_back();
  }
}

void MpiWorld::recv(void *data, size_t bytes, unsigned peer, uint32_t tag, int32_t microbatch) {
  const auto describe = [&] {
    return Awaited{fmt::format("{} from rank {}", messageName(tag, microbatch), peer), {peer}};
  };
  if (Connection *const memory = shared.with(peer)) {
    memory->expect({0, tag, microbatch, bytes}, data);
    return waitMessage(
        peer, [&] { return !memory->awaits(); }, describe);
  }
  int name = messageTag(tag, microbatch, largestTag);
  size_t begin = 0;
  do {
    size_t piece = std::min(pieceBytes, bytes - begin);
    MPI_Request request;
    MPI_Status status;
    check(MPI_Irecv(static_cast<std::byte *>(data) + begin, static_cast<int>(piece), MPI_BYTE, static_cast<int>(peer),
                    name, messages, &request),
          "receive");
    wait(request, describe, &status);
    int got = 0;
    MPI_Get_count(&status, MPI_BYTE, &got);
    if (static_cast<size_t>(got) != piece)
      throw environmentError(
          fmt::format("{} from rank {} must have {} bytes, found {}", messageName(tag, microbatch), peer, piece, got));
    begin += piece;
  } while (begin < bytes);
}

void MpiWorld::detach() {
  for (Sending &sent : sending) { // non-empty only after a failure
    if (sent.frame) {
      pool.giveBack(*sent.frame);
      continue;
    }
    MPI_Cancel(&sent.request);
    MPI_Request_free(&sent.request);
  }
  if (!sending.empty())
    shared.forget();
  sending.clear();
}

void MpiWorld::abort(const std::string &message, Status status) {
  anyFailure.store(true);
  dog.reset(); // this thread will report the failure
  watch->abort(message, status);
}

void MpiWorld::barrier() {
  MPI_Request request;
  check(MPI_Ibarrier(messages, &request), "barrier");
  wait(request, [&] { return Awaited{"all ranks", others(everyone)}; });
}

void MpiWorld::broadcastBytes(std::byte *data, size_t bytes) {
  MPI_Request request;
  check(MPI_Ibcast(data, static_cast<int>(bytes), MPI_BYTE, 0, messages, &request), "broadcast");
  wait(request, [&] { return me == 0 ? Awaited{"all ranks", others(everyone)} : Awaited{"rank 0", {0}}; });
}

} // namespace

/// Open MPI finds the other ranks by PMIx. PMI-1 and PMI-2 need components, which only versions before 5 that were
/// built with Slurm's PMI have: in a folder beside the library, or in it.
bool mpiSpeaksPmi() {
  if (!mpiVersion().starts_with("Open MPI") || ::dlsym(RTLD_DEFAULT, "mca_pmix_s2_component"))
    return true;
  Dl_info library{};
  std::error_code ignored;
  if (::dladdr(reinterpret_cast<void *>(&MPI_Init_thread), &library) == 0)
    return false;
  const std::filesystem::path folder = std::filesystem::canonical(library.dli_fname, ignored).parent_path();
  for (const char *place : {"/openmpi*", "/openmpi/lib/openmpi*"}) { // usual, Debian
    glob_t found{};
    const bool any = ::glob((folder.string() + place + "/mca_pmix_s[12].so").c_str(), 0, nullptr, &found) == 0;
    ::globfree(&found);
    if (any)
      return true;
  }
  return false;
}

std::unique_ptr<RankEndpoint> makeMpiWorld(unsigned expectedRanks, double seconds) {
  return std::make_unique<MpiWorld>(expectedRanks, seconds);
}

bool mpiIsRunning() {
  int begun = 0, ended = 0;
  return MPI_Initialized(&begun) == MPI_SUCCESS && begun && MPI_Finalized(&ended) == MPI_SUCCESS && !ended;
}

std::string mpiVersion() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = {};
  int length = 0;
  MPI_Get_library_version(text, &length); // allowed before MPI_Init
  const std::string version(text, size_t(length));
  return version.substr(0, version.find_first_of(",\n"));
}

void abortMpi(int status) {
  int initialised = 0;
  MPI_Initialized(&initialised);
  if (initialised)
    MPI_Abort(MPI_COMM_WORLD, status);
  std::_Exit(status);
}

} // namespace cleave
