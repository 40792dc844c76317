// Failure detection. A thread in every process exchanges heartbeats with rank 0 over separate connections, so that a
// process that died, was stopped or lost its host is noticed even if no rank waits for it. Rank 0 forwards every
// failure; all ranks report the first one. Heartbeats also say which ranks wait for others, so that a rank whose wait
// has lasted too long can name the ranks that keep it waiting, even if it waits for one that waits itself. Rank 0 also
// notices that all wait and none moves: then bytes have been lost, however long a wait may last.
//
// A rank that says goodbye (by destroying its watch) has not failed. Failures are never forgotten. The mutex is held
// only briefly, and never while waiting.
#pragma once
#include "runtime/base/Error.h"
#include "runtime/comm/socket/Socket.h"

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <string_view>
#include <thread>

namespace cleave {

class PeerWatch {
public:
  /// `links` by rank: rank 0 has one to every other rank, the others have one to rank 0. Throws an environment error if
  /// no thread can be started.
  PeerWatch(unsigned rank, std::vector<Socket> links);
  /// Says goodbye, waits briefly for the others' answers, and ends the thread.
  ~PeerWatch();
  PeerWatch(const PeerWatch &) = delete;

  /// Sets how long a rank may be silent; clamped to 1 to 60 s.
  void setSilence(double seconds);
  bool failed() const { return anyFailure.load(std::memory_order_acquire); }
  /// The message of the first rank that has failed; empty: none.
  std::string firstFailure() const;
  /// Throws an error with that message and the status of the failed rank, if there is one.
  void check() const;
  /// Whether a rank fails within this time.
  bool waitForFailure(double seconds) const;
  /// A descriptor that becomes readable when a rank has failed.
  int alarm() const { return alarmEvent.fd(); }
  /// Tells all ranks that this one fails; they end with the same status.
  void abort(const std::string &message, Status status);
  /// For a signal handler about to end the process: tells the others the reason (at most 200 characters). Does nothing
  /// if there is no watch.
  static void endedBy(std::string_view reason, Status status) noexcept;
  /// Whether this rank waits for others; the next heartbeat says so.
  void setWaiting(bool value) {
    waiting.store(value, std::memory_order_relaxed);
    advance();
  }
  /// To call while this rank waits, whenever it has moved bytes.
  void advance() { moved.fetch_add(1, std::memory_order_relaxed); }
  /// Rank 0: whether all ranks wait and have moved nothing for silentSeconds(), so that what they wait for never comes.
  /// Only of use if all ranks call `advance`.
  bool stalled() const { return stall.load(std::memory_order_relaxed); }
  double silentSeconds() const;
  /// The message of a wait that has lasted `seconds`. It names the ranks that keep the others waiting: those without a
  /// heartbeat and those that do not wait. If that remains unknown for a second, it names `awaited`. If all of them are
  /// without a heartbeat, the first is reported as failed, and check() throws that; if some are, it gives the watch
  /// that second to report them.
  std::string expired(double seconds, const std::string &what, const std::vector<unsigned> &awaited);
  /// Whether rank 0 reports within this time that it fails for the same reason as this rank.
  bool rankZeroSays(const std::string &message, double seconds) const;

private:
  enum Kind : uint32_t { Alive = 1, Failure, Goodbye };
  struct Frame {
    uint32_t kind, rank, bytes; ///< `bytes` bytes of text follow
    Status status;              ///< of a failure
  };
  static constexpr size_t mostText = 1000;
  struct Link {
    Socket socket;
    unsigned rank = 0;
    std::string out;
    std::array<char, sizeof(Frame) + mostText> in;
    size_t have = 0;
    Clock::time_point heard;
    bool left = false;    ///< has said goodbye
    bool waiting = false; ///< for other ranks, at its last heartbeat
    uint64_t moves = 0;   ///< at its last heartbeat, if it waits
  };

  void watch();
  bool ended() const;
  void beat(Clock::time_point now);
  void read(Link &link, Clock::time_point now);
  bool possible(const Link &link, const Frame &frame) const;
  void hear(Link &link, const std::string &news, Clock::time_point now);
  void lookForStall(Clock::time_point now);
  void take(Link &link);
  void lost(Link &link);
  void flush(Link &link);
  void append(Link &link, Kind kind, unsigned rank, std::string_view text, Status status = Status::Environment);
  void report(unsigned rank, const std::string &text, Status status = Status::Environment);
  void fail(unsigned rank, const std::string &text, Status status);
  bool late(const Link &link, Clock::time_point now) const;
  void reportSilent(const Link &link, Clock::time_point now);
  std::vector<unsigned> delaying() const;
  void wake() const;

  const unsigned me;
  Socket alarmEvent, wakeEvent;
  std::atomic<bool> anyFailure{false}, waiting{false}, stall{false};
  std::atomic<uint64_t> moved{0};
  std::atomic<bool> ending{false}; ///< a signal handler is notifying the others
  mutable std::mutex mutex;        ///< guards the following members
  mutable std::condition_variable changed;
  std::vector<Link> links;
  std::vector<Socket> shut;                  ///< of lost links
  std::vector<std::atomic<int>> descriptors; ///< of the links, for a signal handler; -1: closed
  std::string failure, rankZeroSaid;
  Status failureStatus = Status::Environment;
  std::vector<unsigned> delayingRanks; ///< as rank 0 said last
  bool said = false, leaving = false;
  Clock::duration silence;
  Clock::time_point nextBeat, farewell;
  Clock::time_point lastMove; ///< rank 0: when a rank last moved bytes, or did not wait
  uint64_t ownMoves = 0;      ///< rank 0: at its last heartbeat
  std::thread thread;
};

} // namespace cleave
