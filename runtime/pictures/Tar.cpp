// Lists the members of a tar with libarchive, which knows the formats of long names and large sizes. Only headers and
// labels are read.
#include "runtime/base/Error.h"
#include "runtime/base/ParseNumber.h"
#include "runtime/pictures/Shards.h"

#include <algorithm>
#include <archive.h>
#include <archive_entry.h>
#include <array>
#include <exception>
#include <fmt/format.h>
#include <limits>
#include <memory>
#include <optional>

namespace cleave {
namespace {

/// What libarchive reads from; its callbacks must not throw.
struct Reading {
  const ByteSource &source;
  uint64_t at = 0;
  std::array<uint8_t, 1 << 12> buffer{}; ///< small: of a member only the header is read
  std::exception_ptr failure{};
};

la_ssize_t readMore(archive *, void *data, const void **buffer) {
  auto &reading = *static_cast<Reading *>(data);
  *buffer = reading.buffer.data();
  if (reading.at >= reading.source.size)
    return 0;
  const size_t count = static_cast<size_t>(std::min<uint64_t>(reading.buffer.size(), reading.source.size - reading.at));
  try {
    reading.source.read(reading.buffer.data(), count, reading.at);
  } catch (...) {
    reading.failure = std::current_exception();
    return ARCHIVE_FATAL;
  }
  reading.at += count;
  return static_cast<la_ssize_t>(count);
}

la_int64_t skip(archive *, void *data, la_int64_t count) {
  auto &reading = *static_cast<Reading *>(data);
  const auto most = static_cast<la_int64_t>(reading.source.size - reading.at);
  const la_int64_t skipped = std::clamp<la_int64_t>(count, 0, most);
  reading.at += static_cast<uint64_t>(skipped);
  return skipped;
}

/// A member's name in two parts, as WebDataset splits it: at the first dot of the last part of the path.
struct MemberName {
  std::string key, suffix;
};

MemberName split(const std::string &path) {
  const size_t slash = path.rfind('/'), dot = path.find('.', slash == std::string::npos ? 0 : slash + 1);
  if (dot == std::string::npos)
    return {path, ""};
  return {path.substr(0, dot), lowerCase(path.substr(dot + 1))};
}

class TarReader {
public:
  explicit TarReader(const ByteSource &tar) : tar(tar), reading{tar}, handle(archive_read_new(), archive_read_free) {
    archive_read_support_format_tar(handle.get());
    archive_read_set_callback_data(handle.get(), &reading);
    archive_read_set_read_callback(handle.get(), readMore);
    archive_read_set_skip_callback(handle.get(), skip);
    check(archive_read_open1(handle.get()));
  }

  std::vector<ShardPicture> list() {
    archive_entry *entry = nullptr;
    for (;;) {
      const int result = archive_read_next_header(handle.get(), &entry);
      if (result == ARCHIVE_EOF)
        break;
      check(result);
      if (archive_entry_filetype(entry) == AE_IFREG)
        member(entry);
    }
    checkEnd();
    finishSample();
    if (found.empty() && !dotted.empty())
      refuse(fmt::format(
          "member \"{}\": a key ends at the first dot of a name, as WebDataset has it, so this is \"{}\" of "
          "sample \"{}\"; no member is KEY.jpg, KEY.jpeg or KEY.png",
          dotted, split(dotted).suffix, split(dotted).key));
    return std::move(found);
  }

private:
  void check(int result) {
    if (reading.failure)
      std::rethrow_exception(reading.failure);
    if (result != ARCHIVE_OK && result != ARCHIVE_WARN)
      refuse(fmt::format("is not a tar that can be read: {}",
                         archive_error_string(handle.get()) ? archive_error_string(handle.get()) : "unknown error"));
  }
  [[noreturn]] void refuse(const std::string &what) const { throw userError(fmt::format("{}: {}", tar.name, what)); }

  /// A tar ends with blocks of zeros: what is cut off lacks them, and what is appended to a whole tar follows them.
  void checkEnd() const {
    constexpr uint64_t block = 512, looked = 1 << 16;
    const auto zeros = [&](uint64_t from, uint64_t to) {
      std::vector<uint8_t> bytes(static_cast<size_t>(to - from));
      tar.read(bytes.data(), bytes.size(), from);
      return std::ranges::all_of(bytes, [](uint8_t byte) { return byte == 0; });
    };
    const la_int64_t at = archive_filter_bytes(handle.get(), 0);
    const auto end = static_cast<uint64_t>(std::max<la_int64_t>(at, 0));
    if (end < block || end > tar.size || !zeros(end - block, end))
      refuse(fmt::format("is cut off: its {} bytes do not end with the blocks of zeros that end a tar{}", tar.size,
                         sample.empty() ? "" : fmt::format(", the last sample is \"{}\"", sample)));
    if (!zeros(end, std::min(tar.size, end + looked)))
      refuse(fmt::format("goes on after its end at byte {}: is it several tars in one file?", end));
  }

  void member(archive_entry *entry) {
    const char *given = archive_entry_pathname(entry);
    const std::string path = given ? given : "";
    if (path.empty() || ("/" + path + "/").find("/../") != std::string::npos)
      refuse(fmt::format("member \"{}\": a name must not be empty or lead out of the tar", path));
    const la_int64_t size = archive_entry_size(entry), offset = archive_filter_bytes(handle.get(), 0);
    if (size < 0 || offset < 0 || static_cast<uint64_t>(offset) > tar.size ||
        static_cast<uint64_t>(size) > tar.size - static_cast<uint64_t>(offset))
      refuse(fmt::format("is cut off: member \"{}\": its {} bytes at offset {} reach beyond the tar's {}", path, size,
                         offset, tar.size));
    const auto [key, suffix] = split(path);
    const bool picture = suffix == "jpg" || suffix == "jpeg" || suffix == "png";
    if (!picture && suffix != "cls") {
      if (dotted.empty() && (suffix.ends_with(".jpg") || suffix.ends_with(".jpeg") || suffix.ends_with(".png")))
        dotted = path;
      return;
    }
    if (key != sample) {
      finishSample();
      sample = key;
    }
    if (picture ? current.has_value() : label.has_value())
      refuse(fmt::format("member \"{}\": sample \"{}\" has a second {}", path, key, picture ? "picture" : "label"));
    if (picture)
      current = ShardPicture{key, static_cast<uint64_t>(offset), static_cast<uint64_t>(size), 0, 0};
    else
      label = readLabel(path, size), labelOffset = static_cast<uint64_t>(offset);
  }

  int32_t readLabel(const std::string &path, la_int64_t size) {
    std::string text(static_cast<size_t>(std::min<la_int64_t>(size, 32)), '\0');
    const la_ssize_t got = archive_read_data(handle.get(), text.data(), text.size());
    if (got < 0)
      check(static_cast<int>(got));
    text.resize(static_cast<size_t>(std::max<la_ssize_t>(got, 0)));
    while (!text.empty() && (text.back() == '\n' || text.back() == '\r' || text.back() == ' '))
      text.pop_back();
    const auto value = parseNumber<int64_t>(text);
    if (!value || *value < 0 || *value > std::numeric_limits<int32_t>::max())
      refuse(fmt::format("member \"{}\": a label must be a whole number of at least 0, found \"{}\"", path, text));
    return static_cast<int32_t>(*value);
  }

  void finishSample() {
    if (current.has_value() != label.has_value())
      refuse(fmt::format("sample \"{}\": has no {}", sample, current ? ".cls" : "picture (.jpg, .jpeg or .png)"));
    if (current) {
      current->label = *label;
      current->labelOffset = labelOffset;
      found.push_back(std::move(*current));
    }
    current.reset();
    label.reset();
  }

  const ByteSource &tar;
  Reading reading;
  std::unique_ptr<archive, int (*)(archive *)> handle;
  std::string sample;
  std::string dotted; ///< the first picture whose name has a dot in what should be its key
  std::optional<ShardPicture> current;
  std::optional<int32_t> label;
  uint64_t labelOffset = 0;
  std::vector<ShardPicture> found;
};

} // namespace

std::vector<ShardPicture> picturesOfTar(const ByteSource &tar) {
  const auto reader = std::make_unique<TarReader>(tar); // its buffer is large for a stack
  return reader->list();
}

} // namespace cleave
