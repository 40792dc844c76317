// Sets a rank up and walks its static list.
//
// For each segment: a SlotScope numbers the slots it touches, a device turns its steps into Ops. For each (segment,
// layout): two tables of slot addresses, one per input buffer. An action is a segment, a pair of tables, a microbatch.
#include "runtime/executor/Executor.h"

#include "runtime/base/Error.h"
#include "runtime/device/Device.h"
#include "runtime/device/Parallel.h"
#include "runtime/executor/Code.h"
#include "runtime/executor/CommunicationOps.h"
#include "runtime/executor/Initialise.h"
#include "runtime/executor/Memory.h"
#include "runtime/plan/plan_generated.h"

#include <fmt/format.h>

#include <cassert>
#include <chrono>
#include <cstring>
#include <map>
#include <set>

namespace cleave {

namespace {

struct PreparedSegment {
  const plan::Segment *info = nullptr;
  std::unique_ptr<SlotScope> scope;
  std::vector<std::unique_ptr<Op>> ops;
  std::vector<StepTime> times; ///< filled when profiling
};

struct SendName {
  uint32_t tag;
  int32_t microbatch;
};

struct PreparedAction {
  PreparedSegment *segment = nullptr;
  std::byte *const *tables[2] = {};
  int32_t microbatch = 0;
  std::vector<SendName> waits;
};

using Seconds = std::chrono::duration<double>;

} // namespace

struct Executor::Impl {
  std::shared_ptr<const PlanFile> file;
  unsigned rankIndex;
  World &world;
  ExecutorOptions options;
  const plan::Plan &plan;
  const plan::Rank &rank;
  const plan::Program &program;
  unsigned threads;
  std::shared_ptr<const Code> code;
  std::unique_ptr<Device> device;
  Memory arena, inputs[2], workspace;
  std::vector<PreparedSegment> segments;
  std::map<std::pair<uint32_t, uint32_t>, std::array<std::vector<std::byte *>, 2>> tables;
  std::vector<PreparedAction> trainActions, evalActions;
  std::byte *stepScalar = nullptr;

  Impl(std::shared_ptr<const PlanFile> file, unsigned rank, World &world, const ExecutorOptions &options);
  ~Impl() { world.detach(); } // before the memory goes
  void prepareSegment(uint32_t index);
  void makeTables(uint32_t segment, uint32_t layout);
  std::vector<PreparedAction> prepareActions(const flatbuffers::Vector<flatbuffers::Offset<plan::Action>> *actions);
  void prepareMessages();
  void run(const std::vector<PreparedAction> &actions, int64_t step, int which);
  void runProfiled(PreparedAction &action, std::byte *const *table, const RunContext &context);
  std::byte *find(const flatbuffers::Vector<flatbuffers::Offset<plan::NamedSlot>> *names,
                  const std::string &name) const;
};

static const plan::Rank &rankOf(const PlanFile &file, unsigned rank, World &world) {
  const plan::Plan &plan = file.plan();
  uint32_t ranks = plan.ranks() ? plan.ranks()->size() : 0;
  if (world.size() != ranks)
    throw userError(fmt::format("plan '{}' is for {} ranks, found {}", file.name(), ranks, world.size()));
  if (rank >= ranks)
    throw userError(fmt::format("plan '{}' has ranks 0 to {}, asked for {}", file.name(), ranks - 1, rank));
  return *plan.ranks()->Get(rank);
}

static unsigned chooseThreads(const plan::Plan &plan, const ExecutorOptions &options) {
  if (options.device == "reference")
    return 1;
  unsigned threads = options.threads ? options.threads : plan.threads();
  return threads ? threads : 1;
}

Executor::Impl::Impl(std::shared_ptr<const PlanFile> planFile, unsigned rankIndex, World &world,
                     const ExecutorOptions &options)
    : file(std::move(planFile)), rankIndex(rankIndex), world(world), options(options), plan(file->plan()),
      rank(rankOf(*file, rankIndex, world)), program(*plan.programs()->Get(rank.program())),
      threads(chooseThreads(plan, options)), code(Code::open(file)), device(makeDevice(options.device, threads)),
      arena(program.arena_bytes(), "the arena") {
  world.setTimeout(options.timeoutSeconds);
  world.setThreads(threads);
  setThreads(threads);
  for (Memory &input : inputs)
    input = Memory(program.input_bytes(), "an input buffer");
  // Groups in the plan's order, so that all members make them in the same order.
  if (rank.groups()) {
    std::set<uint32_t> groups(rank.groups()->begin(), rank.groups()->end());
    for (uint32_t group : groups) {
      const auto *ranks = plan.groups()->Get(group)->ranks();
      world.group(std::span(ranks->data(), ranks->size()));
    }
  }
  segments.resize(program.segments() ? program.segments()->size() : 0);
  trainActions = prepareActions(program.train());
  evalActions = prepareActions(program.eval());
  workspace = Memory(device->workspaceBytes(), "the library workspace");
  device->setWorkspace(workspace.data());
  prepareMessages();
  stepScalar = find(program.scalars(), "step");
}

void Executor::Impl::prepareSegment(uint32_t index) {
  PreparedSegment &segment = segments[index];
  if (segment.info)
    return;
  segment.info = program.segments()->Get(index);
  segment.scope = std::make_unique<SlotScope>(plan, program, rank);
  if (!segment.info->steps())
    return;
  for (const plan::Step *step : *segment.info->steps()) {
    auto op = makeCommunicationOp(*step, *segment.scope, world);
    if (!op)
      op = device->prepare(*step, *segment.scope, code->kernels());
    segment.ops.push_back(std::move(op));
    if (options.profile) {
      std::string path =
          plan.strings() && step->path() < plan.strings()->size() ? plan.strings()->Get(step->path())->str() : "";
      segment.times.push_back({segment.info->name() ? segment.info->name()->str() : "", EnumNameStepOp(step->op_type()),
                               path, 0, 0, step->flops()});
    }
  }
}

void Executor::Impl::makeTables(uint32_t segmentIndex, uint32_t layoutIndex) {
  auto [found, fresh] = tables.try_emplace({segmentIndex, layoutIndex});
  if (!fresh)
    return;
  const plan::Segment *info = segments[segmentIndex].info;
  const plan::Layout *layout = program.layouts()->Get(layoutIndex);
  std::map<uint32_t, uint64_t> placed;
  for (uint32_t i = 0; info->slots() && i < info->slots()->size(); ++i)
    placed[info->slots()->Get(i)] = layout->offsets()->Get(i);
  for (int which = 0; which < 2; ++which)
    for (uint32_t slot : segments[segmentIndex].scope->slots()) {
      const plan::Slot *slotInfo = program.slots()->Get(slot);
      uint64_t offset = slotInfo->space() == plan::Space::Persistent ? slotInfo->offset() : placed.at(slot);
      std::byte *base = slotInfo->space() == plan::Space::Input ? inputs[which].data() : arena.data();
      found->second[which].push_back(base + offset);
    }
}

std::vector<PreparedAction>
Executor::Impl::prepareActions(const flatbuffers::Vector<flatbuffers::Offset<plan::Action>> *actions) {
  std::vector<PreparedAction> list;
  if (!actions)
    return list;
  for (const plan::Action *action : *actions) {
    prepareSegment(action->segment());
    makeTables(action->segment(), action->layout());
    PreparedAction prepared;
    prepared.segment = &segments[action->segment()];
    auto &pair = tables.at({action->segment(), action->layout()});
    for (int which = 0; which < 2; ++which)
      prepared.tables[which] = pair[which].data();
    prepared.microbatch = action->microbatch();
    if (action->wait_sends())
      for (const plan::SendId *id : *action->wait_sends())
        prepared.waits.push_back({id->tag(), id->microbatch()});
    list.push_back(std::move(prepared));
  }
  return list;
}

/// Room for the sends of an iteration, and every message one that the world can carry.
void Executor::Impl::prepareMessages() {
  size_t most = 0;
  for (const auto *actions : {&trainActions, &evalActions}) {
    size_t count = 0;
    for (const PreparedAction &action : *actions)
      for (uint32_t i = 0; action.segment->info->steps() && i < action.segment->info->steps()->size(); ++i) {
        const plan::Step *step = action.segment->info->steps()->Get(i);
        const auto *send = step->op_as_Send();
        const auto *recv = step->op_as_Recv();
        if (send || recv)
          world.checkMessage(send ? send->tag() : recv->tag(), action.microbatch);
        count += send != nullptr;
      }
    most = std::max(most, count);
  }
  world.reserveSends(most);
}

std::byte *Executor::Impl::find(const flatbuffers::Vector<flatbuffers::Offset<plan::NamedSlot>> *names,
                                const std::string &name) const {
  if (names)
    for (const plan::NamedSlot *named : *names)
      if (named->name() && named->name()->str() == name)
        return arena.data() + program.slots()->Get(named->slot())->offset();
  return nullptr;
}

void Executor::Impl::runProfiled(PreparedAction &action, std::byte *const *table, const RunContext &context) {
  for (size_t i = 0; i < action.segment->ops.size(); ++i) {
    auto begin = std::chrono::steady_clock::now();
    action.segment->ops[i]->run(table, context);
    StepTime &time = action.segment->times[i];
    time.seconds += Seconds(std::chrono::steady_clock::now() - begin).count();
    ++time.calls;
  }
}

void Executor::Impl::run(const std::vector<PreparedAction> &actions, int64_t step, int which) {
  assert((which == 0 || which == 1) && "there are two input buffers");
  setThreads(threads);
  RunContext context{step, 0};
  for (const PreparedAction &action : actions) {
    for (const SendName &wait : action.waits)
      world.waitSend(wait.tag, wait.microbatch);
    context.microbatch = action.microbatch;
    std::byte *const *table = action.tables[which];
    if (options.profile) {
      runProfiled(const_cast<PreparedAction &>(action), table, context);
      continue;
    }
    for (const auto &op : action.segment->ops)
      op->run(table, context);
  }
  world.waitAllSends();
}

Executor::Executor(std::shared_ptr<const PlanFile> plan, unsigned rank, World &world, const ExecutorOptions &options)
    : impl(std::make_unique<Impl>(std::move(plan), rank, world, options)) {}
Executor::~Executor() = default;

void Executor::initialise() {
  if (impl->arena.size())
    std::memset(impl->arena.data(), 0, impl->arena.size());
  const auto *slots = impl->program.slots();
  if (!slots)
    return;
  for (const plan::Slot *slot : *slots)
    if (slot->space() == plan::Space::Persistent)
      initialiseSlot(impl->plan, impl->rank, *slot, impl->arena.data() + slot->offset(), impl->threads);
}

std::byte *Executor::inputBuffer(int which) {
  assert((which == 0 || which == 1) && "there are two input buffers");
  return impl->inputs[which].data();
}
size_t Executor::inputBytes() const { return impl->inputs[0].size(); }

bool Executor::setScalar(const std::string &name, float value) {
  std::byte *at = impl->find(impl->program.scalars(), name);
  if (at)
    std::memcpy(at, &value, sizeof value);
  return at != nullptr;
}

void Executor::train(int64_t step, int whichInput) {
  if (impl->stepScalar) {
    auto value = static_cast<float>(step);
    std::memcpy(impl->stepScalar, &value, sizeof value);
  }
  impl->run(impl->trainActions, step, whichInput);
}

void Executor::eval(int whichInput) { impl->run(impl->evalActions, 0, whichInput); }

std::optional<float> Executor::metric(const std::string &name) const {
  const std::byte *at = impl->find(impl->program.metrics(), name);
  if (!at)
    return std::nullopt;
  float value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

std::span<std::byte> Executor::persistent(unsigned slot) {
  const plan::Slot *info = impl->program.slots()->Get(slot);
  assert(info->space() == plan::Space::Persistent && "only persistent slots have a place of their own");
  return {impl->arena.data() + info->offset(), static_cast<size_t>(info->bytes())};
}

const plan::Program &Executor::program() const { return impl->program; }
const plan::Rank &Executor::rankInfo() const { return impl->rank; }
unsigned Executor::rank() const { return impl->rankIndex; }
size_t Executor::memoryBytes() const {
  return impl->arena.size() + impl->inputs[0].size() + impl->inputs[1].size() + impl->workspace.size();
}

std::vector<StepTime> Executor::profile() const {
  std::vector<StepTime> all;
  for (const PreparedSegment &segment : impl->segments)
    all.insert(all.end(), segment.times.begin(), segment.times.end());
  return all;
}

} // namespace cleave
