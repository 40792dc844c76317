// The wire format of the rendezvous. The rank that connects says hello, gets a challenge, and says hello again with a
// proof that it knows the job's secret. The other side then accepts it with an empty answer, or says why it refuses the
// rank. A connection that ends before that may have been dropped among many: the rank tries again. When all have
// arrived, rank 0 sends the table of addresses.
#pragma once
#include <array>
#include <cstdint>
#include <type_traits>

namespace cleave {

constexpr uint64_t rendezvousMagic = 0x0a45'5641'454c'430dull; // "\rCLEAVE\n"; differs in another byte order
constexpr uint32_t rendezvousProtocol = 6;

using Nonce = std::array<uint64_t, 2>;
using Proof = std::array<uint8_t, 16>;

/// What a rank sends to every rank that it connects to, rank 0 first. It says it twice: first without a proof; then, as
/// the answer to the other's challenge, with one. In the host's byte order; every version begins with these 48 bytes,
/// so that programs of different versions name both.
struct Hello {
  uint64_t word = rendezvousMagic;
  uint32_t version = rendezvousProtocol, size = 0, rank = 0, port = 0;
  uint64_t job = 0; ///< 0 while unknown
  Proof proof{};    ///< proves that the sender knows the job's secret, and has just received the challenge
};
static_assert(std::has_unique_object_representations_v<Hello> && sizeof(Hello) == 48);

/// The longest reason for a refusal, in bytes.
constexpr uint32_t longestRefusal = 4000;

/// What answers a hello, followed by `bytes` bytes: a challenge, nothing (the rank is accepted), rank 0's table of
/// addresses, or the reason for a refusal.
struct Answer {
  uint64_t word = rendezvousMagic;
  uint32_t status = 0, bytes = 0; ///< status: 0, or an exit status
  uint64_t job = 0;
};

/// The answer to the first hello.
struct Challenge {
  Answer answer{.bytes = sizeof(Nonce)};
  Nonce nonce{};
};

/// An entry of the table of addresses: where a rank listens.
struct RankAddress {
  std::array<uint8_t, 16> address{};
  uint16_t port = 0;
};

} // namespace cleave
