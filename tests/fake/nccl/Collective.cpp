// Collectives, piece by piece through the ranks' slots: all ranks write, wait, read, wait.
#include "tests/fake/nccl/Comm.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

namespace cleave::fake {

namespace {

/// Checks that all ranks run the same operation. If not, the ranks wait for each other forever, as with NCCL.
bool agreed(Communicator &c) {
  const Announcement &mine = c.mine().doing;
  for (uint32_t r = 0; r < c.ranks; ++r) {
    const Announcement &other = c.shared->part(r).doing;
    if (other == mine)
      continue;
    char text[256];
    std::snprintf(text, sizeof text,
                  "rank %u does %s of %zu elements of type %d, rank %u %s of %zu of type %d: neither ends", c.rank,
                  nameOf(static_cast<Kind>(mine.kind)), static_cast<size_t>(mine.count), mine.type, r,
                  nameOf(static_cast<Kind>(other.kind)), static_cast<size_t>(other.count), other.type);
    return c.hang(text);
  }
  return true;
}

/// Reduces [begin, begin + count) of all slots, beginning with rank `first`, into `to`.
void reduceSlots(const Communicator &c, const CommOperation &op, char *to, size_t begin, size_t count, uint32_t first) {
  const size_t size = elementBytes(op.type);
  for (uint32_t i = 0; i < c.ranks; ++i) {
    const char *from = c.shared->slot((first + i) % c.ranks) + begin * size;
    if (i == 0)
      std::memcpy(to, from, count * size);
    else
      combine(to, from, count, op.type, op.reduce);
  }
  if (op.reduce == ncclAvg)
    divide(to, count, op.type, c.ranks);
}

/// Like a ring, adds the ranks in a different order for every part of the data.
void reduceRing(const Communicator &c, const CommOperation &op, size_t offset, size_t count) {
  const size_t size = elementBytes(op.type);
  std::vector<char> result(count * size); // `in` and `out` may be the same
  const size_t part = (op.count + c.ranks - 1) / c.ranks;
  for (size_t i = 0; i < count;) {
    const size_t chunk = (offset + i) / part, end = std::min(count, (chunk + 1) * part - offset);
    const uint32_t first = memberOrder() ? 0 : static_cast<uint32_t>((chunk + 1) % c.ranks);
    reduceSlots(c, op, result.data() + i * size, i, end - i, first);
    i = end;
  }
  std::memcpy(static_cast<char *>(op.out) + offset * size, result.data(), count * size);
}

void writeSlot(const Communicator &c, const CommOperation &op, size_t offset, size_t count) {
  const size_t size = elementBytes(op.type);
  const auto *in = static_cast<const char *>(op.in);
  char *slot = c.shared->slot(c.rank);
  if (op.kind == Kind::ReduceScatter) {
    for (size_t block = 0; block < c.ranks; ++block)
      std::memcpy(slot + block * count * size, in + (block * op.count + offset) * size, count * size);
  } else if (op.kind != Kind::Broadcast || static_cast<uint32_t>(op.peer) == c.rank) {
    std::memcpy(slot, in + offset * size, count * size);
  }
}

void readSlots(const Communicator &c, const CommOperation &op, size_t offset, size_t count) {
  const size_t size = elementBytes(op.type);
  auto *out = static_cast<char *>(op.out);
  switch (op.kind) {
  case Kind::AllReduce:
    return reduceRing(c, op, offset, count);
  case Kind::Reduce:
    if (static_cast<uint32_t>(op.peer) == c.rank)
      reduceRing(c, op, offset, count);
    return;
  case Kind::AllGather:
    for (size_t r = 0; r < c.ranks; ++r)
      std::memcpy(out + (r * op.count + offset) * size, c.shared->slot(r), count * size);
    return;
  case Kind::ReduceScatter:
    return reduceSlots(c, op, out + offset * size, c.rank * count, count, memberOrder() ? 0 : (c.rank + 1) % c.ranks);
  case Kind::Broadcast:
    std::memcpy(out + offset * size, c.shared->slot(static_cast<size_t>(op.peer)), count * size);
    return;
  default:
    return;
  }
}

} // namespace

bool runCollective(Communicator &c, const CommOperation &op) {
  const size_t blocks = op.kind == Kind::ReduceScatter ? c.ranks : 1;
  const size_t most = slotBytes / elementBytes(op.type) / blocks;
  c.mine().doing = {static_cast<int32_t>(op.kind), op.type, op.reduce, op.peer, op.count};
  for (size_t offset = 0; offset < op.count; offset += most) {
    const size_t count = std::min(most, op.count - offset);
    writeSlot(c, op, offset, count);
    if (!c.barrier() || (offset == 0 && !agreed(c)))
      return false;
    readSlots(c, op, offset, count);
    if (!c.barrier())
      return false;
  }
  return true;
}

} // namespace cleave::fake
