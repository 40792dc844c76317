// NCCL's operations and queries.
#include "tests/fake/nccl/Comm.h"

#include "tests/fake/cuda/Fake.h"

using namespace cleave::fake;

#define CLEAVE_FAKE_NCCL_CALL()                                                                                        \
  if (const ncclResult_t asked = countCall(__func__); asked != ncclSuccess)                                            \
  return refuse(asked, std::string(__func__) + ": asked for by a test")

ncclResult_t ncclAllReduce(const void *in, void *out, size_t count, ncclDataType_t type, ncclRedOp_t reduce,
                           ncclComm_t comm, cudaStream_t stream) {
  CLEAVE_FAKE_NCCL_CALL();
  return enqueue(comm, {Kind::AllReduce, in, out, count, type, reduce, 0}, stream);
}

ncclResult_t ncclAllGather(const void *in, void *out, size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
  CLEAVE_FAKE_NCCL_CALL();
  return enqueue(comm, {Kind::AllGather, in, out, count, type, ncclSum, 0}, stream);
}

ncclResult_t ncclReduceScatter(const void *in, void *out, size_t count, ncclDataType_t type, ncclRedOp_t reduce,
                               ncclComm_t comm, cudaStream_t stream) {
  CLEAVE_FAKE_NCCL_CALL();
  return enqueue(comm, {Kind::ReduceScatter, in, out, count, type, reduce, 0}, stream);
}

ncclResult_t ncclBroadcast(const void *in, void *out, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                           cudaStream_t stream) {
  CLEAVE_FAKE_NCCL_CALL();
  return enqueue(comm, {Kind::Broadcast, in, out, count, type, ncclSum, root}, stream);
}

ncclResult_t ncclBcast(void *buffer, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                       cudaStream_t stream) {
  return ncclBroadcast(buffer, buffer, count, type, root, comm, stream);
}

ncclResult_t ncclReduce(const void *in, void *out, size_t count, ncclDataType_t type, ncclRedOp_t reduce, int root,
                        ncclComm_t comm, cudaStream_t stream) {
  CLEAVE_FAKE_NCCL_CALL();
  return enqueue(comm, {Kind::Reduce, in, out, count, type, reduce, root}, stream);
}

ncclResult_t ncclSend(const void *in, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  CLEAVE_FAKE_NCCL_CALL();
  return enqueue(comm, {Kind::Send, in, nullptr, count, type, ncclSum, peer}, stream);
}

ncclResult_t ncclRecv(void *out, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream) {
  CLEAVE_FAKE_NCCL_CALL();
  return enqueue(comm, {Kind::Recv, nullptr, out, count, type, ncclSum, peer}, stream);
}

ncclResult_t ncclAlltoAll(const void *in, void *out, size_t count, ncclDataType_t type, ncclComm_t comm,
                          cudaStream_t stream) {
  CLEAVE_FAKE_NCCL_CALL();
  if (!comm)
    return refuse(ncclInvalidArgument, "no communicator");
  const size_t bytes = count * elementBytes(type);
  ncclGroupStart();
  for (uint32_t r = 0; r < comm->c->ranks; ++r) {
    const auto peer = static_cast<int>(r);
    enqueue(comm, {Kind::Send, static_cast<const char *>(in) + r * bytes, nullptr, count, type, ncclSum, peer}, stream);
    enqueue(comm, {Kind::Recv, nullptr, static_cast<char *>(out) + r * bytes, count, type, ncclSum, peer}, stream);
  }
  return ncclGroupEnd();
}

const char *ncclGetErrorString(ncclResult_t result) {
  switch (result) {
  case ncclSuccess:
    return "no error";
  case ncclUnhandledCudaError:
    return "unhandled cuda error (run with NCCL_DEBUG=INFO for details)";
  case ncclSystemError:
    return "unhandled system error (run with NCCL_DEBUG=INFO for details)";
  case ncclInternalError:
    return "internal error - please report this issue to the NCCL developers";
  case ncclInvalidArgument:
    return "invalid argument (run with NCCL_DEBUG=WARN for details)";
  case ncclInvalidUsage:
    return "invalid usage (run with NCCL_DEBUG=WARN for details)";
  case ncclRemoteError:
    return "remote process exited or there was a network error";
  case ncclInProgress:
    return "NCCL operation in progress";
  default:
    return "unknown result code";
  }
}

const char *ncclGetLastError(ncclComm_t comm) {
  static thread_local std::string text;
  text = lastRefusal();
  if (comm) {
    std::unique_lock lock(comm->c->textLock);
    if (!comm->c->text.empty())
      text = comm->c->text;
  }
  return text.c_str();
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *result) {
  CLEAVE_FAKE_NCCL_CALL();
  if (!comm || !result)
    return refuse(ncclInvalidArgument, "no communicator");
  Communicator &c = *comm->c;
  if (c.error == ncclSuccess && c.shared && !c.finalized)
    c.checkPeers();
  *result = c.error;
  return ncclSuccess;
}

ncclResult_t ncclCommCount(const ncclComm_t comm, int *count) {
  CLEAVE_FAKE_NCCL_CALL();
  if (!comm || !count)
    return refuse(ncclInvalidArgument, "no communicator");
  *count = static_cast<int>(comm->c->ranks);
  return ncclSuccess;
}

ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int *device) {
  CLEAVE_FAKE_NCCL_CALL();
  if (!comm || !device)
    return refuse(ncclInvalidArgument, "no communicator");
  *device = comm->c->device;
  return ncclSuccess;
}

ncclResult_t ncclCommUserRank(const ncclComm_t comm, int *rank) {
  CLEAVE_FAKE_NCCL_CALL();
  if (!comm || !rank)
    return refuse(ncclInvalidArgument, "no communicator");
  *rank = static_cast<int>(comm->c->rank);
  return ncclSuccess;
}

ncclResult_t ncclCommRegister(const ncclComm_t comm, void *buffer, size_t bytes, void **handle) {
  CLEAVE_FAKE_NCCL_CALL();
  if (!comm || !handle || cleaveFakeDeviceOf(buffer, bytes) != comm->c->device)
    return refuse(ncclInvalidArgument, "what is registered is not in the device's memory");
  *handle = buffer;
  cleaveFakeObject("NCCL registrations", 1);
  return ncclSuccess;
}

ncclResult_t ncclCommDeregister(const ncclComm_t comm, void *handle) {
  CLEAVE_FAKE_NCCL_CALL();
  if (!comm || !handle)
    return refuse(ncclInvalidArgument, "no registration");
  cleaveFakeObject("NCCL registrations", -1);
  return ncclSuccess;
}

ncclResult_t ncclMemAlloc(void **memory, size_t bytes) {
  CLEAVE_FAKE_NCCL_CALL();
  CUdeviceptr at = 0;
  if (!memory || cuMemAlloc(&at, bytes) != CUDA_SUCCESS)
    return refuse(ncclUnhandledCudaError, "no memory");
  *memory = reinterpret_cast<void *>(at);
  return ncclSuccess;
}

ncclResult_t ncclMemFree(void *memory) {
  CLEAVE_FAKE_NCCL_CALL();
  return cuMemFree(reinterpret_cast<CUdeviceptr>(memory)) == CUDA_SUCCESS
             ? ncclSuccess
             : refuse(ncclInvalidArgument, "no such memory");
}
