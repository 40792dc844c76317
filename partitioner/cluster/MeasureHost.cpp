// Measures compute, memory bandwidth and messages of the host's cores.
#include "partitioner/cluster/MeasureHost.h"

#include "partitioner/cluster/MeasureRanks.h"
#include "runtime/base/MachineMemory.h"
#include "runtime/base/Thread.h"
#include "runtime/comm/LocalWorld.h"

#include <algorithm>
#include <atomic>
#include <cpuid.h>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fmt/format.h>
#include <fstream>
#include <functional>
#include <immintrin.h>
#include <optional>
#include <sstream>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace cleave::partitioner {

double rounded(double value) { return std::stod(fmt::format("{:.3g}", value)); }

namespace {

/// Twelve independent sums of vectors: enough to keep two units with a latency of four cycles busy. Returns operations.
__attribute__((target("avx512f"))) double multiplyAdd512(int rounds, const volatile float *in, float *out) {
  __m512 sums[12];
  for (auto &sum : sums)
    sum = _mm512_set1_ps(in[0]);
  const __m512 factor = _mm512_set1_ps(in[1]), term = _mm512_set1_ps(in[2]);
  for (int i = 0; i < rounds; ++i)
    for (auto &sum : sums)
      sum = _mm512_fmadd_ps(sum, factor, term);
  for (const auto &sum : sums)
    *out += _mm512_reduce_add_ps(sum);
  return 2.0 * 16 * 12 * rounds;
}

__attribute__((target("avx2,fma"))) double multiplyAdd256(int rounds, const volatile float *in, float *out) {
  __m256 sums[12];
  for (auto &sum : sums)
    sum = _mm256_set1_ps(in[0]);
  const __m256 factor = _mm256_set1_ps(in[1]), term = _mm256_set1_ps(in[2]);
  for (int i = 0; i < rounds; ++i)
    for (auto &sum : sums)
      sum = _mm256_fmadd_ps(sum, factor, term);
  for (const auto &sum : sums)
    *out += _mm256_cvtss_f32(sum);
  return 2.0 * 8 * 12 * rounds;
}

/// Like multiplyAdd512, with products of pairs of bf16 numbers.
__attribute__((target("avx512f,avx512bf16"))) double multiplyAddPairs(int rounds, const volatile float *in,
                                                                      float *out) {
  __m512 sums[12];
  for (auto &sum : sums)
    sum = _mm512_set1_ps(in[0]);
  const __m512bh factor = _mm512_cvtne2ps_pbh(_mm512_set1_ps(in[1]), _mm512_set1_ps(in[2]));
  for (int i = 0; i < rounds; ++i)
    for (auto &sum : sums)
      sum = _mm512_dpbf16_ps(sum, factor, factor);
  for (const auto &sum : sums)
    *out += _mm512_reduce_add_ps(sum);
  return 2.0 * 32 * 12 * rounds;
}

/// Four products of tiles, each of 16 rows with 32 bf16 numbers and 16 columns (AMX).
__attribute__((target("amx-tile,amx-bf16"))) double multiplyAddTiles(int rounds, float *out) {
  struct alignas(64) {
    uint8_t palette = 1, startRow = 0, reserved[14] = {};
    uint16_t rowBytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
    uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
  } shapes;
  alignas(64) uint8_t operand[1024] = {};
  alignas(64) float result[256];
  _tile_loadconfig(&shapes);
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_loadd(4, operand, 64);
  _tile_loadd(5, operand, 64);
  _tile_loadd(6, operand, 64);
  _tile_loadd(7, operand, 64);
  for (int i = 0; i < rounds; ++i) {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_stored(0, result, 64);
  _tile_release();
  *out += result[0];
  return 4 * 2.0 * 16 * 16 * 32 * rounds;
}

/// Whether the processor has AMX for bf16 and Linux lets this process use it.
bool hasTiles() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  constexpr unsigned tile = 1u << 24, bf16 = 1u << 22;
  constexpr long requestPermission = 0x1023, tileData = 18; // ARCH_REQ_XCOMP_PERM of arch_prctl(2)
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & tile) && (d & bf16) &&
         syscall(SYS_arch_prctl, requestPermission, tileData) == 0;
}

/// Seconds for which this thread had a core, so that other work on the machine does not count.
double ownSeconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

/// Runs `work` on every core at once for `seconds`. Returns the sum over the cores of the amounts that `work` returns,
/// per second.
double rate(unsigned cores, double seconds, const std::function<double()> &work) {
  std::vector<double> done(cores);
  std::vector<std::thread> threads;
  std::atomic<unsigned> ready = 0;
  const auto measure = [&](unsigned core) {
    work(); // warms up memory and clocks
    ++ready;
    while (ready < cores)
      std::this_thread::yield();
    const double begin = ownSeconds();
    double amount = 0, spent = 0;
    do {
      amount += work();
      spent = ownSeconds() - begin;
    } while (spent < seconds);
    done[core] = amount / spent;
  };
  std::optional<Error> failure;
  try {
    for (unsigned core = 0; core < cores; ++core)
      threads.push_back(startThread("measuring a core", measure, core));
  } catch (const Error &error) { // let those that run end
    failure = error;
    ready = cores;
  }
  for (std::thread &thread : threads)
    thread.join();
  if (failure)
    throw *failure;
  double all = 0;
  for (const double amount : done)
    all += amount;
  return all;
}

/// The best of six times: other work on the machine only slows it.
double best(const std::function<double()> &measure) {
  double most = 0;
  for (int i = 0; i < 6; ++i)
    most = std::max(most, measure());
  return most;
}

/// Multiplications and additions per second of all cores.
double operationsPerSecond(unsigned cores, const std::function<double(const volatile float *, float *)> &multiplyAdd) {
  return rate(cores, 0.1, [&] {
    volatile float in[] = {1, 0.999f, 0.001f}, sink = 0; // unknown to the compiler
    float out = 0;
    const double operations = multiplyAdd(in, &out);
    sink = out;
    (void)sink;
    return operations;
  });
}

double fp32Operations(const volatile float *in, float *out) {
  constexpr int rounds = 100000;
  return __builtin_cpu_supports("avx512f") ? multiplyAdd512(rounds, in, out) : multiplyAdd256(rounds, in, out);
}

/// Without instructions for bf16, products of bf16 numbers are fp32 products.
double bf16Operations(const volatile float *in, float *out) {
  constexpr int rounds = 100000;
  static const bool tiles = hasTiles();
  return tiles                                  ? multiplyAddTiles(rounds / 10, out)
         : __builtin_cpu_supports("avx512bf16") ? multiplyAddPairs(rounds, in, out)
                                                : fp32Operations(in, out);
}

/// Bytes per second, read and written, of a = b + c * d (McCalpin's STREAM triad) over three arrays of this many
/// elements on each core.
double bytesPerSecond(unsigned cores, size_t elements, double seconds) {
  struct Arrays {
    std::vector<float> a, b, c;
    explicit Arrays(size_t elements) : a(elements, 1), b(elements, 2), c(elements, 3) {}
  };
  return rate(cores, seconds, [elements] {
    static thread_local std::optional<Arrays> arrays; // a thread measures once
    if (!arrays)
      arrays.emplace(elements);
    auto &[a, b, c] = *arrays;
    for (size_t i = 0; i < elements; ++i)
      a[i] = b[i] + 0.5f * c[i];
    return 3.0 * sizeof(float) * static_cast<double>(elements);
  });
}

std::string lineOf(const std::string &file) {
  std::ifstream in(file);
  std::string line;
  std::getline(in, line);
  return line;
}

/// The number of processors in a list like "0-3,8"; 0 if the list cannot be read.
unsigned processors(const std::string &list) {
  unsigned count = 0;
  std::istringstream in(list);
  for (std::string range; std::getline(in, range, ',');) {
    unsigned first = 0, last = 0;
    const int found = std::sscanf(range.c_str(), "%u-%u", &first, &last);
    count += found == 2 && last >= first ? last - first + 1 : found == 1 ? 1 : 0;
  }
  return count;
}

/// A core's share of the last cache in bytes, from Linux's list of caches; 0 if Linux lists none.
double cacheShare() {
  double share = 0;
  for (int index = 0; index < 8; ++index) { // the last one is the largest level
    const std::string folder = fmt::format("/sys/devices/system/cpu/cpu0/cache/index{}/", index);
    const unsigned sharing = processors(lineOf(folder + "shared_cpu_list"));
    if (const std::string size = lineOf(folder + "size"); sharing > 0 && lineOf(folder + "type") != "Instruction")
      share = std::strtod(size.c_str(), nullptr) * (size.ends_with("M") ? 1 << 20 : 1 << 10) / sharing;
  }
  return share;
}

/// Measures the link between two ranks that are threads of one process.
Link linkOfThreads() {
  LocalWorld world(2);
  Link link;
  runRanks(world, [&](unsigned rank) {
    const Link measured = measureLink(world[rank], 1 - rank);
    if (rank == 0)
      link = measured;
    world[rank].detach();
  });
  return link;
}

std::string hostName() {
  char name[256] = {};
  return gethostname(name, sizeof name - 1) == 0 && name[0] ? name : "this machine";
}

} // namespace

Cluster measureHost() {
  const unsigned cores = std::max(1u, std::thread::hardware_concurrency());
  DeviceKind core{.name = "core", .backend = "cpu"};
  const double each = 1.0 / cores;
  core.memoryGib = rounded(machineMemory() / (1 << 30) * each);
  const auto gigabytes = [&](size_t elements, double seconds) {
    return rounded(best([&] { return bytesPerSecond(cores, elements, seconds); }) / 1e9 * each);
  };
  core.memoryGbPerS = gigabytes(size_t{1} << 24, 0.2);
  if (const double share = cacheShare(); share >= 1 << 18) // half of the share: the cost model assumes that this fits
    core.cache = Cache{rounded(share / (1 << 20)), gigabytes(static_cast<size_t>(share) / 2 / 3 / sizeof(float), 0.05)};
  const auto tflops = [&](double (*multiplyAdd)(const volatile float *, float *)) {
    return rounded(best([&] { return operationsPerSecond(cores, multiplyAdd); }) / 1e12 * each);
  };
  core.peakTflops[static_cast<size_t>(Rate::Fp32)] = tflops(fp32Operations);
  core.peakTflops[static_cast<size_t>(Rate::Bf16)] = tflops(bf16Operations);
  NodeGroup node;
  node.devices.push_back({0, cores});
  if (cores > 1)
    node.inside = linkOfThreads();
  return {.name = hostName(), .devices = {core}, .nodes = {node}, .network = std::nullopt};
}

} // namespace cleave::partitioner
