// What the ranks of a communicator share, threads of one process and processes of one host alike: a file in shared
// memory, which loses its name when all have opened it. Every rank locks a byte of the file as long as it lives, so the
// others see when its process is gone.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace cleave::fake {

constexpr size_t slotBytes = 256 << 10, mailBytes = 64 << 10;

/// What a rank is about to do; all must say the same.
struct Announcement {
  int32_t kind, type, reduce, root;
  uint64_t count;
  bool operator==(const Announcement &) const = default;
};

struct RankPart {
  alignas(64) std::atomic<uint32_t> attached;
  std::atomic<uint32_t> gone; ///< it has ended and will take no further part
  std::atomic<uint64_t> phase, hostPhase;
  uint64_t host; ///< hash of host name and NCCL_HOSTID
  char bus[16];
  int32_t color, key;
  Announcement doing;
};

/// From one rank to another: a piece of a message at a time.
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
  /// Opens or makes the file `name`. Null where it is for another number of ranks (`why`), or cannot be had.
  static std::unique_ptr<Shared> open(const std::string &name, uint32_t ranks, uint32_t rank, std::string &why);
  ~Shared();

  RankPart &part(size_t rank) const { return parts[rank]; }
  Mailbox &mail(size_t from, size_t to) const { return mails[from * ranks + to]; }
  char *slot(size_t rank) const { return slots + rank * slotBytes; }
  char *letter(size_t from, size_t to) const { return letters + (from * ranks + to) * mailBytes; }

  /// Something has changed that others may wait for.
  void notify();
  /// Until `done`, or `stop`. Now and then `idle` is called.
  bool wait(const std::function<bool()> &done, const std::function<bool()> &stop, const std::function<void()> &idle);
  /// The process of a rank that has not said goodbye is gone.
  bool dead(uint32_t rank) const;
  /// All have opened the file: it needs no name any more.
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

/// A name that nobody else has; forgets files of processes that are gone.
std::string uniqueName();

} // namespace cleave::fake
