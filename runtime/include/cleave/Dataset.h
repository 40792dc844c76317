// A data set: named fields with a fixed shape per sample, two splits, random access by sample index. User-defined data
// sets derive from Dataset, as do the built-in ones (Mnist, Text, Synthetic); the training loop calls `read` directly.
// The loader is responsible for order, batches, an incomplete last batch, and slices for ranks.
//
// Data are a function: a sample depends on (seed, epoch, index) and on nothing else. Every rank reads the fields and
// rows that it needs, so a field may be read by several ranks, and the fields of a sample by different ranks. Random
// numbers come from the generator that `read` receives.
//
// The runtime's public header, with Random.h: installed with the frontend's headers, and like them it includes only the
// standard library and public headers.
#pragma once
#include "cleave/Random.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace cleave {

/// U8: bytes, which reach the model as such; cast(x, DType::F32) makes numbers of them.
enum class FieldType : uint8_t { F32, I32, U8 };

/// One named field of a sample, for example "image" f32 [1, 28, 28] or "label" i32 [] (a scalar).
struct DataField {
  std::string name;
  FieldType dtype = FieldType::F32;
  std::vector<int64_t> shape; ///< of one sample, without the batch dimension
  int64_t classes = 0;        ///< i32 labels: values lie in [0, classes); 0: not a label

  /// Elements of one sample.
  int64_t elements() const;
  /// Bytes of one sample.
  int64_t bytes() const { return elements() * (dtype == FieldType::U8 ? 1 : 4); }
  /// Whether this field holds integer labels.
  bool isLabel() const;
};

enum class Split : uint8_t { Train, Eval };

/// The sample that is to be read.
struct SampleId {
  Split split = Split::Train;
  int64_t index = 0; ///< in [0, samples(split))
  int64_t epoch = 0; ///< 1, 2, ... in training; 0 in evaluations and predictions: all of them draw the same numbers
};

/// A class that derives from this overrides one of the two `read`: the first if it draws random numbers or if it is
/// faster to make several fields of a sample together, otherwise the second. Implementations must allow concurrent
/// reads: ranks that are threads have a loader each. An exception ends the run with its message (exit status 2).
class Dataset {
public:
  virtual ~Dataset() = default;
  /// Called with the path of --data (RunOptions::data), if it is given and not "synthetic", before anything else is
  /// asked. By default --data is refused: the data set does not read it.
  virtual void open(const std::string &path);
  /// The fields of every sample; `read` refers to their indices.
  virtual const std::vector<DataField> &fields() const = 0;
  /// Number of samples of a split.
  virtual int64_t samples(Split split) const = 0;
  /// The first index of each shard of a split, in ascending order from 0: a shard is a file with many samples, which
  /// training reads at about the same time. Empty: the samples are read in any order.
  virtual std::vector<int64_t> shards(Split split) const;

  /// A text that tells the data of a split from others, wherever they lie; a checksum of a file, for example. A
  /// training that resumes, and ranks that begin, compare it. Empty, as by default: they compare the values of some
  /// samples, which must then be the same on every machine.
  virtual std::string fingerprint(Split split) const;

  /// Writes fields of a sample. `to` has an address for each field, null for the fields that are not asked for; a field
  /// is row-major, fields()[f].bytes() bytes. `random` is the sample's generator (Random.h). The values of a field must
  /// not depend on which other fields are asked for: first draw what fields share (a crop, a flip), whatever is asked
  /// for; then draw the numbers of a single field from a stream of its own:
  ///
  ///   void read(const SampleId &sample, Random &random, std::span<std::byte *const> to) const override {
  ///     const bool flip = random.chance(0.5); // of picture and mask
  ///     if (to[0])
  ///       writePicture(sample.index, flip, random.stream(0), to[0]);
  ///     if (to[1])
  ///       writeMask(sample.index, flip, to[1]);
  ///   }
  ///
  /// By default this calls the other overload for each field that is asked for.
  virtual void read(const SampleId &sample, Random &random, std::span<std::byte *const> to) const;
  /// Writes field `field` of a sample to `dst`. It is for data sets without random numbers; it must always write the
  /// same values.
  virtual void read(Split split, int64_t index, size_t field, std::byte *dst) const;
};

} // namespace cleave
