// Failure detection. A thread in every process exchanges heartbeats with rank 0 over separate connections, so that a
// process that died, was stopped or lost its host is noticed even if no rank waits for it. Rank 0 forwards every
// failure; all ranks report the first one.
//
// A rank that says goodbye (by destroying its watch) has not failed. Failures are never forgotten. The mutex is held
// only briefly, and never while waiting.
#pragma once
#include "runtime/comm/socket/Socket.h"

#include <atomic>
#include <condition_variable>
#include <mutex>
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
  /// Throws an environment error with that message, if there is one.
  void check() const;
  /// Whether a rank fails within this time.
  bool waitForFailure(double seconds) const;
  /// A descriptor that becomes readable when a rank has failed.
  int alarm() const { return alarmEvent.fd(); }
  /// Tells all ranks that this one fails.
  void abort(const std::string &message);
  /// For a signal handler about to end the process: tells the others that `signal` (a name) ends this rank. Does
  /// nothing if there is no watch.
  static void endedBy(const char *signal) noexcept;
  /// Whether rank 0 reports within this time that it fails for the same reason as this rank.
  bool rankZeroSays(const std::string &message, double seconds) const;

private:
  enum Kind : uint32_t { Alive = 1, Failure, Goodbye };
  struct Frame {
    uint32_t kind, rank, bytes; ///< `bytes` bytes of text follow
  };
  static constexpr size_t mostText = 1000;
  struct Link {
    Socket socket;
    unsigned rank = 0;
    std::string out;
    std::array<char, sizeof(Frame) + mostText> in;
    size_t have = 0;
    Clock::time_point heard;
    bool left = false; ///< has said goodbye
  };

  void watch();
  bool ended() const;
  void beat(Clock::time_point now);
  void read(Link &link, Clock::time_point now);
  void take(Link &link);
  void lost(Link &link);
  void flush(Link &link);
  void append(Link &link, Kind kind, unsigned rank, std::string_view text);
  void report(unsigned rank, const std::string &text);
  void wake() const;

  const unsigned me;
  Socket alarmEvent, wakeEvent;
  std::atomic<bool> anyFailure{false}, ending{false}; ///< ending: a signal handler is notifying the others
  mutable std::mutex mutex;                           ///< guards the following members
  mutable std::condition_variable changed;
  std::vector<Link> links;
  std::vector<Socket> shut; ///< of lost links
  std::vector<std::atomic<int>> descriptors; ///< of the links, for a signal handler; -1: closed
  std::string failure, rankZeroSaid;
  bool said = false, leaving = false;
  Clock::duration silence;
  Clock::time_point nextBeat, farewell;
  std::thread thread;
};

} // namespace cleave
