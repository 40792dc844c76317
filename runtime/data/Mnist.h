// The MNIST digits in their original IDX files (gzipped or not), held in memory as bytes. Fields: "image" f32 [1, rows,
// columns] in [0, 1], "label" i32 [].
#pragma once
#include "runtime/data/DataSource.h"
#include "runtime/data/Idx.h"

namespace cleave {

/// A split's images and labels, one for each image.
struct MnistPart {
  IdxArray images, labels; ///< empty: not needed
  int64_t count() const { return images.dims.empty() ? 0 : images.dims[0]; }
  /// A checksum of all images and labels.
  std::string fingerprint() const;

  /// Reads a split's two files, as far as needed. Throws userError that names the file and rule.
  static MnistPart read(const std::string &folder, Split split, int64_t classes, bool labels);
};

class MnistSource final : public DataSource {
public:
  /// Reads {train,t10k}-{images-idx3,labels-idx1}-ubyte[.gz] from `folder`, as far as needed. Labels must lie in [0,
  /// classes), where `classes` is the model's number. Throws userError that names the file and rule.
  explicit MnistSource(const std::string &folder, int64_t classes = 10, DataNeeds needs = {});
  /// The files that a folder may have.
  static std::vector<std::string> files(const std::string &folder);

  const std::vector<DataField> &fields() const override { return fieldList; }
  int64_t samples(Split split) const override { return part(split).count(); }
  void read(Split split, int64_t index, size_t field, std::byte *dst) const override;
  std::string fingerprint(Split split) const override { return part(split).fingerprint(); }

private:
  const MnistPart &part(Split split) const { return split == Split::Train ? train : eval; }

  MnistPart train, eval;
  std::vector<DataField> fieldList;
};

} // namespace cleave
