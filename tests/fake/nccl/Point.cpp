// Sends and receives: those of a group run concurrently, but in order between the same two ranks.
#include "tests/fake/nccl/Comm.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

namespace cleave::fake {

namespace {

struct Transfer {
  CommOperation op;
  size_t done = 0, bytes = 0;
  bool stuck = false;
  bool finished() const { return done == bytes; }
  bool sends() const { return op.kind == Kind::Send; }
};

Mailbox &mailOf(const Communicator &c, const Transfer &t) {
  const auto peer = static_cast<size_t>(t.op.peer);
  return t.sends() ? c.shared->mail(c.rank, peer) : c.shared->mail(peer, c.rank);
}

bool ready(const Communicator &c, const Transfer &t) {
  const Mailbox &m = mailOf(c, t);
  return !t.stuck && !t.finished() && (m.written == m.read) == t.sends();
}

void sendPiece(const Communicator &c, Transfer &t) {
  Mailbox &m = mailOf(c, t);
  m.total = t.bytes;
  m.piece = std::min(mailBytes, t.bytes - t.done);
  std::memcpy(c.shared->letter(c.rank, static_cast<size_t>(t.op.peer)), static_cast<const char *>(t.op.in) + t.done,
              m.piece);
  t.done += m.piece;
  ++m.written;
  c.shared->notify();
}

void receivePiece(const Communicator &c, Transfer &t) {
  Mailbox &m = mailOf(c, t);
  if (m.total != t.bytes) {
    std::fprintf(stderr, "fake NCCL: rank %d sends %zu bytes, rank %u receives %zu: the receive does not end\n",
                 t.op.peer, static_cast<size_t>(m.total), c.rank, t.bytes);
    t.stuck = true;
    return;
  }
  std::memcpy(static_cast<char *>(t.op.out) + t.done, c.shared->letter(static_cast<size_t>(t.op.peer), c.rank),
              m.piece);
  t.done += m.piece;
  ++m.read;
  c.shared->notify();
}

/// Whether the transfer is the first unfinished one of its mailbox.
bool isNext(const std::vector<Transfer> &all, size_t i) {
  for (size_t k = 0; k < i; ++k)
    if (!all[k].finished() && all[k].op.kind == all[i].op.kind && all[k].op.peer == all[i].op.peer)
      return false;
  return true;
}

} // namespace

bool runPointToPoint(Communicator &c, const std::vector<CommOperation> &ops) {
  std::vector<Transfer> all;
  for (const CommOperation &op : ops)
    all.push_back({op, 0, op.count * elementBytes(op.type)});
  const auto canGoOn = [&] {
    for (size_t i = 0; i < all.size(); ++i)
      if (isNext(all, i) && ready(c, all[i]))
        return true;
    return false;
  };
  while (std::any_of(all.begin(), all.end(), [](const Transfer &t) { return !t.finished(); })) {
    if (!c.wait(canGoOn))
      return false;
    for (size_t i = 0; i < all.size(); ++i)
      if (isNext(all, i) && ready(c, all[i]))
        all[i].sends() ? sendPiece(c, all[i]) : receivePiece(c, all[i]);
  }
  return true;
}

} // namespace cleave::fake
