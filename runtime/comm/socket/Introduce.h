// The side of the rendezvous that connects: a rank says who it is and proves that it knows the job's secret.
#pragma once
#include "runtime/comm/socket/RendezvousMessages.h"
#include "runtime/comm/socket/Socket.h"

#include <optional>
#include <string>

namespace cleave {

/// An answer and how it was received.
struct ReceivedAnswer {
  Transfer done = Transfer::Closed;
  Answer answer;
  std::string body;
  size_t got = 0; ///< bytes of `answer`
};

ReceivedAnswer receiveAnswer(const Socket &from, Clock::time_point deadline, int alarm);

/// Says who this rank is and answers the challenge. Returns nullopt if that was sent, otherwise what came instead of a
/// challenge.
std::optional<ReceivedAnswer> introduce(const Socket &to, Hello hello, const std::string &secret,
                                        Clock::time_point deadline, int alarm);

/// The same for a rank known to be one. Returns whether it was sent, otherwise `problem` tells why not.
bool introduceToRank(const Socket &to, const Hello &hello, const std::string &secret, Clock::time_point deadline,
                     int alarm, std::string &problem);

} // namespace cleave
