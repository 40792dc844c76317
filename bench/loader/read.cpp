// Reads pictures as training does, without a model: bench/loader/loader measures it against others.
// usage: bench_loader DIR SIZE THREADS PICTURES exact|fast. Prints the seconds.
#include "runtime/base/Thread.h"
#include "runtime/data/PictureSource.h"
#include "runtime/plan/plan_generated.h"

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

using namespace cleave;

int main(int argc, char **argv) {
  if (argc != 6)
    return 2;
  const int64_t size = std::atoll(argv[2]), threads = std::atoll(argv[3]), pictures = std::atoll(argv[4]);
  DataSpec spec{plan::DataKind::Pictures,
                {{"image", FieldType::U8, {3, size, size}, 0}, {"label", FieldType::I32, {}, 1000}}};
  spec.train = imageNetTraining(size);
  const PictureSource source(spec, argv[1], {.eval = false, .fastDecode = std::string(argv[5]) == "fast"});
  std::atomic<int64_t> next = 0;
  const auto work = [&] {
    std::vector<std::byte> image(static_cast<size_t>(3 * size * size));
    int32_t label = 0;
    std::byte *const to[] = {image.data(), reinterpret_cast<std::byte *>(&label)};
    for (int64_t i = next++; i < pictures; i = next++)
      readSample(source, {Split::Train, i % source.samples(Split::Train), 1 + i / source.samples(Split::Train)}, 0, to);
  };
  const auto began = std::chrono::steady_clock::now();
  std::vector<std::thread> list;
  for (int64_t i = 0; i < threads; ++i)
    list.push_back(startThread("reading pictures", work));
  for (std::thread &thread : list)
    thread.join();
  std::printf("%.6f\n", std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count());
  return 0;
}
