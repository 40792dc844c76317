// All-reduces in place between processes that a launcher has started: bench/allreduce/allreduce compares the ways.
// usage: bench_allreduce BYTES CALLS cleave|plain|mpi. `plain`: Cleave without shared memory; `mpi`: MPI_Allreduce.
// Rank 0 prints the median seconds of a call.
#include "runtime/comm/MpiWorld.h"
#include "runtime/comm/socket/SocketWorld.h"
#include "runtime/plan/plan_generated.h"
#include "runtime/session/Launcher.h"

#define OMPI_SKIP_MPICXX 1
#include <mpi.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <numeric>
#include <string>
#include <sys/resource.h>
#include <vector>

using namespace cleave;

/// Makes `calls` calls one after the other, five times; returns the median of the seconds of a call.
static double median(int calls, const std::function<void()> &barrier, const std::function<void()> &call) {
  std::array<double, 5> took;
  for (double &seconds : took) {
    barrier();
    const auto began = std::chrono::steady_clock::now();
    for (int i = 0; i < calls; ++i)
      call();
    seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count() / calls;
  }
  std::sort(took.begin(), took.end());
  return took[2];
}

static void require(const std::vector<float> &data, float value) {
  if (data == std::vector<float>(data.size(), value))
    return;
  std::fprintf(stderr, "allreduce: wrong sums\n");
  std::exit(1);
}

static int measureMpi(std::vector<float> &data, int calls) {
  int rank = 0, ranks = 0;
  MPI_Init(nullptr, nullptr);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const auto call = [&] {
    MPI_Allreduce(MPI_IN_PLACE, data.data(), static_cast<int>(data.size()), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  };
  call();
  require(data, static_cast<float>(ranks));
  std::fill(data.begin(), data.end(), 0.0f);
  const double seconds = median(
      calls, [] { MPI_Barrier(MPI_COMM_WORLD); }, call);
  if (rank == 0)
    std::printf("%.9f\n", seconds);
  return MPI_Finalize();
}

static int measureCleave(std::vector<float> &data, int calls, bool shared) {
  std::unique_ptr<RankEndpoint> world;
  if (startedByMpi())
    world = makeMpiWorld(0);
  else
    world = std::make_unique<SocketWorld>(torchEnvironment().value(), 60);
  if (!shared) { // no segment can be made
    const rlimit none{1 << 16, RLIM_INFINITY};
    ::setrlimit(RLIMIT_FSIZE, &none);
  }
  std::vector<uint32_t> all(world->size());
  std::iota(all.begin(), all.end(), 0u);
  Communicator &group = world->group(all);
  const auto call = [&] {
    group.allReduce(data.data(), data.data(), static_cast<int64_t>(data.size()), plan::DType::F32,
                    plan::ReduceKind::Sum);
  };
  call();
  require(data, static_cast<float>(world->size()));
  std::fill(data.begin(), data.end(), 0.0f);
  const double seconds = median(
      calls, [&] { group.barrier(); }, call);
  if (world->rank() == 0)
    std::printf("%.9f\n", seconds);
  world->barrier();
  return 0;
}

int main(int argc, char **argv) {
  if (argc != 4)
    return 2;
  std::vector<float> data(static_cast<size_t>(std::atoll(argv[1]) / 4), 1);
  const std::string way = argv[3];
  return way == "mpi" ? measureMpi(data, std::atoi(argv[2])) : measureCleave(data, std::atoi(argv[2]), way == "cleave");
}
