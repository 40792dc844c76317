// Opens NVIDIA's libraries at run time: from CLEAVE_CUDA_LIBRARIES (a folder) where that is set, else by name as the
// system finds them, else from the toolkit's folder (CUDA_HOME, /usr/local/cuda), else from the wheels of a Python
// environment (site-packages/nvidia/*/lib of VIRTUAL_ENV, CONDA_PREFIX or `python3` in PATH).
#pragma once
#include <string>
#include <vector>

namespace cleave::cuda {

class Library {
public:
  Library() = default;
  /// Opens the first of `names` ("libnccl.so.2", ...) that is there, and keeps it open for the life of the process
  /// (NVIDIA's libraries do not like to be closed). `handle` is null where none is; `why` then says what was tried.
  static Library open(const std::vector<std::string> &names);

  explicit operator bool() const { return handle != nullptr; }
  /// Null where the library has no such symbol.
  void *symbol(const char *name) const;
  /// The same, throwing an environment error "WHAT lacks NAME: version ..." instead of null.
  template <typename F> void bind(F *&function, const char *name) const {
    function = reinterpret_cast<F *>(required(name));
  }

  void *handle = nullptr;
  std::string name; ///< of the file that was opened
  std::string why;

private:
  void *required(const char *name) const;
};

} // namespace cleave::cuda
