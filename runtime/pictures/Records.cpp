// MXNet's record files (recordio.h of dmlc-core, and image_recordio.h of MXNet): a record is one or more parts of a
// magic number, a word with kind and length, and so many bytes, filled up to a multiple of four. A picture that holds
// the magic number at such a place is cut there into parts, without the number itself.
#include "runtime/base/Error.h"
#include "runtime/base/ParseNumber.h"
#include "runtime/pictures/Shards.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fmt/format.h>
#include <limits>
#include <set>
#include <sstream>
#include <string_view>

namespace cleave {
namespace {

constexpr uint32_t magic = 0xced7230a;
enum PartKind : uint32_t { Whole, First, Middle, Last };

/// Before the picture: the number of labels that follow the header (0: `label` is the only one), a label and two ids.
struct Header {
  uint32_t labels;
  float label;
  uint64_t ids[2];
};
static_assert(sizeof(Header) == 24);

[[noreturn]] void refuse(const ByteSource &file, uint64_t offset, const std::string &what) {
  throw userError(fmt::format("{}: record at offset {}: {}", file.name, offset, what));
}

/// The first `most` bytes of the record, without its frames; `end`: where it ends.
std::vector<uint8_t> bytesOf(const ByteSource &file, uint64_t offset, uint64_t most, uint64_t &end) {
  std::vector<uint8_t> bytes;
  for (uint64_t at = offset, part = 0;; ++part) {
    uint32_t frame[2];
    if (at > file.size || file.size - at < sizeof frame)
      refuse(file, offset, "the file ends within it");
    file.read(frame, sizeof frame, at);
    if (frame[0] != magic)
      refuse(file, offset, fmt::format("begins with {:#010x} instead of {:#010x}", frame[0], magic));
    const uint32_t kind = frame[1] >> 29, length = frame[1] & 0x1fffffff;
    if (kind > Last || (part == 0) != (kind == Whole || kind == First))
      refuse(file, offset, fmt::format("part {} is of kind {}", part, kind));
    at += sizeof frame;
    const uint64_t filled = (uint64_t{length} + 3) / 4 * 4;
    if (filled > file.size - at)
      refuse(file, offset, fmt::format("its {} bytes reach beyond the file's {}", length, file.size));
    if (part > 0 && bytes.size() < most)
      bytes.insert(bytes.end(), reinterpret_cast<const uint8_t *>(&magic),
                   reinterpret_cast<const uint8_t *>(&magic + 1));
    const size_t have = bytes.size(),
                 take = static_cast<size_t>(std::min<uint64_t>(length, most - std::min<uint64_t>(most, have)));
    bytes.resize(have + take);
    if (take > 0)
      file.read(bytes.data() + have, take, at);
    at += filled;
    if (kind == Whole || kind == Last) {
      end = at;
      return bytes;
    }
  }
}

/// The header of a record, and how many bytes precede the picture.
std::pair<Header, size_t> headerOf(const ByteSource &file, uint64_t offset, const std::vector<uint8_t> &bytes) {
  Header header;
  if (bytes.size() < sizeof header)
    refuse(file, offset, fmt::format("a header has {} bytes, found {}", sizeof header, bytes.size()));
  std::memcpy(&header, bytes.data(), sizeof header);
  if (header.labels > 1)
    refuse(file, offset, fmt::format("a picture has one label, found {}", header.labels));
  if (header.labels == 0)
    return {header, sizeof header};
  if (bytes.size() < sizeof header + sizeof header.label)
    refuse(file, offset, "ends before its label");
  std::memcpy(&header.label, bytes.data() + sizeof header, sizeof header.label);
  return {header, sizeof header + sizeof header.label};
}

} // namespace

std::vector<ShardPicture> picturesOfRecords(const ByteSource &file) {
  std::vector<ShardPicture> found;
  for (uint64_t at = 0; at < file.size;) {
    uint64_t end = 0;
    const auto bytes = bytesOf(file, at, sizeof(Header) + sizeof(float), end);
    const float label = headerOf(file, at, bytes).first.label;
    if (!(label >= 0 && label < 0x1p31F && label == std::floor(label)))
      refuse(file, at, fmt::format("a label must be a whole number of at least 0, found {}", label));
    found.push_back({"", at, end - at, static_cast<int32_t>(label), 0});
    at = end;
  }
  return found;
}

void checkRecordIndex(const std::string &text, const std::string &name, const std::string &records,
                      const std::vector<ShardPicture> &found) {
  std::set<uint64_t> begins;
  for (const ShardPicture &record : found)
    begins.insert(record.offset);
  const auto differs = [&](const std::string &what) {
    throw userError(
        fmt::format("{}: {}; the index is of another state of {}: make it anew, or remove it, since it is not "
                    "needed",
                    name, what, records));
  };
  std::set<uint64_t> listed;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    while (!line.empty() && (line.back() == '\r' || line.back() == ' '))
      line.pop_back();
    if (line.empty())
      continue;
    const auto offset = parseNumber<uint64_t>(std::string_view(line).substr(line.find_last_of("\t ") + 1));
    if (!offset || !begins.contains(*offset))
      differs(fmt::format("the line \"{}\" ends with no offset at which a record begins", line));
    listed.insert(*offset);
  }
  if (listed.size() != begins.size())
    differs(fmt::format("lists {} records, the file has {}", listed.size(), begins.size()));
}

std::vector<uint8_t> pictureOfRecord(const ByteSource &file, const ShardPicture &record) {
  uint64_t end = 0;
  std::vector<uint8_t> bytes = bytesOf(file, record.offset, std::numeric_limits<uint64_t>::max(), end);
  bytes.erase(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(headerOf(file, record.offset, bytes).second));
  return bytes;
}

} // namespace cleave
