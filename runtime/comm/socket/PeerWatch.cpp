// Heartbeats, failures and goodbyes.
#include "runtime/comm/socket/PeerWatch.h"

#include "runtime/base/Error.h"
#include "runtime/base/Printable.h"
#include "runtime/base/Thread.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

namespace cleave {

using namespace std::chrono_literals;

static constexpr auto interval = 250ms;     // of heartbeats
static constexpr auto answerToGoodbye = 2s; // time that a rank waits at its end for answers to its goodbye
static constexpr auto lastWords = 300ms;    // time for a failure message to reach the others before this process ends

static Clock::duration silenceOf(double seconds) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(std::clamp(seconds, 1.0, 60.0)));
}

static constexpr size_t mostDelaying = 16; // a message names no more ranks

/// The watch that a signal handler uses: one per process, except in tests.
static std::atomic<PeerWatch *> living{nullptr};
static_assert(std::atomic<PeerWatch *>::is_always_lock_free && std::atomic<int>::is_always_lock_free);

PeerWatch::PeerWatch(unsigned rank, std::vector<Socket> sockets)
    : me(rank), alarmEvent(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)),
      wakeEvent(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)), silence(silenceOf(60)), nextBeat(Clock::now()),
      lastMove(nextBeat) {
  if (!alarmEvent || !wakeEvent)
    throw environmentError(fmt::format("no event descriptor: {}", std::strerror(errno)));
  for (unsigned peer = 0; peer < sockets.size(); ++peer)
    if (sockets[peer]) {
      Link &link = links.emplace_back();
      link.socket = std::move(sockets[peer]);
      link.rank = peer;
      link.heard = Clock::now();
      link.out.reserve(sizeof(Frame) + mostText);
    }
  descriptors = std::vector<std::atomic<int>>(links.size());
  for (size_t i = 0; i < links.size(); ++i)
    descriptors[i] = links[i].socket.fd();
  living = this;
  if (!links.empty())
    thread = startThread("the heartbeat", [this] { watch(); });
}

PeerWatch::~PeerWatch() {
  PeerWatch *self = this;
  living.compare_exchange_strong(self, nullptr);
  if (!thread.joinable())
    return;
  {
    std::lock_guard lock(mutex);
    leaving = true;
    farewell = Clock::now() + (failed() ? Clock::duration(lastWords) : Clock::duration(answerToGoodbye));
    for (Link &link : links) {
      if (!failed())
        append(link, Goodbye, me, "");
      flush(link);
      if (failed() && link.socket)
        ::shutdown(link.socket.fd(), SHUT_WR);
    }
  }
  wake();
  thread.join();
}

void PeerWatch::wake() const {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(wakeEvent.fd(), &one, sizeof one);
}

void PeerWatch::setSilence(double seconds) {
  std::lock_guard lock(mutex);
  silence = silenceOf(seconds);
}

std::string PeerWatch::firstFailure() const {
  std::lock_guard lock(mutex);
  return failure;
}

void PeerWatch::check() const {
  if (!failed())
    return;
  std::lock_guard lock(mutex);
  throw Error(failureStatus, failure);
}

bool PeerWatch::waitForFailure(double seconds) const {
  std::unique_lock lock(mutex);
  return changed.wait_until(lock, deadlineIn(seconds), [&] { return failed(); });
}

bool PeerWatch::rankZeroSays(const std::string &message, double seconds) const {
  std::unique_lock lock(mutex);
  changed.wait_until(lock, deadlineIn(seconds), [&] { return !rankZeroSaid.empty(); });
  if (rankZeroSaid.empty())
    return false;
  // The message may be rank 0's own, or forwarded from this rank to rank 0 or from rank 0 to this rank.
  for (const std::string &text : {message, fmt::format("rank {} failed: {}", me, message)})
    if (rankZeroSaid == printable(text.substr(0, mostText), true))
      return true;
  return message == fmt::format("rank 0 failed: {}", rankZeroSaid);
}

void PeerWatch::endedBy(std::string_view reason, Status status) noexcept {
  PeerWatch *watch = living;
  if (!watch)
    return;
  watch->ending = true; // other ranks may end after this message; that is no failure
  char buffer[sizeof(Frame) + 200];
  reason = reason.substr(0, sizeof buffer - sizeof(Frame));
  const Frame frame{Failure, watch->me, static_cast<uint32_t>(reason.size()), status};
  std::memcpy(buffer, &frame, sizeof frame);
  std::memcpy(buffer + sizeof frame, reason.data(), reason.size());
  for (const std::atomic<int> &descriptor : watch->descriptors)
    if (const int fd = descriptor; fd >= 0) {
      ::send(fd, buffer, sizeof frame + frame.bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
      ::shutdown(fd, SHUT_WR); // flushes: closing a socket with unread bytes would drop pending output
      char unread[1024];
      while (::recv(fd, unread, sizeof unread, MSG_DONTWAIT) > 0) {
      }
    }
}

void PeerWatch::abort(const std::string &message, Status status) {
  std::lock_guard lock(mutex);
  const bool first = !failed();
  if (me == 0 && !said) { // even after another rank's failure: the others learn that rank 0 has printed it
    said = true;
    for (Link &link : links)
      append(link, Failure, 0, message, status);
  } else if (first && !links.empty())
    append(links.front(), Failure, me, message, status);
  for (Link &link : links)
    flush(link);
  if (first)
    fail(me, message, status);
}

/// Records the first failure and wakes those who wait.
void PeerWatch::fail(unsigned rank, const std::string &text, Status status) {
  failure = fmt::format("rank {} failed: {}", rank, text);
  failureStatus = status;
  anyFailure.store(true, std::memory_order_release);
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(alarmEvent.fd(), &one, sizeof one);
  changed.notify_all();
}

/// Records a failure that this rank has detected or received.
void PeerWatch::report(unsigned rank, const std::string &text, Status status) {
  if (failed() || ending)
    return;
  fail(rank, text, status);
  if (me == 0)
    for (Link &link : links)
      if (link.rank != rank) {
        append(link, Failure, rank, text, status);
        flush(link);
      }
}

/// Whether heartbeats are overdue.
bool PeerWatch::late(const Link &link, Clock::time_point now) const { return now - link.heard > 3 * interval; }

/// The ranks that keep others waiting, as far as this rank knows.
std::vector<unsigned> PeerWatch::delaying() const {
  const auto now = Clock::now();
  if (me != 0)
    return !links.empty() && late(links.front(), now) ? std::vector<unsigned>{0} : delayingRanks;
  std::vector<unsigned> ranks;
  if (!waiting)
    ranks.push_back(0);
  for (const Link &link : links)
    if (!link.left && (!link.waiting || late(link, now)))
      ranks.push_back(link.rank);
  return ranks;
}

/// Reports a rank that has sent no heartbeat for longer than it may be late.
void PeerWatch::reportSilent(const Link &link, Clock::time_point now) {
  report(link.rank, fmt::format("no heartbeat for {:.0f} s (the process is stopped or its host is gone)",
                                std::chrono::duration<double>(now - link.heard).count()));
}

double PeerWatch::silentSeconds() const {
  std::lock_guard lock(mutex);
  return std::chrono::duration<double>(silence).count();
}

std::string PeerWatch::expired(double seconds, const std::string &what, const std::vector<unsigned> &awaited) {
  const auto deadline = deadlineIn(1); // a heartbeat to rank 0, one from it, and time to notice a silent rank
  std::unique_lock lock(mutex);
  for (;;) {
    const std::vector<unsigned> ranks = delaying();
    const auto now = Clock::now();
    const auto silent = [&](unsigned rank) {
      return std::any_of(links.begin(), links.end(),
                         [&](const Link &link) { return link.rank == rank && late(link, now); });
    };
    if (std::all_of(ranks.begin(), ranks.end(), silent)) // otherwise the others keep waiting for a slow rank, too
      for (const Link &link : links)
        if (!link.left && late(link, now))
          reportSilent(link, now);
    // A silent rank beside slow ones is reported by the watch, which gives it as much time as this wait had.
    const bool undecided =
        std::any_of(links.begin(), links.end(), [&](const Link &link) { return !link.left && late(link, now); });
    const bool known = !ranks.empty() && std::find(ranks.begin(), ranks.end(), me) == ranks.end();
    if ((known && !undecided) || failed() || Clock::now() >= deadline)
      return fmt::format("no answer within {} s from rank {} while waiting for {}", seconds,
                         fmt::join(known ? ranks : awaited, ", "), what);
    changed.wait_until(lock, std::min<Clock::time_point>(deadline, Clock::now() + interval));
  }
}

void PeerWatch::append(Link &link, Kind kind, unsigned rank, std::string_view text, Status status) {
  if (!link.socket)
    return;
  text = text.substr(0, mostText);
  const Frame frame{kind, rank, static_cast<uint32_t>(text.size()), status};
  link.out.append(reinterpret_cast<const char *>(&frame), sizeof frame).append(text);
}

void PeerWatch::flush(Link &link) {
  while (link.socket && !link.out.empty()) {
    const ssize_t sent = ::send(link.socket.fd(), link.out.data(), link.out.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent <= 0)
      return; // full: retry later; closed: the next read reports it
    link.out.erase(0, static_cast<size_t>(sent));
  }
}

void PeerWatch::lost(Link &link) {
  descriptors[static_cast<size_t>(&link - links.data())] = -1;
  if (link.socket) { // a signal handler may still use the descriptor, so its number must not be reused
    ::shutdown(link.socket.fd(), SHUT_RDWR);
    shut.push_back(std::move(link.socket));
  }
  if (!link.left && !leaving)
    report(link.rank, "it was killed, most likely by SIGKILL (its connection closed without a goodbye)");
}

/// Whether a frame can be what the other side of a link has sent. A rank reports only itself to rank 0.
bool PeerWatch::possible(const Link &link, const Frame &frame) const {
  const bool forwarded = me != 0 && frame.kind == Failure;
  return frame.kind >= Alive && frame.kind <= Goodbye && frame.bytes <= mostText &&
         (forwarded || frame.rank == link.rank) && frame.status >= Status::Internal &&
         frame.status <= Status::Environment;
}

/// Processes the complete frames received.
void PeerWatch::take(Link &link) {
  for (;;) {
    Frame frame;
    if (link.have < sizeof frame)
      return;
    std::memcpy(&frame, link.in.data(), sizeof frame);
    if (!possible(link, frame)) {
      report(link.rank, "its heartbeats are damaged: bytes of them were lost or changed");
      return lost(link);
    }
    const size_t whole = sizeof frame + frame.bytes;
    if (link.have < whole)
      return;
    const std::string text(link.in.data() + sizeof frame, frame.bytes);
    link.have -= whole;
    std::memmove(link.in.data(), link.in.data() + whole, link.have);
    if (frame.kind == Failure) {
      const std::string said = printable(text, true);
      if (frame.rank == 0 && rankZeroSaid.empty())
        rankZeroSaid = said;
      report(frame.rank, said, frame.status);
      changed.notify_all();
    } else if (frame.kind == Alive && me == 0) {
      hear(link, text, Clock::now());
    } else if (frame.kind == Alive) {
      delayingRanks.resize(text.size() / sizeof(unsigned));
      std::memcpy(delayingRanks.data(), text.data(), delayingRanks.size() * sizeof(unsigned));
    } else if (frame.kind == Goodbye) {
      link.left = true;
      if (me == 0) // closing the link answers the goodbye
        return lost(link);
    }
  }
}

void PeerWatch::read(Link &link, Clock::time_point now) {
  while (link.socket) {
    const ssize_t found =
        ::recv(link.socket.fd(), link.in.data() + link.have, link.in.size() - link.have, MSG_DONTWAIT);
    if (found < 0 && errno == EINTR)
      continue;
    if (found < 0 && errno == EAGAIN)
      return;
    if (found <= 0)
      return lost(link);
    link.have += static_cast<size_t>(found);
    link.heard = now;
    take(link);
  }
}

/// `now` was read before any input was checked, so a process that has slept since then does not report others as
/// silent.
void PeerWatch::beat(Clock::time_point now) {
  const bool due = now >= nextBeat;
  std::string news; // to rank 0: if this rank waits, what it has moved; from it: the ranks that delay others
  if (due) {
    nextBeat = now + interval;
    const uint64_t moves = moved;
    if (me != 0)
      news.assign(reinterpret_cast<const char *>(&moves), waiting ? sizeof moves : 0);
    else
      for (const unsigned rank : delaying())
        if (news.size() < mostDelaying * sizeof rank)
          news.append(reinterpret_cast<const char *>(&rank), sizeof rank);
  }
  for (Link &link : links) {
    if (!link.socket)
      continue;
    read(link, now);
    if (due && !leaving && link.out.size() < mostText)
      append(link, Alive, me, news);
    flush(link);
    if (link.socket && !link.left && !leaving && now - link.heard > silence)
      reportSilent(link, now);
  }
  if (me == 0)
    lookForStall(now);
}

/// Takes a rank's heartbeat.
void PeerWatch::hear(Link &link, const std::string &news, Clock::time_point now) {
  uint64_t moves = 0;
  link.waiting = news.size() == sizeof moves;
  if (link.waiting)
    std::memcpy(&moves, news.data(), sizeof moves);
  if (std::exchange(link.moves, moves) != moves)
    lastMove = now;
}

/// Whether every rank waits, and none has moved a byte or begun another wait for as long as a rank may be silent.
void PeerWatch::lookForStall(Clock::time_point now) {
  const bool works = !waiting || std::any_of(links.begin(), links.end(), [&](const Link &link) {
    return !link.left && (!link.waiting || late(link, now));
  });
  if (const uint64_t moves = moved; works || std::exchange(ownMoves, moves) != moves)
    lastMove = now;
  stall = !links.empty() && now - lastMove > silence;
}

bool PeerWatch::ended() const {
  if (!leaving)
    return false;
  return Clock::now() >= farewell || std::none_of(links.begin(), links.end(), [](auto &l) { return bool(l.socket); });
}

void PeerWatch::watch() {
  std::vector<pollfd> polls(links.size() + 1);
  for (;;) {
    Clock::time_point until;
    {
      std::lock_guard lock(mutex);
      if (ended())
        return;
      until = leaving ? std::min(nextBeat, farewell) : nextBeat;
      polls[0] = {wakeEvent.fd(), POLLIN, 0};
      for (size_t i = 0; i < links.size(); ++i)
        polls[i + 1] = {links[i].socket.fd(), static_cast<short>(links[i].out.empty() ? POLLIN : POLLIN | POLLOUT), 0};
    }
    ::poll(polls.data(), polls.size(), millisecondsUntil(until));
    uint64_t ignored;
    [[maybe_unused]] const ssize_t got = ::read(wakeEvent.fd(), &ignored, sizeof ignored);
    const auto now = Clock::now();
    std::lock_guard lock(mutex);
    beat(now);
  }
}

} // namespace cleave
