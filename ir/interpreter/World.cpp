// Implements World: exchanges, messages, deadlock detection.
#include "ir/interpreter/World.h"

#include "runtime/base/Error.h"

#include <algorithm>
#include <cassert>

namespace cleave::ir {

static std::exception_ptr internal(const std::string &message) {
  return std::make_exception_ptr(Error(Status::Internal, "distributed interpreter: " + message));
}

static std::string listText(const std::vector<int64_t> &ranks) {
  std::string text;
  for (int64_t rank : ranks)
    text += (text.empty() ? "" : " ") + std::to_string(rank);
  return text;
}

void World::failLocked(std::exception_ptr error) {
  if (!failure)
    failure = error;
  changed.notify_all();
}

void World::fail(std::exception_ptr error) {
  std::lock_guard lock(mutex);
  --running;
  failLocked(error);
}

void World::check() {
  std::lock_guard lock(mutex);
  if (failure)
    std::rethrow_exception(failure);
}

void World::finish() {
  std::lock_guard lock(mutex);
  --running;
  findCircle();
  if (running == 0 && !failure && !messages.empty()) {
    auto [from, to, tag, microbatch] = messages.begin()->first;
    failLocked(internal("rank " + std::to_string(to) + " never received what rank " + std::to_string(from) +
                        " sent under tag " + std::to_string(tag) + " in microbatch " + std::to_string(microbatch)));
  }
}

/// Reports a deadlock if every running rank waits for something that has not happened.
void World::findCircle() {
  if (failure || running == 0 || static_cast<int>(waiting.size()) < running)
    return;
  if (std::any_of(waiting.begin(), waiting.end(), [](const Waiter &w) { return w.ready(); }))
    return;
  std::string text = "everybody waits";
  for (const Waiter &waiter : waiting)
    text += "; " + waiter.what;
  failLocked(internal(text));
}

void World::wait(std::unique_lock<std::mutex> &lock, std::string what, std::function<bool()> ready) {
  auto self = waiting.insert(waiting.end(), {std::move(what), ready});
  findCircle();
  changed.wait(lock, [&] { return failure || ready(); });
  waiting.erase(self);
  if (failure)
    std::rethrow_exception(failure);
}

std::vector<Contribution> World::exchange(int64_t rank, const std::vector<int64_t> &members, const std::string &what,
                                          std::vector<HostTensor> mine) {
  std::unique_lock lock(mutex);
  int64_t turn = count[{rank, members}]++;
  Meeting &meeting = meetings[{members, turn}];
  if (meeting.arrived == 0) {
    meeting.what = what;
    meeting.parts.resize(members.size());
  } else if (meeting.what != what) {
    failLocked(internal("ranks " + listText(members) + " disagree: " + meeting.what + ", but rank " +
                        std::to_string(rank) + " " + what));
    std::rethrow_exception(failure);
  }
  auto place = std::find(members.begin(), members.end(), rank) - members.begin();
  meeting.parts[place] = std::make_shared<const std::vector<HostTensor>>(std::move(mine));
  ++meeting.arrived;
  changed.notify_all();
  wait(lock, "rank " + std::to_string(rank) + " in " + what + " of ranks " + listText(members),
       [&] { return meeting.arrived == members.size(); });
  std::vector<Contribution> parts = meeting.parts;
  if (++meeting.left == members.size())
    meetings.erase({members, turn});
  return parts;
}

void World::send(int64_t from, int64_t to, int64_t tag, int64_t microbatch, HostTensor tensor) {
  std::lock_guard lock(mutex);
  messages[{from, to, tag, microbatch}].push_back(std::move(tensor));
  changed.notify_all();
}

HostTensor World::receive(int64_t from, int64_t to, int64_t tag, int64_t microbatch) {
  std::unique_lock lock(mutex);
  MessageKey key{from, to, tag, microbatch};
  wait(lock,
       "rank " + std::to_string(to) + " for rank " + std::to_string(from) + ", tag " + std::to_string(tag) +
           ", microbatch " + std::to_string(microbatch),
       [&] { return messages.count(key) > 0; });
  auto &queue = messages[key];
  HostTensor tensor = std::move(queue.front());
  queue.pop_front();
  if (queue.empty())
    messages.erase(key);
  return tensor;
}

// ---- a rank's view -------------------------------------------------------------------------------------------------

std::vector<Contribution> Port::exchange(const std::vector<std::string> &axes, const std::vector<int64_t> &stages,
                                         const std::string &what, std::vector<HostTensor> mine) {
  std::vector<std::pair<int64_t, int64_t>> members; // linear coordinate, rank
  for (int64_t other = 0; other < world.mesh.ranks(); ++other) {
    std::vector<int64_t> coords = world.mesh.coords(other);
    bool member = true;
    for (size_t i = 0; i < coords.size(); ++i) {
      const std::string &axis = world.mesh.axes[i].name;
      if (std::find(axes.begin(), axes.end(), axis) == axes.end())
        member &= coords[i] == at[i];
      else if (roleOf(axis) == AxisRole::Pipeline && !stages.empty())
        member &= std::find(stages.begin(), stages.end(), coords[i]) != stages.end();
    }
    if (member)
      members.emplace_back(world.mesh.linear(axes, coords), other);
  }
  std::sort(members.begin(), members.end());
  std::vector<int64_t> ranks;
  for (auto [linear, other] : members)
    ranks.push_back(other);
  return world.exchange(rank, ranks, what, std::move(mine));
}

/// Stage s has coordinate s modulo the size of pp (interleaved schedules).
int64_t Port::rankOfStage(int64_t stage) const {
  return world.mesh.rank(world.mesh.with(AxisRole::Pipeline, stage % world.mesh.size(AxisRole::Pipeline), at));
}

void Port::send(int64_t stage, int64_t tag, HostTensor tensor) {
  world.send(rank, rankOfStage(stage), tag, microbatch, std::move(tensor));
}
HostTensor Port::receive(int64_t stage, int64_t tag) {
  return world.receive(rankOfStage(stage), rank, tag, microbatch);
}

} // namespace cleave::ir
