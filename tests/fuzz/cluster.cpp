// Cluster files: any text is rejected with a user error, or it can be written and read back unchanged.
#include "partitioner/cluster/Cluster.h"
#include "runtime/base/Error.h"

#include <cstdio>
#include <cstdlib>

using cleave::partitioner::Cluster;

static void roundTrip(const std::string &text) {
  const Cluster cluster = Cluster::parse(text, "fuzz.toml");
  const std::string written = cluster.toToml();
  try {
    if (const Cluster again = Cluster::parse(written, "again.toml"); again == cluster && again.toToml() == written)
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
