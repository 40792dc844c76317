// A client of TCPStore. A request is a byte for its kind, followed by its arguments: strings with a length prefix, in
// the host's byte order (torch/csrc/distributed/c10d/TCPStoreBackend.hpp).
#include "runtime/comm/socket/AgentStore.h"

#include "runtime/base/Error.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fmt/format.h>
#include <string_view>

namespace cleave {

namespace {

enum Query : char { Validate = 0, Set = 1, Get = 3, Wait = 6 };
constexpr uint32_t validation = 0x3c85f7ce;
constexpr uint64_t longestValue = 64;

template <typename T> void append(std::string &request, T value) {
  request.append(reinterpret_cast<const char *>(&value), sizeof value);
}

void appendText(std::string &request, const std::string &text) {
  append(request, uint64_t{text.size()});
  request += text;
}

} // namespace

AgentStore::AgentStore(const TorchEnvironment &who, Clock::time_point deadline) : who(who), deadline(deadline) {
  for (const Endpoint &place : who.masterAt(who.port))
    if ((socket = connectTo(place, deadline, -1)))
      break;
  if (!socket)
    throw environmentError(fmt::format("the launcher's store does not answer at MASTER_ADDR={}, MASTER_PORT={}: {}",
                                       who.address, who.port, std::strerror(errno)));
  std::string request(1, Validate);
  append(request, validation);
  send(request);
}

void AgentStore::send(const std::string &request) {
  if (sendAll(socket, request.data(), request.size(), deadline, -1) != Transfer::Done)
    throw environmentError(fmt::format("the launcher's store at MASTER_ADDR={}, MASTER_PORT={} accepts no request",
                                       who.address, who.port));
}

void AgentStore::receive(void *data, size_t bytes) {
  const Transfer done = receiveAll(socket, data, bytes, deadline, -1);
  if (done == Transfer::TimedOut)
    throw environmentError(fmt::format("rank 0 has not published its port in time (in the launcher's store at "
                                       "MASTER_ADDR={}, MASTER_PORT={})",
                                       who.address, who.port));
  if (done != Transfer::Done)
    throw environmentError(fmt::format("the launcher's store at MASTER_ADDR={}, MASTER_PORT={} closed the connection",
                                       who.address, who.port));
}

void AgentStore::publish(const Said &said) {
  std::string request(1, Set);
  appendText(request, who.storeKey);
  appendText(request, fmt::format("{} {}", said.port, said.secret));
  send(request);
  find(); // an answer confirms that the store has the value
}

AgentStore::Said AgentStore::find() {
  std::string request(1, Wait);
  append(request, uint64_t{1});
  appendText(request, who.storeKey);
  send(request);
  char answer = 0;
  receive(&answer, 1);
  request.assign(1, Get);
  appendText(request, who.storeKey);
  send(request);
  uint64_t size = 0;
  char text[longestValue] = {};
  receive(&size, sizeof size);
  if (size <= longestValue)
    receive(text, size);
  Said said;
  const char *begin = text, *end = text + std::min(size, longestValue), *space = std::find(begin, end, ' ');
  if (answer != 0 || size > longestValue || space == end || std::from_chars(text, space, said.port).ptr != space ||
      said.port == 0)
    throw environmentError(fmt::format("the launcher's store at MASTER_ADDR={}, MASTER_PORT={} holds no port under {}",
                                       who.address, who.port, who.storeKey));
  said.secret.assign(space + 1, end);
  return said;
}

} // namespace cleave
