// Implements the checks of Collectives.h. A header, because two programs compile it: one with Catch2, one for mpirun.
#pragma once
#include "runtime/plan/DTypes.h"
#include "runtime/plan/Slices.h"
#include "runtime/plan/plan_generated.h"
#include "tests/conformance/Collectives.h"

#include <fmt/format.h>

#include <array>
#include <cstring>
#include <fstream>
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
    // Also one more and one less than what shared memory moves in one step, and than what it reduces in one.
    for (int64_t count : {0, 1, 5, 64, 1000, 4096, 4097, 8191, 32767, 32768, 32769, 163841, 300000}) {
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
    for (DType dtype : {DType::F32, DType::F16, DType::BF16, DType::I32, DType::I64, DType::U8})
      for (ReduceKind kind : {ReduceKind::Sum, ReduceKind::Max, ReduceKind::Min})
        for (int64_t count : {9, 20000, 140001}) {
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
    for (size_t count : {1, 140001}) {
      std::vector<uint8_t> flags(count, me == n - 1), any(count);
      group.allReduce(flags.data(), any.data(), static_cast<int64_t>(count), DType::I1, ReduceKind::Or);
      expect(any == std::vector<uint8_t>(count, 1), fmt::format("or of {} truth values", count));
    }
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

/// Groups that take turns, with amounts that need one step of shared memory or many.
inline void checkTurns(std::span<Communicator *const> groups, std::vector<std::string> &errors) {
  for (int turn = 0; turn < 40; ++turn)
    for (Communicator *group : groups) {
      const int64_t count = turn % 4 == 0 ? 70000 : 1 + turn;
      std::vector<int32_t> data(static_cast<size_t>(count), turn + static_cast<int32_t>(group->member()));
      group->allReduce(data.data(), data.data(), count, DType::I32, ReduceKind::Max);
      if (data != std::vector<int32_t>(data.size(), turn + static_cast<int32_t>(group->size()) - 1))
        errors.push_back(fmt::format("turn {} of a group of {}", turn, group->size()));
    }
}

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
  const std::array groups{&world.group(backwards), &world.group(half), &world.group(all)};
  checkTurns(groups, errors);
  return errors;
}

/// A send moves on while its sender waits in a collective, for a rank that waits for the receiver.
inline void checkSendInCollective(RankEndpoint &world, std::vector<std::string> &errors) {
  constexpr size_t count = 20 << 20;
  if (world.rank() > 2)
    return;
  float one = 1;
  const auto meet = [&](uint32_t a, uint32_t b) {
    world.group(std::array{a, b}).allReduce(&one, &one, 1, DType::F32, ReduceKind::Max);
  };
  for (const auto &[a, b] : {std::pair{0u, 2u}, {1u, 2u}})
    if (world.rank() == a || world.rank() == b)
      world.group(std::array{a, b});
  std::vector<uint8_t> data(world.rank() == 2 ? 0 : count, world.rank() == 0 ? 5 : 0);
  if (world.rank() == 0)
    world.send(data.data(), count, 1, 8, 0);
  else if (world.rank() == 1)
    world.recv(data.data(), count, 0, 8, 0);
  if (world.rank() != 0)
    meet(1, 2);
  if (world.rank() != 1)
    meet(0, 2);
  world.waitAllSends();
  if (world.rank() == 1 && data != std::vector<uint8_t>(count, 5))
    errors.push_back("a message sent before a collective is not what was sent");
}

inline void linkAll(RankEndpoint &world, uint64_t bytes) {
  std::vector<MessagePeer> peers;
  for (unsigned peer = 0; peer < world.size(); ++peer)
    peers.push_back({peer, bytes, bytes, bytes});
  world.link(peers);
}

inline void checkMessages(RankEndpoint &world, std::vector<std::string> &errors) {
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
  if (n > 2)
    checkSendInCollective(world, errors);
}

inline std::vector<std::string> checkMessages(RankEndpoint &world) {
  std::vector<std::string> errors;
  const unsigned n = world.size(), me = world.rank();
  checkMessages(world, errors);
  linkAll(world, 0);
  checkMessages(world, errors);
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

inline unsigned sharedSegments() {
  unsigned found = 0;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);)
    found += line.find("/memfd:cleave-") != std::string::npos;
  return found;
}

inline NoSegments::NoSegments() {
  ::getrlimit(RLIMIT_FSIZE, &before);
  rlimit less = before;
  less.rlim_cur = 1 << 16;
  ::setrlimit(RLIMIT_FSIZE, &less);
}
inline NoSegments::~NoSegments() { ::setrlimit(RLIMIT_FSIZE, &before); }

} // namespace cleave::test
