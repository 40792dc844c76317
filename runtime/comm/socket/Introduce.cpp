// Hello, challenge, hello with a proof.
#include "runtime/comm/socket/Introduce.h"

#include "runtime/comm/socket/SecretProof.h"

#include <cstring>

namespace cleave {

ReceivedAnswer receiveAnswer(const Socket &from, Clock::time_point deadline, int alarm) {
  ReceivedAnswer received;
  received.done = receiveAll(from, &received.answer, sizeof received.answer, deadline, alarm, &received.got);
  if (received.done != Transfer::Done || received.answer.word != rendezvousMagic)
    return received;
  received.body.resize(received.answer.bytes);
  received.done = receiveAll(from, received.body.data(), received.body.size(), deadline, alarm);
  return received;
}

std::optional<ReceivedAnswer> introduce(const Socket &to, Hello hello, const std::string &secret,
                                        Clock::time_point deadline, int alarm) {
  ReceivedAnswer received;
  received.done = sendAll(to, &hello, sizeof hello, deadline, alarm);
  if (received.done == Transfer::Done)
    received = receiveAnswer(to, deadline, alarm);
  Nonce nonce;
  if (received.done != Transfer::Done || received.answer.status != 0 || received.body.size() != sizeof nonce)
    return received;
  std::memcpy(&nonce, received.body.data(), sizeof nonce);
  hello.proof = proofOf(hello, nonce, secret);
  received.done = sendAll(to, &hello, sizeof hello, deadline, alarm);
  return received.done == Transfer::Done ? std::nullopt : std::optional(received);
}

bool introduceToRank(const Socket &to, const Hello &hello, const std::string &secret, Clock::time_point deadline,
                     int alarm, std::string &problem) {
  const std::optional<ReceivedAnswer> refused = introduce(to, hello, secret, deadline, alarm);
  if (refused)
    problem = refused->done == Transfer::TimedOut ? "it does not answer"
              : refused->done == Transfer::Closed ? "it closed the connection"
                                                  : "its answer is not a challenge";
  return !refused;
}

} // namespace cleave
