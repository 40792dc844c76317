// Which of a library's algorithms each step takes. A choice is measured once and kept in a file, by device, library
// version and step; the same plan with the same record gives the same bits.
#pragma once
#include <map>
#include <string>

namespace cleave::cuda {

class Tuning {
public:
  /// `file`: where choices are kept; "off": nothing is measured or kept. A file that cannot be read as a record is an
  /// environment error naming it; one that is not there is made by save().
  explicit Tuning(const std::string &file);

  bool measures() const { return !file.empty(); }
  /// The choice for a step; empty where there is none yet.
  std::string find(const std::string &key) const;
  void put(const std::string &key, const std::string &choice);
  /// Writes what was added, together with what others wrote meanwhile. Failing is no error: it only costs time.
  void save();

  /// All choices as text, to be sent to other ranks, and what another rank sent: its choices win.
  std::string text() const;
  void adopt(const std::string &text);

  /// The default file: XDG_CACHE_HOME or HOME/.cache, cleave/tuning.json; "off" where neither is set.
  static std::string defaultFile();

private:
  std::string file;
  std::map<std::string, std::string> choices;
  bool changed = false;
};

} // namespace cleave::cuda
