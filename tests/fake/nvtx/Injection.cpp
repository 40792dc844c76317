// A tool for NVTX, like Nsight Systems: NVTX_INJECTION64_PATH names this library, and the program's calls are written
// to the file CLEAVE_FAKE_NVTX, one line per call:
//   thread 0 domain cleave
//   thread 1 push cleave forward 0      domain, text, payload (empty if there is none)
//   thread 1 pop cleave
// Misuse ends the process with a message: an unregistered text, a pop without a push, another version.
#include <nvtx3/nvToolsExt.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string>

namespace {

/// NVTX handles are addresses of such objects.
struct Text {
  std::string domain, text;
};

struct Tool {
  std::mutex mutex;
  std::FILE *file = nullptr;
  std::map<std::string, Text> domains;
  std::map<std::pair<const void *, std::string>, Text> texts; ///< by domain and text
};

/// Never destroyed, because threads may push until the end.
Tool &tool() {
  static Tool *const made = new Tool;
  return *made;
}

int threadNumber() {
  static std::atomic<int> threads{0};
  thread_local const int number = threads++;
  return number;
}

[[noreturn]] void misuse(const char *what) {
  std::fprintf(stderr, "fake nvtx: %s\n", what);
  std::abort();
}

void write(const std::string &line) {
  std::fprintf(tool().file, "thread %d %s\n", threadNumber(), line.c_str());
  std::fflush(tool().file);
}

nvtxDomainHandle_t createDomain(const char *name) {
  std::lock_guard lock(tool().mutex);
  const auto [entry, added] = tool().domains.try_emplace(name, Text{name, ""});
  if (added)
    write(std::string("domain ") + name);
  return reinterpret_cast<nvtxDomainHandle_t>(&entry->second);
}

nvtxStringHandle_t registerString(nvtxDomainHandle_t domain, const char *text) {
  std::lock_guard lock(tool().mutex);
  const auto *of = reinterpret_cast<const Text *>(domain);
  const auto [entry, added] = tool().texts.try_emplace({domain, text}, Text{of->domain, text});
  if (!added)
    misuse("a text is registered twice");
  return reinterpret_cast<nvtxStringHandle_t>(&entry->second);
}

thread_local int depth = 0;

int push(nvtxDomainHandle_t domain, const nvtxEventAttributes_t *attributes) {
  if (attributes->version != NVTX_VERSION || attributes->size != NVTX_EVENT_ATTRIB_STRUCT_SIZE)
    misuse("attributes of another version");
  if (attributes->messageType != NVTX_MESSAGE_TYPE_REGISTERED || !attributes->message.registered)
    misuse("a range without a registered text");
  const auto *of = reinterpret_cast<const Text *>(domain);
  const auto *text = reinterpret_cast<const Text *>(attributes->message.registered);
  const bool number = attributes->payloadType == NVTX_PAYLOAD_TYPE_INT64;
  std::lock_guard lock(tool().mutex);
  write("push " + of->domain + " " + text->text + " " + (number ? std::to_string(attributes->payload.llValue) : ""));
  return depth++;
}

int pop(nvtxDomainHandle_t domain) {
  if (depth == 0)
    misuse("a pop without a push");
  std::lock_guard lock(tool().mutex);
  write("pop " + reinterpret_cast<const Text *>(domain)->domain);
  return --depth;
}

} // namespace

extern "C" __attribute__((visibility("default"))) int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t exportTable) {
  const char *file = std::getenv("CLEAVE_FAKE_NVTX");
  tool().file = file ? std::fopen(file, "w") : nullptr;
  if (!tool().file)
    misuse("CLEAVE_FAKE_NVTX must name a file that can be written");
  const auto *callbacks = static_cast<const NvtxExportTableCallbacks *>(exportTable(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable table = nullptr;
  unsigned int size = 0;
  if (!callbacks || !callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size) ||
      size <= NVTX_CBID_CORE2_DomainCreateA)
    return 0;
  *table[NVTX_CBID_CORE2_DomainCreateA] = reinterpret_cast<NvtxFunctionPointer>(createDomain);
  *table[NVTX_CBID_CORE2_DomainRegisterStringA] = reinterpret_cast<NvtxFunctionPointer>(registerString);
  *table[NVTX_CBID_CORE2_DomainRangePushEx] = reinterpret_cast<NvtxFunctionPointer>(push);
  *table[NVTX_CBID_CORE2_DomainRangePop] = reinterpret_cast<NvtxFunctionPointer>(pop);
  return 1;
}
