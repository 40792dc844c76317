// Text windows: window i of a split begins at character i * context of that split; its last target is the first
// character of the next window.
#include "runtime/data/Text.h"
#include "runtime/base/InputFile.h"
#include "runtime/base/Sha256.h"
#include "runtime/data/Idx.h"

#include <cassert>
#include <filesystem>
#include <fmt/format.h>
#include <string_view>

namespace cleave {
namespace fs = std::filesystem;

/// The .txt files of a folder; none if it cannot be listed.
static std::vector<std::string> textsIn(const std::string &folder, std::error_code &error) {
  std::vector<std::string> found;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error))
    if (it->path().extension() == ".txt")
      found.push_back(it->path().string());
  return found;
}

std::vector<std::string> TextSource::files(const std::string &path) {
  std::error_code error;
  return fs::is_directory(path, error) ? textsIn(path, error) : std::vector{path};
}

/// The file for `path`: the file itself, or the only .txt file in a folder.
static std::string textFile(const std::string &path) {
  std::error_code error;
  if (!fs::exists(path, error))
    throw userError(fmt::format("{}: no such file or folder", path));
  if (!fs::is_directory(path, error)) {
    if (!fs::is_regular_file(path, error))
      throw userError(fmt::format("{}: neither a file nor a folder", path));
    return path;
  }
  const std::vector<std::string> found = textsIn(path, error);
  if (error)
    throw userError(fmt::format("{}: cannot be listed: {}", path, error.message()));
  if (found.size() != 1)
    throw userError(fmt::format("{}: a text data set is a folder with one .txt file, found {}", path, found.size()));
  return found[0];
}

/// The length of the character of UTF-8 with which the bytes begin (Unicode, table 3-7); 0: none, or zero. `cut`: only
/// the rest of it is missing.
static size_t characterAt(std::string_view bytes, bool &cut) {
  const auto at = [&](size_t i) { return static_cast<uint8_t>(bytes[i]); };
  const uint8_t first = at(0);
  cut = false;
  if (first < 0x80)
    return first != 0;
  const size_t length = first < 0xc2 ? 0 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : first < 0xf5 ? 4 : 0;
  for (size_t i = 1; i < length; ++i) {
    if (i == bytes.size()) {
      cut = true;
      return 0;
    }
    const uint8_t least = i > 1           ? 0x80
                          : first == 0xe0 ? 0xa0
                          : first == 0xf0 ? 0x90
                                          : 0x80,
                  most = i > 1           ? 0xbf
                         : first == 0xed ? 0x9f
                         : first == 0xf4 ? 0x8f
                                         : 0xbf;
    if (at(i) < least || at(i) > most)
      return 0;
  }
  return length;
}

/// Refuses what is no text: a file of numbers would train as one. The last character may be cut off.
static void requireText(std::string_view text, const std::string &name) {
  for (size_t i = 0; i < text.size();) {
    bool cut = false;
    const size_t length = characterAt(text.substr(i), cut);
    if (cut)
      return;
    if (length == 0)
      throw userError(
          fmt::format("{}: is not text: text is UTF-8 without zero bytes, found the byte {:#04x} at offset {}", name,
                      static_cast<uint8_t>(text[i]), i));
    i += length;
  }
}

static std::string readText(const std::string &file) {
  const std::vector<uint8_t> bytes = readMaybeGzip(file, uint64_t{4} << 30);
  return withMemoryFor(file, bytes.size(), [&] { return std::string(bytes.begin(), bytes.end()); });
}

TextSource::TextSource(const std::string &path, int64_t context, int64_t vocab, DataNeeds needs)
    : TextSource(readText(textFile(path)), context, vocab, textFile(path), needs) {}

TextSource::TextSource(std::string characters, int64_t contextLength, int64_t vocab, const std::string &name,
                       DataNeeds needs)
    : text(std::move(characters)), context(contextLength) {
  if (context < 1)
    throw userError(fmt::format("{}: the context of a text window must be positive, found {}", name, context));
  requireText(text, name);
  for (size_t i = 0; i < text.size(); ++i)
    if (int64_t(uint8_t(text[i])) >= vocab)
      throw userError(fmt::format("{}: character codes must be below the vocabulary of {}, found {} at offset {}", name,
                                  vocab, unsigned(uint8_t(text[i])), i));
  trainCharacters = int64_t(text.size()) * 9 / 10;
  for (Split split : {Split::Train, Split::Eval})
    if ((split == Split::Train ? needs.train : needs.eval) && samples(split) < 1)
      throw userError(fmt::format("{}: {} characters are too few for one {} window of {} characters", name, text.size(),
                                  split == Split::Train ? "training" : "evaluation", context));
  fieldList = {{"tokens", FieldType::I32, {context}, 0}, {"targets", FieldType::I32, {context}, vocab}};
}

std::string_view TextSource::part(Split split) const {
  const auto end = static_cast<size_t>(trainCharacters);
  return split == Split::Train ? std::string_view(text).substr(0, end) : std::string_view(text).substr(end);
}

std::string TextSource::fingerprint(Split split) const {
  const std::string_view characters = part(split);
  return "sha256:" + toHex(sha256({reinterpret_cast<const uint8_t *>(characters.data()), characters.size()}));
}

int64_t TextSource::samples(Split split) const {
  const auto characters = static_cast<int64_t>(part(split).size());
  return characters < 1 ? 0 : (characters - 1) / context;
}

void TextSource::read(Split split, int64_t index, size_t field, std::byte *dst) const {
  assert(index >= 0 && index < samples(split) && field < 2);
  const int64_t start = (split == Split::Train ? 0 : trainCharacters) + index * context + int64_t(field);
  int32_t *out = reinterpret_cast<int32_t *>(dst);
  for (int64_t i = 0; i < context; ++i)
    out[i] = uint8_t(text[size_t(start + i)]);
}

} // namespace cleave
