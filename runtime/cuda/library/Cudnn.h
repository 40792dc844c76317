// Convolution and attention by cuDNN's graph API. The library is opened when the first of them is prepared, never
// linked; its headers (and cudnn-frontend's, which are slow to compile) are seen by Cudnn.cpp alone. Where the build
// had no cudnn-frontend, CudnnMissing.cpp stands in and says so.
//
// A CudnnGraph is one step of the plan, prepared: which engine runs it was decided then, by the heuristics' order or by
// the name of a candidate (from a tuning record). Preparing depends on nothing that changes from run to run, so the
// same library on the same kind of device gives the same engine; with `deterministic` its results repeat bit for bit.
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

/// cuDNN's state for one stream of one device. Used by one thread at a time; outlives what was prepared with it.
class CudnnHandle {
public:
  virtual ~CudnnHandle() = default;
};

struct CudnnOptions {
  int smVersion = 0;         ///< compute capability: 80, 90, 100, ...
  size_t workspaceLimit = 0; ///< bytes of scratch memory that an engine may ask for
  bool deterministic = true; ///< only engines that repeat bit for bit
  bool tf32 = false;         ///< products of f32 may round their factors to TF32; otherwise no tensor cores for f32
  std::string choice; ///< the candidate to take where it is one; else the first that builds, as heuristics order them
  std::string deviceJson; ///< with no handle: cuDNN's description of a device that is not here (cuDNN 9.8)
  bool buildPlans = true; ///< false: the graph is only checked, nothing is listed and nothing can run
};

/// A prepared graph of cuDNN. Used by one thread at a time.
class CudnnGraph {
public:
  virtual ~CudnnGraph() = default;
  /// Engines that may run the graph under the options, by engine and knobs ("eng22_k2=5_k13=1"), best guess first. A
  /// name means the same for one version of the library and one kind of device.
  virtual const std::vector<std::string> &candidates() const = 0;
  /// Takes another candidate. An environment error where it is none, or does not build.
  virtual void choose(const std::string &candidate) = 0;
  /// The candidate that is taken: for the tuning record and for people.
  virtual const std::string &choice() const = 0;
  /// Of the candidate that is taken. The workspace is 256-byte aligned.
  virtual size_t workspaceBytes() const = 0;
  /// Enqueues into the handle's stream. `pointers`: device addresses in the order that the make function documents,
  /// 16-byte aligned. Nothing is allocated on the device, so a stream that is being captured will do; the graph must
  /// outlive what was captured.
  virtual void run(CudnnHandle &handle, std::span<void *const> pointers, void *workspace) = 0;
};

class Cudnn {
public:
  virtual ~Cudnn() = default;
  /// The library, opened once a process. An environment error that names it where it is missing or too old.
  static Cudnn &open();

  /// 91900 for 9.19.0
  virtual int version() const = 0;
  /// For the device of the calling thread's current context.
  virtual std::unique_ptr<CudnnHandle> handle(CUstream stream) = 0;
  /// Pointers: Forward src, weights, [bias,] dst; BackwardData dst (gradient), weights, src (gradient); BackwardWeights
  /// src, dst (gradient), weights (gradient). Weights lie as [oc, ic/groups, kh, kw], with NHWC activations as
  /// [oc, kh, kw, ic/groups]; all are of the step's type, sums are f32. `accumulate`: the result
  /// is added to what is there (the operation's beta is 1), not together with a bias. Asymmetric padding is legal where
  /// it does not matter.
  virtual std::unique_ptr<CudnnGraph> convolution(CudnnHandle *handle, const plan::Conv &op,
                                                  const CudnnOptions &options) = 0;
  /// Pointers: Forward q, k, v, out[, lse]; Backward q, k, v, out, dout, lse, dq, dk, dv. Each where its view begins:
  /// the caller adds the view's offset.
  virtual std::unique_ptr<CudnnGraph> attention(CudnnHandle *handle, const plan::Attention &op,
                                                const CudnnOptions &options) = 0;
};

} // namespace cleave::cuda
