// Windows of a text file's characters for a language model. The first 90% of the characters are for training, the rest
// for evaluation. An epoch visits non-overlapping windows of `context` characters. Fields: "tokens" i32 [context],
// "targets" i32 [context] (the next character for each token).
#pragma once
#include "runtime/data/DataSource.h"

namespace cleave {

class TextSource final : public DataSource {
public:
  /// `path`: a text file, or a folder with exactly one .txt file. Throws userError if there is no file or more than
  /// one, if it is not text: UTF-8 without zero bytes, if a character code is not below `vocab` (both name the offset),
  /// or if a needed split is too short for one window.
  TextSource(const std::string &path, int64_t context, int64_t vocab, DataNeeds needs = {});
  /// The same for characters in memory; `name` is for error messages.
  TextSource(std::string characters, int64_t context, int64_t vocab, const std::string &name, DataNeeds needs = {});
  /// The file, or the .txt files of a folder.
  static std::vector<std::string> files(const std::string &path);

  const std::vector<DataField> &fields() const override { return fieldList; }
  int64_t samples(Split split) const override;
  void read(Split split, int64_t index, size_t field, std::byte *dst) const override;
  /// A checksum of the split's characters.
  std::string fingerprint(Split split) const override;

private:
  std::string_view part(Split split) const;

  std::string text;
  int64_t context;
  int64_t trainCharacters = 0;
  std::vector<DataField> fieldList;
};

} // namespace cleave
