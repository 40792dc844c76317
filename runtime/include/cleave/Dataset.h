// A data set: named fields with a fixed shape per sample, two splits, random access by sample index. User-defined data
// sets derive from Dataset, as do the built-in ones (Mnist, Text, Synthetic); the training loop calls `read` directly.
// The loader is responsible for order, batches, an incomplete last batch, and slices for ranks.
//
// The runtime's only public header: installed with the frontend's, and like them it includes only the standard library.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace cleave {

enum class FieldType : uint8_t { F32, I32 };

/// One named field of a sample, for example "image" f32 [1, 28, 28] or "label" i32 [] (a scalar).
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
  /// The fields of every sample; `read` refers to their indices.
  virtual const std::vector<DataField> &fields() const = 0;
  /// Number of samples of a split.
  virtual int64_t samples(Split split) const = 0;
  /// Writes field `field` of sample `index` (in [0, samples(split))) to `dst`: row-major, fields()[field].bytes()
  /// bytes.
  virtual void read(Split split, int64_t index, size_t field, std::byte *dst) const = 0;
};

} // namespace cleave
