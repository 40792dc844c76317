// The side of the rendezvous that connects: a rank says who it is and proves that it knows the job's secret.
#pragma once
#include "runtime/comm/socket/RendezvousMessages.h"
#include "runtime/comm/socket/Socket.h"

#include <optional>
#include <span>
#include <string>

namespace cleave {

/// An answer and how it was received.
struct ReceivedAnswer {
  Transfer done = Transfer::Closed;
  Answer answer;
  std::string body;
  bool foreign = false; ///< its first bytes are not those of an answer, or it announces more than an answer may have
  /// Whether the connection ended as one ends that the other side drops.
  bool dropped() const { return done == Transfer::Closed && !foreign; }
};

/// Receives an answer with at most `most` bytes, or a refusal. Memory grows with the bytes that come.
ReceivedAnswer receiveAnswer(const Socket &from, uint32_t most, Clock::time_point deadline, int alarm);

/// Says who this rank is and answers the challenge. Returns nullopt if the other side accepts this rank, otherwise what
/// came instead.
std::optional<ReceivedAnswer> introduce(const Socket &to, Hello hello, const std::string &secret,
                                        Clock::time_point deadline, int alarm);

/// Connects to a rank at one of these addresses and introduces itself; tries again if the connection is dropped. Empty
/// at the deadline, at the alarm, or if the other is no rank of this job; `problem` tells why.
Socket connectToRank(std::span<const Endpoint> places, const Hello &hello, const std::string &secret,
                     Clock::time_point deadline, int alarm, std::string &problem);

} // namespace cleave
