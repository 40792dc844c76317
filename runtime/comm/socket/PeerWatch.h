// Who is still there. A small thread of every process exchanges heartbeats with rank 0 over connections of their own,
// so that a process that died, was stopped or lost its host is noticed also while nobody waits for it. Rank 0 passes
// every failure on: the first one is what all ranks report.
//
// What holds: a rank that says goodbye (by destroying its watch) has not failed; failures are never forgotten;
// everything behind the mutex is touched for moments only, nothing waits while it is held.
#pragma once
#include "runtime/comm/socket/Socket.h"

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

namespace cleave {

class PeerWatch {
public:
  /// `links` by rank: rank 0 has one to every other rank, the others have theirs to rank 0. Throws an environment error
  /// where no thread can be started.
  PeerWatch(unsigned rank, std::vector<Socket> links);
  /// Says goodbye, waits a moment for the others' answers, and ends the thread.
  ~PeerWatch();
  PeerWatch(const PeerWatch &) = delete;

  /// How long a rank may be silent; kept between 1 and 60 s.
  void setSilence(double seconds);
  bool failed() const { return anyFailure.load(std::memory_order_acquire); }
  /// Throws an environment error that names the rank that failed, if one has.
  void check() const;
  /// Whether one fails within this time.
  bool waitForFailure(double seconds) const;
  /// A descriptor that is readable once a rank has failed.
  int alarm() const { return alarmEvent.fd(); }
  /// Tells all ranks that this one fails.
  void abort(const std::string &message);
  /// For a signal's handler that is about to end the process: tells the others that this rank is ended by `signal`, a
  /// name. Does nothing where no watch lives.
  static void endedBy(const char *signal) noexcept;
  /// Whether rank 0 says within this time that it fails, too, by this failure of this rank's.
  bool rankZeroSays(const std::string &message, double seconds) const;

private:
  enum Kind : uint32_t { Alive = 1, Failure, Goodbye };
  struct Frame {
    uint32_t kind, rank, bytes; ///< bytes of text follow
  };
  static constexpr size_t mostText = 1000;
  struct Link {
    Socket socket;
    unsigned rank = 0;
    std::string out;
    std::array<char, sizeof(Frame) + mostText> in;
    size_t have = 0;
    Clock::time_point heard;
    bool left = false; ///< said goodbye
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
  std::atomic<bool> anyFailure{false}, ending{false}; ///< ending: a signal's handler is telling the others
  mutable std::mutex mutex; ///< of what follows
  mutable std::condition_variable changed;
  std::vector<Link> links;
  std::vector<Socket> shut; ///< of lost links
  std::vector<std::atomic<int>> descriptors; ///< of the links, for a signal's handler; -1: closed
  std::string failure, rankZeroSaid;
  bool said = false, leaving = false;
  Clock::duration silence;
  Clock::time_point nextBeat, farewell;
  std::thread thread;
};

} // namespace cleave
