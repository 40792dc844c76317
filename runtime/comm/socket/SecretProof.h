// The job's secret, and the proof that a rank knows it.
#pragma once
#include "runtime/comm/socket/RendezvousMessages.h"

#include <string>

namespace cleave {

/// The secret that the user gave: CLEAVE_SECRET, or the content of the file CLEAVE_SECRET_FILE, without a line break at
/// the end; empty if neither is set. Throws userError if both are, if the secret is empty, or if others may read or
/// change the file.
std::string jobSecret();

/// The first half of the HMAC-SHA-256 (RFC 2104) of a challenge and the hello that answers it.
Proof proofOf(Hello hello, const Nonce &nonce, const std::string &secret);

/// Whether a hello has that proof. The time that this takes does not depend on the proof.
bool hasProof(const Hello &hello, const Nonce &nonce, const std::string &secret);

} // namespace cleave
