// A data set as the runtime sees it: named fields of fixed shape per sample, two splits, random access by sample index.
// A user's own data set derives from this; the built-in ones (Mnist, Text, Synthetic) do too. Order, batches, padding
// and slices for ranks are the Loader's business, never a data set's.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
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
  /// What evaluation pads a last batch with: what the losses ignore (-1 in integer labels, NaN in float fields named
  /// "label..." or "target..."), else 0.
  double padding() const;
};

enum class Split : uint8_t { Train, Eval };

/// Implementations must allow concurrent reads: every rank that is a thread has its own loader.
class DataSource {
public:
  virtual ~DataSource() = default;
  /// The fields of every sample, in the order that `read` counts them.
  virtual const std::vector<DataField> &fields() const = 0;
  /// How many samples a split has.
  virtual int64_t samples(Split split) const = 0;
  /// Writes field `field` of sample `index` (in [0, samples(split))) to `dst`: row-major, fields()[field].bytes()
  /// bytes.
  virtual void read(Split split, int64_t index, size_t field, std::byte *dst) const = 0;
};

/// What a plan says about its data (Plan.data, a JSON object): the kind and the fields that the model expects.
struct DataSpec {
  std::string kind; ///< "mnist", "text", "custom"
  std::vector<DataField> fields;
  int64_t context = 0; ///< text: characters of a window
  int64_t vocab = 0;   ///< text: character codes lie in [0, vocab)

  /// Of the field of this name; 0: it holds no labels.
  int64_t classes(const std::string &name) const;

  /// Throws environmentError naming the rule when the text is not such an object.
  static DataSpec parse(const std::string &json);
};

/// How many samples a synthetic data set has.
struct SyntheticSize {
  int64_t train = 1024, eval = 256;
};

/// Opens the data set a plan expects. `where`: a folder or file, or "synthetic". Throws userError naming the file and
/// the rule that is broken; a plan with its own ("custom") data set can be run here on synthetic data only.
std::unique_ptr<DataSource> openData(const DataSpec &spec, const std::string &where, uint64_t seed,
                                     SyntheticSize size = {});

/// Index in `source` of the field a model's input needs, with the same type and number of elements. Throws userError
/// naming both shapes.
size_t findField(const DataSource &source, const std::string &name, FieldType dtype, const std::vector<int64_t> &shape);

} // namespace cleave
