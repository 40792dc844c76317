// Each run is a child process, so that crashes caused by generated code are observed from outside.
#include "tests/plan_mutations/Execute.h"

#include "runtime/base/Error.h"
#include "runtime/comm/LocalWorld.h"
#include "runtime/executor/Executor.h"
#include "runtime/plan/Inputs.h"
#include "runtime/plan/Kernels.h"
#include "runtime/plan/PlanFile.h"
#include "runtime/plan/plan_generated.h"

#include <cerrno>
#include <chrono>
#include <cstring>
#include <fmt/format.h>
#include <mutex>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

namespace cleave::plan_mutations {

namespace {

uint64_t mixed(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

/// Data that depends only on step, field, microbatch and global position, so that ranks that share rows read equal
/// data.
void fillInputs(const plan::Plan &plan, Executor &executor, unsigned rank, bool eval, int64_t step) {
  std::byte *buffer = executor.inputBuffer(0);
  for (const InputPart &part : inputParts(plan, rank, eval)) {
    uint64_t key = mixed(static_cast<uint64_t>(step)) ^ mixed(static_cast<uint64_t>(part.microbatch) + 77);
    for (char c : part.field)
      key = mixed(key ^ static_cast<uint8_t>(c));
    for (const Box &box : part.boxes)
      for (int64_t start : box.globalStart)
        key = mixed(key ^ static_cast<uint64_t>(start));
    if (part.dtype == plan::DType::F32)
      for (uint64_t i = 0; i < part.bytes / 4; ++i) {
        const float value = static_cast<float>(mixed(key + i) % 2001) / 1000.0f - 1.0f;
        std::memcpy(buffer + part.offset + 4 * i, &value, 4);
      }
    else if (part.dtype == plan::DType::I32)
      for (uint64_t i = 0; i < part.bytes / 4; ++i) {
        const auto value = static_cast<int32_t>(mixed(key + i) % 2);
        std::memcpy(buffer + part.offset + 4 * i, &value, 4);
      }
  }
}

void addMetrics(Executor &executor, std::vector<uint8_t> &bytes) {
  if (const auto *metrics = executor.program.metrics())
    for (const plan::NamedSlot *named : *metrics) {
      const auto value = executor.metric(named->name()->str());
      const auto *raw = reinterpret_cast<const uint8_t *>(&*value);
      bytes.insert(bytes.end(), raw, raw + sizeof *value);
    }
}

void addSlots(const plan::Plan &plan, Executor &executor, std::vector<uint8_t> &bytes) {
  const auto *slots = executor.program.slots();
  for (uint32_t s = 0; slots && s < slots->size(); ++s) {
    const plan::Slot &slot = *slots->Get(s);
    if (slot.space() != plan::Space::Persistent || slot.tensor() < 0)
      continue;
    const plan::TensorKind kind = plan.tensors()->Get(static_cast<uint32_t>(slot.tensor()))->kind();
    if (kind != plan::TensorKind::Parameter && kind != plan::TensorKind::State && kind != plan::TensorKind::Buffer)
      continue;
    const auto memory = executor.persistent(s);
    const auto *raw = reinterpret_cast<const uint8_t *>(memory.data());
    bytes.insert(bytes.end(), raw, raw + memory.size());
  }
}

std::string digests(const std::vector<uint8_t> &plan) {
  auto file = PlanFile::fromBytes(plan, "altered");
  LocalWorld world(file->plan().ranks()->size());
  std::vector<std::string> found(file->plan().ranks()->size());
  runRanks(world, [&](unsigned rank) {
    const auto executor = makeExecutor(file, rank, world[rank], {.threads = 1, .timeoutSeconds = 10});
    executor->initialise();
    executor->setScalar("lr", 0.25f);
    std::vector<uint8_t> bytes;
    for (int64_t step = 1; step <= 2; ++step) {
      fillInputs(file->plan(), *executor, rank, false, step);
      executor->train(step, 0);
      addMetrics(*executor, bytes);
    }
    addSlots(file->plan(), *executor, bytes);
    fillInputs(file->plan(), *executor, rank, true, 3);
    executor->eval(0, {});
    addMetrics(*executor, bytes);
    found[rank] = fmt::format("{:02x}", fmt::join(codeHash(bytes, ""), ""));
  });
  return fmt::format("{}", fmt::join(found, " "));
}

/// Reads the child's output until the child ends. Returns false after `seconds`.
bool readAll(int pipe, double seconds, std::string &text) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  for (char buffer[4096];;) {
    const double left = std::chrono::duration<double>(deadline - std::chrono::steady_clock::now()).count();
    pollfd wait{pipe, POLLIN, 0};
    if (left <= 0 || ::poll(&wait, 1, static_cast<int>(left * 1000) + 1) == 0)
      return false;
    const ssize_t got = ::read(pipe, buffer, sizeof buffer);
    if (got == 0 || (got < 0 && errno != EINTR))
      return true;
    if (got > 0)
      text.append(buffer, static_cast<size_t>(got));
  }
}

[[noreturn]] void runChild(const std::vector<uint8_t> &plan, int pipe) {
  const rlimit none{0, 0};
  ::setrlimit(RLIMIT_CORE, &none);
  std::string text;
  try {
    text = digests(plan);
  } catch (const std::exception &error) {
    text = fmt::format("error: {}", error.what());
  }
  if (::write(pipe, text.data(), text.size()) < 0)
    ::_exit(1);
  ::_exit(0);
}

} // namespace

std::string resultsOf(const std::vector<uint8_t> &plan, double seconds) {
  int ends[2];
  if (::pipe(ends) != 0)
    return "error: no pipe";
  const pid_t pid = ::fork();
  if (pid == 0)
    runChild(plan, ends[1]);
  ::close(ends[1]);
  std::string text;
  const bool ended = readAll(ends[0], seconds, text);
  ::close(ends[0]);
  if (!ended)
    ::kill(pid, SIGKILL);
  int status = 0;
  ::waitpid(pid, &status, 0);
  if (!ended)
    return "hang";
  return WIFSIGNALED(status) ? fmt::format("crash: {}", ::strsignal(WTERMSIG(status))) : text;
}

} // namespace cleave::plan_mutations
