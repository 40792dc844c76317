// Which random numbers an iteration draws.
//
// A tensor that is shared by all samples has the same numbers in every microbatch of a step, and in every batch of an
// evaluation or prediction. Any other has numbers for the samples of a microbatch:
//
// Training counts the elements over the microbatches of the step: microbatch m begins at m times their number.
//
// An evaluation or prediction counts them by sample. If the number of elements is a multiple of the rows of a
// microbatch, each row has as many (the first dimension is the batch, or the batch times something), and those of a row
// depend only on the number of its sample: not on the batch size, nor on whether a batch repeats samples to be full. A
// tensor with another number of elements has new numbers in each microbatch.
#pragma once
#include <cstdint>

namespace cleave {

/// Philox streams, all distinct: step s (1 the first) of a training draws from stream s.
constexpr uint64_t evaluationStream(int64_t afterStep) { return uint64_t(1) << 63 | static_cast<uint64_t>(afterStep); }
constexpr uint64_t predictionStream(int64_t call) { return uint64_t(1) << 62 | static_cast<uint64_t>(call); }

/// The stream of an iteration and the samples of its rows: row r is sample `first` + r mod `count`. `count` = 0:
/// training.
struct RandomRows {
  uint64_t stream = 0;
  int64_t first = 0, count = 0;
};

/// Counts the elements of a random tensor in one microbatch. (constexpr, so that device code may call it.)
class RandomCounter {
public:
  /// `elements`: of the global tensor; `rows`: of a microbatch, or 0: all samples share the tensor.
  constexpr RandomCounter(int64_t elements, int64_t rows, int64_t microbatch, const RandomRows &samples)
      : samples(samples), perRow(rows > 0 ? (elements + rows - 1) / rows : 0), firstRow(microbatch * rows) {
    ofRows = rows > 0 && samples.count > 0 && elements % rows == 0;
    if (rows > 0)
      base = samples.count > 0 ? (samples.first + firstRow) * perRow : microbatch * elements;
  }

  /// The place of `element` in the stream.
  constexpr uint64_t place(int64_t element) const {
    if (!ofRows)
      return static_cast<uint64_t>(base + element);
    const int64_t sample = samples.first + (firstRow + element / perRow) % samples.count;
    return static_cast<uint64_t>(sample * perRow + element % perRow);
  }
  /// How many elements from `element` on have consecutive places, at most `count`.
  constexpr int64_t run(int64_t element, int64_t count) const {
    if (!ofRows)
      return count;
    const int64_t rows = samples.count - (firstRow + element / perRow) % samples.count;
    const int64_t most = rows * perRow - element % perRow;
    return most < count ? most : count;
  }

private:
  RandomRows samples;
  int64_t perRow, firstRow, base = 0;
  bool ofRows;
};

} // namespace cleave
