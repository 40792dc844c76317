// The index of a tar: a start on ImageNet in a thousand tars would otherwise read the headers of all their members. It
// is a cache: one that cannot be read or written, or that is not about this file, is as none.
#include "runtime/base/AtomicFile.h"
#include "runtime/base/CacheFile.h"
#include "runtime/base/Error.h"
#include "runtime/base/InputFile.h"
#include "runtime/base/JsonText.h"
#include "runtime/base/Sha256.h"
#include "runtime/pictures/Shards.h"

#include <filesystem>
#include <optional>
#include <sys/stat.h>

namespace cleave {
namespace {

constexpr int indexVersion = 1; ///< counts what picturesOfTar() takes

/// What tells one state of a file from another.
std::vector<int64_t> stateOf(const std::string &path) {
  struct stat info {};
  if (stat(path.c_str(), &info) != 0)
    return {};
  return {indexVersion, info.st_size, info.st_mtim.tv_sec, info.st_mtim.tv_nsec, static_cast<int64_t>(info.st_ino)};
}

std::optional<std::vector<ShardPicture>> readIndex(const std::string &index, const std::vector<int64_t> &state,
                                                   uint64_t size) {
  try {
    const nlohmann::json json = parseJson(readTextFile(index), index);
    if (json.at("state").get<std::vector<int64_t>>() != state)
      return std::nullopt;
    std::vector<ShardPicture> pictures;
    for (const auto &entry : json.at("pictures")) {
      ShardPicture &picture =
          pictures.emplace_back(ShardPicture{entry.at(0).get<std::string>(), entry.at(1).get<uint64_t>(),
                                             entry.at(2).get<uint64_t>(), entry.at(3).get<int32_t>()});
      if (picture.offset > size || picture.size > size - picture.offset || picture.label < 0)
        return std::nullopt;
    }
    return pictures;
  } catch (const std::exception &) {
    return std::nullopt;
  }
}

void writeIndex(const std::string &index, const std::vector<int64_t> &state,
                const std::vector<ShardPicture> &pictures) {
  nlohmann::json list = nlohmann::json::array();
  for (const ShardPicture &picture : pictures)
    list.push_back({picture.key, picture.offset, picture.size, picture.label});
  try {
    std::filesystem::create_directories(std::filesystem::path(index).parent_path());
    const std::string text = jsonText(nlohmann::json{{"state", state}, {"pictures", list}});
    AtomicFile file(index);
    file.write(text.data(), text.size());
    file.commit();
  } catch (const std::exception &) { // the next start reads the tar again
  }
}

} // namespace

std::vector<ShardPicture> indexedPicturesOfTar(const ByteSource &tar, const std::string &path) {
  std::error_code error;
  const std::string whole = std::filesystem::absolute(path, error).string();
  const std::string index =
      cacheFile("tars/" + toHex(sha256({reinterpret_cast<const uint8_t *>(whole.data()), whole.size()})) + ".json");
  const std::vector<int64_t> state = stateOf(path);
  if (index.empty() || state.empty())
    return picturesOfTar(tar);
  if (auto known = readIndex(index, state, tar.size))
    return std::move(*known);
  std::vector<ShardPicture> found = picturesOfTar(tar);
  if (stateOf(path) == state)
    writeIndex(index, state, found);
  return found;
}

} // namespace cleave
