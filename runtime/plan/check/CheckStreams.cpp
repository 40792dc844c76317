// Checks plans for GPUs: every step is in the stream of its kind; waits are for earlier steps in other streams, and
// with them no two steps that access the same bytes are unordered; messages of a direction are received in the order in
// which they are sent; the workspace is large enough for the steps.
#include "runtime/plan/Backend.h"
#include "runtime/plan/Streams.h"
#include "runtime/plan/Text.h"
#include "runtime/plan/check/Defects.h"

#include <map>

namespace cleave::check {

namespace {

class StreamCheck {
public:
  StreamCheck(const plan::Plan &plan, uint32_t index, Defects &defects)
      : plan(plan), index(index), replicas(replicaStream(plan, index)), program(*plan.programs()->Get(index)),
        defects(defects) {}

  void run() {
    const size_t before = defects.count();
    for (uint32_t s = 0; s < length(program.segments()); ++s)
      for (uint32_t i = 0; i < length(program.segments()->Get(s)->steps()); ++i)
        checkStep(s, i);
    for (const auto *actions : {program.train(), program.eval()})
      for (uint32_t a = 0; a < length(actions); ++a)
        for (uint32_t w = 0; w < length(actions->Get(a)->waits()); ++w)
          checkWait(actions, a, *actions->Get(a)->waits()->Get(w));
    if (gpuWorkspace(program) > program.workspace_bytes())
      defects.add("program {}: its steps may take {} bytes of workspace, it has {}", index, gpuWorkspace(program),
                  program.workspace_bytes());
    if (defects.count() != before)
      return;
    for (bool eval : {false, true})
      findUnordered(program, eval, [&](const StepPlace &earlier, const StepPlace &later, uint32_t slot) {
        const auto *actions = eval ? program.eval() : program.train();
        const auto *name = program.slots()->Get(slot)->name();
        defects.add("{}: it does not wait for {} of action {}, which accesses the same bytes as its slot {} ({})",
                    placeOf(index, program, actions->Get(later.action)->segment(), later.step),
                    placeOf(index, program, actions->Get(earlier.action)->segment(), earlier.step), earlier.action,
                    slot, text(name));
      });
  }

private:
  /// All collectives may be in one stream. Those of a group must be, so that they run in order.
  void checkStep(uint32_t s, uint32_t i) {
    const plan::Step &step = *program.segments()->Get(s)->steps()->Get(i);
    const uint32_t stream = streamOf(plan, step, replicas);
    const plan::Collective *collective = step.op_as_Collective();
    if (step.stream() != stream && !(collective && step.stream() == steps::onGpu(step).stream))
      defects.add("{}: a step of its kind belongs in stream {}, found {}", placeOf(index, program, s, i), stream,
                  step.stream());
    else if (collective)
      if (const auto [group, first] = groups.try_emplace(collective->group(), step.stream());
          group->second != step.stream())
        defects.add("{}: it is in stream {}, an earlier collective of its group in stream {}",
                    placeOf(index, program, s, i), step.stream(), group->second);
  }

  void checkWait(const flatbuffers::Vector<flatbuffers::Offset<plan::Action>> *actions, uint32_t a,
                 const plan::Wait &wait) {
    const auto steps = [&](uint32_t action) {
      return program.segments()->Get(actions->Get(action)->segment())->steps();
    };
    if (wait.on_action() > a || (wait.on_action() == a && wait.on_step() >= wait.step()))
      defects.add("program {}, action {}: step {} waits for step {} of action {}, which is not an earlier one", index,
                  a, wait.step(), wait.on_step(), wait.on_action());
    else if (steps(a)->Get(wait.step())->stream() == steps(wait.on_action())->Get(wait.on_step())->stream())
      defects.add("program {}, action {}: step {} waits for step {} of action {}, which is in the same stream", index,
                  a, wait.step(), wait.on_step(), wait.on_action());
  }

  const plan::Plan &plan;
  uint32_t index, replicas;
  const plan::Program &program;
  Defects &defects;
  std::map<uint32_t, uint32_t> groups; ///< streams by group
};

struct MessageName {
  uint32_t tag;
  int32_t microbatch;
  bool operator==(const MessageName &) const = default;
};
/// Messages by peer rank and channel.
using Messages = std::map<std::pair<uint32_t, uint32_t>, std::vector<MessageName>>;

void messagesOf(const plan::Plan &plan, uint32_t rank, bool eval, Messages &sent, Messages &received) {
  const plan::Rank &info = *plan.ranks()->Get(rank);
  const plan::Program &program = *plan.programs()->Get(info.program());
  const auto *actions = eval ? program.eval() : program.train();
  for (uint32_t a = 0; a < length(actions); ++a) {
    const plan::Action &action = *actions->Get(a);
    const plan::Segment &segment = *program.segments()->Get(action.segment());
    for (uint32_t i = 0; i < length(segment.steps()); ++i) {
      const auto *send = segment.steps()->Get(i)->op_as_Send();
      const auto *recv = segment.steps()->Get(i)->op_as_Recv();
      if (send)
        sent[{info.peers()->Get(send->peer()), send->channel()}].push_back({send->tag(), action.microbatch()});
      if (recv)
        received[{info.peers()->Get(recv->peer()), recv->channel()}].push_back({recv->tag(), action.microbatch()});
    }
  }
}

void checkMessageOrder(const plan::Plan &plan, bool eval, Defects &defects) {
  std::vector<Messages> sent(length(plan.ranks())), received(length(plan.ranks()));
  for (uint32_t r = 0; r < length(plan.ranks()); ++r)
    messagesOf(plan, r, eval, sent[r], received[r]);
  for (uint32_t r = 0; r < length(plan.ranks()) && !defects.full(); ++r)
    for (const auto &[to, list] : sent[r]) {
      const auto [peer, channel] = to;
      const std::vector<MessageName> &there = received[peer][{r, channel}];
      for (size_t i = 0; i < std::min(list.size(), there.size()); ++i)
        if (list[i] != there[i]) {
          defects.add("ranks {} to {}: message {} of the {} list is {} of microbatch {} where it is sent and {} of "
                      "microbatch {} where it is received; on GPUs the order must be the same",
                      r, peer, i, eval ? "eval" : "train", list[i].tag, list[i].microbatch, there[i].tag,
                      there[i].microbatch);
          break;
        }
    }
}

} // namespace

void checkStreams(const plan::Plan &plan, Defects &defects) {
  if (backendOf(plan) != Target::Kind::Cuda)
    return;
  Rule rule(defects, "X1");
  for (uint32_t p = 0; p < length(plan.programs()) && !defects.full(); ++p)
    StreamCheck(plan, p, defects).run();
  for (bool eval : {false, true})
    checkMessageOrder(plan, eval, defects);
}

} // namespace cleave::check
