// Collectives and messages between rank threads, with deadlock detection.
#pragma once
#include "ir/interpreter/RankPort.h"

#include <condition_variable>
#include <functional>
#include <list>
#include <map>
#include <mutex>
#include <tuple>

namespace cleave::ir {

using Contribution = std::shared_ptr<const std::vector<HostTensor>>;

/// State shared by the ranks of one run. Thread-safe.
class World {
public:
  explicit World(Mesh mesh) : mesh(std::move(mesh)), running(static_cast<int>(this->mesh.ranks())) {}

  const Mesh mesh;

  /// The next exchange among `members` (ranks in member order, including `rank`): waits until all have contributed and
  /// returns their contributions in member order. `what` must be equal on all members.
  std::vector<Contribution> exchange(int64_t rank, const std::vector<int64_t> &members, const std::string &what,
                                     std::vector<HostTensor> mine);
  void send(int64_t from, int64_t to, int64_t tag, int64_t microbatch, HostTensor tensor);
  HostTensor receive(int64_t from, int64_t to, int64_t tag, int64_t microbatch);

  /// Marks a rank as finished. When the last rank finishes, messages that nobody received are an error.
  void finish();
  /// Marks a rank as failed; all others stop waiting. Keeps the first failure.
  void fail(std::exception_ptr error);
  /// Throws the first failure, if any.
  void check();

private:
  struct Meeting {
    std::string what;
    std::vector<Contribution> parts;
    size_t arrived = 0, left = 0;
  };
  struct Waiter {
    std::string what;
    std::function<bool()> ready;
  };
  using MeetingKey = std::pair<std::vector<int64_t>, int64_t>;
  using MessageKey = std::tuple<int64_t, int64_t, int64_t, int64_t>; // from, to, tag, microbatch

  void wait(std::unique_lock<std::mutex> &lock, std::string what, std::function<bool()> ready);
  void failLocked(std::exception_ptr error);
  void findCircle();

  std::mutex mutex;
  std::condition_variable changed;
  std::map<std::pair<int64_t, std::vector<int64_t>>, int64_t> count; // number of meetings per rank and members
  std::map<MeetingKey, Meeting> meetings;
  std::map<MessageKey, std::list<HostTensor>> messages;
  std::list<Waiter> waiting;
  int running;
  std::exception_ptr failure;
};

/// One rank's access to the World.
class Port final : public RankPort {
public:
  Port(World &world, int64_t rank) : world(world), rank(rank), at(world.mesh.coords(rank)) {}
  const Mesh &mesh() const override { return world.mesh; }
  const std::vector<int64_t> &coords() const override { return at; }
  std::vector<Contribution> exchange(const std::vector<std::string> &axes, const std::vector<int64_t> &stages,
                                     const std::string &what, std::vector<HostTensor> mine) override;
  void send(int64_t stage, int64_t tag, HostTensor tensor) override;
  HostTensor receive(int64_t stage, int64_t tag) override;

  int64_t microbatch = 0;

private:
  int64_t rankOfStage(int64_t stage) const;

  World &world;
  int64_t rank;
  std::vector<int64_t> at;
};

} // namespace cleave::ir
