// Batches of kernel calls, with a kernel compiled here. A host runs call by call; a CUDA device runs one launch of the
// kernel's batch form, for every placement of the slots.
#include "runtime/comm/LocalWorld.h"
#include "runtime/device/CpuDevice.h"
#include "runtime/plan/check/Check.h"
#include "tests/conformance/DeviceRun.h"

#include <catch2/catch.hpp>

#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <unistd.h>

using namespace cleave;
using namespace cleave::test;

namespace {

/// out = p + rate[0] * g + bonus, in both forms; a CPU emulates the threads of the GPU form.
constexpr const char *source = R"(
#include <stdint.h>
void update(void *const *a, const long *s, long begin, long end) {
  const float *rate = a[0], *g = a[1], *p = a[2];
  float *out = a[3];
  for (long i = begin; i < end; ++i)
    out[i] = p[i] + rate[0] * g[i] + s[0];
}
#ifdef BATCH
uint32_t cleave_emu_tid(void);
uint32_t cleave_emu_block(void);
const uint32_t update_batch_parameters[2] = {1, 0};
void update_batch(void *const *a, const long *unused, long zero, long calls) {
  const long *table = a[0];
  const long *call = table + 8 * ((const uint32_t *)(table + 8 * calls))[cleave_emu_block()];
  const long step = 64 * call[1];
  for (long i = 64 * (cleave_emu_block() - call[0]) + cleave_emu_tid(); i < call[2]; i += step)
    update((void *const *)(call + 3), call + 7, i, i + 1);
}
#endif
)";

std::vector<uint8_t> compiled(bool batch) {
  const std::string file = "/tmp/cleave-batch-" + std::to_string(::getpid()) + ".so";
  const std::string command =
      fmt::format("cc -x c -shared -fPIC -O1 {} -o {} - 2>/dev/null", batch ? "-DBATCH" : "", file);
  FILE *compiler = ::popen(command.c_str(), "w");
  std::fputs(source, compiler);
  if (::pclose(compiler) != 0)
    return {};
  std::vector<uint8_t> code;
  FILE *made = std::fopen(file.c_str(), "rb");
  for (int byte; (byte = std::fgetc(made)) != EOF;)
    code.push_back(static_cast<uint8_t>(byte));
  std::fclose(made);
  std::remove(file.c_str());
  return code;
}

const std::vector<int64_t> sizes{1000, 1, 0, 64, 129};

/// Updates of tensors of these sizes in one batch. The rate is a placed slot with different offsets in the two actions,
/// so each action has its own table.
PlanT batchPlan(bool cuda) {
  PlanT plan = makePlan(2);
  plan.backend = cuda ? "cuda" : "cpu";
  plan.code = compiled(cuda);
  plan.target = cuda ? "emulated" : "x86-64";
  plan.kernels.push_back(std::make_unique<KernelInfoT>());
  plan.kernels[0]->symbol = cuda ? "update_batch" : "update";
  plan.kernels[0]->batch = cuda;
  plan.kernels[0]->threads = 64;
  plan.ranks[0]->scalars = {0, 0}; // offsets at which shares of 8 and of 0 elements begin
  plan.ranks[1]->scalars = {4, 0};
  plan.ranks[1]->program = 0;
  ProgramWriter w;
  const uint32_t rate = w.slot("rate", plan::DType::F32, {1}), segment = w.segment("update", SegmentKind::Update);
  w.fill(segment, rate, 3);
  KernelBatchT batch;
  for (size_t i = 0; i < sizes.size(); ++i) {
    const uint32_t g = w.slot("g", plan::DType::F32, {sizes[i]}, Space::Persistent);
    const uint32_t p = w.slot("p", plan::DType::F32, {sizes[i]}, Space::Persistent);
    auto call = std::make_unique<KernelT>();
    for (uint32_t slot : {rate, g, p, p})
      call->args.push_back(slot);
    call->scalars.push_back(i % 2);
    call->extent = sizes[i];
    call->outputs = 1;
    call->blocks = i == 0 ? 3 : 1; // some calls take several rounds
    batch.calls.push_back(std::move(call));
  }
  w.step(segment, std::move(batch));
  w.action(segment, -1);
  w.action(segment, -1);
  plan.programs.push_back(w.finish());
  ProgramT &program = *plan.programs[0];
  for (int i = 0; i < 2; ++i) {
    program.starts.push_back(std::make_unique<ShardStartT>());
    program.starts.back()->size = i == 0 ? 8 : 0;
    program.starts.back()->axes = {0};
  }
  program.layouts.push_back(std::make_unique<LayoutT>(*program.layouts[0]));
  program.layouts[1]->offsets = {program.arena_bytes};
  program.train[1]->layout = 1;
  program.arena_bytes += 64;
  program.peak_bytes = program.lower_bound_bytes = program.arena_bytes;
  return plan;
}

} // namespace

TEST_CASE("kernel batches: each call by its own size, scalars and memory") {
  const bool cuda = testedDevice() == "cuda";
  if (cuda && !std::getenv("CLEAVE_CUDA_LIBRARIES")) {
    SUCCEED("the kernel is for the fakes of NVIDIA's libraries; the updates of training runs are such batches");
    return;
  }
  const PlanT plan = batchPlan(cuda);
  if (plan.code.empty()) {
    WARN("no C compiler: kernel batches were not run");
    return;
  }
  const auto sealed = seal(plan);
  for (const std::string &error : checkPlan(sealed->plan()))
    if (error.find("(rule G1)") == std::string::npos) // the segment runs twice on purpose, with different layouts
      FAIL_CHECK(error);
  for (const char *device : {"cpu", "reference", "cuda"})
    for (bool graph : {true, false}) {
      if ((std::string(device) == "cuda") != cuda || (std::string(device) == "cpu" && cpuLibraryVersion().empty()))
        continue;
      INFO(device << (graph ? " in graphs" : " step by step"));
      LocalWorld world(2);
      const auto executor =
          makeExecutor(sealed, 1, world[1], {.device = device, .graph = graph, .localRank = 0, .tuning = "off"});
      executor->initialise();
      for (uint32_t i = 0; i < sizes.size(); ++i) {
        auto *g = reinterpret_cast<float *>(executor->persistent(1 + 2 * i).data());
        for (int64_t k = 0; k < sizes[i]; ++k)
          g[k] = static_cast<float>(k + i);
      }
      executor->writeBack();
      for (int step = 1; step <= 3; ++step) // steps 2 and 3 run as graphs
        executor->train(step, step % 2);
      for (uint32_t i = 0; i < sizes.size(); ++i) {
        const auto *p = reinterpret_cast<const float *>(executor->persistent(2 + 2 * i).data());
        for (int64_t k = 0; k < sizes[i]; ++k)
          REQUIRE(p[k] == static_cast<float>(6 * (3 * (k + i) + (i % 2 ? 0 : 4))));
      }
    }
}
