// Reads torchrun's variables.
#include "runtime/comm/socket/TorchEnvironment.h"

#include "runtime/base/Error.h"

#include <charconv>
#include <cstdlib>
#include <cstring>
#include <fmt/format.h>
#include <string_view>

namespace cleave {

static const char *valueOf(const char *name) {
  const char *text = std::getenv(name);
  return text && *text ? text : nullptr;
}

/// A number in [least, most]; `fallback` if the variable is not set, or an error without fallback.
static unsigned number(const char *name, unsigned least, unsigned most, std::optional<unsigned> fallback = {}) {
  const char *text = valueOf(name);
  if (!text && fallback)
    return *fallback;
  if (!text)
    throw userError(fmt::format("{} is not set: a launcher sets RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT", name));
  const char *end = text + std::strlen(text);
  unsigned value = 0;
  const auto [stopped, problem] = std::from_chars(text, end, value);
  if (problem != std::errc() || stopped != end || value < least || value > most)
    throw userError(fmt::format("{}={}: must be a number from {} to {}", name, text, least, most));
  return value;
}

std::vector<Endpoint> TorchEnvironment::masterAt(uint16_t port) const {
  std::string problem;
  std::vector<Endpoint> places = resolve(address, port, problem);
  if (places.empty())
    throw userError(fmt::format("MASTER_ADDR={}: the name does not resolve: {}", address, problem));
  return places;
}

std::optional<TorchEnvironment> torchEnvironment() {
  constexpr unsigned most = 1u << 20; // ranks
  const char *size = valueOf("WORLD_SIZE");
  const bool many = size && std::string_view(size) != "1";
  if (!many && !(valueOf("RANK") && valueOf("MASTER_ADDR")))
    return {};
  TorchEnvironment found;
  found.size = number("WORLD_SIZE", 1, most);
  found.rank = number("RANK", 0, most);
  if (found.rank >= found.size)
    throw userError(fmt::format("RANK={}: must be below WORLD_SIZE={}", found.rank, found.size));
  found.localSize = number("LOCAL_WORLD_SIZE", 1, found.size, 0);
  found.localRank = number("LOCAL_RANK", 0, found.localSize ? found.localSize - 1 : found.size - 1, 0);
  if (!valueOf("MASTER_ADDR"))
    throw userError("MASTER_ADDR is not set: a launcher sets it to the host of rank 0");
  found.address = valueOf("MASTER_ADDR");
  if (found.address.starts_with('[') && found.address.ends_with(']')) // as in [::1]:29500
    found.address = found.address.substr(1, found.address.size() - 2);
  found.port = static_cast<uint16_t>(number("MASTER_PORT", 1, 65535));
  if (const char *store = valueOf("TORCHELASTIC_USE_AGENT_STORE"); store && std::string_view(store) == "True") {
    const auto text = [](const char *name) { return valueOf(name) ? valueOf(name) : ""; };
    found.storeKey = fmt::format("cleave/{}/{}", text("TORCHELASTIC_RUN_ID"), text("TORCHELASTIC_RESTART_COUNT"));
  }
  return found;
}

} // namespace cleave
