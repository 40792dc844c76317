// Settings, injected failures, and the common prologue of all calls.
#include "tests/fake/cuda/World.h"

#include "tests/fake/cuda/Capture.h"

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <sstream>
#include <thread>

namespace cleave::fake {

namespace {

/// Adds failures given as "fail=cuMemAlloc_v2:2:2;cuInit:1:3", without "fail=".
void addFailures(World &w, const std::string &text) {
  std::stringstream all(text);
  for (std::string one; std::getline(all, one, ';');) {
    std::stringstream parts(one);
    std::string name, nth, code;
    if (std::getline(parts, name, ':') && std::getline(parts, nth, ':') && std::getline(parts, code, ':'))
      w.failures.insert({name, {w.calls[name] + std::strtoull(nth.c_str(), nullptr, 10), std::atoi(code.c_str())}});
    else
      std::fprintf(stderr, "fake CUDA: fail=%s: expected FUNCTION:NTH:CODE\n", one.c_str());
  }
}

void applyOne(World &w, const std::string &key, const std::string &value) {
  Settings &s = w.settings;
  const auto number = [&] { return std::strtoll(value.c_str(), nullptr, 10); };
  if (key == "devices")
    s.devices = static_cast<int>(number());
  else if (key == "memory")
    s.memory = static_cast<size_t>(number());
  else if (key == "sm")
    s.sm = static_cast<int>(number());
  else if (key == "sms")
    s.processors = static_cast<int>(number());
  else if (key == "driver")
    s.driver = static_cast<int>(number());
  else if (key == "name")
    s.name = value;
  else if (key == "peer")
    s.peer = number() != 0;
  else if (key == "trace")
    s.trace = number() != 0;
  else if (key == "activations")
    s.activations = number() != 0;
  else if (key == "race")
    s.race = static_cast<int>(number());
  else if (key == "shuffle")
    s.shuffle = static_cast<uint64_t>(number());
  else if (key == "delay")
    s.delay = static_cast<int>(number());
  else if (key == "fail")
    addFailures(w, value);
  else
    std::fprintf(stderr, "fake CUDA: unknown setting %s\n", key.c_str());
}

World *makeWorld() {
  auto *w = new World;
  if (const char *text = std::getenv("CLEAVE_FAKE_CUDA"))
    applySettings(*w, text);
  return w;
}

} // namespace

void applySettings(World &w, const std::string &text) {
  std::stringstream all(text);
  for (std::string one; std::getline(all, one, ',');) {
    const size_t sign = one.find('=');
    if (!one.empty())
      applyOne(w, one.substr(0, sign), sign == std::string::npos ? "1" : one.substr(sign + 1));
  }
}

World &world() {
  static World *w = makeWorld();
  return *w;
}

CUcontext &currentContext() {
  static thread_local CUcontext current = nullptr;
  return current;
}

int counted(World &w, const std::string &name) {
  const uint64_t number = ++w.calls[name];
  const auto [first, last] = w.failures.equal_range(name);
  for (auto f = first; f != last; ++f)
    if (f->second.at == number) {
      const int code = f->second.code;
      w.failures.erase(f);
      return code;
    }
  return 0;
}

Call::Call(const char *name, unsigned needs) : lock(world().lock), w(world()), context(currentContext()) {
  if (w.settings.trace)
    std::fprintf(stderr, "fake CUDA: %s\n", name);
  result = static_cast<CUresult>(counted(w, name));
  if (result != CUDA_SUCCESS)
    return;
  if ((needs & Started) && !w.started)
    result = CUDA_ERROR_NOT_INITIALIZED;
  else if ((needs & Context) == Context && !context)
    result = CUDA_ERROR_INVALID_CONTEXT;
  else if ((needs & Context) == Context && context->retained == 0)
    result = CUDA_ERROR_CONTEXT_IS_DESTROYED;
  else if ((needs & (Context | Frees)) == Context && context->error != CUDA_SUCCESS)
    result = context->error;
  else if (needs & Safe)
    result = refusedInCapture(w);
}

uint64_t randomNumber(uint64_t below) {
  static std::atomic<uint64_t> threads{0};
  // A pointer, because a library opened at run time has little space for thread-local data.
  static thread_local const auto numbers =
      std::make_unique<std::mt19937_64>(world().settings.shuffle * 1000003 + threads++);
  return (*numbers)() % below;
}

void dawdle() {
  const Settings &s = world().settings;
  if (!s.shuffle)
    return;
  const uint64_t draw = randomNumber(100);
  if (draw < 50)
    return;
  if (draw < 80)
    std::this_thread::yield();
  else if (draw < 97)
    std::this_thread::sleep_for(std::chrono::microseconds(randomNumber(static_cast<uint64_t>(s.delay) + 1)));
  else
    std::this_thread::sleep_for(std::chrono::microseconds(10 * s.delay));
}

} // namespace cleave::fake
