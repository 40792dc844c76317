// The files that a run reads and writes. No file may have two roles if one of them is to be written: an output would
// destroy an input, or two outputs each other.
#pragma once
#include <string>
#include <vector>

namespace cleave {

/// Knows every file of a run before anything is written. Files are the same if they have the same device and inode, so
/// links are found; files that do not exist yet, if they have the same folder and name. Empty paths, folders, pipes and
/// devices have no role.
class FileRoles {
public:
  /// `what`: what the user named, for messages: "--plan", "the data file".
  void reads(const std::string &what, const std::string &path) { files.push_back({what, path, false}); }
  void reads(const std::string &what, const std::vector<std::string> &paths);
  void writes(const std::string &what, const std::string &path) { files.push_back({what, path, true}); }
  /// Throws userError that names two roles of one file. Call it before the first output is opened.
  void check() const;

private:
  struct File {
    std::string what, path;
    bool written;
  };
  std::vector<File> files;
};

} // namespace cleave
