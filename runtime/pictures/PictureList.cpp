// Lists folders, and reads what is listed.
#include "runtime/pictures/PictureList.h"
#include "runtime/base/Error.h"
#include "runtime/base/InputFile.h"
#include "runtime/pictures/Shards.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <fmt/format.h>
#include <sys/stat.h>

namespace cleave {
namespace {

namespace fs = std::filesystem;

/// The entries of a folder, by name; hidden ones are left out.
std::vector<std::string> entriesOf(const std::string &folder) {
  std::error_code error;
  std::vector<std::string> names;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error))
    if (std::string name = it->path().filename().string(); !name.starts_with("."))
      names.push_back(std::move(name));
  if (error)
    throw userError(fmt::format("{}: cannot be listed: {}", folder, error.message()));
  std::ranges::sort(names);
  return names;
}

/// Whether a file may be a picture by its name: with the suffix of one, or none. Those of formats that are not read are
/// among them, so that they are not left out in silence.
bool mayBePicture(const std::string &name) {
  const size_t dot = name.rfind('.');
  if (dot == std::string::npos)
    return true;
  const std::string suffix = lowerCase(name.substr(dot + 1));
  constexpr std::array suffixes{"jpg", "jpeg", "jpe", "png", "bmp", "gif", "pgm", "ppm", "tif", "tiff", "webp"};
  return std::ranges::find(suffixes, suffix) != suffixes.end();
}

/// The file as a source of bytes; it must outlive it.
ByteSource sourceOf(const InputFile &file) {
  return {file.name(), file.size(), [&file](void *to, size_t count, uint64_t at) { file.read(to, count, at); }};
}

constexpr uint64_t mostBytes = uint64_t{1} << 30; // of a picture's file

} // namespace

PictureList::PictureList(const std::string &folder) {
  if (fs::path(folder).extension() == ".rec") {
    type = Kind::Records;
    listShard(folder);
    return;
  }
  std::vector<std::string> tars, records;
  for (const std::string &name : entriesOf(folder)) {
    if (name.ends_with(".tar"))
      tars.push_back(folder + "/" + name);
    if (name.ends_with(".rec"))
      records.push_back(folder + "/" + name);
  }
  if (!tars.empty() && !records.empty())
    throw userError(fmt::format("{}: holds both tars and record files: {} and {}", folder, tars[0], records[0]));
  type = !tars.empty() ? Kind::Tars : !records.empty() ? Kind::Records : Kind::Folder;
  if (type == Kind::Folder)
    listClasses(folder);
  for (const std::string &path : type == Kind::Tars ? tars : records)
    listShard(path);
}

int64_t PictureList::labels() const {
  int64_t most = static_cast<int64_t>(names.size());
  for (const Entry &entry : entries)
    most = std::max<int64_t>(most, entry.label + int64_t{1});
  return most;
}

void PictureList::listClasses(const std::string &folder) {
  for (const std::string &name : entriesOf(folder)) {
    const std::string path = folder + "/" + name;
    std::error_code error;
    if (!fs::is_directory(path, error))
      continue;
    names.push_back(name);
    const size_t before = entries.size();
    std::vector<std::pair<uint64_t, uint64_t>> above;
    listFiles(path, static_cast<int32_t>(names.size() - 1), above);
    if (entries.size() == before)
      throw userError(fmt::format("{}: a class without pictures", path));
  }
  if (names.empty())
    throw userError(fmt::format("{}: a folder of pictures has a folder for each class, or tars or record files; found "
                                "none",
                                folder));
}

void PictureList::listFiles(const std::string &folder, int32_t label,
                            std::vector<std::pair<uint64_t, uint64_t>> &above) {
  struct stat info {};
  if (stat(folder.c_str(), &info) != 0)
    throw userError(fmt::format("{}: cannot be listed: {}", folder, std::strerror(errno)));
  const std::pair<uint64_t, uint64_t> self{info.st_dev, info.st_ino};
  if (std::ranges::find(above, self) != above.end())
    throw userError(fmt::format("{}: symbolic links lead in a circle: it is one of the folders above it", folder));
  above.push_back(self);
  const auto file = static_cast<uint32_t>(files.size());
  files.push_back(folder);
  std::vector<std::string> below;
  for (const std::string &name : entriesOf(folder)) {
    std::error_code error;
    if (fs::is_directory(folder + "/" + name, error))
      below.push_back(name);
    else if (mayBePicture(name))
      entries.push_back({0, 0, addText(name), file, label});
  }
  for (const std::string &name : below)
    listFiles(folder + "/" + name, label, above);
  above.pop_back();
}

void PictureList::listShard(const std::string &path) {
  const InputFile file(path, Status::User);
  const ByteSource source = sourceOf(file);
  const auto found = type == Kind::Tars ? indexedPicturesOfTar(source, path) : picturesOfRecords(source);
  if (found.empty())
    throw userError(fmt::format("{}: holds no picture", path));
  firsts.push_back(count());
  for (const ShardPicture &each : found) {
    const uint64_t number = static_cast<uint64_t>(count() - firsts.back());
    entries.push_back({each.offset, each.size, type == Kind::Tars ? addText(each.key) : number,
                       static_cast<uint32_t>(files.size()), each.label});
  }
  files.push_back(path);
}

uint64_t PictureList::addText(const std::string &text) {
  const uint64_t begin = texts.size();
  texts.append(text.c_str(), text.size() + 1);
  return begin;
}

std::string PictureList::name(int64_t index) const {
  const Entry &entry = at(index);
  const std::string &file = files[entry.file];
  if (type == Kind::Records)
    return fmt::format("{}: record {}", file, entry.name);
  return fmt::format("{}{}{}", file, type == Kind::Tars ? ": " : "/", texts.c_str() + entry.name);
}

std::vector<uint8_t> PictureList::read(int64_t index) const {
  const Entry &entry = at(index);
  const InputFile file(type == Kind::Folder ? name(index) : files[entry.file]);
  const uint64_t size = type == Kind::Folder ? file.size() : entry.size;
  if (size > mostBytes)
    throw environmentError(
        fmt::format("{}: the file of a picture has at most {} bytes, found {}", name(index), mostBytes, size));
  if (type == Kind::Records)
    return pictureOfRecord(sourceOf(file), {"", entry.offset, entry.size, entry.label});
  std::vector<uint8_t> bytes(static_cast<size_t>(size));
  file.read(bytes.data(), bytes.size(), entry.offset);
  return bytes;
}

} // namespace cleave
