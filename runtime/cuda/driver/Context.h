// A rank's device and its resources: memory, streams, events, code, graphs. Each object frees its resource and makes
// the device current if necessary. Errors are environment errors that name the call.
#pragma once
#include "runtime/cuda/driver/Driver.h"

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace cleave::cuda {

/// A device with its primary context, made current on the creating thread.
class Context {
public:
  /// Throws a user error if the machine has no device of that number.
  explicit Context(int ordinal);
  Context(const Context &) = delete;
  ~Context();

  void makeCurrent() const;
  int ordinal() const { return number; }
  const std::string &name() const { return deviceName; }
  /// Compute capability as in sm_90: 90.
  int capability() const { return sm; }
  int multiprocessors() const { return processors; }
  size_t freeBytes() const;
  size_t totalBytes() const;

private:
  int number, sm = 0, processors = 0;
  CUdevice device = 0;
  CUcontext context = nullptr;
  std::string deviceName;
};

/// A driver resource that is freed by one call; movable, not copyable.
template <typename Handle, auto Free> class Owned {
public:
  Owned() = default;
  explicit Owned(Handle handle) : handle(handle) {}
  Owned(Owned &&other) noexcept : handle(std::exchange(other.handle, Handle{})) {}
  Owned &operator=(Owned &&other) noexcept {
    std::swap(handle, other.handle);
    return *this;
  }
  ~Owned() {
    if (handle != Handle{})
      (driver().*Free)(handle);
  }
  Handle get() const { return handle; }
  explicit operator bool() const { return handle != Handle{}; }

private:
  Handle handle{};
};

/// Device memory, 256-byte aligned.
class DeviceMemory {
public:
  DeviceMemory() = default;
  /// Throws an environment error that names `what` and its size.
  DeviceMemory(size_t bytes, const char *what);
  /// A copy of host memory; waits until it is complete.
  static DeviceMemory of(const void *data, size_t bytes, const char *what);
  std::byte *data() const { return reinterpret_cast<std::byte *>(memory.get()); }
  size_t size() const { return bytes; }

private:
  Owned<CUdeviceptr, &Driver::memFree> memory;
  size_t bytes = 0;
};

/// Pinned host memory, which the device can copy asynchronously.
class PinnedMemory {
public:
  PinnedMemory() = default;
  PinnedMemory(size_t bytes, const char *what);
  std::byte *data() const { return static_cast<std::byte *>(memory.get()); }
  size_t size() const { return bytes; }

private:
  Owned<void *, &Driver::memFreeHost> memory;
  size_t bytes = 0;
};

class Stream {
public:
  Stream() = default;
  /// `urgent`: higher priority than other streams.
  static Stream make(bool urgent = false);
  CUstream get() const { return stream.get(); }
  explicit operator bool() const { return bool(stream); }
  void synchronize() const;

private:
  Owned<CUstream, &Driver::streamDestroy> stream;
};

class Event {
public:
  Event() = default;
  /// `timed`: records its time.
  static Event make(bool timed = false);
  CUevent get() const { return event.get(); }
  explicit operator bool() const { return bool(event); }
  void record(CUstream stream) const;
  /// Later work in `stream` waits for the last recorded work.
  void holdUp(CUstream stream) const;
  /// Whether all recorded work has completed; true if nothing was recorded.
  bool done() const;
  void synchronize() const;
  double millisecondsSince(const Event &begin) const;

private:
  Owned<CUevent, &Driver::eventDestroy> event;
};

/// Code: a cubin, PTX (zero-terminated) or a fatbin.
class Module {
public:
  Module() = default;
  /// Throws an environment error that names `what` if the device cannot run it.
  Module(const void *image, const std::string &what);
  CUfunction function(const std::string &name) const;

private:
  Owned<CUmodule, &Driver::moduleUnload> module;
};

/// Work captured from a stream, which one call can launch repeatedly.
class Graph {
public:
  Graph() = default;
  explicit operator bool() const { return bool(exec); }
  void launch(CUstream stream) const;
  size_t nodes() const { return count; }

  /// From here to `end()`, work submitted to `stream`, and to streams that wait for it, is only captured.
  static void begin(CUstream stream);
  static Graph end(CUstream stream);
  /// After an error during capture: ends the capture and discards it.
  static void abandon(CUstream stream) noexcept;

private:
  Owned<CUgraphExec, &Driver::graphExecDestroy> exec;
  size_t count = 0;
};

} // namespace cleave::cuda
