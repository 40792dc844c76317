// Communicators, collectives and messages with NCCL.
#include "runtime/cuda/comm/Communication.h"

#include "runtime/base/Error.h"
#include "runtime/cuda/comm/CollectiveOps.h"
#include "runtime/executor/Resolved.h"
#include "runtime/plan/plan_generated.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <map>
#include <mutex>
#include <numeric>
#include <set>
#include <thread>

namespace cleave::cuda {

namespace {

constexpr double secondsToEnd = 10;

/// The members of a communicator; `channel` distinguishes communicators of the same ranks.
struct Members {
  std::vector<uint32_t> ranks;
  uint32_t channel = 0;
  auto operator<=>(const Members &) const = default;
};

/// Peers (indices into Rank.peers) to which a program sends, and the channels.
std::set<std::pair<uint32_t, uint32_t>> sendPeers(const plan::Program &program) {
  std::set<std::pair<uint32_t, uint32_t>> peers;
  if (program.segments())
    for (const plan::Segment *segment : *program.segments())
      for (uint32_t i = 0; segment->steps() && i < segment->steps()->size(); ++i)
        if (const auto *send = segment->steps()->Get(i)->op_as_Send())
          peers.insert({send->peer(), send->channel()});
  return peers;
}

/// Every {sender, receiver} and channel of the plan.
std::set<Members> directions(const plan::Plan &plan) {
  std::vector<std::set<std::pair<uint32_t, uint32_t>>> byProgram;
  for (const plan::Program *program : *plan.programs())
    byProgram.push_back(sendPeers(*program));
  std::set<Members> all;
  for (uint32_t r = 0; r < plan.ranks()->size(); ++r)
    for (auto [peer, channel] : byProgram[plan.ranks()->Get(r)->program()])
      all.insert({{r, plan.ranks()->Get(r)->peers()->Get(peer)}, channel});
  return all;
}

/// Ends the process if guarded NCCL calls, which block the host until other ranks take part, do not return in time, or
/// soon after another rank has failed. They cannot be interrupted otherwise.
class Watchdog {
public:
  /// `world`: whose failures count; null: none.
  Watchdog(std::string what, double seconds, const RankEndpoint *world)
      : what(std::move(what)), seconds(seconds), world(world), thread([this] { watch(); }) {}
  ~Watchdog() {
    {
      const std::lock_guard lock(mutex);
      over = true;
    }
    changed.notify_all();
    thread.join();
  }

private:
  void watch() {
    using Clock = std::chrono::steady_clock;
    constexpr std::chrono::seconds patience(3); // in which the guarded thread may notice the failure itself
    constexpr std::chrono::milliseconds period(100);
    const auto deadline = Clock::now() + std::chrono::duration<double>(seconds);
    auto end = Clock::time_point::max(); // known once a rank has failed
    std::unique_lock lock(mutex);
    while (!changed.wait_for(lock, period, [this] { return over; })) {
      const auto now = Clock::now();
      const std::string failure = world ? world->failure() : "";
      if (!failure.empty())
        end = std::min(end, now + patience);
      if (now >= end)
        leave(fmt::format("{}: {}", what, failure));
      if (now >= deadline)
        leave(fmt::format("{} did not end within {} s", what, seconds));
    }
  }
  [[noreturn]] static void leave(const std::string &message) {
    std::fputs(fmt::format("error: {}\n", message).c_str(), stderr);
    _exit(static_cast<int>(Status::Environment));
  }

  const std::string what;
  const double seconds;
  const RankEndpoint *world;
  std::mutex mutex;
  std::condition_variable changed;
  bool over = false;
  std::thread thread; // declared last, because it uses the others
};

/// Streams share the device's hardware queues. With fewer queues than streams, a stream that waits for another rank can
/// block the work that this rank waits for.
void requireQueues() {
  constexpr int fewest = 8;
  const char *text = std::getenv("CUDA_DEVICE_MAX_CONNECTIONS");
  if (text && std::atoi(text) < fewest)
    throw userError(
        fmt::format("CUDA_DEVICE_MAX_CONNECTIONS is {}; pipelines on GPUs need {} or more: unset it", text, fewest));
}

} // namespace

struct Communication::Impl {
  RankEndpoint &world;
  std::map<Members, std::unique_ptr<NcclGroup>> groups; ///< a direction is the group {sender, receiver}
  std::vector<std::string> names;                       ///< of operations, by the number they store
  PinnedMemory mark;
  DeviceMemory scratch, numbers; ///< numbers: source of the stored numbers
  CommunicationScratch needs;
  const int uncaught = std::uncaught_exceptions();
  std::string failure; ///< the first one
  bool ended = false;

  explicit Impl(RankEndpoint &world) : world(world) {}
  void makeGroup(const Members &who);
  void connect(const std::set<Members> &all);
  void end(const std::function<void()> &meanwhile) noexcept;
  [[noreturn]] void fail(const std::string &what);
  std::string where() const;
};

void Communication::Impl::makeGroup(const Members &who) {
  const std::vector<uint32_t> &ranks = who.ranks;
  if (ranks.size() < 2 || groups.contains(who))
    return;
  ncclUniqueId id{};
  Communicator &members = world.group(ranks);
  if (members.member() == 0)
    check(nccl().getUniqueId(&id), "unique id");
  static_assert(sizeof id % sizeof(int32_t) == 0);
  members.broadcast(&id, &id, sizeof id / sizeof(int32_t), plan::DType::I32);
  groups.emplace(who, std::make_unique<NcclGroup>(id, ranks, members.member()));
}

/// After a failure: ends device work that waits for other ranks, so that memory can be freed. Each communicator is
/// aborted in its own thread, because NCCL waits for its work, which may be queued behind another's, and for captured
/// iterations to be destroyed, which `meanwhile` does; that in turn may wait until the device has ended them.
void Communication::Impl::end(const std::function<void()> &meanwhile) noexcept {
  if (std::exchange(ended, true) || groups.empty())
    return meanwhile();
  const std::string begin = failure.empty() ? fmt::format("cuda: rank {}: ", world.rank()) : failure + "; ";
  const Watchdog watchdog(begin + "ending communication", secondsToEnd, nullptr);
  std::vector<std::thread> threads;
  for (auto &[ranks, group] : groups)
    threads.emplace_back([&group] { group->abort(); });
  meanwhile();
  for (std::thread &thread : threads)
    thread.join();
}

std::string Communication::Impl::where() const {
  if (names.empty())
    return "";
  const uint32_t last = *reinterpret_cast<const volatile uint32_t *>(mark.data());
  return last == 0 || last > names.size() ? "; no communication had begun"
                                          : "; the last communication begun was " + names[last - 1];
}

/// Does not abort communicators yet: captured iterations must be destroyed at the same time (`end`). Tells the other
/// ranks before they notice errors in their own calls.
void Communication::Impl::fail(const std::string &what) {
  failure = fmt::format("cuda: rank {}: {}{}", world.rank(), what, where());
  world.abort(failure);
  throw environmentError(failure);
}

Communication::Communication(const plan::Plan &plan, const plan::Rank &rank, RankEndpoint &world,
                             const std::vector<std::vector<uint32_t>> &groups, double seconds)
    : impl(std::make_unique<Impl>(world)) {
  if (world.size() == 1)
    return;
  impl->mark = PinnedMemory(64, "the place of the last communication");
  *reinterpret_cast<uint32_t *>(impl->mark.data()) = 0;
  // Longer than RankEndpoint's own timeouts, whose messages are more specific.
  const Watchdog watchdog(fmt::format("cuda: rank {}: NCCL's start", world.rank()), seconds + 5, &world);
  for (const std::vector<uint32_t> &ranks : groups)
    impl->makeGroup({ranks});
  const auto all = directions(plan);
  if (!all.empty())
    requireQueues();
  for (const Members &direction : all)
    if (std::count(direction.ranks.begin(), direction.ranks.end(), world.rank()))
      impl->makeGroup(direction);
  impl->connect(all);
}

Communication::~Communication() {
  // Normally all ranks destroy their communicators together; after a failure this rank aborts its own.
  if (std::uncaught_exceptions() > impl->uncaught)
    impl->end([] {});
}

/// The first operation of each communicator connects it: NCCL allocates memory and waits for the other members. Runs in
/// an order common to all ranks, before other allocations that could use up the memory.
void Communication::Impl::connect(const std::set<Members> &all) {
  const DeviceMemory memory(256, "NCCL's start");
  check(driver().memsetD8Async(devicePointer(memory.data()), 0, memory.size(), nullptr), "cuMemsetD8Async");
  const Stream stream = Stream::make();
  const auto on = reinterpret_cast<cudaStream_t>(stream.get());
  for (auto &[who, group] : groups) {
    const std::vector<uint32_t> &ranks = who.ranks;
    const bool direction = all.contains(who);
    const std::string what = fmt::format("connecting ranks {}", fmt::join(ranks, ", "));
    if (!direction)
      check(nccl().allReduce(memory.data(), memory.data(), 1, ncclFloat32, ncclSum, group->get(), on), what);
    else if (ranks[0] == world.rank())
      check(nccl().send(memory.data(), 4, ncclUint8, 1, group->get(), on), what);
    else
      check(nccl().recv(memory.data(), 4, ncclUint8, 0, group->get(), on), what);
    stream.synchronize();
  }
}

std::unique_ptr<Op> Communication::make(const plan::Step &step, SlotScope &scope, const Queue &queue,
                                        OwnKernels &kernels) {
  const auto *collective = step.op_as_Collective();
  const auto *send = step.op_as_Send();
  const auto *recv = step.op_as_Recv();
  if (!collective && !send && !recv)
    return nullptr;
  Members who;
  std::vector<uint32_t> &ranks = who.ranks;
  if (collective) {
    const auto *list = scope.plan.groups()->Get(scope.rank.groups()->Get(collective->group()))->ranks();
    ranks.assign(list->begin(), list->end());
  } else {
    const uint32_t peer = scope.rank.peers()->Get(send ? send->peer() : recv->peer());
    ranks = send ? std::vector{impl->world.rank(), peer} : std::vector{peer, impl->world.rank()};
    who.channel = send ? send->channel() : recv->channel();
  }
  NcclGroup *group = ranks.size() < 2 ? nullptr : impl->groups.at(who).get();
  impl->names.push_back(fmt::format("{} of '{}' among ranks {}",
                                    collective ? plan::EnumNameCollectiveKind(collective->kind())
                                    : send     ? "Send"
                                               : "Recv",
                                    pathOf(scope.plan, step), fmt::join(ranks, ", ")));
  const Mark mark{impl->mark.data(), &impl->numbers, static_cast<uint32_t>(impl->names.size()), impl->names.back()};
  if (collective)
    return makeCollectiveOp(*collective, scope, group, queue, kernels, impl->needs, mark);
  return makeMessageOp(step, scope, *group, queue, mark);
}

void Communication::abandon(const std::function<void()> &destroyGraphs) noexcept { impl->end(destroyGraphs); }

void Communication::registerMemory(std::byte *arena, size_t bytes) {
  impl->scratch = DeviceMemory(impl->needs.bytes, "collectives' scratch memory");
  impl->needs.memory = impl->scratch.data();
  std::vector<uint32_t> numbers(impl->names.size() + 1);
  std::iota(numbers.begin(), numbers.end(), 0u);
  impl->numbers = DeviceMemory::of(numbers.data(), 4 * numbers.size(), "the numbers of communications");
  for (auto &[ranks, group] : impl->groups)
    group->registerMemory(arena, bytes);
}

void Communication::lookForFailure() {
  if (!impl->failure.empty())
    throw environmentError(impl->failure);
  for (auto &[ranks, group] : impl->groups)
    if (const std::string problem = group->problem(); !problem.empty())
      impl->fail(problem);
}

void Communication::wait(const Event &event, const char *what, double seconds) {
  if (impl->world.size() == 1)
    return event.synchronize();
  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  for (int round = 0; !event.done(); ++round) {
    if (round < 2000) { // spin for some milliseconds
      std::this_thread::yield();
      continue;
    }
    std::this_thread::sleep_for(std::chrono::microseconds(200));
    if (round % 50 != 0)
      continue;
    lookForFailure();
    impl->world.checkPeers();
    if (std::chrono::duration<double>(Clock::now() - begin).count() > seconds)
      impl->fail(fmt::format("{} did not end within {} s", what, seconds));
  }
}

} // namespace cleave::cuda
