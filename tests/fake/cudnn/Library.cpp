// The library's own functions: versions, handles, and running a plan.
#include "tests/fake/cudnn/Descriptors.h"
#include "tests/fake/cudnn/Driver.h"
#include "tests/fake/cudnn/OperationGraph.h"

#include <cstdlib>
#include <cstring>

using namespace cleave::fake;

namespace {

class Execution final : public StreamWork {
public:
  std::shared_ptr<const Program> program;
  Bindings bindings;
  int64_t engine = 0;
  void *workspace = nullptr;

  void run() override {
    if (const int64_t bytes = engineWorkspace(engine))
      std::memset(workspace, 0xa5, static_cast<size_t>(bytes));
    evaluate(*program, bindings, engine == 3);
  }

  std::vector<TouchedRange> ranges() const override {
    std::vector<TouchedRange> list;
    if (const int64_t bytes = engineWorkspace(engine))
      list.push_back({workspace, static_cast<size_t>(bytes), 1});
    for (const Operation &op : program->operations) {
      for (const Tensor &t : op.inputs)
        add(list, t, 0);
      add(list, op.output, 1);
    }
    return list;
  }

private:
  void add(std::vector<TouchedRange> &list, const Tensor &t, int written) const {
    if (!t.isVirtual && !t.byValue)
      list.push_back({bindings.addresses.at(t.uid), static_cast<size_t>(t.spanBytes()), written});
  }
};

/// Binds the addresses of all non-virtual tensors; other entries are ignored, since overridden sizes are not read here.
/// Returns false if an address is missing or misaligned.
bool bind(const Contents &variantPack, Execution &execution) {
  const auto numbers = variantPack.list<int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
  const auto addresses = variantPack.list<void *>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
  if (numbers.size() != addresses.size())
    return false;
  std::map<int64_t, void *> given;
  for (size_t i = 0; i < numbers.size(); ++i)
    given[numbers[i]] = addresses[i];
  const auto take = [&](const Tensor &t) {
    if (t.isVirtual)
      return true;
    const auto found = given.find(t.uid);
    if (found == given.end() || !found->second)
      return false;
    if (t.byValue) // read immediately, as in cuDNN
      execution.bindings.scalars[t.uid] = loadValue(found->second, 0, t.type);
    else if (reinterpret_cast<uintptr_t>(found->second) % (t.type == CUDNN_DATA_INT32 ? 4 : 16)) // lengths are packed
      return false;
    else
      execution.bindings.addresses[t.uid] = found->second;
    return true;
  };
  for (const Operation &op : execution.program->operations) {
    for (const Tensor &t : op.inputs)
      if (!take(t))
        return false;
    if (!take(op.output))
      return false;
  }
  return true;
}

} // namespace

#pragma GCC visibility push(default)
extern "C" {

size_t cudnnGetVersion() {
  const char *version = std::getenv("CLEAVE_FAKE_CUDNN_VERSION");
  return version ? static_cast<size_t>(std::atoi(version)) : 91900;
}

const char *cudnnGetErrorString(cudnnStatus_t status) {
  return status == CUDNN_STATUS_SUCCESS            ? "CUDNN_STATUS_SUCCESS"
         : status == CUDNN_STATUS_NOT_INITIALIZED  ? "CUDNN_STATUS_NOT_INITIALIZED"
         : status == CUDNN_STATUS_BAD_PARAM        ? "CUDNN_STATUS_BAD_PARAM"
         : status == CUDNN_STATUS_NOT_SUPPORTED    ? "CUDNN_STATUS_NOT_SUPPORTED"
         : status == CUDNN_STATUS_EXECUTION_FAILED ? "CUDNN_STATUS_EXECUTION_FAILED"
                                                   : "CUDNN_STATUS_INTERNAL_ERROR";
}

cudnnStatus_t cudnnCreate(cudnnHandle_t *handle) {
  if (const int code = wantedFailure("cudnnCreate"))
    return refuse(static_cast<cudnnStatus_t>(code), "as the test wants it");
  *handle = reinterpret_cast<cudnnHandle_t>(new Handle);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) {
  delete reinterpret_cast<Handle *>(handle);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  if (!handle)
    return refuse(CUDNN_STATUS_BAD_PARAM, "handle is null");
  reinterpret_cast<Handle *>(handle)->stream = stream;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetStream(cudnnHandle_t handle, cudaStream_t *stream) {
  if (!handle || !stream)
    return refuse(CUDNN_STATUS_BAD_PARAM, "handle or stream is null");
  *stream = reinterpret_cast<Handle *>(handle)->stream;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                                  cudnnBackendDescriptor_t variantPack) {
  if (const int code = wantedFailure("cudnnBackendExecute"))
    return refuse(static_cast<cudnnStatus_t>(code), "as the test wants it");
  if (!handle || !plan || !variantPack || !of(plan)->contents->finalized || !of(variantPack)->contents->finalized)
    return refuse(CUDNN_STATUS_BAD_PARAM, "a descriptor has not been finalized");
  const auto config = of(plan)->contents->descriptor(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
  auto execution = std::make_unique<Execution>();
  execution->engine = engineIndex(*config);
  execution->program =
      config->descriptor(CUDNN_ATTR_ENGINECFG_ENGINE)->descriptor(CUDNN_ATTR_ENGINE_OPERATION_GRAPH)->program;
  execution->workspace = of(variantPack)->contents->value<void *>(CUDNN_ATTR_VARIANT_PACK_WORKSPACE);
  if (engineWorkspace(execution->engine) && !execution->workspace)
    return refuse(CUDNN_STATUS_BAD_PARAM, "the engine's workspace is missing");
  if (!bind(*of(variantPack)->contents, *execution))
    return refuse(CUDNN_STATUS_BAD_PARAM, "a tensor's address is missing or not 16-byte aligned");
  if (!enqueue(reinterpret_cast<Handle *>(handle)->stream, std::move(execution), "cudnnBackendExecute"))
    return refuse(CUDNN_STATUS_EXECUTION_FAILED, "the driver refuses the work");
  return CUDNN_STATUS_SUCCESS;
}
}
#pragma GCC visibility pop
