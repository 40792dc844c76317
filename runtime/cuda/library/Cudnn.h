// Convolution and attention with cuDNN's graph API. The library is opened on first use, never linked. Only Cudnn.cpp
// includes its headers (and cudnn-frontend's, which compile slowly). Builds without cudnn-frontend use
// CudnnMissing.cpp.
//
// A CudnnGraph is a prepared step of the plan with a chosen engine: by the order of the heuristics, or by a candidate's
// name (from a tuning record). Preparation does not depend on anything that varies between runs, so the same library on
// the same kind of device chooses the same engine; with `deterministic` its results are bit-identical.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

using CUstream = struct CUstream_st *;

namespace cleave::plan {
struct Attention;
struct Conv;
} // namespace cleave::plan

namespace cleave::cuda {

/// cuDNN's state for one stream of one device. For one thread at a time; must outlive the graphs prepared with it.
class CudnnHandle {
public:
  virtual ~CudnnHandle() = default;
};

struct CudnnOptions {
  int smVersion = 0;         ///< compute capability: 80, 90, 100, ...
  size_t workspaceLimit = 0; ///< maximum bytes of scratch memory for an engine
  bool deterministic = true; ///< only engines with bit-identical results
  bool tf32 = false;         ///< f32 products may round their factors to TF32; otherwise no tensor cores for f32
  std::string choice;     ///< the candidate to use if available; otherwise the first that builds, in heuristics order
  std::string deviceJson; ///< without a handle: cuDNN's description of an absent device (cuDNN 9.8)
  bool buildPlans = true; ///< false: the graph is only validated; it has no candidates and cannot run
};

/// A prepared cuDNN graph. For one thread at a time.
class CudnnGraph {
public:
  virtual ~CudnnGraph() = default;
  /// Engines that may run the graph under the options, by engine and knobs ("eng22_k2=5_k13=1"), best guess first.
  /// Names are stable for one library version and one kind of device.
  virtual const std::vector<std::string> &candidates() const = 0;
  /// Selects another candidate. Throws an environment error if it is unknown or does not build.
  virtual void choose(const std::string &candidate) = 0;
  /// The selected candidate: for the tuning record and for display.
  virtual const std::string &choice() const = 0;
  /// Workspace of the selected candidate, which must be 256-byte aligned.
  virtual size_t workspaceBytes() const = 0;
  /// Enqueues into the handle's stream. `pointers`: device addresses in the order documented at the make function,
  /// 16-byte aligned. Allocates nothing on the device, so it can be captured; this object must outlive captured graphs.
  virtual void run(CudnnHandle &handle, std::span<void *const> pointers, void *workspace) = 0;
};

class Cudnn {
public:
  virtual ~Cudnn() = default;
  /// The library, opened once per process. Throws an environment error that names it if it is missing or too old.
  static Cudnn &open();

  /// 91900 for 9.19.0
  virtual int version() const = 0;
  /// A handle for the device of the calling thread's current context.
  virtual std::unique_ptr<CudnnHandle> handle(CUstream stream) = 0;
  /// Pointers: Forward src, weights, [bias,] dst; BackwardData dst (gradient), weights, src (gradient); BackwardWeights
  /// src, dst (gradient), weights (gradient). Weights are [oc, ic/groups, kh, kw], or [oc, kh, kw, ic/groups] with NHWC
  /// activations. All have the step's type; sums are f32. `accumulate`: adds to the existing result (beta is 1), not
  /// supported with a bias. Asymmetric padding is allowed if it does not affect the result.
  virtual std::unique_ptr<CudnnGraph> convolution(CudnnHandle *handle, const plan::Conv &op,
                                                  const CudnnOptions &options) = 0;
  /// Pointers: Forward q, k, v, out[, lse]; Backward q, k, v, out, dout, lse, dq, dk, dv. Each points to the start of
  /// its view: the caller adds the view's offset.
  virtual std::unique_ptr<CudnnGraph> attention(CudnnHandle *handle, const plan::Attention &op,
                                                const CudnnOptions &options) = 0;
};

} // namespace cleave::cuda
