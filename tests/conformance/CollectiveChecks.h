// Implements the checks of Collectives.h. A header, because two programs compile it: one with Catch2, one for mpirun.
#pragma once
#include "runtime/plan/DTypes.h"
#include "runtime/plan/Slices.h"
#include "runtime/plan/plan_generated.h"
#include "tests/conformance/Collectives.h"

#include <fmt/format.h>

#include <cstring>
#include <numeric>

namespace cleave::test {

using plan::DType;
using plan::ReduceKind;

/// The value of member m at element i.
inline float value(unsigned m, int64_t i) {
  return static_cast<float>((m + 1) * (i % 97) % 23) - 7.0f * static_cast<float>(m % 2);
}

class CollectiveChecks {
public:
  explicit CollectiveChecks(Communicator &group, std::string name)
      : group(group), name(std::move(name)), n(group.size()), me(group.member()) {}
  std::vector<std::string> run() {
    for (int64_t count : {0, 1, 5, 64, 1000, 8191, 300000}) {
      allReduce(count, false);
      allReduce(count, true);
      broadcast(count);
      allToAll(count);
    }
    for (int64_t outer : {1, 3})
      for (int64_t inner : {1, 16, 4000})
        for (int64_t rows : {0, 1, 7, 13}) {
          allGather(outer, inner, rows);
          reduceScatter(outer, inner, rows);
        }
    manyBuffers();
    order();
    types();
    largeGather();
    group.barrier();
    return std::move(errors);
  }

private:
  void expect(bool good, const std::string &what) {
    if (!good)
      errors.push_back(fmt::format("{} of {} members, member {}: {}", name, n, me, what));
  }
  std::vector<float> mine(int64_t count) const {
    std::vector<float> data(static_cast<size_t>(count));
    for (int64_t i = 0; i < count; ++i)
      data[static_cast<size_t>(i)] = value(me, i);
    return data;
  }
  float sumAt(int64_t i) const {
    float sum = 0;
    for (unsigned m = 0; m < n; ++m)
      sum += value(m, i);
    return sum;
  }

  void allReduce(int64_t count, bool inPlace) {
    auto in = mine(count);
    std::vector<float> out(in.size(), -1);
    if (inPlace)
      out = in;
    group.allReduce(inPlace ? out.data() : in.data(), out.data(), count, DType::F32, ReduceKind::Sum);
    bool good = true;
    for (int64_t i = 0; i < count; ++i)
      good = good && out[static_cast<size_t>(i)] == sumAt(i);
    expect(good && (inPlace || in == mine(count)), fmt::format("all-reduce of {}, in place {}", count, inPlace));
  }

  void broadcast(int64_t count) {
    auto in = mine(count);
    std::vector<float> out(in.size(), -1);
    group.broadcast(in.data(), out.data(), count, DType::F32);
    bool good = true;
    for (int64_t i = 0; i < count; ++i)
      good = good && out[static_cast<size_t>(i)] == value(0, i);
    expect(good, fmt::format("broadcast of {}", count));
  }

  void allToAll(int64_t block) {
    auto in = mine(block * n);
    std::vector<float> out(in.size(), -1);
    group.allToAll(in.data(), out.data(), block * n, DType::F32);
    bool good = true;
    for (unsigned m = 0; m < n; ++m)
      for (int64_t i = 0; i < block; ++i)
        good = good && out[static_cast<size_t>(m * block + i)] == value(m, me * block + i);
    expect(good, fmt::format("all-to-all of blocks of {}", block));
  }

  std::vector<int64_t> sizesOf(int64_t rows) const {
    std::vector<int64_t> sizes;
    for (unsigned m = 0; m < n; ++m)
      sizes.push_back(splitPart(rows, n, m).count);
    return sizes;
  }

  void allGather(int64_t outer, int64_t inner, int64_t rows) {
    auto sizes = sizesOf(rows);
    auto in = mine(outer * sizes[me] * inner);
    std::vector<float> out(static_cast<size_t>(outer * rows * inner), -1);
    group.allGather(in.data(), out.data(), outer, inner, sizes, DType::F32);
    bool good = true;
    for (int64_t o = 0; o < outer; ++o)
      for (unsigned m = 0; m < n; ++m)
        for (int64_t i = 0; i < sizes[m] * inner; ++i) {
          int64_t at = (o * rows + splitPart(rows, n, m).begin) * inner + i;
          good = good && out[static_cast<size_t>(at)] == value(m, o * sizes[m] * inner + i);
        }
    expect(good, fmt::format("all-gather of {} x {} x {}", outer, rows, inner));
  }

  void reduceScatter(int64_t outer, int64_t inner, int64_t rows) {
    auto sizes = sizesOf(rows);
    auto in = mine(outer * rows * inner);
    std::vector<float> out(static_cast<size_t>(outer * sizes[me] * inner), -1);
    group.reduceScatter(in.data(), out.data(), outer, inner, sizes, DType::F32, ReduceKind::Sum);
    bool good = true;
    for (int64_t o = 0; o < outer; ++o)
      for (int64_t i = 0; i < sizes[me] * inner; ++i)
        good = good && out[static_cast<size_t>(o * sizes[me] * inner + i)] ==
                           sumAt((o * rows + splitPart(rows, n, me).begin) * inner + i);
    expect(good, fmt::format("reduce-scatter of {} x {} x {}", outer, rows, inner));
  }

  void manyBuffers() {
    for (int64_t scale : {1, 40000}) {
      auto a = mine(3 * scale), b = mine(5), c = mine(7 * scale);
      CollectivePart parts[] = {{.in = a.data(), .out = a.data(), .count = 3 * scale},
                                {.in = b.data(), .out = b.data(), .count = 5},
                                {.in = c.data(), .out = c.data(), .count = 7 * scale}};
      group.run(plan::CollectiveKind::AllReduce, ReduceKind::Sum, DType::F32, parts);
      bool good = true;
      for (const auto *data : {&a, &b, &c})
        for (size_t i = 0; i < data->size(); ++i)
          good = good && (*data)[i] == sumAt(static_cast<int64_t>(i));
      expect(good, fmt::format("all-reduce of three buffers, scale {}", scale));
    }
  }

  /// Checks that additions happen in member order: any other order gives another sum of these numbers.
  void order() {
    for (int64_t count : {3, 100000}) {
      std::vector<float> data(static_cast<size_t>(count));
      auto hold = [&](unsigned m, int64_t i) {
        return 1.0f / static_cast<float>(3 + m * 7 + i % 5) * (m % 2 ? 1e4f : 1.0f);
      };
      for (int64_t i = 0; i < count; ++i)
        data[static_cast<size_t>(i)] = hold(me, i);
      group.allReduce(data.data(), data.data(), count, DType::F32, ReduceKind::Sum);
      bool good = true;
      for (int64_t i = 0; i < count; ++i) {
        float sum = hold(0, i);
        for (unsigned m = 1; m < n; ++m)
          sum += hold(m, i);
        good = good && data[static_cast<size_t>(i)] == sum;
      }
      expect(good, fmt::format("sums of {} in member order", count));
    }
  }

  void types() {
    for (DType dtype : {DType::F32, DType::F16, DType::BF16, DType::I32, DType::I64})
      for (ReduceKind kind : {ReduceKind::Sum, ReduceKind::Max, ReduceKind::Min})
        for (int64_t count : {9, 20000}) {
          auto hold = [](unsigned m, int64_t i) { return static_cast<double>((m + 2) * (i % 7) % 11); };
          std::vector<uint8_t> data(static_cast<size_t>(count) * dtypeSize(dtype));
          for (int64_t i = 0; i < count; ++i)
            storeElement(data.data(), i, dtype, hold(me, i));
          group.allReduce(data.data(), data.data(), count, dtype, kind);
          bool good = true;
          for (int64_t i = 0; i < count; ++i) {
            double all = hold(0, i);
            for (unsigned m = 1; m < n; ++m)
              all = kind == ReduceKind::Sum   ? all + hold(m, i)
                    : kind == ReduceKind::Max ? std::max(all, hold(m, i))
                                              : std::min(all, hold(m, i));
            good = good && loadElement(data.data(), i, dtype) == all;
          }
          expect(good, fmt::format("all-reduce {} of {} {}", EnumNameReduceKind(kind), count, dtypeName(dtype)));
        }
    uint8_t flag = me == n - 1, any = 0;
    group.allReduce(&flag, &any, 1, DType::I1, ReduceKind::Or);
    expect(any == 1, "or of truth values");
  }

  /// A gather of more data than the scratch buffers of a communicator hold.
  void largeGather() {
    int64_t rows = 3 * n + 1, inner = 1 << 18;
    auto sizes = sizesOf(rows);
    std::vector<int32_t> in(static_cast<size_t>(sizes[me] * inner), static_cast<int32_t>(me + 1));
    std::vector<int32_t> out(static_cast<size_t>(rows * inner));
    group.allGather(in.data(), out.data(), 1, inner, sizes, DType::I32);
    bool good = true;
    for (unsigned m = 0; m < n; ++m)
      for (int64_t i = 0; i < sizes[m] * inner; i += 1023)
        good = good && out[static_cast<size_t>(splitPart(rows, n, m).begin * inner + i)] == static_cast<int32_t>(m) + 1;
    expect(good, "large all-gather");
  }

  Communicator &group;
  std::string name;
  unsigned n, me;
  std::vector<std::string> errors;
};

inline std::vector<std::string> checkCollectives(RankEndpoint &world) {
  std::vector<uint32_t> all(world.size());
  std::iota(all.begin(), all.end(), 0u);
  auto errors = CollectiveChecks(world.group(all), "all ranks").run();
  // Two groups at once: the even and the odd ranks.
  std::vector<uint32_t> half;
  for (uint32_t r = world.rank() % 2; r < world.size(); r += 2)
    half.push_back(r);
  auto more = CollectiveChecks(world.group(half), "every other rank").run();
  errors.insert(errors.end(), more.begin(), more.end());
  // The member order is that of the group, not that of the ranks.
  std::vector<uint32_t> backwards(all.rbegin(), all.rend());
  more = CollectiveChecks(world.group(backwards), "ranks backwards").run();
  errors.insert(errors.end(), more.begin(), more.end());
  return errors;
}

inline std::vector<std::string> checkMessages(RankEndpoint &world) {
  std::vector<std::string> errors;
  unsigned n = world.size(), me = world.rank(), next = (me + 1) % n, before = (me + n - 1) % n;
  auto fill = [](unsigned rank, uint32_t tag, int32_t microbatch, size_t count) {
    return std::vector<uint32_t>(count, rank * 1000003 + tag * 101 + static_cast<uint32_t>(microbatch));
  };
  if (n > 1)
    for (size_t count : {size_t{0}, size_t{1}, size_t{1000}, size_t{1000000}}) {
      // Messages are received in another order than they are sent.
      std::vector<std::vector<uint32_t>> sent;
      for (uint32_t tag : {3u, 5u})
        for (int32_t microbatch : {0, 1, 2})
          sent.push_back(fill(me, tag, microbatch, count));
      size_t i = 0;
      for (uint32_t tag : {3u, 5u})
        for (int32_t microbatch : {0, 1, 2})
          world.send(sent[i++].data(), count * 4, next, tag, microbatch);
      for (int32_t microbatch : {2, 0, 1})
        for (uint32_t tag : {5u, 3u}) {
          std::vector<uint32_t> got(count, 7);
          world.recv(got.data(), count * 4, before, tag, microbatch);
          if (got != fill(before, tag, microbatch, count))
            errors.push_back(
                fmt::format("rank {}: message {} of microbatch {} is not what was sent", me, tag, microbatch));
        }
      world.waitSend(5, 1);
      world.waitSend(3, 0);
      world.waitAllSends();
    }
  std::vector<uint8_t> bytes(me == 0 ? 100000 : 3, me == 0 ? 42 : 1);
  world.broadcast(bytes);
  if (bytes != std::vector<uint8_t>(100000, 42))
    errors.push_back(fmt::format("rank {}: broadcast of bytes", me));
  auto gathered = world.gather(std::vector<uint8_t>(me * 10, static_cast<uint8_t>(me)));
  for (unsigned r = 0; me == 0 && r < n; ++r)
    if (gathered[r] != std::vector<uint8_t>(r * 10, static_cast<uint8_t>(r)))
      errors.push_back(fmt::format("gather: bytes of rank {}", r));
  world.barrier();
  return errors;
}

} // namespace cleave::test
