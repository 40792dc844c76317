// Lists folders, and reads what is listed.
#include "runtime/pictures/PictureList.h"
#include "runtime/base/Error.h"
#include "runtime/base/Sha256.h"

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

PictureList::PictureList(const std::string &folder) : root(folder + "/") {
  if (fs::path(folder).extension() == ".rec") {
    type = Kind::Records;
    root = folder.substr(0, folder.rfind('/') + 1); // npos + 1 is 0
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

std::vector<ShardPicture> PictureList::picturesOf(const InputFile &shard) const {
  const FileState before = shard.state();
  const ByteSource source = sourceOf(shard);
  std::vector<ShardPicture> found =
      type == Kind::Tars ? indexedPicturesOfTar(source, shard.name(), before) : picturesOfRecords(source);
  if (shard.state() != before)
    throw environmentError(fmt::format("{}: was changed while it was listed", shard.name()));
  return found;
}

void PictureList::listShard(const std::string &path) {
  const InputFile file(path, Status::User);
  const std::vector<ShardPicture> found = picturesOf(file);
  if (found.empty())
    throw userError(fmt::format("{}: holds no picture", path));
  std::error_code error;
  if (const std::string index = fs::path(path).replace_extension(".idx");
      type == Kind::Records && fs::exists(index, error))
    checkRecordIndex(readTextFile(index, Status::User), index, path, found);
  states.push_back(file.state());
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

/// A file that was written to or replaced holds other pictures at the places that are known. If only its owner, mode or
/// names changed, its list is the same.
void PictureList::requireUnchanged(const InputFile &shard, uint32_t number) const {
  const std::lock_guard lock(mutex);
  FileState &known = states[number];
  const FileState now = shard.state();
  if (now == known)
    return;
  const auto refuse = [&](const std::string &what) {
    throw environmentError(fmt::format("{}: {} since it was listed, so pictures would be read from wrong places; start "
                                       "again, with --resume and --new-data if there is a checkpoint",
                                       shard.name(), what));
  };
  if (now.inode != known.inode)
    refuse("was replaced by another file");
  if (now.size != known.size)
    refuse(fmt::format("was changed from {} bytes to {}", known.size, now.size));
  if (now.written != known.written)
    refuse("was written to");
  const auto first = firsts[number], next = number + 1 < firsts.size() ? firsts[number + 1] : count();
  const std::vector<ShardPicture> found = picturesOf(shard);
  bool same = static_cast<int64_t>(found.size()) == next - first;
  for (int64_t i = first; same && i < next; ++i) {
    const ShardPicture &picture = found[static_cast<size_t>(i - first)];
    same = picture.offset == at(i).offset && picture.size == at(i).size && picture.label == at(i).label;
  }
  if (!same)
    refuse("was written to");
  known = now;
}

std::vector<uint8_t> PictureList::read(int64_t index) const {
  return withRetries([&] { return readOnce(index); });
}

std::vector<uint8_t> PictureList::readOnce(int64_t index) const {
  const Entry &entry = at(index);
  const InputFile file(type == Kind::Folder ? name(index) : files[entry.file]);
  if (type != Kind::Folder)
    requireUnchanged(file, entry.file);
  const uint64_t size = type == Kind::Folder ? file.size() : entry.size;
  if (size > mostBytes)
    throw environmentError(
        fmt::format("{}: the file of a picture has at most {} bytes, found {}", name(index), mostBytes, size));
  std::vector<uint8_t> bytes;
  if (type == Kind::Records) {
    bytes = pictureOfRecord(sourceOf(file), {"", entry.offset, entry.size, entry.label, 0});
  } else {
    bytes.resize(static_cast<size_t>(size));
    file.read(bytes.data(), bytes.size(), entry.offset);
  }
  if (type != Kind::Folder) // nor meanwhile
    requireUnchanged(file, entry.file);
  return bytes;
}

std::string PictureList::fingerprint() const {
  constexpr int64_t mostSizes = 4096, mostRead = 256;
  Sha256 hash;
  const auto addText = [&](std::string_view text) {
    hash.update({reinterpret_cast<const uint8_t *>(text.data()), text.size()});
    hash.update(std::array<uint8_t, 1>{}); // ends it
  };
  const auto addNumber = [&](uint64_t number) {
    hash.update({reinterpret_cast<const uint8_t *>(&number), sizeof number});
  };
  // At most so many indices, spread evenly.
  const auto some = [&](int64_t most) {
    std::vector<int64_t> list(static_cast<size_t>(std::min(most, count())));
    for (size_t i = 0; i < list.size(); ++i)
      list[i] = static_cast<int64_t>(i) * count() / static_cast<int64_t>(list.size());
    return list;
  };
  for (const std::string &name : names)
    addText(name);
  for (const std::string &file : files)
    addText(std::string_view(file).substr(root.size()));
  for (const Entry &entry : entries) {
    if (type == Kind::Folder)
      addText(texts.c_str() + entry.name);
    for (const uint64_t number : {entry.offset, entry.size, uint64_t{entry.file}, static_cast<uint64_t>(entry.label)})
      addNumber(number);
  }
  if (type == Kind::Folder)
    for (const int64_t index : some(mostSizes))
      addNumber(withRetries([&] { return InputFile(name(index)).size(); }));
  for (const int64_t index : some(mostRead)) {
    const std::vector<uint8_t> bytes = read(index);
    addNumber(bytes.size());
    hash.update(bytes);
  }
  return "sha256:" + toHex(hash.finish());
}

} // namespace cleave
