// Communicators, collectives and messages by NCCL.
#include "runtime/cuda/Communication.h"

#include "runtime/base/Error.h"
#include "runtime/cuda/CollectiveOps.h"
#include "runtime/executor/Resolved.h"
#include "runtime/plan/plan_generated.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <chrono>
#include <map>
#include <numeric>
#include <set>
#include <thread>

namespace cleave::cuda {

namespace {

/// Peers of a program (indices into Rank.peers) that it sends to.
std::set<uint32_t> sendPeers(const plan::Program &program) {
  std::set<uint32_t> peers;
  if (program.segments())
    for (const plan::Segment *segment : *program.segments())
      for (uint32_t i = 0; segment->steps() && i < segment->steps()->size(); ++i)
        if (const auto *send = segment->steps()->Get(i)->op_as_Send())
          peers.insert(send->peer());
  return peers;
}

/// Every (sender, receiver) of the plan.
std::set<std::pair<uint32_t, uint32_t>> directions(const plan::Plan &plan) {
  std::vector<std::set<uint32_t>> byProgram;
  for (const plan::Program *program : *plan.programs())
    byProgram.push_back(sendPeers(*program));
  std::set<std::pair<uint32_t, uint32_t>> all;
  for (uint32_t r = 0; r < plan.ranks()->size(); ++r)
    for (uint32_t peer : byProgram[plan.ranks()->Get(r)->program()])
      all.insert({r, plan.ranks()->Get(r)->peers()->Get(peer)});
  return all;
}

} // namespace

struct Communication::Impl {
  World &world;
  std::map<std::vector<uint32_t>, std::unique_ptr<NcclGroup>> groups; ///< a direction is the group {sender, receiver}
  std::vector<std::string> names;                                     ///< of the operations, by the number they mark
  PinnedMemory mark;
  DeviceMemory scratch, numbers; ///< numbers: what the operations copy to the mark
  CommunicationScratch needs;
  bool ended = false;

  explicit Impl(World &world) : world(world) {}
  void makeGroup(const std::vector<uint32_t> &ranks);
  void end() noexcept;
  [[noreturn]] void fail(const std::string &what);
  std::string where() const;
};

void Communication::Impl::makeGroup(const std::vector<uint32_t> &ranks) {
  if (ranks.size() < 2 || groups.contains(ranks))
    return;
  ncclUniqueId id{};
  Communicator &members = world.group(ranks);
  if (members.member() == 0)
    check(nccl().getUniqueId(&id), "unique id");
  members.broadcast(&id, &id, sizeof id, plan::DType::U8);
  groups.emplace(ranks, std::make_unique<NcclGroup>(id, ranks, members.member()));
}

/// After a failure: what waits on the device for other ranks goes on, so that memory can be freed.
void Communication::Impl::end() noexcept {
  if (std::exchange(ended, true))
    return;
  for (auto &[ranks, group] : groups)
    group->abort();
}

std::string Communication::Impl::where() const {
  if (names.empty())
    return "";
  const uint32_t last = *reinterpret_cast<const volatile uint32_t *>(mark.data());
  return last == 0 || last > names.size() ? "; no communication had begun"
                                          : "; the last communication begun was " + names[last - 1];
}

void Communication::Impl::fail(const std::string &what) {
  const std::string text = fmt::format("cuda: rank {}: {}{}", world.rank(), what, where());
  end();
  throw environmentError(text);
}

Communication::Communication(const plan::Plan &plan, const plan::Rank &rank, World &world,
                             const std::vector<std::vector<uint32_t>> &groups)
    : impl(std::make_unique<Impl>(world)) {
  if (world.size() == 1)
    return;
  impl->mark = PinnedMemory(64, "the place of the last communication");
  *reinterpret_cast<uint32_t *>(impl->mark.data()) = 0;
  for (const std::vector<uint32_t> &ranks : groups)
    impl->makeGroup(ranks);
  for (const auto &[from, to] : directions(plan))
    if (from == world.rank() || to == world.rank())
      impl->makeGroup({from, to});
}

Communication::~Communication() = default;

std::unique_ptr<Op> Communication::make(const plan::Step &step, SlotScope &scope, const Queue &queue,
                                        OwnKernels &kernels) {
  const auto *collective = step.op_as_Collective();
  const auto *send = step.op_as_Send();
  const auto *recv = step.op_as_Recv();
  if (!collective && !send && !recv)
    return nullptr;
  std::vector<uint32_t> ranks;
  if (collective) {
    const auto *list = scope.plan.groups()->Get(scope.rank.groups()->Get(collective->group()))->ranks();
    ranks.assign(list->begin(), list->end());
  } else {
    const uint32_t peer = scope.rank.peers()->Get(send ? send->peer() : recv->peer());
    ranks = send ? std::vector{impl->world.rank(), peer} : std::vector{peer, impl->world.rank()};
  }
  NcclGroup *group = ranks.size() < 2 ? nullptr : impl->groups.at(ranks).get();
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

void Communication::abandon() noexcept { impl->end(); }

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
  if (impl->ended)
    throw environmentError(fmt::format("cuda: rank {}: communication has ended after a failure", impl->world.rank()));
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
    if (round < 2000) { // some milliseconds at full attention
      std::this_thread::yield();
      continue;
    }
    std::this_thread::sleep_for(std::chrono::microseconds(200));
    if (round % 50 != 0)
      continue;
    lookForFailure();
    try {
      impl->world.checkPeers();
    } catch (...) {
      impl->end();
      throw;
    }
    if (std::chrono::duration<double>(Clock::now() - begin).count() > seconds)
      impl->fail(fmt::format("{} did not end within {} s", what, seconds));
  }
}

} // namespace cleave::cuda
