// The choice of a library's algorithm for each step. A choice is measured once and stored in a file, keyed by device,
// library version and step; the same plan with the same record gives the same bits.
#pragma once
#include <map>
#include <string>

namespace cleave::cuda {

class Tuning {
public:
  /// `file`: where choices are stored; "off": nothing is measured or stored. Throws an environment error that names the
  /// file if it is not a valid record; if it does not exist, save() creates it.
  explicit Tuning(const std::string &file);

  bool measures() const { return !file.empty(); }
  /// The choice for a step; empty if there is none yet.
  std::string find(const std::string &key) const;
  void put(const std::string &key, const std::string &choice);
  /// Writes added choices, merged with those written by others in the meantime. Ignores errors, which cost only time.
  void save();

  /// All choices as text, for sending to other ranks; adopt() reads it, overriding own choices.
  std::string text() const;
  void adopt(const std::string &text);

  /// The default file: XDG_CACHE_HOME or HOME/.cache, cleave/tuning.json; "off" if neither is set.
  static std::string defaultFile();

private:
  std::string file;
  std::map<std::string, std::string> choices;
  bool changed = false;
};

} // namespace cleave::cuda
