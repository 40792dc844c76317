// Follows the values in each program's arena. A placed slot owns its bytes from its write until another slot overwrites
// them. A read must find its own value, of its own microbatch, and only bytes that were written. So any overlap of two
// live slots is found. Within a step, nothing may overwrite what the same step reads, except where the schema allows
// it.
#include "runtime/base/Error.h"
#include "runtime/plan/CheckParts.h"
#include "runtime/plan/Coverage.h"
#include "runtime/plan/DTypes.h"
#include "runtime/plan/Inputs.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

namespace cleave::check {

namespace {

/// Bytes that a step wrote and no step has read yet.
struct Unread {
  uint64_t begin, end; ///< within the slot
  uint32_t segment, step;
  uint64_t run; ///< number of the step's run
};

struct Owner {
  uint64_t end;
  uint32_t slot;
  int32_t microbatch;
  Coverage written; ///< relative to the slot's first byte
  std::vector<Unread> unread{};
  std::optional<double> filled{}; ///< the value of the fill that wrote it last
};

struct Message {
  uint32_t tag;
  int32_t microbatch;
  uint32_t slot;
  uint64_t begin, end;
};

/// Accesses of a segment's steps, computed once.
struct SegmentAccesses {
  std::vector<std::vector<Access>> steps;
  std::map<uint32_t, uint32_t> places; ///< slot -> index in the segment's list
};

class MemoryCheck {
public:
  MemoryCheck(const plan::Plan &plan, uint32_t index, Report &report)
      : plan(plan), index(index), program(*plan.programs()->Get(index)), report(report) {
    for (uint32_t s = 0; s < length(program.segments()); ++s) {
      const plan::Segment &segment = *program.segments()->Get(s);
      SegmentAccesses accesses;
      for (uint32_t i = 0; i < length(segment.slots()); ++i)
        accesses.places[segment.slots()->Get(i)] = i;
      for (uint32_t i = 0; i < length(segment.steps()); ++i) {
        auto &list = accesses.steps.emplace_back();
        forEachAccess(*segment.steps()->Get(i), program, [&](const Access &access) {
          if (access.bytes && program.slots()->Get(access.slot)->space() != plan::Space::Input)
            list.push_back(access);
        }, &plan);
      }
      segments.push_back(std::move(accesses));
    }
  }

  void follow(const flatbuffers::Vector<flatbuffers::Offset<plan::Action>> *actions) {
    owners.clear();
    messages.clear();
    lost.clear();
    readRuns.clear();
    added.clear();
    placePersistent();
    for (uint32_t i = 0; i < length(actions) && !report.full(); ++i)
      follow(*actions->Get(i));
    if (length(actions) > 0)
      finish();
  }

private:
  plan::TensorKind kindOf(uint32_t slot) const {
    const int32_t tensor = program.slots()->Get(slot)->tensor();
    return tensor < 0 ? plan::TensorKind::Activation : plan.tensors()->Get(static_cast<uint32_t>(tensor))->kind();
  }
  /// Gradients and metrics are sums of one iteration: their old content must not be read.
  bool beginsAnew(uint32_t slot) const {
    return kindOf(slot) == plan::TensorKind::Gradient || kindOf(slot) == plan::TensorKind::Metric;
  }

  /// At the end of the list: metrics must have been written, and values needed only in this iteration must have been
  /// read.
  void finish() {
    Rule rule(report, "M4");
    for (uint32_t i = 0; i < length(program.metrics()) && !report.full(); ++i) {
      const uint32_t slot = program.metrics()->Get(i)->slot();
      const auto found = owners.find(program.slots()->Get(slot)->offset());
      if (kindOf(slot) == plan::TensorKind::Metric && (found == owners.end() || found->second.slot != slot))
        report.add("program {}: no step writes metric '{}', slot {}", index, program.metrics()->Get(i)->name()->str(),
                   describe(slot));
    }
    const auto summed = [&](uint32_t slot) { return kindOf(slot) == plan::TensorKind::Metric && added.count(slot); };
    bool some = false;
    for (uint32_t i = 0; i < length(program.metrics()); ++i)
      some = some || summed(program.metrics()->Get(i)->slot());
    for (uint32_t i = 0; some && i < length(program.metrics()); ++i)
      if (const uint32_t slot = program.metrics()->Get(i)->slot();
          kindOf(slot) == plan::TensorKind::Metric && !summed(slot))
        report.add("program {}: no step adds to metric '{}', slot {}, although steps add to other metrics", index,
                   program.metrics()->Get(i)->name()->str(), describe(slot));
    for (const auto &[address, owner] : owners)
      if (program.slots()->Get(owner.slot)->space() == plan::Space::Placed ||
          kindOf(owner.slot) == plan::TensorKind::Gradient)
        loseAll(owner);
    reportLost();
  }

  void loseAll(const Owner &owner) {
    for (const Unread &unread : owner.unread)
      lost.push_back({unread, owner.slot});
  }

  /// Whether the result of a step may remain unread. Collectives and receives are also needed by other ranks, and the
  /// compiler does not always detect that a kernel's result is unused.
  bool mayBeUnread(const Unread &unread) const {
    switch (program.segments()->Get(unread.segment)->steps()->Get(unread.step)->op_type()) {
    case plan::StepOp::Collective:
    case plan::StepOp::Recv:
    case plan::StepOp::Kernel:
    case plan::StepOp::KernelBatch:
      return true;
    default:
      return false;
    }
  }

  /// At least one result of each step must be read.
  void reportLost() {
    Rule rule(report, "M5");
    for (const auto &[unread, slot] : lost)
      if (!readRuns.count(unread.run) && !report.full() && !mayBeUnread(unread))
        report.add("{}: no step reads what it writes into slot {}",
                   placeOf(index, program, unread.segment, unread.step), describe(slot));
  }

  /// Persistent slots own their bytes from the start.
  void placePersistent() {
    for (uint32_t i = 0; i < length(program.slots()); ++i) {
      const plan::Slot &slot = *program.slots()->Get(i);
      if (slot.space() == plan::Space::Persistent && slot.bytes() && !beginsAnew(i)) {
        Owner &owner = owners[slot.offset()] = {slot.offset() + slot.bytes(), i, -1, {}};
        owner.written.add({Access::Write, i, 0, slot.bytes()});
      }
    }
  }

  void follow(const plan::Action &action) {
    for (uint32_t i = 0; i < length(action.wait_sends()); ++i) {
      const plan::SendId *id = action.wait_sends()->Get(i);
      std::erase_if(messages, [&](const Message &m) { return m.tag == id->tag() && m.microbatch == id->microbatch(); });
    }
    const plan::Segment &segment = *program.segments()->Get(action.segment());
    const SegmentAccesses &accesses = segments[action.segment()];
    if (apart.insert({action.segment(), action.layout()}).second)
      checkApart(action, accesses);
    for (uint32_t s = 0; s < accesses.steps.size() && !report.full(); ++s) {
      ++run;
      for (const Access &access : accesses.steps[s])
        touch(action, s, access, addressOf(action, accesses, access.slot));
      const auto *send = segment.steps()->Get(s)->op_as_Send();
      // the input space has separate buffers
      if (send && program.slots()->Get(send->slot())->space() != plan::Space::Input) {
        uint64_t at = addressOf(action, accesses, send->slot());
        messages.push_back({send->tag(), action.microbatch(), send->slot(), at, at + send->bytes()});
      }
    }
  }

  uint64_t addressOf(const plan::Action &action, const SegmentAccesses &accesses, uint32_t slot) const {
    const plan::Slot &info = *program.slots()->Get(slot);
    if (info.space() == plan::Space::Persistent)
      return info.offset();
    return program.layouts()->Get(action.layout())->offsets()->Get(accesses.places.at(slot));
  }

  /// A step must not overwrite what it reads, and a product must not overwrite one of its results with another.
  void checkApart(const plan::Action &action, const SegmentAccesses &accesses) {
    Rule rule(report, "M2");
    for (uint32_t s = 0; s < accesses.steps.size() && !report.full(); ++s) {
      if (program.segments()->Get(action.segment())->steps()->Get(s)->op_type() == plan::StepOp::KernelBatch) {
        checkCallsApart(action, s, accesses);
        continue;
      }
      const plan::Step &step = *program.segments()->Get(action.segment())->steps()->Get(s);
      for (const Access &other : accesses.steps[s])
        for (const Access &write : accesses.steps[s]) {
          const bool result = other.kind == Access::Write && &other < &write && step.op_type() == plan::StepOp::Matmul;
          if ((other.kind != Access::Read && !result) || write.kind != Access::Write || other.accumulated)
            continue;
          uint64_t from = addressOf(action, accesses, other.slot) + other.begin,
                   to = addressOf(action, accesses, write.slot) + write.begin;
          if (from < to + write.bytes && to < from + other.bytes && !inPlace(step, other, from, write, to))
            report.add("{}: it writes slot {} at byte {}, over what it {} in slot {} at byte {}", place(action, s),
                       describe(write.slot), to, result ? "writes" : "reads", describe(other.slot), from);
        }
    }
  }

  /// A call of a batch must not access what another call writes, nor overwrite what it reads itself, except in place.
  void checkCallsApart(const plan::Action &action, uint32_t s, const SegmentAccesses &accesses) {
    struct Place {
      uint64_t begin, end;
      const Access *access;
    };
    std::vector<Place> order;
    for (const Access &access : accesses.steps[s]) {
      const uint64_t begin = addressOf(action, accesses, access.slot) + access.begin;
      order.push_back({begin, begin + access.bytes, &access});
    }
    std::sort(order.begin(), order.end(), [](const Place &a, const Place &b) { return a.begin < b.begin; });
    std::vector<Place> open; // places that extend beyond the current position
    for (const Place &now : order) {
      std::erase_if(open, [&](const Place &one) { return one.end <= now.begin; });
      for (const Place &one : open) {
        const bool same = one.access->part == now.access->part;
        const bool writes = one.access->kind == Access::Write || now.access->kind == Access::Write;
        if (!writes || (same && (one.access->slot == now.access->slot || one.access->kind == now.access->kind)))
          continue;
        const auto &[writer, other] = now.access->kind == Access::Write ? std::pair(now, one) : std::pair(one, now);
        report.add("{}: call {} writes slot {} at byte {}, which call {} {} as slot {}", place(action, s),
                   writer.access->part, describe(writer.access->slot), writer.begin, other.access->part,
                   other.access->kind == Access::Write ? "writes" : "reads", describe(other.access->slot));
      }
      open.push_back(now);
    }
  }

  /// A kernel may update an argument in place, and an all-reduce each of its buffers.
  static bool inPlace(const plan::Step &step, const Access &read, uint64_t from, const Access &write, uint64_t to) {
    if (const auto *collective = step.op_as_Collective())
      return collective->kind() == plan::CollectiveKind::AllReduce && read.part == write.part && from == to;
    return step.op_type() == plan::StepOp::Kernel && read.slot == write.slot;
  }

  void touch(const plan::Action &action, uint32_t step, const Access &access, uint64_t address) {
    auto found = owners.find(address);
    bool mine = found != owners.end() && found->second.slot == access.slot;
    if (access.kind == Access::Read)
      return mine ? checkRead(action, step, access, address, found->second) : missing(action, step, access, address);
    for (const Message &message : messages)
      if (Rule rule(report, "M2"); message.begin < address + access.begin + access.bytes && address + access.begin < message.end)
        report.add("{}: microbatch {} writes slot {} while message {} of microbatch {} is sent from slot {}",
                   place(action, step), action.microbatch(), describe(access.slot), message.tag, message.microbatch,
                   describe(message.slot));
    if (!mine) {
      own(action, step, access, address);
      found = owners.find(address);
      if (found != owners.end() && found->second.slot == access.slot)
        noteWrite(action, step, access, found->second);
      return;
    }
    Owner &owner = found->second;
    if (otherMicrobatch(access.slot, owner.microbatch, action.microbatch()))
      owner.written = {}; // the rest of the overwritten slot is invalid
    owner.microbatch = action.microbatch();
    owner.written.add(access);
    noteWrite(action, step, access, owner);
  }

  void noteWrite(const plan::Action &action, uint32_t step, const Access &access, Owner &owner) {
    const uint64_t end = access.begin + access.bytes;
    if (access.repeats.empty())
      std::erase_if(owner.unread, [&](const Unread &unread) {
        const bool over = unread.run != run && access.begin <= unread.begin && unread.end <= end;
        if (over)
          lost.push_back({unread, owner.slot});
        return over;
      });
    if (program.slots()->Get(access.slot)->space() == plan::Space::Placed || beginsAnew(access.slot))
      owner.unread.push_back({access.begin, end, action.segment(), step, run});
    else
      readRuns.insert(run); // after the iteration
    const plan::Step &writer = *program.segments()->Get(action.segment())->steps()->Get(step);
    const auto *fill = writer.op_as_Fill();
    if (!fill && !writer.op_as_Collective())
      added.insert(access.slot);
    owner.filled = fill ? std::optional(fill->value()) : std::nullopt;
    if (fill && fill->value() != 0 && beginsAnew(access.slot)) {
      Rule rule(report, "M4");
      report.add("{}: the sum in slot {} starts at {} instead of 0", place(action, step), describe(access.slot),
                 fill->value());
    }
  }

  void noteRead(const plan::Action &action, uint32_t step, const Access &access, Owner &owner) {
    const uint64_t end = access.begin + access.bytes;
    std::erase_if(owner.unread, [&](const Unread &unread) {
      const bool read = unread.begin < end && access.begin < unread.end;
      if (read)
        readRuns.insert(unread.run);
      return read;
    });
    if (access.accumulated && owner.filled.value_or(0) != 0) {
      Rule rule(report, "M4");
      report.add("{}: adds to slot {}, which starts at {} instead of 0", place(action, step), describe(access.slot),
                 *owner.filled);
    }
  }

  void checkRead(const plan::Action &action, uint32_t step, const Access &access, uint64_t address, Owner &owner) {
    if (otherMicrobatch(access.slot, owner.microbatch, action.microbatch()))
      report.add("{}: microbatch {} reads slot {}, which holds microbatch {}", place(action, step), action.microbatch(),
                 describe(access.slot), owner.microbatch);
    noteRead(action, step, access, owner);
    const uint64_t value = valueBytes(*program.slots()->Get(access.slot)); // the rest of the slot is padding
    uint64_t bytes = access.begin < value ? std::min(access.bytes, value - access.begin) : 0;
    if (auto at = owner.written.missing(access, access.begin, bytes)) {
      report.add("{}: microbatch {} reads byte {} of slot {} at byte {}, which no step wrote", place(action, step),
                 action.microbatch(), *at, describe(access.slot), address);
      owner.written.add({Access::Write, access.slot, 0, program.slots()->Get(access.slot)->bytes()}); // report once
    }
  }

  void missing(const plan::Action &action, uint32_t step, const Access &access, uint64_t address) {
    auto last = owners.upper_bound(address);
    std::string who = "no step wrote";
    if (last != owners.begin() && std::prev(last)->second.end > address)
      who = fmt::format("slot {} has overwritten", describe(std::prev(last)->second.slot));
    report.add("{}: microbatch {} reads slot {} at byte {}, which {}", place(action, step), action.microbatch(),
               describe(access.slot), address, who);
    const uint64_t bytes = program.slots()->Get(access.slot)->bytes();
    own(action, step, {Access::Write, access.slot, 0, bytes}, address); // report only once
  }

  void own(const plan::Action &action, uint32_t step, const Access &access, uint64_t address) {
    uint64_t end = address + program.slots()->Get(access.slot)->bytes();
    auto at = owners.upper_bound(address);
    if (at != owners.begin() && std::prev(at)->second.end > address)
      --at;
    while (at != owners.end() && at->first < end) {
      if (program.slots()->Get(at->second.slot)->space() == plan::Space::Persistent) {
        report.add("{}: slot {} overlaps persistent slot {}", place(action, step), describe(access.slot),
                   describe(at->second.slot));
        return;
      }
      loseAll(at->second);
      at = owners.erase(at);
    }
    Owner &owner = owners[address] = {end, access.slot, action.microbatch(), {}};
    owner.written.add(access);
  }

  /// Activations belong to one microbatch; gradients and similar values may accumulate over several.
  bool otherMicrobatch(uint32_t slot, int32_t held, int32_t wanted) const {
    int32_t tensor = program.slots()->Get(slot)->tensor();
    return held >= 0 && wanted >= 0 && held != wanted && tensor >= 0 &&
           program.slots()->Get(slot)->space() == plan::Space::Placed &&
           plan.tensors()->Get(static_cast<uint32_t>(tensor))->kind() == plan::TensorKind::Activation;
  }

  std::string place(const plan::Action &action, uint32_t step) const {
    return placeOf(index, program, action.segment(), step);
  }
  std::string describe(uint32_t slot) const {
    const auto *name = program.slots()->Get(slot)->name();
    return name && name->size() ? fmt::format("{} ({})", slot, name->str()) : fmt::format("{}", slot);
  }

  const plan::Plan &plan;
  uint32_t index;
  const plan::Program &program;
  Report &report;
  std::vector<SegmentAccesses> segments;
  std::set<std::pair<uint32_t, uint32_t>> apart; ///< segments and layouts already checked by checkApart
  uint64_t run = 0;                              ///< number of step runs so far
  std::set<uint32_t> added;                      ///< slots written by steps other than fills and collectives
  std::set<uint64_t> readRuns;                   ///< runs with at least one result that was read
  std::vector<std::pair<Unread, uint32_t>> lost; ///< unread results, with their slots
  std::map<uint64_t, Owner> owners;              ///< by first byte
  std::vector<Message> messages;                 ///< started but not waited for
};

/// Rows of two microbatches must not share bytes of the input buffer.
void checkInputs(const plan::Plan &plan, uint32_t rank, Report &report) {
  Rule rule(report, "M6");
  for (bool eval : {false, true})
    try {
      auto parts = inputParts(plan, rank, eval);
      std::sort(parts.begin(), parts.end(), [](const InputPart &a, const InputPart &b) { return a.offset < b.offset; });
      for (size_t i = 1; i < parts.size(); ++i) {
        const InputPart &a = parts[i - 1], &b = parts[i];
        if (a.offset + a.bytes > b.offset && b.bytes && !(a.field == b.field && a.microbatch == b.microbatch))
          report.add("rank {}: inputs '{}' of microbatch {} and '{}' of microbatch {} overlap at byte {}", rank,
                     a.field, a.microbatch, b.field, b.microbatch, b.offset);
      }
    } catch (const Error &error) {
      report.add("rank {}: {}", rank, error.what());
    }
}

} // namespace

void checkMemory(const plan::Plan &plan, const CheckOptions &options, Report &report) {
  Rule rule(report, "M1");
  for (uint32_t p = 0; p < length(plan.programs()) && !report.full(); ++p) {
    const plan::Program &program = *plan.programs()->Get(p);
    Rule sizes(report, "M3");
    uint64_t peak = program.arena_bytes() + 2 * program.input_bytes() + program.workspace_bytes();
    if (program.peak_bytes() != peak)
      report.add("program {}: its peak must be arena + 2 input buffers + workspace = {} bytes, found {}", p, peak,
                 program.peak_bytes());
    if (program.lower_bound_bytes() > program.peak_bytes())
      report.add("program {}: its lower bound of {} bytes is above its peak of {}", p, program.lower_bound_bytes(),
                 program.peak_bytes());
    if (options.memoryBytes && peak > options.memoryBytes)
      report.add("program {}: it needs {} bytes, a rank has {}", p, peak, options.memoryBytes);
    Rule values(report, "M1");
    MemoryCheck check(plan, p, report);
    check.follow(program.train());
    check.follow(program.eval());
  }
  std::set<uint32_t> done;
  for (uint32_t r = 0; r < length(plan.ranks()) && !report.full(); ++r)
    if (done.insert(plan.ranks()->Get(r)->program()).second)
      checkInputs(plan, r, report);
}

} // namespace cleave::check
