// Tars and record files: any bytes are rejected with an Error or give pictures that lie within the file.
#include "runtime/pictures/Shards.h"
#include "runtime/base/Error.h"

#include <algorithm>
#include <cstdlib>

using namespace cleave;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  const ByteSource source{"fuzz", size, [&](void *to, size_t count, uint64_t at) {
                            if (at > size || count > size - at)
                              std::abort();
                            std::copy_n(data + at, count, static_cast<uint8_t *>(to));
                          }};
  const auto within = [&](const ShardPicture &picture) {
    if (picture.offset > size || picture.size > size - picture.offset || picture.label < 0)
      std::abort();
  };
  try {
    for (const ShardPicture &picture : picturesOfTar(source))
      within(picture);
  } catch (const Error &) {
  }
  try {
    for (const ShardPicture &picture : picturesOfRecords(source)) {
      within(picture);
      if (pictureOfRecord(source, picture).size() > size)
        std::abort();
    }
  } catch (const Error &) {
  }
  return 0;
}
