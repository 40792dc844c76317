// NCCL's functions that create and end communicators.
#include "tests/fake/nccl/Comm.h"

#include "tests/fake/cuda/Fake.h"

#include <algorithm>
#include <climits>
#include <cstring>

using namespace cleave::fake;

namespace {

#define CLEAVE_FAKE_NCCL_CALL()                                                                                        \
  if (const ncclResult_t asked = countCall(__func__); asked != ncclSuccess)                                            \
  return refuse(asked, std::string(__func__) + ": asked for by a test")

bool blocks(const ncclConfig_t *config) {
  return !config || config->blocking == NCCL_CONFIG_UNDEF_INT || config->blocking;
}

/// Ends a communicator: waits for its work in streams and graphs, then frees it.
void end(ncclComm_t comm) {
  Communicator &c = *comm->c;
  if (c.starter.joinable())
    c.starter.join();
  while (c.pending > 0 || c.captured > 0 || !c.running.try_lock()) // in NCCL, even an abort waits for graphs
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  c.closed = true;
  c.running.unlock();
  if (c.shared) {
    c.mine().gone = 1; // also after an abort: the others notice only a process that ends without this
    c.shared->notify();
    c.shared.reset();
  }
  if (c.event) {
    cuEventDestroy(c.event);
    c.event = nullptr;
  }
  cleaveFakeObject("NCCL communicators", -1);
  delete comm;
}

/// Attaches to the ranks: immediately, at the end of the group, or (nonblocking) in a thread.
ncclResult_t start(ncclComm_t *result, ncclComm_t comm, bool blocking) {
  const std::shared_ptr<Communicator> c = comm->c;
  cleaveFakeObject("NCCL communicators", 1);
  *result = comm;
  const auto job = [result, comm, c] {
    const ncclResult_t bad = c->attach();
    if (bad != ncclSuccess) {
      *result = nullptr;
      c->aborted = true;
      end(comm);
    }
    return bad;
  };
  if (blocking && inGroup()) {
    addJob(job);
    return ncclSuccess;
  }
  if (blocking)
    return job();
  c->error = ncclInProgress;
  c->starter = std::thread([c] {
    const ncclResult_t bad = c->attach();
    if (bad != ncclSuccess) {
      std::unique_lock lock(c->textLock);
      c->text = lastRefusal();
    }
    c->error = bad;
  });
  return ncclInProgress;
}

ncclResult_t begin(ncclComm_t *result, int ranks, const std::string &name, int rank, bool blocking) {
  if (!result || ranks < 1 || rank < 0 || rank >= ranks || name.empty())
    return refuse(ncclInvalidArgument, "no such rank");
  auto comm = std::make_unique<ncclComm>();
  comm->c = std::make_shared<Communicator>();
  Communicator &c = *comm->c;
  c.name = name;
  c.ranks = static_cast<uint32_t>(ranks);
  c.rank = static_cast<uint32_t>(rank);
  if (cuCtxGetCurrent(&c.context) != CUDA_SUCCESS || !c.context || cuCtxGetDevice(&c.device) != CUDA_SUCCESS)
    return refuse(ncclUnhandledCudaError, "no current context");
  return start(result, comm.release(), blocking);
}

std::string nameIn(const ncclUniqueId &id) { return {id.internal, strnlen(id.internal, sizeof id.internal)}; }

} // namespace

ncclResult_t ncclGetVersion(int *version) {
  CLEAVE_FAKE_NCCL_CALL();
  if (!version)
    return refuse(ncclInvalidArgument, "version is null");
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id) {
  CLEAVE_FAKE_NCCL_CALL();
  if (!id)
    return refuse(ncclInvalidArgument, "id is null");
  std::memset(id->internal, 0, sizeof id->internal);
  const std::string name = uniqueName();
  std::memcpy(id->internal, name.data(), std::min(name.size(), sizeof id->internal - 1));
  return ncclSuccess;
}

ncclResult_t ncclCommInitRank(ncclComm_t *comm, int ranks, ncclUniqueId id, int rank) {
  CLEAVE_FAKE_NCCL_CALL();
  return begin(comm, ranks, nameIn(id), rank, true);
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int ranks, ncclUniqueId id, int rank, ncclConfig_t *config) {
  CLEAVE_FAKE_NCCL_CALL();
  if (config && config->magic != 0xcafebeef)
    return refuse(ncclInvalidArgument, "the configuration was not initialized");
  return begin(comm, ranks, nameIn(id), rank, blocks(config));
}

ncclResult_t ncclCommInitAll(ncclComm_t *comms, int count, const int *devices) {
  CLEAVE_FAKE_NCCL_CALL();
  if (!comms || count < 1)
    return refuse(ncclInvalidArgument, "no communicators");
  const std::string name = uniqueName();
  CUcontext before = nullptr;
  cuCtxGetCurrent(&before);
  ncclGroupStart();
  for (int i = 0; i < count; ++i) {
    CUcontext context = nullptr; // keeps the primary contexts, as the runtime API does
    if (cuDevicePrimaryCtxRetain(&context, devices ? devices[i] : i) == CUDA_SUCCESS)
      cuCtxSetCurrent(context);
    begin(&comms[i], count, name, i, true);
  }
  const ncclResult_t result = ncclGroupEnd();
  cuCtxSetCurrent(before);
  return result;
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *result, ncclConfig_t *config) {
  CLEAVE_FAKE_NCCL_CALL();
  if (!comm || !result || (color < 0 && color != NCCL_SPLIT_NOCOLOR))
    return refuse(ncclInvalidArgument, "no such color");
  Communicator &c = *comm->c;
  *result = nullptr;
  c.mine().color = color;
  c.mine().key = key;
  if (!c.hostBarrier())
    return refuse(ncclInternalError, "aborted");
  std::vector<std::pair<int, uint32_t>> members; // sorted by key, then by rank
  for (uint32_t r = 0; r < c.ranks; ++r)
    if (c.shared->part(r).color == color)
      members.emplace_back(c.shared->part(r).key, r);
  std::sort(members.begin(), members.end());
  if (!c.hostBarrier())
    return refuse(ncclInternalError, "aborted");
  const std::string name = c.name + "-" + std::to_string(c.splits++) + "." + std::to_string(color);
  if (color == NCCL_SPLIT_NOCOLOR)
    return ncclSuccess;
  const auto mine = std::find(members.begin(), members.end(), std::pair{key, c.rank});
  CUcontext before = nullptr;
  cuCtxGetCurrent(&before);
  cuCtxSetCurrent(c.context);
  const ncclResult_t made =
      begin(result, static_cast<int>(members.size()), name, static_cast<int>(mine - members.begin()), blocks(config));
  cuCtxSetCurrent(before);
  return made;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  CLEAVE_FAKE_NCCL_CALL();
  if (!comm)
    return refuse(ncclInvalidArgument, "no communicator");
  Communicator &c = *comm->c;
  if (c.finalized.exchange(true))
    return refuse(ncclInvalidArgument, "the communicator was finalized before");
  while (c.pending > 0 && !c.aborted)
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  if (c.shared && !c.aborted) {
    c.mine().gone = 1;
    c.shared->notify();
  }
  return ncclSuccess;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  CLEAVE_FAKE_NCCL_CALL();
  if (comm)
    end(comm);
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  CLEAVE_FAKE_NCCL_CALL();
  if (!comm)
    return ncclSuccess;
  comm->c->aborted = true;
  if (!comm->c->starter.joinable() && comm->c->shared) // otherwise the starter thread sees `aborted` soon
    comm->c->shared->notify();
  end(comm);
  return ncclSuccess;
}
