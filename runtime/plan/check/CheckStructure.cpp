// Structure: the requirements for following a plan's indices safely.
#include "runtime/base/Error.h"
#include "runtime/plan/Slices.h"
#include "runtime/plan/Text.h"
#include "runtime/plan/check/Defects.h"

#include <algorithm>
#include <optional>
#include <set>

namespace cleave::check {

namespace {

/// Checks one program, for its first rank.
class ProgramCheck {
public:
  ProgramCheck(const plan::Plan &plan, uint32_t index, std::optional<uint32_t> rankIndex, Defects &defects)
      : plan(plan), index(index),
        program(*plan.programs()->Get(index)), context{plan, program, index,
                                                       rankIndex ? plan.ranks()->Get(*rankIndex) : nullptr,
                                                       rankIndex.value_or(0)},
        defects(defects) {}

  void run() {
    size_t before = defects.count();
    slots();
    if (defects.count() != before)
      return;
    persistentApart();
    for (uint32_t s = 0; s < length(program.segments()); ++s)
      segment(s);
    if (defects.count() != before)
      return;
    actions(program.train(), "train");
    actions(program.eval(), "eval");
    names();
  }

private:
  const plan::Slot *slotAt(int64_t slot) const {
    return slot >= 0 && slot < length(program.slots()) ? program.slots()->Get(static_cast<uint32_t>(slot)) : nullptr;
  }

  void slots() {
    Rule rule(defects, "S1");
    for (uint32_t i = 0; i < length(program.slots()); ++i)
      slotSize(i, *program.slots()->Get(i));
  }

  void slotSize(uint32_t i, const plan::Slot &slot) {
    if (slot.bytes() < valueBytes(slot))
      defects.add("program {}, slot {}: its shape takes {} bytes, it has {}", index, i, valueBytes(slot), slot.bytes());
    if (slot.space() == plan::Space::Persistent) {
      if (slot.offset() % 64)
        defects.add("program {}, slot {}: offset {} is not a multiple of 64", index, i, slot.offset());
      if (slot.offset() > program.arena_bytes() || slot.bytes() > program.arena_bytes() - slot.offset())
        defects.add("program {}, slot {}: bytes {} to {} of an arena of {}", index, i, slot.offset(),
                    slot.offset() + slot.bytes(), program.arena_bytes());
    }
    if (slot.space() == plan::Space::Input && slot.tensor() < 0)
      defects.add("program {}, slot {}: an input slot without a tensor", index, i);
    sharding(i, slot);
  }

  static std::string nameOf(const plan::Tensor &tensor) { return text(tensor.name()); }

  /// A slot that is initialised from its tensor's shape must have exactly that shape.
  void whole(uint32_t i, const plan::Slot &slot) {
    if (slot.tensor() < 0 || slot.space() == plan::Space::Placed)
      return;
    const plan::Tensor *tensor = plan.tensors()->Get(static_cast<uint32_t>(slot.tensor()));
    bool same = length(tensor->shape()) == length(slot.shape());
    for (uint32_t d = 0; same && d < length(slot.shape()); ++d)
      same = tensor->shape()->Get(d) == slot.shape()->Get(d);
    if (!same)
      defects.add("program {}, slot {}: it is not split, and its shape is not that of {}", index, i, nameOf(*tensor));
  }

  void sharding(uint32_t i, const plan::Slot &slot) {
    Rule rule(defects, "S2");
    const plan::Sharding *sharding = slot.sharding();
    if (!sharding)
      return whole(i, slot);
    uint32_t split = 0; // mesh axes
    for (uint32_t d = 0; d < length(sharding->dims()); ++d) {
      const auto *factors = sharding->dims()->Get(d)->factors();
      int64_t all = 1;
      for (uint32_t f = 0; f < length(factors); ++f) {
        int64_t size = factors->Get(f)->size();
        if (!sane({all, size}))
          return defects.add("program {}, slot {}: a factor of {}", index, i, size);
        all *= std::max<int64_t>(1, size);
        for (uint32_t a = 0; a < length(factors->Get(f)->axes()); ++a) {
          uint32_t axis = factors->Get(f)->axes()->Get(a);
          if (split >> axis & 1)
            return defects.add("program {}, slot {}: mesh axis {} splits it twice", index, i, axis);
          split |= 1u << axis;
        }
      }
    }
    if (!context.rank || slot.tensor() < 0)
      return;
    const plan::Tensor *tensor = plan.tensors()->Get(static_cast<uint32_t>(slot.tensor()));
    std::vector<int64_t> global, local;
    if (tensor->shape())
      global.assign(tensor->shape()->begin(), tensor->shape()->end());
    if (slot.shape())
      local.assign(slot.shape()->begin(), slot.shape()->end());
    std::vector<uint32_t> coords(context.rank->coords()->begin(), context.rank->coords()->end());
    try {
      auto expected = localShape(sharding, global, meshSizes(plan), coords);
      if (expected != local)
        defects.add("program {}, slot {}: its sharding of {} gives [{}], its shape is [{}]", index, i, nameOf(*tensor),
                    fmt::join(expected, ", "), fmt::join(local, ", "));
    } catch (const Error &error) {
      defects.add("program {}, slot {}: {}", index, i, error.what());
    }
  }

  void persistentApart() {
    Rule rule(defects, "S3");
    std::vector<std::pair<uint64_t, uint32_t>> order;
    for (uint32_t i = 0; i < length(program.slots()); ++i)
      if (slotAt(i)->space() == plan::Space::Persistent && slotAt(i)->bytes())
        order.push_back({slotAt(i)->offset(), i});
    std::sort(order.begin(), order.end());
    for (size_t i = 1; i < order.size(); ++i)
      if (order[i - 1].first + slotAt(order[i - 1].second)->bytes() > order[i].first)
        defects.add("program {}: persistent slots {} and {} overlap at byte {}", index, order[i - 1].second,
                    order[i].second, order[i].first);
  }

  void segment(uint32_t s) {
    Rule rule(defects, "S4");
    const plan::Segment &segment = *program.segments()->Get(s);
    std::set<uint32_t> listed;
    for (uint32_t i = 0; i < length(segment.slots()); ++i) {
      uint32_t slot = segment.slots()->Get(i);
      if (slotAt(slot)->space() == plan::Space::Persistent)
        defects.add("program {}, segment {}: its slot list names slot {}, which is persistent", index, s, slot);
      else if (!listed.insert(slot).second)
        defects.add("program {}, segment {}: slot {} is listed twice", index, s, slot);
    }
    for (uint32_t i = 0; i < length(segment.steps()) && !defects.full(); ++i) {
      const plan::Step &step = *segment.steps()->Get(i);
      const steps::Defect found = stepProblem(step, listed);
      Rule broken(defects, found.rule);
      if (!found.text.empty())
        defects.add("{}: {}", placeOf(index, program, s, i), found.text);
    }
  }

  steps::Defect stepProblem(const plan::Step &step, const std::set<uint32_t> &listed) const {
    steps::Defect found = steps::problem(step, context);
    if (!found.text.empty())
      return found;
    found.rule = "S8";
    forEachAccess(
        step, program,
        [&](const Access &access) {
          if (found.text.empty())
            found.text = accessProblem(access, listed);
        },
        &plan);
    return found.text.empty() ? steps::placedProblem(step, context) : found;
  }

  std::string accessProblem(const Access &access, const std::set<uint32_t> &listed) const {
    const plan::Slot &slot = *slotAt(access.slot);
    if (slot.space() != plan::Space::Persistent && !listed.count(access.slot))
      return fmt::format("slot {} is not in the segment's list", access.slot);
    if (access.begin > slot.bytes() || access.bytes > slot.bytes() - access.begin)
      return fmt::format("bytes {} to {} of slot {}, which has {}", access.begin, access.begin + access.bytes,
                         access.slot, slot.bytes());
    if (slot.space() == plan::Space::Input && access.kind == Access::Write)
      return fmt::format("writes input slot {}", access.slot);
    if (access.kind == Access::Write && access.twice)
      return fmt::format("a view that writes elements of slot {} twice", access.slot);
    return "";
  }

  void actions(const flatbuffers::Vector<flatbuffers::Offset<plan::Action>> *list, const char *entry) {
    Rule rule(defects, "S9");
    std::set<std::pair<uint32_t, uint32_t>> seen; // each (segment, layout) pair is checked once
    for (uint32_t i = 0; i < length(list) && !defects.full(); ++i) {
      const plan::Action &action = *list->Get(i);
      if (action.microbatch() < 0 && readsInputs(*program.segments()->Get(action.segment())))
        defects.add("program {}, {} action {}: it reads inputs of no microbatch", index, entry, i);
      if (seen.insert({action.segment(), action.layout()}).second)
        layout(action, fmt::format("program {}, {} action {}", index, entry, i));
    }
  }

  bool readsInputs(const plan::Segment &segment) const {
    for (uint32_t i = 0; i < length(segment.slots()); ++i)
      if (slotAt(segment.slots()->Get(i))->space() == plan::Space::Input)
        return true;
    return false;
  }

  void layout(const plan::Action &action, const std::string &place) {
    Rule rule(defects, "S10");
    const plan::Segment &segment = *program.segments()->Get(action.segment());
    const plan::Layout &layout = *program.layouts()->Get(action.layout());
    if (length(layout.offsets()) != length(segment.slots()))
      return defects.add("{}: layout {} places {} slots, segment {} has {}", place, action.layout(),
                         length(layout.offsets()), action.segment(), length(segment.slots()));
    for (uint32_t i = 0; i < length(segment.slots()); ++i) {
      const plan::Slot &slot = *slotAt(segment.slots()->Get(i));
      uint64_t offset = layout.offsets()->Get(i),
               room = slot.space() == plan::Space::Input ? program.input_bytes() : program.arena_bytes();
      if (offset % 64 || offset > room || slot.bytes() > room - offset)
        defects.add("{}: slot {} of {} bytes at offset {} of {}", place, segment.slots()->Get(i), slot.bytes(), offset,
                    room);
    }
  }

  const plan::Tensor *tensorOf(const plan::Slot &slot) const {
    return slot.tensor() < 0 ? nullptr : plan.tensors()->Get(static_cast<uint32_t>(slot.tensor()));
  }

  /// Every slot of a kind of tensor must be in the list by which the host finds it.
  void listed(plan::TensorKind kind, const flatbuffers::Vector<flatbuffers::Offset<plan::NamedSlot>> *list,
              const char *what) {
    std::set<uint32_t> slots;
    for (uint32_t i = 0; i < length(list); ++i)
      slots.insert(list->Get(i)->slot());
    for (uint32_t i = 0; i < length(program.slots()); ++i)
      if (const plan::Tensor *tensor = tensorOf(*slotAt(i)); tensor && tensor->kind() == kind && !slots.count(i))
        defects.add("program {}: slot {} ({}) is a {}, and is not listed as one", index, i, nameOf(*tensor), what);
  }

  void names() {
    Rule rule(defects, "S11");
    auto scalar = [&](const flatbuffers::Vector<flatbuffers::Offset<plan::NamedSlot>> *list, const char *what) {
      for (uint32_t i = 0; i < length(list); ++i) {
        const plan::Slot *slot = slotAt(list->Get(i)->slot());
        if (!list->Get(i)->name())
          defects.add("program {}: {} {} has no name", index, what, i);
        if (slot->space() != plan::Space::Persistent || slot->dtype() != plan::DType::F32 || slot->bytes() < 4)
          defects.add("program {}: {} {} must be a persistent f32 slot, found slot {}", index, what, i,
                      list->Get(i)->slot());
        else if (const plan::Tensor *tensor = tensorOf(*slot);
                 tensor && list->Get(i)->name() && nameOf(*tensor) != list->Get(i)->name()->str())
          defects.add("program {}: {} '{}' is slot {}, which is {}", index, what, list->Get(i)->name()->str(),
                      list->Get(i)->slot(), nameOf(*tensor));
      }
    };
    scalar(program.scalars(), "scalar");
    scalar(program.metrics(), "metric");
    listed(plan::TensorKind::Scalar, program.scalars(), "scalar, which the host writes");
    listed(plan::TensorKind::Metric, program.metrics(), "metric, which the host reads");
    checkFields(plan, index, defects);
  }

  const plan::Plan &plan;
  uint32_t index;
  const plan::Program &program;
  steps::Context context;
  Defects &defects;
};

} // namespace

void checkStructure(const plan::Plan &plan, Defects &defects) {
  std::vector<std::optional<uint32_t>> first(length(plan.programs())); // first rank that runs the program
  for (uint32_t r = length(plan.ranks()); r-- > 0;)
    first[plan.ranks()->Get(r)->program()] = r;
  for (uint32_t p = 0; p < first.size() && !defects.full(); ++p)
    ProgramCheck(plan, p, first[p], defects).run();
}

} // namespace cleave::check
