// Strategy files: any text is rejected with a user error, or it can be written and read back unchanged.
#include "partitioner/strategy/Decisions.h"
#include "runtime/base/Error.h"

#include <cstdio>
#include <cstdlib>

using cleave::partitioner::Decisions;

static bool same(const Decisions &a, const Decisions &b) {
  if (a.mesh != b.mesh || a.schedule != b.schedule || a.microbatches != b.microbatches || a.stages != b.stages ||
      a.shard.size() != b.shard.size())
    return false;
  for (size_t i = 0; i < a.shard.size(); ++i)
    if (a.shard[i].pattern != b.shard[i].pattern || a.shard[i].dims != b.shard[i].dims ||
        a.shard[i].origin != b.shard[i].origin)
      return false;
  return true;
}

static void roundTrip(const std::string &text) {
  const Decisions strategy = Decisions::parse(text, "fuzz.toml");
  const std::string written = strategy.toToml();
  try {
    if (const Decisions again = Decisions::parse(written, "again.toml");
        same(strategy, again) && again.toToml() == written)
      return;
    std::fprintf(stderr, "reads back as another:\n%s\n", written.c_str());
  } catch (const cleave::Error &error) {
    std::fprintf(stderr, "does not read back: %s\n%s\n", error.what(), written.c_str());
  }
  std::abort();
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  try {
    roundTrip({reinterpret_cast<const char *>(data), size});
  } catch (const cleave::Error &error) {
    if (error.status != cleave::Status::User || *error.what() == 0)
      std::abort();
  }
  return 0;
}
