// A descriptor is a set of attributes. Handles share the contents, so a descriptor that another one refers to may be
// destroyed, as cuDNN allows.
#pragma once
#include <cudnn.h>

#include <map>
#include <memory>
#include <vector>

namespace cleave::fake {

struct Contents;
struct Program;

struct Attribute {
  cudnnBackendAttributeType_t type{};
  int64_t count = 0;
  std::vector<std::byte> bytes;
  std::vector<std::shared_ptr<Contents>> descriptors;
};

struct Contents {
  cudnnBackendDescriptorType_t type{};
  bool finalized = false;
  std::map<int, Attribute> attributes;
  std::shared_ptr<const Program> program; ///< only of an operation graph

  bool has(int name) const { return attributes.contains(name); }
  /// Values of an attribute; empty if it was not set.
  template <typename T> std::vector<T> list(int name) const {
    const auto found = attributes.find(name);
    if (found == attributes.end())
      return {};
    const auto *values = reinterpret_cast<const T *>(found->second.bytes.data());
    return std::vector<T>(values, values + found->second.bytes.size() / sizeof(T));
  }
  template <typename T> T value(int name, T otherwise = {}) const {
    const auto values = list<T>(name);
    return values.empty() ? otherwise : values[0];
  }
  std::shared_ptr<Contents> descriptor(int name) const {
    const auto found = attributes.find(name);
    return found == attributes.end() || found->second.descriptors.empty() ? nullptr : found->second.descriptors[0];
  }
};

struct Descriptor {
  std::shared_ptr<Contents> contents;
};

inline Descriptor *of(cudnnBackendDescriptor_t descriptor) { return static_cast<Descriptor *>(descriptor); }

struct Handle {
  cudaStream_t stream = nullptr;
};

/// Bytes of an element of an attribute; 0 for descriptors and unknown types.
size_t elementBytes(cudnnBackendAttributeType_t type);
/// Stores the reason for cudnnGetLastErrorString and returns the status.
cudnnStatus_t refuse(cudnnStatus_t status, const char *why);

/// Attributes that are computed, not stored: of engines, heuristics, plans. Returns whether `name` is such an
/// attribute.
bool derived(const Contents &contents, cudnnBackendAttributeName_t name, int64_t requested, int64_t *count, void *out,
             cudnnStatus_t &status);
/// The number of an engine or of a config's engine; its workspace in bytes.
int64_t engineIndex(const Contents &config);
int64_t engineWorkspace(int64_t engine);
constexpr int64_t engineCount = 4;

} // namespace cleave::fake
