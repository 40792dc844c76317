// Opens cuDNN, chooses engines and runs them. cudnn-frontend validates a graph, lowers it and lists its engines. It
// does not run the graph here: its execute() calls the CUDA runtime, which nothing else here needs, and rebuilds its
// arguments each time. execute() also initialises scratch tensors; this is read from the graph once and done through
// the driver.
#include "runtime/cuda/library/Cudnn.h"

#include "runtime/cuda/driver/Driver.h"
#include "runtime/cuda/driver/Library.h"
#include "runtime/cuda/library/CudnnFrontend.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <functional>

/// The library handle that the frontend uses to resolve functions.
void *cudnn_frontend::cudnn_dlhandle = nullptr;

namespace cleave::cuda {

namespace {

constexpr int oldest = 90800; // the first version that accepts a device description as JSON

std::string versionText(int version) {
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

class Handle final : public CudnnHandle {
public:
  explicit Handle(CUstream stream) {
    check(fe::detail::create_handle(&handle), "cannot start on this device");
    if (cudnnStatus_t status = fe::detail::set_stream(handle, stream); status != CUDNN_STATUS_SUCCESS) {
      fe::detail::destroy_handle(handle);
      check(status, "cannot use the stream");
    }
  }
  Handle(const Handle &) = delete;
  Handle &operator=(const Handle &) = delete;
  ~Handle() override { fe::detail::destroy_handle(handle); }

  cudnnHandle_t handle = nullptr;
};

/// Checks an engine's numerical notes against the options.
bool allowed(const std::vector<fe::NumericalNote_t> &notes, plan::DType dtype, const CudnnOptions &options) {
  return std::none_of(notes.begin(), notes.end(), [&](fe::NumericalNote_t note) {
    switch (note) {
    case fe::NumericalNote_t::NONDETERMINISTIC:
      return options.deterministic;
    case fe::NumericalNote_t::TENSOR_CORE:
    case fe::NumericalNote_t::DOWN_CONVERT_INPUTS:
      return dtype == plan::DType::F32 && !options.tf32;
    case fe::NumericalNote_t::REDUCED_PRECISION_REDUCTION:
      return true;
    default:
      return false;
    }
  });
}

class Prepared final : public CudnnGraph {
public:
  /// `lowered`: called once the graph has been lowered to cuDNN's operations.
  Prepared(std::unique_ptr<FrontendGraph> built, std::string what, plan::DType dtype, CudnnHandle *handle,
           const CudnnOptions &options, const std::function<void(cudnnHandle_t)> &lowered)
      : graph(std::move(built)), what(std::move(what)) {
    check(graph->validate(), this->what);
    if (!options.buildPlans)
      return;
    cudnnHandle_t cudnn = handle ? static_cast<Handle *>(handle)->handle : nullptr;
    if (!cudnn)
      describeDevice(options.deviceJson);
    check(graph->build_operation_graph(cudnn), this->what);
    lowered(cudnn);
    listCandidates(dtype, options);
    const auto wanted = std::ranges::find(names, options.choice);
    if (wanted == names.end() || take(static_cast<size_t>(wanted - names.begin())).is_bad())
      takeFirst(options);
    presets = graph->presets();
    presetBytes = graph->presetBytes();
  }

  const std::vector<std::string> &candidates() const override { return names; }
  const std::string &choice() const override { return chosen; }
  size_t workspaceBytes() const override { return workspace; }

  void choose(const std::string &candidate) override {
    const auto at = std::find(names.begin(), names.end(), candidate);
    if (at == names.end())
      throw environmentError(fmt::format("cudnn: {}: there is no engine {} for it (cuDNN {}): found {}", what,
                                         candidate, versionText(Cudnn::open().version()), fmt::join(names, ", ")));
    check(take(static_cast<size_t>(at - names.begin())), fmt::format("{}: engine {}", what, candidate));
  }

  void run(CudnnHandle &handle, std::span<void *const> pointers, void *scratch) override {
    if (pointers.size() != slots.size())
      throw std::logic_error(
          fmt::format("cudnn: {}: {} addresses for {} tensors", what, pointers.size(), slots.size()));
    for (size_t i = 0; i < slots.size(); ++i)
      addresses[slots[i]] = pointers[i];
    auto *memory = static_cast<std::byte *>(scratch);
    for (const auto &[slot, offset] : graph->varpack_template.workspace_slots)
      addresses[static_cast<size_t>(slot)] = memory + offset;
    const Handle &on = static_cast<Handle &>(handle);
    if (!presets.empty())
      preset(on, memory);
    fe::detail::backend_descriptor arguments(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    check(arguments.get_status(), what);
    check(fe::detail::create_variant_pack(arguments, addresses.data(), graph->varpack_template.all_uids,
                                          memory ? memory + presetBytes : nullptr),
          what);
    check(fe::detail::execute(on.handle, plan->get_raw_desc(), arguments.get_ptr()), what);
  }

private:
  void describeDevice(const std::string &json) {
    auto device = std::make_shared<fe::DeviceProperties>();
    check(device->deserialize({json.begin(), json.end()}), "the description of the device is refused");
    graph->set_device_properties(device);
  }

  void listCandidates(plan::DType dtype, const CudnnOptions &options) {
    graph->deselect_workspace_greater_than(static_cast<int64_t>(options.workspaceLimit) - graph->presetBytes());
    fe::error_t listed = graph->create_execution_plans({fe::HeurMode_t::A, fe::HeurMode_t::FALLBACK});
    const int64_t count = listed.is_good() ? graph->get_execution_plan_count() : 0;
    for (int64_t i = 0; i < count; ++i) {
      std::string name;
      if (!allowed(graph->plans.numeric_notes[static_cast<size_t>(i)], dtype, options) ||
          graph->plans.check_support_at_index(i).is_bad() || graph->get_plan_name_at_index(i, name).is_bad() ||
          std::find(names.begin(), names.end(), name) != names.end())
        continue;
      names.push_back(name);
      indices.push_back(i);
    }
    if (names.empty())
      fail(options, listed.is_bad() ? listed.get_message() : "");
  }

  void takeFirst(const CudnnOptions &options) {
    std::string why;
    for (size_t i = 0; i < names.size(); ++i) {
      fe::error_t status = take(i);
      if (status.is_good())
        return;
      if (why.empty())
        why = status.get_message();
    }
    fail(options, why);
  }

  [[noreturn]] void fail(const CudnnOptions &options, const std::string &why) const {
    throw environmentError(fmt::format("cudnn: no engine for {} on sm_{} within {} bytes of workspace{} (cuDNN {}){}",
                                       what, options.smVersion, options.workspaceLimit,
                                       options.deterministic ? ", deterministic" : "",
                                       versionText(Cudnn::open().version()), why.empty() ? "" : ": " + brief(why)));
  }

  fe::error_t take(size_t candidate) {
    const int64_t index = indices[candidate];
    if (fe::error_t status = graph->build_plan_at_index(index); status.is_bad())
      return status;
    if (fe::error_t status = graph->prepare_variant_pack_template(); status.is_bad())
      return status;
    plan = graph->plans.execution_plans[static_cast<size_t>(index)];
    chosen = names[candidate];
    workspace = static_cast<size_t>(plan->getWorkspaceSize() + graph->presetBytes());
    addresses = graph->varpack_template.template_ptrs;
    // Sorted by uid, so the caller's tensors come first.
    slots.assign(graph->varpack_template.user_slots.begin(), graph->varpack_template.user_slots.end());
    if (slots.size() != static_cast<size_t>(graph->operands))
      throw std::logic_error(fmt::format("cudnn: {}: wants {} addresses, not {}", what, slots.size(), graph->operands));
    return {};
  }

  void preset(const Handle &on, std::byte *memory) {
    CUstream stream = nullptr;
    check(fe::detail::get_stream(on.handle, &stream), what);
    for (const Preset &p : presets) {
      const CUdeviceptr at = devicePointer(memory + p.offset);
      if (p.values.empty())
        cuda::check(driver().memsetD8Async(at, 0, static_cast<size_t>(p.bytes), stream), "clearing scratch memory");
      else // from this object's memory, which outlives captured graphs
        cuda::check(driver().memcpyHtoDAsync(at, p.values.data(), static_cast<size_t>(p.bytes), stream),
                    "filling scratch memory");
    }
  }

  std::unique_ptr<FrontendGraph> graph;
  std::string what, chosen;
  std::vector<std::string> names;
  std::vector<int64_t> indices; ///< of the candidates' names, among the frontend's plans
  std::shared_ptr<fe::ExecutionPlan> plan;
  size_t workspace = 0;
  int64_t presetBytes = 0;
  std::vector<Preset> presets;
  std::vector<void *> addresses; ///< of all tensors, in the frontend's order
  std::vector<size_t> slots;     ///< positions of the caller's tensors
};

class OpenedCudnn final : public Cudnn {
public:
  OpenedCudnn() {
    const Library library = Library::open({"libcudnn.so.9"});
    if (!library)
      throw environmentError(fmt::format("cudnn: libcudnn.so.9 is not installed: {}", library.why));
    size_t (*getVersion)() = nullptr;
    library.bind(getVersion, "cudnnGetVersion");
    found = static_cast<int>(getVersion());
    if (found < oldest)
      throw environmentError(fmt::format("cudnn: {} must be version {} or later, found {}", library.name,
                                         versionText(oldest), versionText(found)));
    fe::cudnn_dlhandle = library.handle;
  }

  int version() const override { return found; }
  std::unique_ptr<CudnnHandle> handle(CUstream stream) override { return std::make_unique<Handle>(stream); }

  std::unique_ptr<CudnnGraph> convolution(CudnnHandle *handle, const plan::Conv &op,
                                          const CudnnOptions &options) override {
    const ConvShapes shapes = convShapes(op);
    return guarded(describe(op), [&] {
      auto graph = std::make_unique<FrontendGraph>(op.dtype(), options);
      buildConvolution(*graph, op, shapes);
      FrontendGraph &lowered = *graph;
      return std::make_unique<Prepared>(std::move(graph), describe(op), op.dtype(), handle, options,
                                        [&](cudnnHandle_t cudnn) {
                                          if (op.accumulate())
                                            lowered.addToResult(op, shapes, cudnn);
                                        });
    });
  }

  std::unique_ptr<CudnnGraph> attention(CudnnHandle *handle, const plan::Attention &op,
                                        const CudnnOptions &options) override {
    checkAttention(op);
    openCompiler();
    return guarded(describe(op), [&] {
      auto graph = std::make_unique<FrontendGraph>(op.dtype(), options);
      buildAttention(*graph, op, options);
      return std::make_unique<Prepared>(std::move(graph), describe(op), op.dtype(), handle, options,
                                        [](cudnnHandle_t) {});
    });
  }

private:
  /// Attention kernels are compiled at run time. cuDNN opens the compiler by name, and finds it if it is already open.
  static void openCompiler() {
    static const std::array opened{Library::open({"libnvrtc.so.13"}), Library::open({"libnvrtc.so.12"})};
    static_cast<void>(opened); // cuDNN uses the compiler of its own version, and reports a missing one
  }

  /// Converts exceptions of the frontend, which throws if a function or library is missing.
  template <typename Make> static std::unique_ptr<CudnnGraph> guarded(const std::string &what, Make &&make) {
    try {
      return make();
    } catch (const fe::cudnnException &e) {
      throw environmentError(fmt::format("cudnn: {}: {}", what, brief(e.what())));
    }
  }

  int found = 0;
};

} // namespace

Cudnn &Cudnn::open() {
  static OpenedCudnn opened; // if this throws, the next call tries again
  return opened;
}

} // namespace cleave::cuda
