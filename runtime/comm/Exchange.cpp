// Collectives as exchanges: send chunks to their owners, reduce in member order, send the results to all.
#include "runtime/comm/Exchange.h"

#include "runtime/comm/Reduce.h"
#include "runtime/comm/Shares.h"
#include "runtime/plan/DTypes.h"
#include "runtime/plan/Slices.h"
#include "runtime/plan/plan_generated.h"

#include <algorithm>
#include <cassert>
#include <cstring>

namespace cleave {

static constexpr int64_t smallBytes = 16 << 10; // gathered once and reduced by every member

struct ExchangeCommunicator::Call {
  plan::ReduceKind reduce;
  plan::DType dtype;
  int64_t element; ///< bytes
};

ExchangeScratch::ExchangeScratch(unsigned ranks) {
  for (auto &half : memory)
    half = std::make_unique<std::byte[]>(static_cast<size_t>(std::max<int64_t>(bytes, int64_t{64} * ranks)) + 4096);
}

unsigned placeInGroup(std::span<const uint32_t> ranks, unsigned rank) {
  auto place = std::find(ranks.begin(), ranks.end(), rank);
  assert(place != ranks.end() && "a rank asks for a group it is not in");
  return static_cast<unsigned>(place - ranks.begin());
}

ExchangeCommunicator::ExchangeCommunicator(unsigned members, unsigned member, ExchangeScratch &scratch)
    : members(members), me(member), scratch(scratch), inputs(members) {
  for (Blocks *blocks : {&sends, &receives}) {
    blocks->bytes.resize(members);
    blocks->places.resize(members);
  }
}

void ExchangeCommunicator::share(unsigned ranks) {
  if (std::exchange(asked, true) || members == 1 || members > SharedGroup::mostMembers)
    return;
  SharedSegment segment;
  if (me == 0)
    segment = SharedSegment::make(SharedGroup::bytes(members));
  SharedSegment::Address address = segment.address();
  broadcastBytes(reinterpret_cast<std::byte *>(&address), sizeof address);
  if (me != 0)
    segment = SharedSegment::open(address);
  for (unsigned m = 0; m < members; ++m) {
    receives.bytes[m] = 1;
    receives.places[m] = static_cast<int>(m);
  }
  const std::byte reached{segment ? uint8_t{1} : uint8_t{0}};
  std::byte *all = scratch[1];
  gatherBytes(&reached, all);
  segment.close();
  if (std::all_of(all, all + members, [](std::byte one) { return one == std::byte{1}; }))
    shared = std::make_unique<SharedGroup>(std::move(segment), members, me, spinsOf(ranks),
                                           [this](const SharedWait &awaited) { waitShared(awaited); });
}

void ExchangeCommunicator::reduceSmall(const Call &call, std::span<const CollectivePart> parts, int64_t bytes) {
  std::byte *mine = scratch[0], *all = scratch[1];
  int64_t at = 0;
  for (const CollectivePart &part : parts) {
    if (part.count)
      std::memcpy(mine + at, part.in, static_cast<size_t>(part.count * call.element));
    at += part.count * call.element;
  }
  for (unsigned m = 0; m < members; ++m) {
    receives.bytes[m] = static_cast<int>(bytes);
    receives.places[m] = static_cast<int>(m * bytes);
  }
  gatherBytes(mine, all);
  at = 0;
  for (const CollectivePart &part : parts) {
    // Pieces may not be aligned to elements: copy them one by one to the start of the other scratch buffer.
    int64_t piece = part.count * call.element, room = (piece + 63) / 64 * 64;
    for (unsigned m = 0; m < members; ++m) {
      std::memcpy(mine + m * room, all + m * bytes + at, static_cast<size_t>(piece));
      inputs[m] = mine + m * room;
    }
    reduceElements(call.dtype, call.reduce, inputs, 0, part.out, part.count);
    at += piece;
  }
}

void ExchangeCommunicator::allReduce(const Call &call, const CollectivePart &part) {
  int64_t block = exchangeBlock(ExchangeScratch::bytes / call.element, members);
  for (int64_t begin = 0; begin < part.count; begin += block) {
    int64_t count = std::min(block, part.count - begin);
    const auto *in = static_cast<const std::byte *>(part.in) + begin * call.element;
    auto *out = static_cast<std::byte *>(part.out) + begin * call.element;
    Part mine = splitPart(count, members, me);
    for (unsigned m = 0; m < members; ++m) {
      Part chunk = splitPart(count, members, m);
      sends.bytes[m] = static_cast<int>(chunk.count * call.element);
      sends.places[m] = static_cast<int>(chunk.begin * call.element);
      receives.bytes[m] = static_cast<int>(mine.count * call.element);
      receives.places[m] = static_cast<int>(m * mine.count * call.element);
      inputs[m] = scratch[1] + receives.places[m];
    }
    exchange(in, scratch[1]);
    reduceElements(call.dtype, call.reduce, inputs, 0, scratch[0], mine.count);
    for (unsigned m = 0; m < members; ++m) {
      receives.bytes[m] = sends.bytes[m];
      receives.places[m] = sends.places[m];
    }
    gatherBytes(scratch[0], out);
  }
}

void ExchangeCommunicator::allGather(const Call &call, const CollectivePart &part) {
  const Shares shares(part, call.element);
  const int64_t round = std::max<int64_t>(64, ExchangeScratch::bytes / members / 64 * 64);
  for (int64_t begin = 0, largest = shares.largest(); begin < largest; begin += round) {
    for (unsigned m = 0; m < members; ++m) {
      receives.bytes[m] = static_cast<int>(shares.bytesFrom(m, begin, round));
      receives.places[m] = static_cast<int>(m * round);
    }
    gatherBytes(static_cast<const std::byte *>(part.in) + (receives.bytes[me] ? begin : 0), scratch[1]);
    for (unsigned m = 0; m < members; ++m)
      shares.toWhole(m, begin, receives.bytes[m], scratch[1] + m * round, part.out);
  }
}

void ExchangeCommunicator::reduceScatter(const Call &call, const CollectivePart &part) {
  const Shares shares(part, call.element);
  const int64_t round = std::max<int64_t>(64, ExchangeScratch::bytes / members / 64 * 64);
  for (int64_t begin = 0, largest = shares.largest(); begin < largest; begin += round) {
    const int64_t mine = shares.bytesFrom(me, begin, round);
    for (unsigned m = 0; m < members; ++m) {
      sends.bytes[m] = static_cast<int>(shares.bytesFrom(m, begin, round));
      receives.bytes[m] = static_cast<int>(mine);
      sends.places[m] = receives.places[m] = static_cast<int>(m * round);
      shares.fromWhole(m, begin, sends.bytes[m], part.in, scratch[0] + m * round);
      inputs[m] = scratch[1] + m * round;
    }
    exchange(scratch[0], scratch[1]);
    if (mine)
      reduceElements(call.dtype, call.reduce, inputs, 0, static_cast<std::byte *>(part.out) + begin,
                     mine / call.element);
  }
}

void ExchangeCommunicator::allToAll(const Call &call, const CollectivePart &part) {
  int64_t block = part.count / members * call.element, round = ExchangeScratch::bytes / members;
  for (int64_t begin = 0; begin < block; begin += round) {
    int64_t bytes = std::min(round, block - begin);
    for (unsigned m = 0; m < members; ++m) {
      std::memcpy(scratch[0] + m * round, static_cast<const std::byte *>(part.in) + m * block + begin,
                  static_cast<size_t>(bytes));
      sends.bytes[m] = receives.bytes[m] = static_cast<int>(bytes);
      sends.places[m] = receives.places[m] = static_cast<int>(m * round);
    }
    exchange(scratch[0], scratch[1]);
    for (unsigned m = 0; m < members; ++m)
      std::memcpy(static_cast<std::byte *>(part.out) + m * block + begin, scratch[1] + m * round,
                  static_cast<size_t>(bytes));
  }
}

void ExchangeCommunicator::broadcast(const Call &call, const CollectivePart &part) {
  auto bytes = static_cast<size_t>(part.count * call.element);
  if (me == 0 && part.out != part.in && bytes)
    std::memcpy(part.out, part.in, bytes);
  broadcastBytes(static_cast<std::byte *>(part.out), bytes);
}

void ExchangeCommunicator::run(plan::CollectiveKind kind, plan::ReduceKind reduce, plan::DType dtype,
                               std::span<const CollectivePart> parts) {
  if (shared) {
    moveMessages(); // there may be nothing to wait for
    return shared->run(kind, reduce, dtype, parts);
  }
  Call call{reduce, dtype, static_cast<int64_t>(dtypeSize(dtype))};
  if (kind == plan::CollectiveKind::AllReduce) {
    int64_t bytes = 0;
    for (const CollectivePart &part : parts)
      bytes += part.count * call.element;
    if (bytes <= smallBytes && bytes * members <= ExchangeScratch::bytes / 2)
      return reduceSmall(call, parts, bytes);
  }
  for (const CollectivePart &part : parts)
    switch (kind) {
    case plan::CollectiveKind::AllReduce:
      allReduce(call, part);
      break;
    case plan::CollectiveKind::AllGather:
      allGather(call, part);
      break;
    case plan::CollectiveKind::ReduceScatter:
      reduceScatter(call, part);
      break;
    case plan::CollectiveKind::AllToAll:
      allToAll(call, part);
      break;
    case plan::CollectiveKind::Broadcast:
      broadcast(call, part);
      break;
    }
}

/// Calls move(data, bytes) for pieces of `size` bytes. Before each, a receiver makes room for that piece alone.
template <typename Move> static void inPieces(std::vector<uint8_t> &bytes, uint64_t size, Move move) {
  constexpr uint64_t piece = 1 << 20;
  for (uint64_t begin = 0; begin < size; begin += piece) {
    const uint64_t end = begin + std::min(piece, size - begin);
    if (bytes.size() < end)
      bytes.resize(end);
    move(reinterpret_cast<std::byte *>(bytes.data()) + begin, static_cast<size_t>(end - begin));
  }
}

void ExchangeEndpoint::broadcast(std::vector<uint8_t> &bytes) {
  uint64_t size = bytes.size();
  broadcastBytes(reinterpret_cast<std::byte *>(&size), sizeof size);
  if (rank() != 0)
    bytes.clear();
  inPieces(bytes, size, [&](std::byte *data, size_t count) { broadcastBytes(data, count); });
}

std::vector<std::vector<uint8_t>> ExchangeEndpoint::gather(std::span<const uint8_t> bytes) {
  std::vector<std::vector<uint8_t>> all(rank() == 0 ? size() : 0);
  std::vector<uint8_t> mine(bytes.begin(), bytes.end());
  if (rank() != 0) {
    const auto give = [&](const void *data, size_t count) {
      send(data, count, 0, setupTag, setupMicrobatch);
      waitSend(setupTag, setupMicrobatch);
    };
    const uint64_t count = mine.size();
    give(&count, sizeof count);
    inPieces(mine, count, give);
    return all;
  }
  all[0] = std::move(mine);
  for (unsigned from = 1; from < all.size(); ++from) {
    uint64_t count = 0;
    recv(&count, sizeof count, from, setupTag, setupMicrobatch);
    inPieces(all[from], count,
             [&](std::byte *data, size_t part) { recv(data, part, from, setupTag, setupMicrobatch); });
  }
  return all;
}

} // namespace cleave
