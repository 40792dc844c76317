// The lifetime of a communicator: waits for the other ranks at start, and detects processes that have ended.
#include "tests/fake/nccl/Comm.h"

#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <unistd.h>

namespace cleave::fake {

namespace {

thread_local std::string refusal;

uint64_t hostHash() {
  char host[256] = {};
  gethostname(host, sizeof host - 1);
  const char *id = std::getenv("NCCL_HOSTID");
  return std::hash<std::string>()(id ? id : host) | 1;
}

} // namespace

const char *nameOf(Kind kind) {
  static constexpr const char *names[] = {"AllReduce", "AllGather", "ReduceScatter", "Broadcast",
                                          "Reduce",    "Send",      "Recv"};
  return names[static_cast<int>(kind)];
}

ncclResult_t refuse(ncclResult_t result, const std::string &why) {
  refusal = why;
  if (const char *debug = std::getenv("NCCL_DEBUG"); debug && *debug)
    std::fprintf(stderr, "fake NCCL: %s\n", why.c_str());
  return result;
}

const std::string &lastRefusal() { return refusal; }

void Communicator::fail(ncclResult_t result, const std::string &why) {
  ncclResult_t none = ncclSuccess;
  if (!error.compare_exchange_strong(none, result))
    return;
  std::unique_lock lock(textLock);
  text = why;
}

void Communicator::checkPeers() {
  for (uint32_t r = 0; r < ranks; ++r)
    if (shared->dead(r))
      fail(ncclRemoteError, "the process of rank " + std::to_string(r) + " is gone");
}

bool Communicator::wait(const std::function<bool()> &done) {
  return shared->wait(
      done, [this] { return aborted.load(); }, [this] { checkPeers(); });
}

bool Communicator::hang(const char *why) {
  std::fprintf(stderr, "fake NCCL: rank %u hangs: %s\n", rank, why);
  return wait([] { return false; });
}

bool Communicator::barrier() {
  const uint64_t phase = ++mine().phase;
  shared->notify();
  return wait([&] {
    for (uint32_t r = 0; r < ranks; ++r)
      if (shared->part(r).phase < phase)
        return false;
    return true;
  });
}

bool Communicator::hostBarrier() {
  const uint64_t phase = ++mine().hostPhase;
  shared->notify();
  return wait([&] {
    for (uint32_t r = 0; r < ranks; ++r)
      if (shared->part(r).hostPhase < phase)
        return false;
    return true;
  });
}

ncclResult_t Communicator::attach() {
  std::string why;
  shared = Shared::open(name, ranks, rank, why);
  if (!shared)
    return refuse(ncclInvalidArgument, why);
  RankPart &part = mine();
  part.host = hostHash();
  cuCtxSetCurrent(context);
  if (cuDeviceGetPCIBusId(part.bus, sizeof part.bus, device) != CUDA_SUCCESS)
    return refuse(ncclUnhandledCudaError, "no PCI bus id");
  const bool met = hostBarrier();
  if (rank == 0 || !met)
    shared->forget();
  if (!met)
    return refuse(ncclInternalError, "aborted before all ranks had come");
  ncclResult_t result = ncclSuccess;
  for (uint32_t r = 0; r < ranks; ++r)
    if (const RankPart &other = shared->part(r);
        r != rank && other.host == part.host && std::strncmp(other.bus, part.bus, sizeof part.bus) == 0)
      result = refuse(ncclInvalidUsage, "Duplicate GPU detected : rank " + std::to_string(rank) + " and rank " +
                                            std::to_string(r) + " both on CUDA device " + part.bus);
  hostBarrier();
  if (result != ncclSuccess)
    part.gone = 1;
  return result;
}

} // namespace cleave::fake
