// Hello, challenge, hello with a proof, acceptance.
#include "runtime/comm/socket/Introduce.h"

#include "runtime/comm/socket/SecretProof.h"

#include <algorithm>
#include <cstring>

namespace cleave {

ReceivedAnswer receiveAnswer(const Socket &from, uint32_t most, Clock::time_point deadline, int alarm) {
  constexpr size_t piece = 64 << 10;
  ReceivedAnswer received;
  Answer &answer = received.answer;
  std::string &body = received.body;
  size_t got = 0;
  received.done = receiveAll(from, &answer, sizeof answer, deadline, alarm, &got);
  const bool ours = std::memcmp(&answer.word, &rendezvousMagic, std::min(got, sizeof rendezvousMagic)) == 0;
  received.foreign = !ours || (got == sizeof answer && answer.bytes > (answer.status ? longestRefusal : most));
  while (received.done == Transfer::Done && !received.foreign && body.size() < answer.bytes) {
    const size_t begin = body.size(), count = std::min(piece, answer.bytes - begin);
    body.resize(begin + count);
    received.done = receiveAll(from, body.data() + begin, count, deadline, alarm);
  }
  return received;
}

std::optional<ReceivedAnswer> introduce(const Socket &to, Hello hello, const std::string &secret,
                                        Clock::time_point deadline, int alarm) {
  Nonce nonce;
  ReceivedAnswer received;
  // Sends the hello and receives the answer, which must have this many bytes. Returns whether it has.
  const auto say = [&](uint32_t bytes) {
    received.done = sendAll(to, &hello, sizeof hello, deadline, alarm);
    if (received.done == Transfer::Done || received.done == Transfer::Closed) // it may say why it closes
      received = receiveAnswer(to, bytes, deadline, alarm);
    const bool complete = received.done == Transfer::Done && !received.foreign && received.answer.status == 0;
    received.foreign |= complete && received.body.size() != bytes;
    return complete && !received.foreign;
  };
  if (!say(sizeof nonce))
    return received;
  std::memcpy(&nonce, received.body.data(), sizeof nonce);
  hello.proof = proofOf(hello, nonce, secret);
  if (!say(0))
    return received;
  return {};
}

Socket connectToRank(std::span<const Endpoint> places, const Hello &hello, const std::string &secret,
                     Clock::time_point deadline, int alarm, std::string &problem) {
  for (Pause pause(deadline, alarm);;) {
    Socket made = connectPatiently(places, deadline, alarm, problem);
    if (!made)
      return made;
    const std::optional<ReceivedAnswer> instead = introduce(made, hello, secret, deadline, alarm);
    if (!instead)
      return made;
    problem = instead->foreign                      ? "its answer is not a rank's"
              : instead->done == Transfer::TimedOut ? "it does not answer"
              : instead->done == Transfer::Closed   ? "it closes every connection"
              : instead->done == Transfer::Alarmed  ? "another rank has failed"
                                                    : "it refuses this rank";
    if (!instead->dropped() || !pause.wait())
      return Socket();
  }
}

} // namespace cleave
