// NCCL's functions, opened if more than one rank runs on GPUs.
#pragma once
#include <cuda.h>
#include <nccl.h>

#include <string>

namespace cleave::cuda {

struct Nccl {
  decltype(&::ncclGetVersion) getVersion;
  decltype(&::ncclGetErrorString) getErrorString;
  decltype(&::ncclGetLastError) getLastError;
  decltype(&::ncclGetUniqueId) getUniqueId;
  decltype(&::ncclCommInitRankConfig) commInitRankConfig;
  decltype(&::ncclCommDestroy) commDestroy;
  decltype(&::ncclCommAbort) commAbort;
  decltype(&::ncclCommGetAsyncError) commGetAsyncError;
  decltype(&::ncclCommRegister) commRegister;
  decltype(&::ncclCommDeregister) commDeregister;
  decltype(&::ncclAllReduce) allReduce;
  decltype(&::ncclAllGather) allGather;
  decltype(&::ncclReduceScatter) reduceScatter;
  decltype(&::ncclReduce) reduce;
  decltype(&::ncclBroadcast) broadcast;
  decltype(&::ncclSend) send;
  decltype(&::ncclRecv) recv;
  decltype(&::ncclGroupStart) groupStart;
  decltype(&::ncclGroupEnd) groupEnd;
  int version = 0;
};

/// Opened once per process. Throws an environment error if it is missing or older than 2.19.
const Nccl &nccl();

/// Throws an environment error "nccl: WHAT: ..." unless the result is success.
void check(ncclResult_t result, const std::string &what);

} // namespace cleave::cuda
