// How each library step is computed, where there are several ways. A choice is measured once and stored in a file,
// keyed by device, library version and step; the same plan with the same record gives the same bits.
#pragma once
#include <map>
#include <string>

namespace cleave {

/// Several processes may share a record: who measures locks the folder of the file, so that all use the choices of the
/// first.
class Tuning {
public:
  /// `where`: the file in which choices are stored; "": tuning.json in the user's cache; "off": nothing is measured or
  /// stored. A file that is not a valid record, or one in the cache that others may have written, is ignored, with a
  /// warning; it is replaced only in the cache.
  explicit Tuning(const std::string &where);
  ~Tuning();
  Tuning(const Tuning &) = delete;

  bool measures() const { return enabled && !held; }
  /// The choice for a step; empty if there is none yet. If it is then to be measured, first waits for other processes
  /// that measure, and reads their choices.
  std::string find(const std::string &key);
  void put(const std::string &key, const std::string &choice);
  /// Writes added choices and lets others measure. Choices of others stay. Ignores errors, which cost only time.
  void save();

  /// While held, nothing is measured. Returns whether a choice was looked for and not found since the last call.
  bool hold(bool now);

  /// All choices as text, for sending to other ranks; adopt() reads it, overriding own choices.
  std::string text() const;
  void adopt(const std::string &text);

private:
  void lock();
  void unlock();

  /// Reads the record; returns why it is ignored, or nothing.
  std::string read(std::map<std::string, std::string> &into) const;

  std::string file;    ///< empty: choices are not stored
  bool cached = false; ///< in the user's cache
  int folder = -1;     ///< locked
  bool enabled = true, held = false, missed = false;
  std::map<std::string, std::string> choices;
  bool changed = false;
};

} // namespace cleave
