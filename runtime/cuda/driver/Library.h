// Opens NVIDIA's libraries at run time: from CLEAVE_CUDA_LIBRARIES (a folder) if set, otherwise from the system's
// search path, then from the toolkit (CUDA_HOME, /usr/local/cuda), then from wheels in a Python environment
// (site-packages/nvidia/*/lib of VIRTUAL_ENV, CONDA_PREFIX or `python3` in PATH).
#pragma once
#include <string>
#include <vector>

namespace cleave::cuda {

class Library {
public:
  Library() = default;
  /// Opens the first available of `names` ("libnccl.so.2", ...) and never closes it (closing NVIDIA's libraries is
  /// unsafe). If there is none, `handle` is null and `why` lists what was tried.
  static Library open(const std::vector<std::string> &names);

  explicit operator bool() const { return handle != nullptr; }
  /// Null if the library has no such symbol.
  void *symbol(const char *name) const;
  /// The same, but throws an environment error "WHAT lacks NAME: version ..." instead of returning null.
  template <typename F> void bind(F *&function, const char *name) const {
    function = reinterpret_cast<F *>(required(name));
  }

  void *handle = nullptr;
  std::string name; ///< of the opened file
  std::string why;

private:
  void *required(const char *name) const;
};

} // namespace cleave::cuda
