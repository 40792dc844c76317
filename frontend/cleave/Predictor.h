// A trained model as a function of new inputs. It is compiled and loaded once and can be called any number of times. It
// uses no labels and no dropout. Numbers that the model draws itself (rand, randn) depend on the seed, on how many
// calls were made before, and on the sample's position in the call, but not on the batch or the mesh.
//
// Several threads may call one predictor: calls wait for each other (a second predictor computes at the same time, with
// its own memory). Moving or destroying a predictor while another thread calls it is a data race, as for any object.
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

  /// For a model with one input: takes the values of any number of samples, each row-major, and returns the model's
  /// first output for them in the same form. Throws std::runtime_error with a readable message if the model has several
  /// inputs or another element type, or if the number of values is not a multiple of the values per sample.
  std::vector<float> operator()(std::span<const float> input);
  std::vector<float> operator()(std::span<const int32_t> input);
  std::vector<float> operator()(std::span<const uint8_t> input); ///< pictures (Pictures): the model normalises them
  /// The model's first output for all samples of a data set's split. Fields are matched by name; targets are not read.
  std::vector<float> operator()(const Dataset &data, Split split = Split::Eval);

  using Values = std::variant<std::span<const float>, std::span<const int32_t>, std::span<const uint8_t>>;
  /// For a model with several inputs (in the order of inputs()) or outputs: the values of each output. An output has a
  /// row for each sample. A scalar (such as an auxiliary loss) belongs to a batch: there is one for each full batch,
  /// and none for a last batch that is not full.
  std::vector<std::vector<float>> run(const std::vector<Values> &inputs);

  /// The inputs: the data set's fields that the model reads.
  const std::vector<DataField> &inputs() const;
  size_t outputs() const;
  /// The shape of one sample; empty if the output is a scalar.
  Shape outputShape(size_t output = 0) const;
  /// Number of samples computed together. A smaller last batch is padded, and the padding is removed from the results.
  int64_t batch() const;
  /// Under mpirun, srun or torchrun, every process must make the same calls in the same order, so from one thread, and
  /// gets the same values. Returns true in the one process that should write results.
  bool writes() const;

private:
  friend class Trainer;
  struct Impl;
  explicit Predictor(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl;
};

} // namespace cleave
