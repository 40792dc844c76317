// State shared by the ranks of a communicator, which are threads of one process or processes of one host: a file in
// shared memory. The file is unlinked when all ranks have opened it. Every rank locks a byte of the file while it
// exists, so the others can detect the end of its process.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace cleave::fake {

constexpr size_t slotBytes = 256 << 10, mailBytes = 64 << 10;

/// The next operation of a rank; must be the same for all ranks.
struct Announcement {
  int32_t kind, type, reduce, root;
  uint64_t count;
  bool operator==(const Announcement &) const = default;
};

struct RankPart {
  alignas(64) std::atomic<uint32_t> attached;
  std::atomic<uint32_t> gone; ///< the rank has ended and takes no further part
  std::atomic<uint64_t> phase, hostPhase;
  uint64_t host; ///< hash of host name and NCCL_HOSTID
  char bus[16];
  int32_t color, key;
  Announcement doing;
};

/// A channel from one rank to another; holds one piece of a message at a time.
struct Mailbox {
  alignas(64) std::atomic<uint64_t> written, read;
  uint64_t total, piece;
};

struct SharedHeader {
  uint32_t magic, ranks;
  std::atomic<uint32_t> attached, signal, sleepers;
};

class Shared {
public:
  /// Opens or creates the file `name`. Returns null if it is for another number of ranks (reason in `why`) or cannot be
  /// created.
  static std::unique_ptr<Shared> open(const std::string &name, uint32_t ranks, uint32_t rank, std::string &why);
  ~Shared();

  RankPart &part(size_t rank) const { return parts[rank]; }
  Mailbox &mail(size_t from, size_t to) const { return mails[from * ranks + to]; }
  char *slot(size_t rank) const { return slots + rank * slotBytes; }
  char *letter(size_t from, size_t to) const { return letters + (from * ranks + to) * mailBytes; }

  /// Wakes ranks that wait, after a change.
  void notify();
  /// Waits until `done` or `stop` holds; calls `idle` from time to time.
  bool wait(const std::function<bool()> &done, const std::function<bool()> &stop, const std::function<void()> &idle);
  /// Whether the process of a rank has ended although the rank did not set `gone`.
  bool dead(uint32_t rank) const;
  /// Unlinks the file: all ranks have opened it.
  void forget();

  const uint32_t ranks, rank;
  const std::string name;

private:
  Shared(std::string name, uint32_t ranks, uint32_t rank) : ranks(ranks), rank(rank), name(std::move(name)) {}
  bool map(std::string &why);
  bool lockByte();
  int file = -1;
  char *base = nullptr;
  size_t bytes = 0;
  SharedHeader *header = nullptr;
  RankPart *parts = nullptr;
  Mailbox *mails = nullptr;
  char *slots = nullptr, *letters = nullptr;
};

/// Returns an unused name; also removes files of processes that have ended.
std::string uniqueName();

} // namespace cleave::fake
