// cuDNN's functions for descriptors.
#include "tests/fake/cudnn/Descriptors.h"

#include "tests/fake/cudnn/OperationGraph.h"

#include <algorithm>
#include <cstring>
#include <string>

namespace cleave::fake {

namespace {
thread_local std::string lastError;
}

size_t elementBytes(cudnnBackendAttributeType_t type) {
  switch (type) {
  case CUDNN_TYPE_BACKEND_DESCRIPTOR:
    return 0;
  case CUDNN_TYPE_HANDLE:
  case CUDNN_TYPE_INT64:
  case CUDNN_TYPE_DOUBLE:
  case CUDNN_TYPE_VOID_PTR:
    return 8;
  case CUDNN_TYPE_BOOLEAN:
  case CUDNN_TYPE_CHAR:
    return 1;
  case CUDNN_TYPE_FRACTION:
    return 16;
  default:
    return 4; // enums, int32, float
  }
}

cudnnStatus_t refuse(cudnnStatus_t status, const char *why) {
  lastError = why;
  return status;
}

} // namespace cleave::fake

using namespace cleave::fake;

#pragma GCC visibility push(default)
extern "C" {

void cudnnGetLastErrorString(char *message, size_t bytes) {
  if (!message || !bytes)
    return;
  const size_t length = std::min(bytes - 1, lastError.size());
  std::memcpy(message, lastError.data(), length);
  message[length] = 0;
  lastError.clear();
}

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t *descriptor) {
  if (!descriptor)
    return refuse(CUDNN_STATUS_BAD_PARAM, "descriptor is null");
  auto made = std::make_unique<Descriptor>();
  made->contents = std::make_shared<Contents>();
  made->contents->type = type;
  *descriptor = made.release();
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor) {
  delete of(descriptor);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t count, const void *values) {
  if (!descriptor || count < 0 || (count && !values))
    return refuse(CUDNN_STATUS_BAD_PARAM, "a null pointer or a negative count");
  Contents &contents = *of(descriptor)->contents;
  if (contents.finalized)
    return refuse(CUDNN_STATUS_NOT_INITIALIZED, "the descriptor has been finalized");
  Attribute attribute{type, count, {}, {}};
  if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR) {
    const auto *list = static_cast<const cudnnBackendDescriptor_t *>(values);
    for (int64_t i = 0; i < count; ++i) {
      if (!list[i] || !of(list[i])->contents->finalized)
        return refuse(CUDNN_STATUS_BAD_PARAM, "an attribute's descriptor has not been finalized");
      attribute.descriptors.push_back(of(list[i])->contents);
    }
  } else if (count) {
    const auto *bytes = static_cast<const std::byte *>(values);
    attribute.bytes.assign(bytes, bytes + static_cast<size_t>(count) * elementBytes(type));
  }
  contents.attributes[name] = std::move(attribute);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t requested, int64_t *count,
                                       void *values) {
  if (!descriptor)
    return refuse(CUDNN_STATUS_BAD_PARAM, "descriptor is null");
  const Contents &contents = *of(descriptor)->contents;
  if (!contents.finalized)
    return refuse(CUDNN_STATUS_NOT_INITIALIZED, "the descriptor has not been finalized");
  cudnnStatus_t status = CUDNN_STATUS_SUCCESS;
  if (derived(contents, name, requested, count, values, status))
    return status;
  const auto found = contents.attributes.find(name);
  if (found == contents.attributes.end())
    return refuse(CUDNN_STATUS_NOT_SUPPORTED, "no such attribute");
  const Attribute &attribute = found->second;
  if (attribute.type != type)
    return refuse(CUDNN_STATUS_BAD_PARAM, "the attribute has another type");
  if (count)
    *count = attribute.count;
  if (!values)
    return CUDNN_STATUS_SUCCESS;
  const auto copied = static_cast<size_t>(std::min(requested, attribute.count));
  for (size_t i = 0; i < copied && type == CUDNN_TYPE_BACKEND_DESCRIPTOR; ++i)
    of(static_cast<cudnnBackendDescriptor_t *>(values)[i])->contents = attribute.descriptors[i];
  if (type != CUDNN_TYPE_BACKEND_DESCRIPTOR && copied)
    std::memcpy(values, attribute.bytes.data(), copied * elementBytes(type));
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor) {
  if (!descriptor)
    return refuse(CUDNN_STATUS_BAD_PARAM, "descriptor is null");
  Contents &contents = *of(descriptor)->contents;
  switch (contents.type) {
  case CUDNN_BACKEND_TENSOR_DESCRIPTOR:
    if (!contents.has(CUDNN_ATTR_TENSOR_UNIQUE_ID) || !contents.has(CUDNN_ATTR_TENSOR_DATA_TYPE) ||
        contents.list<int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS).size() !=
            contents.list<int64_t>(CUDNN_ATTR_TENSOR_STRIDES).size())
      return refuse(CUDNN_STATUS_BAD_PARAM, "a tensor needs a number, a type, and a stride for each dimension");
    break;
  case CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR: {
    std::string why;
    contents.program = readProgram(contents, why);
    if (!contents.program)
      return refuse(CUDNN_STATUS_NOT_SUPPORTED, why.c_str());
    break;
  }
  case CUDNN_BACKEND_ENGINE_DESCRIPTOR:
    if (contents.value<int64_t>(CUDNN_ATTR_ENGINE_GLOBAL_INDEX) >= engineCount)
      return refuse(CUDNN_STATUS_NOT_SUPPORTED, "no such engine");
    break;
  case CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR:
    if (!contents.descriptor(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG))
      return refuse(CUDNN_STATUS_BAD_PARAM, "a plan needs an engine's config");
    break;
  case CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR:
    if (const auto json = contents.list<char>(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION);
        !json.empty() && std::string(json.begin(), json.end()).find("deviceVer") == std::string::npos)
      return refuse(CUDNN_STATUS_BAD_PARAM, "the device has no deviceVer");
    break;
  default:
    break;
  }
  contents.finalized = true;
  return CUDNN_STATUS_SUCCESS;
}
}
#pragma GCC visibility pop
