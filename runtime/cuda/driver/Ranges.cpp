// NVTX version 3 is header-only; it opens the profiling tool's library itself.
#include "runtime/cuda/driver/Ranges.h"

#include <nvtx3/nvToolsExt.h>

#include <map>
#include <mutex>

namespace cleave::cuda {

namespace {

/// NVTX's domain "cleave"; null if there is no tool.
nvtxDomainHandle_t domain() {
  static const nvtxDomainHandle_t made = nvtxDomainCreateA("cleave");
  return made;
}

} // namespace

RangeName rangeName(const std::string &text) {
  static std::mutex mutex; // ranks are threads
  static std::map<std::string, RangeName> known;
  if (text.empty() || !domain())
    return nullptr;
  std::lock_guard lock(mutex);
  const auto [entry, added] = known.try_emplace(text, nullptr);
  if (added)
    entry->second = nvtxDomainRegisterStringA(domain(), text.c_str());
  return entry->second;
}

Range::Range(RangeName name, int64_t number) : open(name != nullptr) {
  if (!open)
    return;
  nvtxEventAttributes_t attributes{};
  attributes.version = NVTX_VERSION;
  attributes.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  attributes.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
  attributes.message.registered = static_cast<nvtxStringHandle_t>(const_cast<void *>(name));
  if (number >= 0) {
    attributes.payloadType = NVTX_PAYLOAD_TYPE_INT64;
    attributes.payload.llValue = number;
  }
  nvtxDomainRangePushEx(domain(), &attributes);
}

Range::~Range() {
  if (open)
    nvtxDomainRangePop(domain());
}

} // namespace cleave::cuda
