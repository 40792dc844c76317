// A rank's device and what it owns there: memory, streams, events, code, graphs. Each object frees what it holds and
// makes the device current where it must be; errors are environment errors that name the call.
#pragma once
#include "runtime/cuda/driver/Driver.h"

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace cleave::cuda {

/// A device with its primary context, current on the thread that made it.
class Context {
public:
  /// User error where the machine has no device of that number.
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

/// Something of the driver's that is freed by one call; moves, does not copy.
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

/// Memory of the device, 256-byte aligned.
class DeviceMemory {
public:
  DeviceMemory() = default;
  /// Environment error naming `what` and its size.
  DeviceMemory(size_t bytes, const char *what);
  /// A copy of memory of the host; waits until it has arrived.
  static DeviceMemory of(const void *data, size_t bytes, const char *what);
  std::byte *data() const { return reinterpret_cast<std::byte *>(memory.get()); }
  size_t size() const { return bytes; }

private:
  Owned<CUdeviceptr, &Driver::memFree> memory;
  size_t bytes = 0;
};

/// Memory of the host that the device copies from and to by itself.
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
  /// `urgent`: what it holds is preferred where both could run.
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
  /// `timed`: its time can be asked for.
  static Event make(bool timed = false);
  CUevent get() const { return event.get(); }
  explicit operator bool() const { return bool(event); }
  void record(CUstream stream) const;
  /// What comes into `stream` after this waits for what was recorded last.
  void holdUp(CUstream stream) const;
  /// Whether all that was recorded has run; also true before the first record.
  bool done() const;
  void synchronize() const;
  double millisecondsSince(const Event &begin) const;

private:
  Owned<CUevent, &Driver::eventDestroy> event;
};

/// Code: a cubin, PTX (with a terminating zero) or a fatbin.
class Module {
public:
  Module() = default;
  /// Environment error naming `what` where the device cannot run it.
  Module(const void *image, const std::string &what);
  CUfunction function(const std::string &name) const;

private:
  Owned<CUmodule, &Driver::moduleUnload> module;
};

/// What a stream was given between begin and end, to be run again and again by one call.
class Graph {
public:
  Graph() = default;
  explicit operator bool() const { return bool(exec); }
  void launch(CUstream stream) const;
  size_t nodes() const { return count; }

  /// From here to `capture()`, what `stream` and the streams that wait for it are given is only recorded.
  static void begin(CUstream stream);
  static Graph end(CUstream stream);
  /// After an error while recording: ends it, and drops what was recorded.
  static void abandon(CUstream stream) noexcept;

private:
  Owned<CUgraphExec, &Driver::graphExecDestroy> exec;
  size_t count = 0;
};

} // namespace cleave::cuda
