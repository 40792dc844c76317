// A data set: named fields of fixed shape per sample, two splits, random access by sample index. A user's own derives
// from Dataset, and so do the built-in ones (Mnist, Text, Synthetic): there is nothing between the training loop and
// `read`. Order, batches, a last batch that is not full and slices for ranks are the loader's business, never a data
// set's.
//
// The runtime's one public header: installed beside the frontend's, and like them it includes the standard library
// alone.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace cleave {

enum class FieldType : uint8_t { F32, I32 };

/// One named value of a sample, for example "image" f32 [1, 28, 28] or "label" i32 [] (a scalar).
struct DataField {
  std::string name;
  FieldType dtype = FieldType::F32;
  std::vector<int64_t> shape; ///< of one sample, without the batch dimension
  int64_t classes = 0;        ///< i32 labels: values lie in [0, classes); 0: not a label

  /// Elements of one sample.
  int64_t elements() const;
  /// Bytes of one sample.
  int64_t bytes() const { return elements() * 4; }
  /// Whether this field holds integer labels.
  bool isLabel() const;
};

enum class Split : uint8_t { Train, Eval };

/// Implementations must allow concurrent reads: every rank that is a thread has its own loader.
class Dataset {
public:
  virtual ~Dataset() = default;
  /// The fields of every sample, in the order that `read` counts them.
  virtual const std::vector<DataField> &fields() const = 0;
  /// How many samples a split has.
  virtual int64_t samples(Split split) const = 0;
  /// Writes field `field` of sample `index` (in [0, samples(split))) to `dst`: row-major, fields()[field].bytes()
  /// bytes.
  virtual void read(Split split, int64_t index, size_t field, std::byte *dst) const = 0;
};

} // namespace cleave
