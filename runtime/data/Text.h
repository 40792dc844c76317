// Characters of one text file as windows for a language model. The first 90% of the characters are for training, the
// rest for evaluation; an epoch visits windows of `context` characters that do not overlap.
// Fields: "tokens" i32 [context], "targets" i32 [context] (each the character after its token).
#pragma once
#include "runtime/data/DataSource.h"

namespace cleave {

class TextSource final : public DataSource {
public:
  /// `path`: a text file, or a folder with exactly one .txt file. Throws userError: no or several files, a character
  /// code that is not below `vocab` (named with its offset), too few characters for one window in a split that is
  /// needed.
  TextSource(const std::string &path, int64_t context, int64_t vocab, DataNeeds needs = {});
  /// The same from characters at hand; `name` stands in error messages.
  TextSource(std::string characters, int64_t context, int64_t vocab, const std::string &name, DataNeeds needs = {});

  const std::vector<DataField> &fields() const override { return fieldList; }
  int64_t samples(Split split) const override;
  void read(Split split, int64_t index, size_t field, std::byte *dst) const override;

private:
  std::string text;
  int64_t context;
  int64_t trainCharacters = 0;
  std::vector<DataField> fieldList;
};

} // namespace cleave
