// Calls libgomp directly: the runtime is compiled without OpenMP, but must share oneDNN's thread pool.
#include "runtime/device/Parallel.h"

extern "C" {
void GOMP_parallel(void (*fn)(void *), void *data, unsigned threads, unsigned flags);
void omp_set_num_threads(int threads);
int omp_get_thread_num(void);
}

namespace cleave {

void setThreads(unsigned threads) { omp_set_num_threads(static_cast<int>(threads)); }

void parallelCall(unsigned threads, void (*fn)(void *, unsigned), void *context) {
  struct Call {
    void (*fn)(void *, unsigned);
    void *context;
  } call{fn, context};
  GOMP_parallel(
      [](void *data) {
        auto *work = static_cast<Call *>(data);
        work->fn(work->context, static_cast<unsigned>(omp_get_thread_num()));
      },
      &call, threads, 0);
}

} // namespace cleave
