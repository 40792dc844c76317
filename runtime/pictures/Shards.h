// Files with many pictures: tars as WebDataset writes them, and record files of MXNet.
#pragma once
#include "runtime/base/InputFile.h"

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace cleave {

/// ASCII letters in lower case: suffixes of files come in both.
inline std::string lowerCase(std::string text) {
  for (char &c : text)
    c = c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c;
  return text;
}

/// Bytes that are read at any offset.
struct ByteSource {
  std::string name; ///< for messages
  uint64_t size = 0;
  /// Reads exactly so many bytes, which lie within `size`.
  std::function<void(void *to, size_t count, uint64_t offset)> read;
};

/// A picture in a shard.
struct ShardPicture {
  std::string key; ///< of a tar's member; empty for records
  uint64_t offset = 0, size = 0;
  int32_t label = 0;
  uint64_t labelOffset = 0; ///< of a tar: where the label's text begins

  bool operator==(const ShardPicture &) const = default;
};

/// The samples of a tar, in its order: members KEY.jpg, KEY.jpeg or KEY.png next to KEY.cls, which holds the label as a
/// number. Other members are left out. Throws userError that names the member and the rule; a tar that is cut off, or
/// that goes on after its end, is refused.
std::vector<ShardPicture> picturesOfTar(const ByteSource &tar);

/// The same from an index in the user's cache, which is made the first time, and anew if the state of the file differs,
/// or the headers and labels of some members. `path`: the tar's, whose state this is.
std::vector<ShardPicture> indexedPicturesOfTar(const ByteSource &tar, const std::string &path, const FileState &state);

/// The records of a file: a header with one label, then the picture. Offset and size are those of the whole record.
/// Throws userError that names the record and the rule.
std::vector<ShardPicture> picturesOfRecords(const ByteSource &file);
/// Compares the text of an index, a line "KEY\tOFFSET" for each record, with the records of its file. Throws userError
/// that names the line or the number that differs: such an index is of another state of the file.
void checkRecordIndex(const std::string &text, const std::string &name, const std::string &records,
                      const std::vector<ShardPicture> &found);
/// The picture of a record.
std::vector<uint8_t> pictureOfRecord(const ByteSource &file, const ShardPicture &record);

} // namespace cleave
