// Work that tests enqueue in streams.
#include "tests/fake/tests/Support.h"

#include <atomic>
#include <mutex>
#include <thread>

namespace cleave::fake {

void Gate::wait(void *gate) {
  while (!std::atomic_ref(static_cast<Gate *>(gate)->open))
    std::this_thread::sleep_for(std::chrono::microseconds(50));
}

void Gate::unlock(void *gate) { std::atomic_ref(static_cast<Gate *>(gate)->open) = true; }

void Log::put(CUstream stream, int number) {
  struct Entry {
    Log *log;
    int number;
  };
  static std::mutex lock;
  const CleaveFakeWork work{"log",
                            [](void *data) {
                              auto *entry = static_cast<Entry *>(data);
                              std::unique_lock held(lock);
                              entry->log->numbers.push_back(entry->number);
                              return 0;
                            },
                            [](void *data) { delete static_cast<Entry *>(data); },
                            new Entry{this, number},
                            nullptr,
                            0};
  REQUIRE(cleaveFakeEnqueueWork(stream, &work) == 0);
}

} // namespace cleave::fake
