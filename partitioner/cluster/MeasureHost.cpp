// Measures compute, memory bandwidth and latency of the host's cores.
#include "partitioner/cluster/MeasureHost.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <ctime>
#include <fmt/format.h>
#include <functional>
#include <immintrin.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace cleave::partitioner {

namespace {

using Clock = std::chrono::steady_clock;

double secondsSince(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

/// Twelve independent sums of vectors: enough to keep two units of four cycles busy. Returns operations.
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

/// Seconds for which this thread had a core, so that other work on the machine does not count.
double ownSeconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

/// The sum over all cores of what `work` returns, a second, for `seconds` on every core at once.
double rate(unsigned cores, double seconds, const std::function<double()> &work) {
  std::vector<double> done(cores);
  std::vector<std::thread> threads;
  std::atomic<unsigned> ready = 0;
  for (unsigned core = 0; core < cores; ++core)
    threads.emplace_back([&, core] {
      work(); // memory is there, clocks are up
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
    });
  for (std::thread &thread : threads)
    thread.join();
  double all = 0;
  for (const double amount : done)
    all += amount;
  return all;
}

/// The best of a few times: other work on the machine only slows it.
double best(const std::function<double()> &measure) {
  double most = 0;
  for (int i = 0; i < 6; ++i)
    most = std::max(most, measure());
  return most;
}

double operationsPerSecond(unsigned cores) {
  const bool wide = __builtin_cpu_supports("avx512f");
  return rate(cores, 0.1, [wide] {
    volatile float in[] = {1, 0.999f, 0.001f}, sink = 0; // unknown to the compiler
    float out = 0;
    const double operations = wide ? multiplyAdd512(100000, in, &out) : multiplyAdd256(100000, in, &out);
    sink = out;
    (void)sink;
    return operations;
  });
}

/// Bytes read and written by a = b + c * d over arrays beyond any cache (McCalpin's STREAM triad).
double bytesPerSecond(unsigned cores) {
  constexpr size_t elements = size_t{1} << 24;
  return rate(cores, 0.2, [] {
    static thread_local std::vector<float> a(elements, 1), b(elements, 2), c(elements, 3);
    for (size_t i = 0; i < elements; ++i)
      a[i] = b[i] + 0.5f * c[i];
    return 3.0 * sizeof(float) * elements;
  });
}

/// Half of the time in which a word goes to another thread and back.
double latencySeconds() {
  constexpr int rounds = 20000;
  std::atomic<int> word = 0;
  std::thread other([&] {
    for (int i = 0; i < rounds; ++i) {
      while (word.load(std::memory_order_acquire) != 2 * i + 1)
        std::this_thread::yield();
      word.store(2 * i + 2, std::memory_order_release);
    }
  });
  const auto begin = Clock::now();
  for (int i = 0; i < rounds; ++i) {
    word.store(2 * i + 1, std::memory_order_release);
    while (word.load(std::memory_order_acquire) != 2 * i + 2)
      std::this_thread::yield();
  }
  const double seconds = secondsSince(begin);
  other.join();
  return seconds / (2 * rounds);
}

/// Three significant digits.
double rounded(double value) { return std::stod(fmt::format("{:.3g}", value)); }

std::string hostName() {
  char name[256] = {};
  return gethostname(name, sizeof name - 1) == 0 && name[0] ? name : "this machine";
}

} // namespace

Cluster measureHost() {
  const unsigned cores = std::max(1u, std::thread::hardware_concurrency());
  DeviceKind core{.name = "core", .backend = "cpu"};
  const double each = 1.0 / cores;
  const double memory = static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE));
  core.memoryGib = rounded(memory / (1 << 30) * each);
  core.memoryGbPerS = rounded(best([&] { return bytesPerSecond(cores); }) / 1e9 * each);
  core.peakTflops[static_cast<size_t>(Rate::Fp32)] =
      rounded(best([&] { return operationsPerSecond(cores); }) / 1e12 * each);
  NodeGroup node;
  node.devices.push_back({0, cores});
  // A message is a copy: it reads and writes every byte.
  node.inside = Link{rounded(core.memoryGbPerS / 2), cores > 1 ? rounded(latencySeconds() * 1e6) : 1};
  return {.name = hostName(), .devices = {core}, .nodes = {node}, .network = std::nullopt};
}

} // namespace cleave::partitioner
