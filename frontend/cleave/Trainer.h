// Training without a command line: TrainConfig (what to train), RunOptions (how to run it: RunOptions.h), and Trainer.
#pragma once
#include "cleave/Data.h"
#include "cleave/Loss.h"
#include "cleave/Module.h"
#include "cleave/Optimizer.h"
#include "cleave/Predictor.h"
#include "cleave/RunOptions.h"

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace cleave {

/// How training mixes its images in pairs: Mixup (Zhang et al. 2018) blends two, CutMix (Yun et al. 2019) puts a box of
/// one into the other. Row i of each group of `group` consecutive samples is mixed with row group - 1 - i, so the
/// result is the same under every split; a group has one share, drawn from Beta(alpha, alpha). The loss then gets
/// probabilities [b, classes] instead of labels, which crossEntropy takes. Evaluation mixes nothing.
struct Mix {
  double mixup = 0, cutMix = 0; ///< alpha; 0: not used. With both, each group uses one of them.
  int64_t group = 2;
};

/// The training task: data, loss and optimizer. Set in the program's code.
struct TrainConfig {
  Data data = Mnist{};
  LossFunction loss = crossEntropy;
  Optimizer optimizer = Sgd{};
  LearningRateSchedule learningRate = ConstantLr{};
  /// > 0: the optimizer's learning rate is that of a batch of so many samples, and other batches use it in proportion
  /// (Goyal et al. 2017). --lr is used as it is.
  int64_t learningRateBatch = 0;
  double clipNorm = 0; ///< > 0: gradients are scaled so that their global norm is at most this value
  /// > 0: evaluations and predictions use averages of the parameters, which decay by this factor in each step
  /// (torch.optim.swa_utils.get_ema_multi_avg_fn); below 1, such as 0.9999.
  double ema = 0;
  std::vector<ParameterGroup> groups = {};
  Mix mix = {};
  int64_t batch = 32;             ///< samples of the global batch
  int64_t batchPerRank = 0;       ///< if set, used instead: the global batch is this many times the size of dp
  int64_t evalBatch = 0;          ///< samples of the global batch in evaluation; 0: as in training
  int64_t targets = 1;            ///< number of trailing data fields passed to the loss; the model receives the others
  Where where = Where::current(); ///< source location reported for errors that concern the whole model
};

/// A type-erased model: its root module and how to call it.
struct Model {
  Module *root = nullptr;
  std::function<std::vector<Tensor>(std::span<const Tensor>)> forward; ///< maps the model's inputs to its outputs
  std::string name = "model"; ///< name of the program; "model": of none, it takes a checkpoint's name
  std::string options = "{}"; ///< the model options as a JSON object; stored in plans and checkpoints
};

/// Wraps a module whose forward takes 1 to 16 tensors and returns a Tensor, or a vector, array, pair or tuple of
/// Tensors (ModuleOf).
template <class M> Model makeModel(M &module, std::string name = "model", std::string options = "{}");

struct Evaluation {
  double loss = 0, accuracy = 0; ///< accuracy is NaN if the loss does not count correct predictions
  int64_t samples = 0;
};

struct CheckResult {
  std::string difference; ///< module path of the first tensor that differs; empty: none
  int64_t tensors = 0;    ///< number of tensors compared
  double largest = 0;     ///< largest difference relative to the tensor's largest element
};

class Trainer {
public:
  /// `model` must outlive the trainer.
  Trainer(Model model, TrainConfig config);
  template <class M, class = std::enable_if_t<std::is_convertible_v<M &, Module &>>>
  Trainer(M &module, TrainConfig config) : Trainer(makeModel(module), std::move(config)) {}
  ~Trainer();

  /// Compiles a plan, or reads options.plan, and trains. Throws std::runtime_error with a readable message.
  void train(const RunOptions &options);
  /// Loss and accuracy of a checkpoint on the data's evaluation split.
  Evaluation evaluate(const RunOptions &options);
  /// The model of a checkpoint as a function of new inputs (Predictor.h). Uses only these options: checkpoint, mesh,
  /// devices (without a mesh: each has a copy of the model, or a part if whole ones do not fit its memory), cluster,
  /// backend, threads, batch (samples computed together; default: a microbatch of the training), and seed (of random
  /// numbers; default: the training's).
  Predictor predictor(const RunOptions &options);
  /// Writes the model's first output for the data's evaluation split to a .npy file `file`, one row per sample (of a
  /// scalar, one for each full batch). Further outputs are written to "p.1.npy", ... if the file is "p.npy".
  void predict(const RunOptions &options, const std::string &file);
  /// Compiles a plan and returns its bytes, without running it.
  std::vector<uint8_t> plan(const RunOptions &options);
  /// From now on searches of plan() share what they measure of the model. Their options may differ in the cluster, the
  /// number of devices and what they ask of the split.
  void shareSearches();
  /// The traced graph as text.
  std::string graph(const RunOptions &options);
  /// Runs the plan and the reference interpreter for options.steps steps (default 1) and compares them.
  CheckResult check(const RunOptions &options);

private:
  struct Impl;
  std::unique_ptr<Impl> impl;
};

namespace internal {
[[noreturn]] void wrongInputs(size_t given, size_t most);

/// The tensors of a forward's result, in order.
template <class Result> std::vector<Tensor> outputs(Result &&result) {
  if constexpr (std::is_convertible_v<Result, Tensor>)
    return {Tensor(std::forward<Result>(result))};
  else if constexpr (std::is_convertible_v<Result, std::vector<Tensor>>)
    return std::forward<Result>(result);
  else
    return std::apply([](auto &&...tensors) { return std::vector<Tensor>{Tensor(tensors)...}; }, result);
}

/// Calls the module's forward of as many tensors as I has indices, if these are as many. Returns whether it did.
template <class M, size_t... I>
bool callForward(M &module, std::span<const Tensor> in, std::vector<Tensor> &out, std::index_sequence<I...>) {
  if constexpr (requires { module.M::forward(in[I]...); })
    if (in.size() == sizeof...(I)) {
      out = outputs(module.forward(in[I]...));
      return true;
    }
  return false;
}

/// Calls the module's forward of in.size() tensors.
template <class M, size_t... N>
std::vector<Tensor> callForward(M &module, std::span<const Tensor> in, std::index_sequence<N...>) {
  std::vector<Tensor> out;
  if (!(callForward(module, in, out, std::make_index_sequence<N + 1>()) || ...))
    wrongInputs(in.size(), sizeof...(N));
  return out;
}
} // namespace internal

template <class M> Model makeModel(M &module, std::string name, std::string options) {
  auto forward = [&](std::span<const Tensor> in) {
    return internal::callForward(module, in, std::make_index_sequence<16>());
  };
  Module &root = module;
  return Model{&root, forward, std::move(name), std::move(options)};
}

} // namespace cleave
