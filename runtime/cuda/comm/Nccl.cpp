// Opens NCCL.
#include "runtime/cuda/comm/Nccl.h"

#include "runtime/base/Error.h"
#include "runtime/cuda/driver/Library.h"

#include <fmt/format.h>

namespace cleave::cuda {

static Nccl openNccl() {
  constexpr int oldest = 21900; // required for registered buffers
  const Library library = Library::open({"libnccl.so.2"});
  if (!library)
    throw environmentError(
        fmt::format("cuda: several ranks need NCCL (libnccl.so.2), which is missing: {}", library.why));
  Nccl n{};
  library.bind(n.getVersion, "ncclGetVersion");
  library.bind(n.getErrorString, "ncclGetErrorString");
  library.bind(n.getLastError, "ncclGetLastError");
  library.bind(n.getUniqueId, "ncclGetUniqueId");
  library.bind(n.commInitRankConfig, "ncclCommInitRankConfig");
  library.bind(n.commDestroy, "ncclCommDestroy");
  library.bind(n.commAbort, "ncclCommAbort");
  library.bind(n.commGetAsyncError, "ncclCommGetAsyncError");
  library.bind(n.commRegister, "ncclCommRegister");
  library.bind(n.commDeregister, "ncclCommDeregister");
  library.bind(n.allReduce, "ncclAllReduce");
  library.bind(n.allGather, "ncclAllGather");
  library.bind(n.reduceScatter, "ncclReduceScatter");
  library.bind(n.reduce, "ncclReduce");
  library.bind(n.broadcast, "ncclBroadcast");
  library.bind(n.send, "ncclSend");
  library.bind(n.recv, "ncclRecv");
  library.bind(n.groupStart, "ncclGroupStart");
  library.bind(n.groupEnd, "ncclGroupEnd");
  check(n.getVersion(&n.version), "version");
  if (n.version < oldest)
    throw environmentError(
        fmt::format("cuda: NCCL must be 2.19 or later, found {}.{}", n.version / 10000, n.version / 100 % 100));
  return n;
}

const Nccl &nccl() {
  static const Nccl opened = openNccl();
  return opened;
}

void check(ncclResult_t result, const std::string &what) {
  if (result == ncclSuccess)
    return;
  if (result == ncclInProgress)
    throw environmentError(fmt::format("nccl: {}: still in progress: NCCL_COMM_BLOCKING=0 is not supported", what));
  const char *detail = nccl().getLastError(nullptr);
  throw environmentError(fmt::format("nccl: {}: {}{}{}", what, nccl().getErrorString(result),
                                     detail && *detail ? ": " : "", detail ? detail : ""));
}

} // namespace cleave::cuda
