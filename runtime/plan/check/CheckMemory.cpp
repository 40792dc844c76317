// Follows the values in each program's arena. A placed slot owns its bytes from its write until another slot overwrites
// them. A read must find its own value, of its own microbatch, and only bytes that were written. So any overlap of two
// live slots is found. Within a step, nothing may overwrite what the same step reads, except where the schema allows
// it. MemoryCheck follows the owners of the bytes; a class for each other rule is told of every access.
#include "runtime/base/Error.h"
#include "runtime/plan/DTypes.h"
#include "runtime/plan/Inputs.h"
#include "runtime/plan/check/Coverage.h"
#include "runtime/plan/check/Defects.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

namespace cleave::check {

namespace {

/// A program, and the words for what is in it.
struct Subject {
  const plan::Plan &plan;
  uint32_t index;
  const plan::Program &program;
  Defects &defects;

  const plan::Slot &slotAt(uint32_t slot) const { return *program.slots()->Get(slot); }
  const plan::Step &stepAt(const plan::Action &action, uint32_t step) const {
    return *program.segments()->Get(action.segment())->steps()->Get(step);
  }
  plan::TensorKind kindOf(uint32_t at) const {
    const int32_t tensor = slotAt(at).tensor();
    return tensor < 0 ? plan::TensorKind::Activation : plan.tensors()->Get(static_cast<uint32_t>(tensor))->kind();
  }
  /// Gradients and metrics are sums of one iteration: their old content must not be read.
  bool beginsAnew(uint32_t at) const {
    return kindOf(at) == plan::TensorKind::Gradient || kindOf(at) == plan::TensorKind::Metric;
  }
  std::string place(const plan::Action &action, uint32_t step) const {
    return placeOf(index, program, action.segment(), step);
  }
  std::string describe(uint32_t at) const {
    const auto *name = slotAt(at).name();
    return name && name->size() ? fmt::format("{} ({})", at, name->str()) : fmt::format("{}", at);
  }
};

/// An access of a step that runs.
struct Touch {
  const plan::Action &action;
  uint32_t step;
  uint64_t run; ///< number of the step's run
  const Access &access;
  uint64_t address; ///< of the slot
  uint64_t begin() const { return address + access.begin; }
  uint64_t end() const { return begin() + access.bytes; }
};

/// Rule M2: what is sent must not be overwritten before the action that waits for it.
class SentMessages : Subject {
public:
  explicit SentMessages(const Subject &subject) : Subject(subject) {}

  void wait(const plan::SendId &id) {
    std::erase_if(messages, [&](const Message &m) { return m.tag == id.tag() && m.microbatch == id.microbatch(); });
  }
  void send(const plan::Send &send, int32_t microbatch, uint64_t address) {
    messages.push_back({send.tag(), microbatch, send.slot(), address, address + send.bytes()});
  }
  void write(const Touch &t) const {
    Rule rule(defects, "M2");
    for (const Message &message : messages)
      if (message.begin < t.end() && t.begin() < message.end)
        defects.add("{}: microbatch {} writes slot {} while message {} of microbatch {} is sent from slot {}",
                    place(t.action, t.step), t.action.microbatch(), describe(t.access.slot), message.tag,
                    message.microbatch, describe(message.slot));
  }

private:
  struct Message {
    uint32_t tag;
    int32_t microbatch;
    uint32_t slot;
    uint64_t begin, end;
  };
  std::vector<Message> messages; ///< started but not waited for
};

/// Rule M4: sums begin at 0, and steps add to all metrics of the loss or to none.
class Sums : Subject {
public:
  explicit Sums(const Subject &subject) : Subject(subject) {}

  void read(const Touch &t) const {
    const auto found = filled.find(t.address);
    if (!t.access.accumulated || found == filled.end() || found->second == 0)
      return;
    Rule rule(defects, "M4");
    defects.add("{}: adds to slot {}, which starts at {} instead of 0", place(t.action, t.step),
                describe(t.access.slot), found->second);
  }

  void write(const Touch &t) {
    const plan::Step &writer = stepAt(t.action, t.step);
    const auto *fill = writer.op_as_Fill();
    filled.erase(t.address);
    if (fill)
      filled[t.address] = fill->value();
    else if (!writer.op_as_Collective())
      added.insert(t.access.slot);
    if (!fill || fill->value() == 0 || !beginsAnew(t.access.slot))
      return;
    Rule rule(defects, "M4");
    defects.add("{}: the sum in slot {} starts at {} instead of 0", place(t.action, t.step), describe(t.access.slot),
                fill->value());
  }

  void overwritten(uint64_t address) { filled.erase(address); }

  /// `written`: whether a step wrote the slot.
  template <typename Written> void finish(const Written &written) const {
    Rule rule(defects, "M4");
    const auto forEachMetric = [&](const auto &fn) {
      for (uint32_t i = 0; i < length(program.metrics()) && !defects.full(); ++i)
        if (const plan::NamedSlot &m = *program.metrics()->Get(i); kindOf(m.slot()) == plan::TensorKind::Metric)
          fn(m.slot(), m.name()->str());
    };
    // A stage counts the invalid indices of its own functions.
    const auto ofLoss = [](const std::string &name) { return !name.starts_with("invalid."); };
    bool some = false;
    forEachMetric([&](uint32_t slot, const std::string &name) {
      some = some || (added.count(slot) && ofLoss(name));
      if (!written(slot))
        defects.add("program {}: no step writes metric '{}', slot {}", index, name, describe(slot));
    });
    forEachMetric([&](uint32_t slot, const std::string &name) {
      if (some && !added.count(slot) && ofLoss(name))
        defects.add("program {}: no step adds to metric '{}', slot {}, although steps add to other metrics", index,
                    name, describe(slot));
    });
  }

private:
  std::map<uint64_t, double> filled; ///< by address: the value of the fill that wrote the slot last
  std::set<uint32_t> added;          ///< slots written by steps other than fills and collectives
};

/// Rule M5: at least one result of each step must be read.
class UnreadResults : Subject {
public:
  explicit UnreadResults(const Subject &subject) : Subject(subject) {}

  void read(const Touch &t) {
    std::erase_if(unread[t.address], [&](const Result &result) {
      const bool read = result.begin < t.end() && t.begin() < result.end;
      if (read)
        readRuns.insert(result.run);
      return read;
    });
  }

  void write(const Touch &t) {
    std::vector<Result> &results = unread[t.address];
    if (t.access.repeats.empty())
      std::erase_if(results, [&](const Result &result) {
        const bool over = result.run != t.run && t.begin() <= result.begin && result.end <= t.end();
        if (over)
          lost.push_back(result);
        return over;
      });
    if (slotAt(t.access.slot).space() == plan::Space::Placed || beginsAnew(t.access.slot))
      results.push_back({t.begin(), t.end(), t.access.slot, t.action.segment(), t.step, t.run});
    else
      readRuns.insert(t.run); // after the iteration
  }

  void overwritten(uint64_t address) {
    if (auto found = unread.extract(address))
      lost.insert(lost.end(), found.mapped().begin(), found.mapped().end());
  }

  /// What is needed only in this iteration must have been read.
  void finish() {
    for (const auto &[address, results] : unread)
      for (const Result &result : results)
        if (slotAt(result.slot).space() == plan::Space::Placed || kindOf(result.slot) == plan::TensorKind::Gradient)
          lost.push_back(result);
    Rule rule(defects, "M5");
    for (const Result &result : lost)
      if (!readRuns.count(result.run) && !defects.full() && !mayBeUnread(result))
        defects.add("{}: no step reads what it writes into slot {}",
                    placeOf(index, program, result.segment, result.step), describe(result.slot));
  }

private:
  /// Bytes that a step wrote and no step has read yet.
  struct Result {
    uint64_t begin, end; ///< addresses
    uint32_t slot, segment, step;
    uint64_t run;
  };

  /// Collectives and receives are also needed by other ranks, and the compiler does not always detect that a kernel's
  /// result is unused.
  bool mayBeUnread(const Result &result) const {
    switch (program.segments()->Get(result.segment)->steps()->Get(result.step)->op_type()) {
    case plan::StepOp::Collective:
    case plan::StepOp::Recv:
    case plan::StepOp::Kernel:
    case plan::StepOp::KernelBatch:
      return true;
    default:
      return false;
    }
  }

  std::map<uint64_t, std::vector<Result>> unread; ///< by address of the slot
  std::vector<Result> lost;                       ///< overwritten before they were read
  std::set<uint64_t> readRuns;                    ///< runs with at least one result that was read
};

/// Accesses of a segment's steps, computed once.
struct SegmentAccesses {
  std::vector<std::vector<Access>> steps;
  std::map<uint32_t, uint32_t> places; ///< slot -> index in the segment's list
};

/// Rule M1, for which it follows the owners of the arena's bytes; tells the other rules of every access.
class MemoryCheck : Subject {
public:
  explicit MemoryCheck(const Subject &subject) : Subject(subject) {
    for (uint32_t s = 0; s < length(program.segments()); ++s) {
      const plan::Segment &segment = *program.segments()->Get(s);
      SegmentAccesses accesses;
      for (uint32_t i = 0; i < length(segment.slots()); ++i)
        accesses.places[segment.slots()->Get(i)] = i;
      for (uint32_t i = 0; i < length(segment.steps()); ++i) {
        auto &list = accesses.steps.emplace_back();
        forEachAccess(
            *segment.steps()->Get(i), program,
            [&](const Access &access) {
              if (access.bytes && slotAt(access.slot).space() != plan::Space::Input)
                list.push_back(access);
            },
            &plan);
      }
      segments.push_back(std::move(accesses));
    }
  }

  void follow(const flatbuffers::Vector<flatbuffers::Offset<plan::Action>> *actions) {
    owners.clear();
    const Subject &subject = *this;
    messages.emplace(subject);
    sums.emplace(subject);
    results.emplace(subject);
    placePersistent();
    for (uint32_t i = 0; i < length(actions) && !defects.full(); ++i)
      follow(*actions->Get(i));
    if (length(actions) == 0)
      return;
    sums->finish([&](uint32_t slot) {
      const auto found = owners.find(slotAt(slot).offset());
      return found != owners.end() && found->second.slot == slot;
    });
    results->finish();
  }

private:
  struct Owner {
    uint64_t end;
    uint32_t slot;
    int32_t microbatch;
    Coverage written; ///< relative to the slot's first byte
  };

  /// Persistent slots own their bytes from the start.
  void placePersistent() {
    for (uint32_t i = 0; i < length(program.slots()); ++i) {
      const plan::Slot &slot = slotAt(i);
      if (slot.space() == plan::Space::Persistent && slot.bytes() && !beginsAnew(i)) {
        Owner &owner = owners[slot.offset()] = {slot.offset() + slot.bytes(), i, -1, {}};
        owner.written.add({Access::Write, i, 0, slot.bytes()});
      }
    }
  }

  void follow(const plan::Action &action) {
    for (uint32_t i = 0; i < length(action.wait_sends()); ++i)
      messages->wait(*action.wait_sends()->Get(i));
    const SegmentAccesses &accesses = segments[action.segment()];
    if (apart.insert({action.segment(), action.layout()}).second)
      checkApart(action, accesses);
    for (uint32_t s = 0; s < accesses.steps.size() && !defects.full(); ++s) {
      ++run;
      for (const Access &access : accesses.steps[s])
        touch({action, s, run, access, addressOf(action, accesses, access.slot)});
      const auto *send = stepAt(action, s).op_as_Send();
      // the input space has separate buffers
      if (send && slotAt(send->slot()).space() != plan::Space::Input)
        messages->send(*send, action.microbatch(), addressOf(action, accesses, send->slot()));
    }
  }

  uint64_t addressOf(const plan::Action &action, const SegmentAccesses &accesses, uint32_t slot) const {
    const plan::Slot &info = slotAt(slot);
    if (info.space() == plan::Space::Persistent)
      return info.offset();
    return program.layouts()->Get(action.layout())->offsets()->Get(accesses.places.at(slot));
  }

  /// A step must not overwrite what it reads, and a product must not overwrite one of its results with another.
  void checkApart(const plan::Action &action, const SegmentAccesses &accesses) {
    Rule rule(defects, "M2");
    for (uint32_t s = 0; s < accesses.steps.size() && !defects.full(); ++s) {
      if (stepAt(action, s).op_type() == plan::StepOp::KernelBatch) {
        checkCallsApart(action, s, accesses);
        continue;
      }
      const plan::Step &step = stepAt(action, s);
      for (const Access &other : accesses.steps[s])
        for (const Access &write : accesses.steps[s]) {
          const bool result = other.kind == Access::Write && &other < &write && step.op_type() == plan::StepOp::Matmul;
          if ((other.kind != Access::Read && !result) || write.kind != Access::Write || other.accumulated)
            continue;
          uint64_t from = addressOf(action, accesses, other.slot) + other.begin,
                   to = addressOf(action, accesses, write.slot) + write.begin;
          if (from < to + write.bytes && to < from + other.bytes && !inPlace(step, other, from, write, to))
            defects.add("{}: it writes slot {} at byte {}, over what it {} in slot {} at byte {}", place(action, s),
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
        defects.add("{}: call {} writes slot {} at byte {}, which call {} {} as slot {}", place(action, s),
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

  void touch(const Touch &t) {
    const bool reads = t.access.kind == Access::Read;
    if (!reads)
      messages->write(t);
    auto found = owners.find(t.address);
    if (found == owners.end() || found->second.slot != t.access.slot) {
      if (reads)
        return missing(t);
      own(t, t.access);
      found = owners.find(t.address);
      if (found == owners.end() || found->second.slot != t.access.slot)
        return;
    } else if (reads) {
      return read(t, found->second);
    }
    Owner &owner = found->second;
    if (otherMicrobatch(t, owner))
      owner.written = {}; // the rest of the overwritten slot is invalid
    owner.microbatch = t.action.microbatch();
    owner.written.add(t.access);
    results->write(t);
    sums->write(t);
  }

  void read(const Touch &t, Owner &owner) {
    const Access &access = t.access;
    const plan::Slot &slot = slotAt(access.slot);
    if (otherMicrobatch(t, owner))
      defects.add("{}: microbatch {} reads slot {}, which holds microbatch {}", place(t.action, t.step),
                  t.action.microbatch(), describe(access.slot), owner.microbatch);
    results->read(t);
    sums->read(t);
    const uint64_t value = valueBytes(slot); // the rest of the slot is padding
    const uint64_t bytes = access.begin < value ? std::min(access.bytes, value - access.begin) : 0;
    if (auto at = owner.written.missing(access, access.begin, bytes)) {
      defects.add("{}: microbatch {} reads byte {} of slot {} at byte {}, which no step wrote", place(t.action, t.step),
                  t.action.microbatch(), *at, describe(access.slot), t.address);
      owner.written.add({Access::Write, access.slot, 0, slot.bytes()}); // defects once
    }
  }

  void missing(const Touch &t) {
    auto last = owners.upper_bound(t.address);
    std::string who = "no step wrote";
    if (last != owners.begin() && std::prev(last)->second.end > t.address)
      who = fmt::format("slot {} has overwritten", describe(std::prev(last)->second.slot));
    defects.add("{}: microbatch {} reads slot {} at byte {}, which {}", place(t.action, t.step), t.action.microbatch(),
                describe(t.access.slot), t.address, who);
    own(t, {Access::Write, t.access.slot, 0, slotAt(t.access.slot).bytes()}); // defects only once
  }

  void own(const Touch &t, const Access &written) {
    const uint64_t end = t.address + slotAt(written.slot).bytes();
    auto at = owners.upper_bound(t.address);
    if (at != owners.begin() && std::prev(at)->second.end > t.address)
      --at;
    while (at != owners.end() && at->first < end) {
      if (slotAt(at->second.slot).space() == plan::Space::Persistent)
        return defects.add("{}: slot {} overlaps persistent slot {}", place(t.action, t.step), describe(written.slot),
                           describe(at->second.slot));
      results->overwritten(at->first);
      sums->overwritten(at->first);
      at = owners.erase(at);
    }
    Owner &owner = owners[t.address] = {end, written.slot, t.action.microbatch(), {}};
    owner.written.add(written);
  }

  /// Activations belong to one microbatch; gradients and similar values may accumulate over several.
  bool otherMicrobatch(const Touch &t, const Owner &owner) const {
    const plan::Slot &slot = slotAt(t.access.slot);
    const int32_t held = owner.microbatch, wanted = t.action.microbatch();
    return held >= 0 && wanted >= 0 && held != wanted && slot.tensor() >= 0 && slot.space() == plan::Space::Placed &&
           kindOf(t.access.slot) == plan::TensorKind::Activation;
  }

  std::vector<SegmentAccesses> segments;
  std::set<std::pair<uint32_t, uint32_t>> apart; ///< segments and layouts already checked by checkApart
  uint64_t run = 0;                              ///< number of step runs so far
  std::map<uint64_t, Owner> owners;              ///< by first byte
  std::optional<SentMessages> messages;          ///< of the list that is followed, as the next two
  std::optional<Sums> sums;
  std::optional<UnreadResults> results;
};

/// Rows of two microbatches must not share bytes of the input buffer.
void checkInputs(const plan::Plan &plan, uint32_t rank, Defects &defects) {
  Rule rule(defects, "M6");
  for (bool eval : {false, true})
    try {
      auto parts = inputParts(plan, rank, eval);
      std::sort(parts.begin(), parts.end(), [](const InputPart &a, const InputPart &b) { return a.offset < b.offset; });
      for (size_t i = 1; i < parts.size(); ++i) {
        const InputPart &a = parts[i - 1], &b = parts[i];
        if (a.offset + a.bytes > b.offset && b.bytes && !(a.field == b.field && a.microbatch == b.microbatch))
          defects.add("rank {}: inputs '{}' of microbatch {} and '{}' of microbatch {} overlap at byte {}", rank,
                      a.field, a.microbatch, b.field, b.microbatch, b.offset);
      }
    } catch (const Error &error) {
      defects.add("rank {}: {}", rank, error.what());
    }
}

} // namespace

void checkMemory(const plan::Plan &plan, const CheckOptions &options, Defects &defects) {
  Rule rule(defects, "M1");
  for (uint32_t p = 0; p < length(plan.programs()) && !defects.full(); ++p) {
    const plan::Program &program = *plan.programs()->Get(p);
    Rule sizes(defects, "M3");
    uint64_t peak = program.arena_bytes() + 2 * program.input_bytes() + program.workspace_bytes();
    if (program.peak_bytes() != peak)
      defects.add("program {}: its peak must be arena + 2 input buffers + workspace = {} bytes, found {}", p, peak,
                  program.peak_bytes());
    if (program.lower_bound_bytes() > program.peak_bytes())
      defects.add("program {}: its lower bound of {} bytes is above its peak of {}", p, program.lower_bound_bytes(),
                  program.peak_bytes());
    if (options.memoryBytes && peak > options.memoryBytes)
      defects.add("program {}: it needs {} bytes, a rank has {}", p, peak, options.memoryBytes);
    Rule values(defects, "M1");
    MemoryCheck check({plan, p, program, defects});
    check.follow(program.train());
    check.follow(program.eval());
  }
  std::set<uint32_t> done;
  for (uint32_t r = 0; r < length(plan.ranks()) && !defects.full(); ++r)
    if (done.insert(plan.ranks()->Get(r)->program()).second)
      checkInputs(plan, r, defects);
}

} // namespace cleave::check
