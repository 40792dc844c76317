// Data sets of pictures with a class each: folders, tars, record files (runtime/pictures/PictureList.h), or images in
// IDX files. Fields: "image" u8 or f32 [channels, height, width], "label" i32 []: bytes
// if the model normalises them.
#pragma once
#include "runtime/data/DataSource.h"
#include "runtime/data/Mnist.h"
#include "runtime/pictures/ApplyTransforms.h"
#include "runtime/pictures/PictureList.h"

#include <atomic>
#include <functional>
#include <optional>

namespace cleave {

/// What a split holds: pictures in files, or images of grey.
class PictureSet {
public:
  /// Reads what `folder` holds for the split: DIR/train (evaluation: DIR/val), DIR/train.rec, or MNIST's files. Throws
  /// userError that names the file and the rule. `classes`: labels must be below it.
  PictureSet(const std::string &folder, Split split, int64_t classes);

  int64_t count() const { return list ? list->count() : images.count(); }
  int32_t label(int64_t index) const;
  std::string name(int64_t index) const;
  /// Calls `use` with a picture, whose parts are decoded in this mode. Errors name the file.
  void with(int64_t index, DecodeMode mode, const std::function<void(const EncodedPicture &)> &use) const;
  /// The names of the classes, by label; empty if they have none.
  std::vector<std::string> classes() const { return list ? list->classes() : std::vector<std::string>(); }
  std::vector<int64_t> shards() const { return list ? list->shards() : std::vector<int64_t>(); }
  /// A checksum of the pictures and labels, wherever they lie: PictureList::fingerprint(), or of all images.
  std::string fingerprint() const { return list ? list->fingerprint() : images.fingerprint(); }
  /// "folder", "tars", "records" or "idx".
  const char *kind() const;

private:
  std::optional<PictureList> list;
  MnistPart images;
  std::string where;
};

class PictureSource final : public DataSource {
public:
  /// Throws userError as PictureSet does, if the splits or the plan have other classes, or as AppliedTransforms.
  PictureSource(const DataSpec &spec, const std::string &where, const DataNeeds &needs);

  const std::vector<DataField> &fields() const override { return fieldList; }
  int64_t samples(Split split) const override { return part(split).set ? part(split).set->count() : 0; }
  std::vector<int64_t> shards(Split split) const override;
  std::string fingerprint(Split split) const override { return part(split).set ? part(split).set->fingerprint() : ""; }
  /// A damaged file is an environmentError that names it. If they are skipped, picture and label are those of the next
  /// sample of the split that is good, on whatever rank: each file is decoded once as a whole to know that. What could
  /// not be read is never skipped, since another rank may read it.
  void read(const SampleId &sample, Random &random, std::span<std::byte *const> to) const override;

  const std::vector<std::string> &classes() const { return names; }
  const AppliedTransforms &transforms(Split split) const { return *part(split).transforms; }
  std::string name(Split split, int64_t index) const { return part(split).set->name(index); }
  /// The samples of a split that were skipped so far, by index.
  std::vector<int64_t> skipped(Split split) const;
  /// Whether the sample was found good; false also where it has not been read.
  bool isGood(Split split, int64_t index) const;
  /// A picture of any file, as the split's transforms leave it.
  void readFile(const std::string &path, Split split, Random &random, std::byte *to) const;

private:
  enum State : uint8_t { Unknown, Good, Bad };
  struct Part {
    std::optional<PictureSet> set;
    std::optional<AppliedTransforms> transforms;
    std::vector<std::atomic<State>> states; ///< of each sample, where bad files are skipped
  };
  const Part &part(Split split) const { return split == Split::Train ? train : eval; }
  void note(Part &part, int64_t index, State found) const;
  void readPicture(const Part &part, int64_t index, bool check, const Random &random, std::byte *to) const;
  void apply(const AppliedTransforms &transforms, const EncodedPicture &picture, const Random &random,
             const std::string &name, std::byte *to) const;

  mutable Part train, eval; ///< the states change as files are read
  bool skips;
  DecodeMode trainMode;
  std::vector<DataField> fieldList;
  std::vector<std::string> names;
};

/// Opens pictures at `where`, of whatever kind.
std::unique_ptr<DataSource> openPictures(const DataSpec &spec, const std::string &where, const DataNeeds &needs);

/// The names of the classes at `where`, by label, from the training split if there is one; empty if they have none.
/// Reads only names of folders.
std::vector<std::string> classNamesAt(const std::string &where);

/// Throws userError that names the first class that differs, if both lists are known and differ. `whose`: who has the
/// first list.
void requireClasses(const std::vector<std::string> &known, const std::string &whose,
                    const std::vector<std::string> &found, const std::string &where);

} // namespace cleave
