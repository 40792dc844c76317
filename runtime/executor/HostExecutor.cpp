// A rank on the host's processors: an iteration runs the list of Ops one after another.
#include "runtime/base/CacheFile.h"
#include "runtime/base/Error.h"
#include "runtime/device/Parallel.h"
#include "runtime/executor/Backends.h"
#include "runtime/executor/Code.h"
#include "runtime/executor/CommunicationOps.h"
#include "runtime/executor/Initialise.h"
#include "runtime/executor/Memory.h"
#include "runtime/executor/NonFinite.h"
#include "runtime/executor/Resolved.h"
#include "runtime/executor/SharedTuning.h"

#include <fmt/format.h>

#include <cassert>
#include <chrono>
#include <cstring>
#include <map>

namespace cleave {

namespace {

using Seconds = std::chrono::duration<double>;

unsigned chooseThreads(const plan::Plan &plan, const ExecutorOptions &options) {
  if (options.device == "reference")
    return 1;
  unsigned threads = options.threads ? options.threads : plan.threads();
  return threads ? threads : 1;
}

/// Without a place where choices are kept, nothing is measured: each run would choose anew and compute other bits.
std::string placeOfTuning(const ExecutorOptions &options) {
  const bool kept = !options.tuning.empty() || !cacheFile("tuning.json").empty();
  return options.device == "cpu" && kept ? options.tuning : "off";
}

class HostExecutor final : public Executor {
public:
  HostExecutor(std::shared_ptr<const PlanFile> file, unsigned rank, RankEndpoint &world,
               const ExecutorOptions &options);
  ~HostExecutor() override { world.detach(); } // before the memory is freed

  void initialise() override;
  std::byte *inputBuffer(int which) override {
    assert((which == 0 || which == 1) && "there are two input buffers");
    return inputs[which].data();
  }
  bool setScalar(const std::string &name, float value) override;
  void train(int64_t step, int whichInput) override;
  void eval(int whichInput, const RandomRows &samples) override;
  uint64_t started() const override { return iterations; }
  uint64_t ended() override { return iterations; }
  void wait() override {}
  std::optional<float> metric(const std::string &name, uint64_t iteration) override;
  std::span<std::byte> persistent(unsigned slot) override;
  void writeBack() override {}
  NonFiniteOrigins nonFinite() const override;
  size_t memoryBytes() const override { return arena.size() + inputs[0].size() + inputs[1].size(); }

private:
  void prepareMessages();
  void run(const std::vector<ResolvedAction> &actions, const RandomRows &random, int which);
  void runTimed(const ResolvedAction &action, std::byte *const *table, const RunContext &context);
  void runSearching(const ResolvedAction &action, std::byte *const *table, const RunContext &context);

  unsigned threads;
  std::shared_ptr<const Code> code;
  std::unique_ptr<Device> device;
  Memory arena, inputs[2], workspace;
  std::unique_ptr<Resolved> resolved;
  std::byte *stepScalar = nullptr;
  std::optional<NonFiniteSearch> search;
  uint64_t iterations = 0;
  bool written = false; ///< the arena, since it was mapped
  std::chrono::steady_clock::time_point made = std::chrono::steady_clock::now();
};

HostExecutor::HostExecutor(std::shared_ptr<const PlanFile> planFile, unsigned rankIndex, RankEndpoint &world,
                           const ExecutorOptions &options)
    : Executor(std::move(planFile), rankIndex, world, options), threads(chooseThreads(plan, options)),
      code(Code::open(file)), arena(program.arena_bytes(), "the arena") {
  world.setThreads(threads);
  setThreads(threads);
  for (Memory &input : inputs)
    input = Memory(program.input_bytes(), "an input buffer");
  for (const std::vector<uint32_t> &ranks : groups())
    world.group(ranks);
  Tuning tuning(placeOfTuning(options));
  makeWithTuning(plan, rankIndex, world, tuning, true, [&] {
    device = makeDevice(options.device, threads, &tuning);
    resolved = std::make_unique<Resolved>(plan, program, rank, [&](const plan::Step &step, SlotScope &scope) {
      auto op = makeCommunicationOp(step, scope, world);
      return op ? std::move(op) : device->prepare(step, scope, code->kernels());
    });
  });
  resolved->place(arena.data(), {inputs[0].data(), inputs[1].data()});
  workspace = Memory(device->workspaceBytes(), "the library workspace");
  device->setWorkspace(workspace.data());
  prepareMessages();
  if (options.findNonFinite)
    search.emplace(plan, program);
  if (const plan::Slot *slot = findNamed(program, program.scalars(), "step"))
    stepScalar = arena.data() + slot->offset();
}

/// Reserves space for the sends of an iteration, checks that the world can carry every message, and tells it who
/// exchanges how much.
void HostExecutor::prepareMessages() {
  size_t most = 0;
  std::map<unsigned, MessagePeer> peers;
  for (const auto *actions : {&resolved->train, &resolved->eval}) {
    size_t count = 0;
    std::map<unsigned, MessagePeer> these;
    const auto note = [&](const auto &message, uint64_t MessagePeer::*bytes, const ResolvedAction &action) {
      world.checkMessage(message.tag(), action.microbatch);
      const unsigned peer = rank.peers()->Get(message.peer());
      these[peer].*bytes += message.bytes();
      these[peer].largest = std::max<uint64_t>(these[peer].largest, message.bytes());
    };
    for (const ResolvedAction &action : *actions)
      for (uint32_t i = 0; i < action.segment->ops.size(); ++i) {
        const plan::Step *step = action.segment->info->steps()->Get(i);
        if (const auto *send = step->op_as_Send()) {
          note(*send, &MessagePeer::sends, action);
          ++count;
        } else if (const auto *recv = step->op_as_Recv())
          note(*recv, &MessagePeer::receives, action);
      }
    most = std::max(most, count);
    for (const auto &[peer, one] : these) {
      MessagePeer &all = peers[peer];
      all = {peer, std::max(all.sends, one.sends), std::max(all.receives, one.receives),
             std::max(all.largest, one.largest)};
    }
  }
  world.reserveSends(most);
  std::vector<MessagePeer> list;
  for (const auto &[peer, one] : peers)
    list.push_back(one);
  world.link(list);
}

void HostExecutor::initialise() {
  if (std::exchange(written, true) && arena.size()) // else it is zero, and pages that no step uses need not exist
    std::memset(arena.data(), 0, arena.size());
  if (!program.slots())
    return;
  for (const plan::Slot *slot : *program.slots())
    if (slot->space() == plan::Space::Persistent)
      initialiseSlot(plan, rank, *slot, arena.data() + slot->offset(), threads);
}

bool HostExecutor::setScalar(const std::string &name, float value) {
  const plan::Slot *slot = findNamed(program, program.scalars(), name);
  written = true;
  if (slot)
    std::memcpy(arena.data() + slot->offset(), &value, sizeof value);
  return slot != nullptr;
}

void HostExecutor::runTimed(const ResolvedAction &action, std::byte *const *table, const RunContext &context) {
  for (uint32_t i = 0; i < action.segment->ops.size(); ++i) {
    auto begin = std::chrono::steady_clock::now();
    action.segment->ops[i]->run(table, context);
    const double seconds = Seconds(std::chrono::steady_clock::now() - begin).count();
    noteStep(action.info->segment(), i, action.microbatch, Seconds(begin - made).count(), seconds);
  }
}

void HostExecutor::runSearching(const ResolvedAction &action, std::byte *const *table, const RunContext &context) {
  for (uint32_t i = 0; i < action.segment->ops.size(); ++i) {
    search->before(action, i, table);
    action.segment->ops[i]->run(table, context);
    search->after(action, i, table);
  }
}

NonFiniteOrigins HostExecutor::nonFinite() const {
  const auto copy = [](const std::optional<NonFinite> &one) {
    return one ? std::make_shared<const NonFinite>(*one) : nullptr;
  };
  return search ? NonFiniteOrigins{copy(search->nan), copy(search->infinity)} : NonFiniteOrigins{};
}

void HostExecutor::run(const std::vector<ResolvedAction> &actions, const RandomRows &random, int which) {
  assert((which == 0 || which == 1) && "there are two input buffers");
  setThreads(threads);
  written = true;
  RunContext context{random, 0, iterations + 1};
  const bool training = &actions == &resolved->train;
  if (options.profile)
    beginTrace(training, made);
  const bool searching = search && training;
  if (searching)
    search->begin(static_cast<int64_t>(random.stream));
  for (const ResolvedAction &action : actions) {
    if (action.info->wait_sends())
      for (const plan::SendId *wait : *action.info->wait_sends())
        world.waitSend(wait->tag(), wait->microbatch());
    context.microbatch = action.microbatch;
    std::byte *const *table = action.tables[which];
    if (searching) {
      runSearching(action, table, context);
      continue;
    }
    if (options.profile) {
      runTimed(action, table, context);
      continue;
    }
    for (const auto &op : action.segment->ops)
      op->run(table, context);
  }
  world.waitAllSends();
  ++iterations;
}

void HostExecutor::train(int64_t step, int whichInput) {
  if (stepScalar) {
    auto value = static_cast<float>(step);
    std::memcpy(stepScalar, &value, sizeof value);
  }
  run(resolved->train, {static_cast<uint64_t>(step)}, whichInput);
}

void HostExecutor::eval(int whichInput, const RandomRows &samples) { run(resolved->eval, samples, whichInput); }

std::optional<float> HostExecutor::metric(const std::string &name, uint64_t iteration) {
  assert(iteration == iterations && "a host keeps the last iteration's metrics");
  const plan::Slot *slot = findNamed(program, program.metrics(), name);
  if (!slot)
    return std::nullopt;
  float value;
  std::memcpy(&value, arena.data() + slot->offset(), sizeof value);
  return value;
}

std::span<std::byte> HostExecutor::persistent(unsigned slot) {
  const plan::Slot *info = program.slots()->Get(slot);
  assert(info->space() == plan::Space::Persistent && "only persistent slots have a place of their own");
  written = true;
  return {arena.data() + info->offset(), static_cast<size_t>(info->bytes())};
}

} // namespace

std::unique_ptr<Executor> makeHostExecutor(std::shared_ptr<const PlanFile> file, unsigned rank, RankEndpoint &world,
                                           const ExecutorOptions &options) {
  return std::make_unique<HostExecutor>(std::move(file), rank, world, options);
}

} // namespace cleave
