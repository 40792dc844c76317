// The index of a tar: a start on ImageNet in a thousand tars would otherwise read the headers of all their members. It
// is a cache: one that cannot be read or written, that others may have written, or that is not about this file, is as
// none.
#include "runtime/base/AtomicFile.h"
#include "runtime/base/CacheFile.h"
#include "runtime/base/JsonText.h"
#include "runtime/base/Sha256.h"
#include "runtime/pictures/Shards.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>
#include <span>

namespace cleave {
namespace {

constexpr int indexVersion = 2; ///< counts what picturesOfTar() takes

std::vector<int64_t> numbersOf(const FileState &state) {
  return {indexVersion, static_cast<int64_t>(state.size), state.written, state.changed,
          static_cast<int64_t>(state.inode)};
}

/// A checksum of the headers and labels of some pictures: a file system may know too little of a file's state.
std::string sampleOf(const ByteSource &tar, const std::vector<ShardPicture> &pictures) {
  constexpr uint64_t block = 512;
  constexpr size_t most = 8;
  const size_t count = std::min(pictures.size(), most);
  Sha256 hash;
  std::array<uint8_t, 2 * block> bytes{};
  for (size_t i = 0; i < count; ++i) {
    const ShardPicture &picture = pictures[count == 1 ? 0 : i * (pictures.size() - 1) / (count - 1)];
    for (const uint64_t content : {picture.offset, picture.labelOffset}) { // the header is the block before
      const uint64_t begin = content - std::min(content, block), end = std::min(tar.size, content + block);
      tar.read(bytes.data(), static_cast<size_t>(end - begin), begin);
      hash.update(std::span(bytes).first(static_cast<size_t>(end - begin)));
    }
  }
  return toHex(hash.finish());
}

std::optional<std::vector<ShardPicture>> readIndex(const std::string &index, const FileState &state,
                                                   const ByteSource &tar) {
  try {
    const nlohmann::json json = parseJson(readOwnFile(index).content, index);
    if (json.at("state").get<std::vector<int64_t>>() != numbersOf(state))
      return std::nullopt;
    std::vector<ShardPicture> pictures;
    for (const auto &entry : json.at("pictures")) {
      const ShardPicture &picture = pictures.emplace_back(
          ShardPicture{entry.at(0).get<std::string>(), entry.at(1).get<uint64_t>(), entry.at(2).get<uint64_t>(),
                       entry.at(3).get<int32_t>(), entry.at(4).get<uint64_t>()});
      if (picture.offset > tar.size || picture.size > tar.size - picture.offset || picture.label < 0 ||
          picture.labelOffset > tar.size)
        return std::nullopt;
    }
    if (json.at("sample").get<std::string>() != sampleOf(tar, pictures))
      return std::nullopt;
    return pictures;
  } catch (const std::exception &) {
    return std::nullopt;
  }
}

void writeIndex(const std::string &index, const FileState &state, const ByteSource &tar,
                const std::vector<ShardPicture> &pictures) {
  nlohmann::json list = nlohmann::json::array();
  for (const ShardPicture &picture : pictures)
    list.push_back({picture.key, picture.offset, picture.size, picture.label, picture.labelOffset});
  try {
    std::filesystem::create_directories(std::filesystem::path(index).parent_path());
    const std::string text =
        jsonText(nlohmann::json{{"state", numbersOf(state)}, {"sample", sampleOf(tar, pictures)}, {"pictures", list}});
    AtomicFile file(index);
    file.write(text.data(), text.size());
    file.commit();
  } catch (const std::exception &) { // the next start reads the tar again
  }
}

} // namespace

std::vector<ShardPicture> indexedPicturesOfTar(const ByteSource &tar, const std::string &path, const FileState &state) {
  std::error_code error;
  const std::string whole = std::filesystem::absolute(path, error).string();
  const std::string index =
      cacheFile("tars/" + toHex(sha256({reinterpret_cast<const uint8_t *>(whole.data()), whole.size()})) + ".json");
  if (index.empty())
    return picturesOfTar(tar);
  if (auto known = readIndex(index, state, tar))
    return std::move(*known);
  std::vector<ShardPicture> found = picturesOfTar(tar);
  writeIndex(index, state, tar, found);
  return found;
}

} // namespace cleave
