// IDX files: any bytes are rejected with an Error or give an array of the stated size.
#include "runtime/data/Idx.h"
#include "runtime/base/Error.h"

#include <cstdlib>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  for (unsigned rank : {1u, 3u})
    try {
      const cleave::IdxArray array = cleave::parseIdx({data, size}, rank, "fuzz");
      int64_t total = 1;
      for (int64_t extent : array.dims)
        total *= extent;
      if (total != int64_t(array.data.size()) || cleave::encodeIdx(array) != std::vector<uint8_t>(data, data + size))
        std::abort();
    } catch (const cleave::Error &) {
    }
  return 0;
}
