// Files in shared memory, and waiting for changes in them.
#include "tests/fake/nccl/Shared.h"

#include <climits>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <random>
#include <sched.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace cleave::fake {

namespace {

constexpr uint32_t magic = 0x6e63636c;
constexpr const char *prefix = "cleave-fake-nccl-";

long futex(std::atomic<uint32_t> &word, int operation, uint32_t value, const timespec *timeout) {
  return syscall(SYS_futex, reinterpret_cast<uint32_t *>(&word), operation, value, timeout, nullptr, 0);
}

size_t roundUp(size_t n) { return (n + 4095) / 4096 * 4096; }

} // namespace

std::unique_ptr<Shared> Shared::open(const std::string &name, uint32_t ranks, uint32_t rank, std::string &why) {
  std::unique_ptr<Shared> shared(new Shared(name, ranks, rank));
  return shared->map(why) ? std::move(shared) : nullptr;
}

bool Shared::lockByte() {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_start = rank;
  lock.l_len = 1;
  return fcntl(file, F_OFD_SETLK, &lock) == 0;
}

bool Shared::map(std::string &why) {
  const size_t atParts = 4096, atMails = roundUp(atParts + ranks * sizeof(RankPart));
  const size_t atSlots = roundUp(atMails + size_t{ranks} * ranks * sizeof(Mailbox));
  const size_t atLetters = atSlots + ranks * slotBytes;
  bytes = atLetters + size_t{ranks} * ranks * mailBytes;
  file = shm_open(("/" + name).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (file < 0) {
    why = "no shared memory: " + std::string(std::strerror(errno));
    return false;
  }
  flock(file, LOCK_EX); // the first rank initialises the file
  struct stat found {};
  fstat(file, &found);
  const bool mine = found.st_size == 0;
  bool good = !mine || ftruncate(file, static_cast<off_t>(bytes)) == 0;
  good = good && (mine || static_cast<size_t>(found.st_size) == bytes);
  void *mapped = good ? mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0) : MAP_FAILED;
  if (mapped != MAP_FAILED) {
    base = static_cast<char *>(mapped);
    header = reinterpret_cast<SharedHeader *>(base);
    parts = reinterpret_cast<RankPart *>(base + atParts);
    mails = reinterpret_cast<Mailbox *>(base + atMails);
    slots = base + atSlots;
    letters = base + atLetters;
    if (mine)
      header->magic = magic, header->ranks = ranks;
    good = header->ranks == ranks && lockByte() && parts[rank].attached.exchange(1) == 0;
  }
  flock(file, LOCK_UN);
  if (!good || !base) {
    why = "another rank gave another number of ranks, or the same rank";
    return false;
  }
  ++header->attached;
  notify();
  return true;
}

Shared::~Shared() {
  if (base)
    munmap(base, bytes);
  if (file >= 0)
    close(file);
}

void Shared::forget() { shm_unlink(("/" + name).c_str()); }

bool Shared::dead(uint32_t other) const {
  if (other == rank || !parts[other].attached || parts[other].gone)
    return false;
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_start = other;
  lock.l_len = 1;
  return fcntl(file, F_OFD_GETLK, &lock) == 0 && lock.l_type == F_UNLCK && !parts[other].gone;
}

void Shared::notify() {
  ++header->signal;
  if (header->sleepers)
    futex(header->signal, FUTEX_WAKE, INT_MAX, nullptr);
}

bool Shared::wait(const std::function<bool()> &done, const std::function<bool()> &stop,
                  const std::function<void()> &idle) {
  for (unsigned turn = 0;; ++turn) {
    const uint32_t seen = header->signal;
    if (done())
      return true;
    if (stop())
      return false;
    if (turn < 16) {
      sched_yield();
      continue;
    }
    const timespec pause{0, 2000000};
    ++header->sleepers;
    futex(header->signal, FUTEX_WAIT, seen, &pause);
    --header->sleepers;
    if (turn % 4 == 0)
      idle();
  }
}

std::string uniqueName() {
  if (DIR *folder = opendir("/dev/shm")) {
    while (const dirent *entry = readdir(folder)) {
      int pid = 0;
      if (std::strncmp(entry->d_name, prefix, std::strlen(prefix)) == 0 &&
          std::sscanf(entry->d_name + std::strlen(prefix), "%d-", &pid) == 1 && kill(pid, 0) != 0 && errno == ESRCH)
        shm_unlink(("/" + std::string(entry->d_name)).c_str());
    }
    closedir(folder);
  }
  static std::atomic<unsigned> counter{0};
  std::random_device random;
  char name[96];
  std::snprintf(name, sizeof name, "%s%d-%u-%08x", prefix, static_cast<int>(getpid()), counter++, random());
  return name;
}

} // namespace cleave::fake
