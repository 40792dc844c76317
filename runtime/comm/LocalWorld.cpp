// Ranks as threads of one process: groups, mailboxes, failures.
#include "runtime/comm/LocalWorld.h"

#include "runtime/base/Error.h"
#include "runtime/base/Thread.h"
#include "runtime/comm/LocalGroup.h"

#include <fmt/format.h>

#include <cassert>
#include <cstring>
#include <map>
#include <mutex>
#include <thread>

namespace cleave {

namespace {

/// A message in flight. The sender owns it; the receiver copies from the sender's memory.
struct Message {
  unsigned sender, receiver;
  uint32_t tag;
  int32_t microbatch;
  const void *data;
  size_t bytes;
  Message *next = nullptr; ///< in the receiver's inbox
  uint32_t before = 0;     ///< value of `delivered` when the message was sent
  Event delivered;
};

} // namespace

class LocalRank;

struct LocalState {
  WaitLimits limits;
  mutable std::mutex mutex; ///< guards the following members
  std::string failure;
  std::map<std::vector<uint32_t>, std::unique_ptr<LocalGroup>> groups;
  std::vector<std::unique_ptr<LocalRank>> ranks;
  std::vector<std::vector<uint8_t>> shared; ///< for broadcast and gather

  void abort(unsigned rank, const std::string &message) {
    std::lock_guard lock(mutex);
    if (limits.failed.load())
      return;
    failure = fmt::format("rank {} failed: {}", rank, message);
    limits.failed.store(true, std::memory_order_seq_cst); // either detach() sees the failure, or it sees `reading`
  }
  std::string firstFailure() const {
    std::lock_guard lock(mutex);
    return failure;
  }
};

class LocalRank final : public RankEndpoint {
public:
  LocalRank(LocalState &state, unsigned rank) : state(state), me(rank) { reserveSends(64); }
  unsigned rank() const override { return me; }
  unsigned size() const override { return static_cast<unsigned>(state.ranks.size()); }
  Communicator &group(std::span<const uint32_t> ranks) override;
  void setTimeout(double seconds) override { state.limits.seconds.store(seconds); }
  void setThreads(unsigned count) override { threads = count; }
  void send(const void *data, size_t bytes, unsigned peer, uint32_t tag, int32_t microbatch) override;
  void waitSend(uint32_t tag, int32_t microbatch) override;
  void waitAllSends() override;
  void recv(void *data, size_t bytes, unsigned peer, uint32_t tag, int32_t microbatch) override;
  void reserveSends(size_t count) override;
  void checkMessage(uint32_t, int32_t) const override {}
  void detach() override;
  void abort(const std::string &message, Status) override { state.abort(me, message); }
  void checkPeers() override;
  std::string failure() const override { return state.firstFailure(); }
  void barrier() override { all().barrier(); }
  void broadcast(std::vector<uint8_t> &bytes) override;
  std::vector<std::vector<uint8_t>> gather(std::span<const uint8_t> bytes) override;

private:
  Communicator &all();
  bool withdraw(Message &message);
  [[noreturn]] void fail(WaitResult result, const std::string &what) const;
  void finish(Message &message);
  Message *take(unsigned sender, uint32_t tag, int32_t microbatch);

  LocalState &state;
  unsigned me, threads = 1;
  std::atomic<bool> reading{false};
  std::map<std::vector<uint32_t>, std::unique_ptr<LocalCommunicator>> communicators;
  std::vector<std::unique_ptr<Message>> pool;
  std::vector<Message *> idle, sending;
  // The inbox, written by other ranks.
  std::mutex inboxMutex;
  Message *inboxHead = nullptr, *inboxTail = nullptr;
  Event inboxChanged;
};

void LocalRank::fail(WaitResult result, const std::string &what) const {
  if (result == WaitResult::Failed)
    throw environmentError(state.firstFailure());
  std::string text = fmt::format("no answer within {} s while waiting for {}", state.limits.seconds.load(), what);
  state.abort(me, text);
  throw environmentError(fmt::format("rank {}: {}", me, text));
}

void LocalRank::checkPeers() {
  if (state.limits.failed.load(std::memory_order_acquire))
    fail(WaitResult::Failed, "");
}

Communicator &LocalRank::group(std::span<const uint32_t> list) {
  std::vector<uint32_t> ranks(list.begin(), list.end());
  auto &mine = communicators[ranks];
  if (!mine) {
    std::lock_guard lock(state.mutex);
    auto &shared = state.groups[ranks];
    if (!shared)
      shared = std::make_unique<LocalGroup>(ranks, state.limits);
    auto place = std::find(ranks.begin(), ranks.end(), me);
    assert(place != ranks.end() && "a rank asks for a group it is not in");
    auto failed = [this, ranks](WaitResult result) { fail(result, fmt::format("ranks {}", fmt::join(ranks, ", "))); };
    mine = std::make_unique<LocalCommunicator>(*shared, static_cast<unsigned>(place - ranks.begin()), failed, threads,
                                               reading);
  }
  return *mine;
}

Communicator &LocalRank::all() {
  std::vector<uint32_t> ranks(size());
  for (uint32_t r = 0; r < ranks.size(); ++r)
    ranks[r] = r;
  return group(ranks);
}

void LocalRank::reserveSends(size_t count) {
  idle.reserve(count);
  sending.reserve(count);
  while (pool.size() < count) {
    pool.push_back(std::make_unique<Message>());
    idle.push_back(pool.back().get());
  }
}

void LocalRank::send(const void *data, size_t bytes, unsigned peer, uint32_t tag, int32_t microbatch) {
  if (idle.empty())
    reserveSends(2 * pool.size());
  Message *message = idle.back();
  idle.pop_back();
  sending.push_back(message);
  message->sender = me;
  message->receiver = peer;
  message->tag = tag;
  message->microbatch = microbatch;
  message->data = data;
  message->bytes = bytes;
  message->next = nullptr;
  message->before = message->delivered.value();
  LocalRank &to = *state.ranks[peer];
  {
    std::lock_guard lock(to.inboxMutex);
    (to.inboxTail ? to.inboxTail->next : to.inboxHead) = message;
    to.inboxTail = message;
  }
  to.inboxChanged.advance();
}

void LocalRank::finish(Message &message) {
  WaitResult result = message.delivered.wait(message.before, state.limits);
  if (result != WaitResult::Ready)
    fail(result, fmt::format("message {} of microbatch {} to be received", message.tag, message.microbatch));
  idle.push_back(&message);
}

void LocalRank::waitSend(uint32_t tag, int32_t microbatch) {
  for (size_t i = 0; i < sending.size();) {
    Message *message = sending[i];
    if (message->tag != tag || message->microbatch != microbatch) {
      ++i;
      continue;
    }
    finish(*message); // on an exception the message stays in the list, for detach to withdraw
    sending.erase(sending.begin() + static_cast<std::ptrdiff_t>(i));
  }
}

void LocalRank::waitAllSends() {
  while (!sending.empty()) {
    finish(*sending.back());
    sending.pop_back();
  }
}

Message *LocalRank::take(unsigned sender, uint32_t tag, int32_t microbatch) {
  std::lock_guard lock(inboxMutex);
  Message *previous = nullptr;
  for (Message *message = inboxHead; message; previous = message, message = message->next) {
    if (message->sender != sender || message->tag != tag || message->microbatch != microbatch)
      continue;
    (previous ? previous->next : inboxHead) = message->next;
    if (inboxTail == message)
      inboxTail = previous;
    return message;
  }
  return nullptr;
}

void LocalRank::recv(void *data, size_t bytes, unsigned peer, uint32_t tag, int32_t microbatch) {
  Message *message = nullptr;
  for (;;) {
    uint32_t seen = inboxChanged.value();
    message = take(peer, tag, microbatch);
    if (message)
      break;
    WaitResult result = inboxChanged.wait(seen, state.limits);
    if (result != WaitResult::Ready)
      fail(result, fmt::format("{} from rank {}", messageName(tag, microbatch), peer));
  }
  if (message->bytes != bytes) {
    size_t found = message->bytes;
    message->delivered.advance();
    throw environmentError(
        fmt::format("rank {}: message {} from rank {} must have {} bytes, found {}", me, tag, peer, bytes, found));
  }
  if (bytes)
    std::memcpy(data, message->data, bytes);
  message->delivered.advance();
}

/// Removes a message from its receiver's inbox; returns false if the receiver has already taken it.
bool LocalRank::withdraw(Message &message) {
  LocalRank &to = *state.ranks[message.receiver];
  std::lock_guard lock(to.inboxMutex);
  Message *previous = nullptr;
  for (Message *at = to.inboxHead; at; previous = at, at = at->next) {
    if (at != &message)
      continue;
    (previous ? previous->next : to.inboxHead) = at->next;
    if (to.inboxTail == at)
      to.inboxTail = previous;
    return true;
  }
  return false;
}

void LocalRank::detach() {
  for (Message *message : sending) {
    if (!withdraw(*message))
      while (message->delivered.value() == message->before) // the receiver is copying it
        std::this_thread::yield();
    idle.push_back(message);
  }
  sending.clear();
  if (state.limits.failed.load(std::memory_order_seq_cst))
    for (auto &other : state.ranks)
      while (other->reading.load(std::memory_order_seq_cst))
        std::this_thread::yield();
}

void LocalRank::broadcast(std::vector<uint8_t> &bytes) {
  if (me == 0) {
    std::lock_guard lock(state.mutex);
    state.shared.assign(1, bytes);
  }
  barrier();
  if (me != 0) {
    std::lock_guard lock(state.mutex);
    bytes = state.shared[0];
  }
  barrier();
}

std::vector<std::vector<uint8_t>> LocalRank::gather(std::span<const uint8_t> bytes) {
  if (me == 0) {
    std::lock_guard lock(state.mutex);
    state.shared.assign(size(), {});
  }
  barrier();
  {
    std::lock_guard lock(state.mutex);
    state.shared[me].assign(bytes.begin(), bytes.end());
  }
  barrier();
  std::vector<std::vector<uint8_t>> all;
  if (me == 0) {
    std::lock_guard lock(state.mutex);
    all = std::move(state.shared);
  }
  return all;
}

LocalWorld::LocalWorld(unsigned ranks) : state(std::make_unique<LocalState>()) {
  state->limits.spins = spinsOf(ranks);
  for (unsigned r = 0; r < ranks; ++r)
    state->ranks.push_back(std::make_unique<LocalRank>(*state, r));
}

LocalWorld::~LocalWorld() = default;
unsigned LocalWorld::size() const { return static_cast<unsigned>(state->ranks.size()); }
RankEndpoint &LocalWorld::operator[](unsigned rank) { return *state->ranks[rank]; }
std::string LocalWorld::failure() const { return state->firstFailure(); }

void runRanks(LocalWorld &world, const std::function<void(unsigned)> &fn) {
  std::mutex mutex;
  std::exception_ptr first;
  auto guarded = [&](unsigned rank) {
    auto failed = [&](const std::string &message) {
      std::lock_guard lock(mutex);
      if (!first)
        first = std::current_exception();
      world[rank].abort(message);
    };
    try {
      fn(rank);
    } catch (const std::exception &error) {
      failed(error.what());
    } catch (...) {
      failed("unknown exception");
    }
  };
  std::vector<std::thread> threads;
  threads.reserve(world.size());
  try {
    for (unsigned rank = 1; rank < world.size(); ++rank)
      threads.push_back(startThread(fmt::format("rank {} of {}", rank, world.size()), guarded, rank));
    guarded(0);
  } catch (const std::exception &error) { // a thread could not be started: end those that run
    std::lock_guard lock(mutex);
    if (!first)
      first = std::current_exception();
    world[0].abort(error.what());
  }
  for (std::thread &thread : threads)
    thread.join();
  if (first)
    std::rethrow_exception(first);
}

} // namespace cleave
