// Finds the fake driver and enqueues work.
#include "tests/fake/cudnn/Driver.h"

#include "tests/fake/cuda/Fake.h"

#include <dlfcn.h>

namespace cleave::fake {

namespace {

template <typename Function> Function *find(const char *name) {
  return reinterpret_cast<Function *>(::dlsym(RTLD_DEFAULT, name));
}

} // namespace

bool enqueue(void *stream, std::unique_ptr<StreamWork> work, const char *name) {
  auto *put = find<int(void *, const CleaveFakeWork *)>("cleaveFakeEnqueueWork");
  if (!put) {
    work->run();
    return true;
  }
  std::vector<CleaveFakeRange> ranges;
  for (const TouchedRange &range : work->ranges())
    ranges.push_back({range.begin, range.bytes, range.written});
  const auto run = [](void *data) {
    static_cast<StreamWork *>(data)->run();
    return 0;
  };
  const auto release = [](void *data) { delete static_cast<StreamWork *>(data); };
  const CleaveFakeWork given{name, run, release, work.get(), ranges.data(), ranges.size()};
  if (put(stream, &given) != 0)
    return false;
  work.release(); // the driver owns it now
  return true;
}

int wantedFailure(const char *function) {
  auto *count = find<int(const char *)>("cleaveFakeCount");
  return count ? count(function) : 0;
}

} // namespace cleave::fake
