// The pictures of a split as files that are not decoded: a folder for each class, tars as WebDataset writes them, or
// MXNet's record files.
#pragma once
#include "runtime/base/InputFile.h"
#include "runtime/pictures/Shards.h"

#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <vector>

namespace cleave {

class PictureList {
public:
  enum class Kind : uint8_t { Folder, Tars, Records };

  /// Lists what `folder` holds: tars, record files, or else folders of classes. What it finds:
  ///   CLASS/*          every file of a class with a picture's suffix, or none; hidden files and others are left out.
  ///                    Classes and files are sorted by name; labels number the classes
  ///   *.tar            samples of members KEY.jpg (.jpeg, .png) and KEY.cls, which holds the label as a number; others
  ///                    are left out
  ///   *.rec            records of MXNet: a header with one label, then the picture. An index beside it (.idx) is not
  ///                    used, but must fit
  /// Throws userError that names the file or folder, the entry and the rule.
  explicit PictureList(const std::string &folder);

  Kind kind() const { return type; }
  int64_t count() const { return static_cast<int64_t>(entries.size()); }
  int32_t label(int64_t index) const { return at(index).label; }
  /// One more than the largest label.
  int64_t labels() const;
  /// The names of the classes, by label; empty if they have none.
  const std::vector<std::string> &classes() const { return names; }
  /// For messages: "data/train/cat/7.jpg", "data/train/0001.tar: cat_7.jpg", "data/train/a.rec: record 7".
  std::string name(int64_t index) const;
  /// The bytes of a JPEG or PNG file. Throws environmentError that names it if they cannot be read, also after some
  /// attempts, or if the tar or record file is not as it was when it was listed.
  std::vector<uint8_t> read(int64_t index) const;
  /// A checksum that tells this list from others, wherever it lies: of the classes, of the name, place, size and label
  /// of every picture (in folders the sizes of at most 4,096, spread evenly), and of the bytes of at most 256, spread
  /// evenly. Throws as read().
  std::string fingerprint() const;
  /// The first index of each tar or record file; empty for folders.
  const std::vector<int64_t> &shards() const { return firsts; }

private:
  struct Entry {
    uint64_t offset = 0, size = 0; ///< in the file; not of folders
    uint64_t name = 0;             ///< where it begins in `texts`; a record's number in its file
    uint32_t file = 0;             ///< in `files`
    int32_t label = 0;
  };
  const Entry &at(int64_t index) const { return entries[static_cast<size_t>(index)]; }
  void listClasses(const std::string &folder);
  void listFiles(const std::string &folder, int32_t label, std::vector<std::pair<uint64_t, uint64_t>> &above);
  void listShard(const std::string &path);
  std::vector<ShardPicture> picturesOf(const InputFile &shard) const;
  std::vector<uint8_t> readOnce(int64_t index) const;
  void requireUnchanged(const InputFile &shard, uint32_t number) const;
  uint64_t addText(const std::string &text);

  Kind type = Kind::Folder;
  std::string root;               ///< the folder that is listed, or the one of the record file; with a slash
  std::vector<std::string> files; ///< paths of folders, tars or record files
  std::vector<std::string> names;
  std::vector<Entry> entries;
  std::vector<int64_t> firsts;
  mutable std::vector<FileState> states; ///< of the tars or record files, as they were listed
  mutable std::mutex mutex;              ///< of `states`
  std::string texts;                     ///< names of files and members, each with a zero after it
};

} // namespace cleave
