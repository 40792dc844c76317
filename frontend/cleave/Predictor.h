// A trained model as a function of new inputs. It is compiled and loaded once and called as often as one likes; nothing
// is random in it (no dropout), and it needs no labels.
//
//   Trainer trainer{module, config};
//   Predictor predictor = trainer.predictor({.checkpoint = "digits"});
//   std::vector<float> logits = predictor(pixels);        // any number of samples, one after the other
#pragma once
#include "cleave/Dataset.h"
#include "cleave/Tensor.h"

#include <memory>
#include <span>
#include <string>
#include <variant>
#include <vector>

namespace cleave {

class Predictor {
public:
  Predictor(Predictor &&) noexcept;
  Predictor &operator=(Predictor &&) noexcept;
  ~Predictor();

  /// The outputs for a model of one input: samples one after the other, each row-major. Throws std::runtime_error with
  /// a message for people: the model has several inputs or another element type, or the values are no whole samples.
  std::vector<float> operator()(std::span<const float> input);
  std::vector<float> operator()(std::span<const int32_t> input);
  /// The outputs for the samples of a data set, whose fields are found by name; the target's is not read.
  std::vector<float> operator()(const Dataset &data, Split split = Split::Eval);

  using Values = std::variant<std::span<const float>, std::span<const int32_t>>;
  /// For a model of several inputs, in the order of inputs(), or of several outputs: the values of each.
  std::vector<std::vector<float>> run(const std::vector<Values> &inputs);

  /// What it takes: the data set's fields that the model reads.
  const std::vector<DataField> &inputs() const;
  size_t outputs() const;
  /// Of one sample.
  Shape outputShape(size_t output = 0) const;
  /// Samples that are computed at once; a last batch of fewer is padded, and cut again.
  int64_t batch() const;
  /// Under mpirun, srun or torchrun every process makes the same calls and gets the same values; true in the one that
  /// writes.
  bool writes() const;

private:
  friend class Trainer;
  struct Impl;
  explicit Predictor(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl;
};

} // namespace cleave
