// Checks mesh, tensors, groups, and what differs between the ranks of a program. A program is checked once, for its
// first rank; for the others it suffices that their tables match the first's and that their parts of the tensors fit.
#include "runtime/base/Error.h"
#include "runtime/plan/DTypes.h"
#include "runtime/plan/Slices.h"
#include "runtime/plan/Text.h"
#include "runtime/plan/check/Defects.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

namespace cleave::check {

namespace {

uint64_t checkMesh(const plan::Plan &plan, Defects &defects) {
  Rule rule(defects, "T1");
  uint64_t ranks = 1;
  if (length(plan.mesh()) < 1 || length(plan.mesh()) > 16) {
    defects.add("a mesh has 1 to 16 axes, found {}", length(plan.mesh()));
    return 0;
  }
  for (uint32_t a = 0; a < length(plan.mesh()); ++a) {
    if (ranks > (1u << 20))
      defects.add("mesh axis {} has size {}", a, plan.mesh()->Get(a)->size());
    if (text(plan.mesh()->Get(a)->name()).empty())
      defects.add("mesh axis {} has no name", a);
    ranks *= plan.mesh()->Get(a)->size();
  }
  return ranks;
}

/// Checks the plan's backend and the target of its code.
void checkBackend(const plan::Plan &plan, Defects &defects) {
  static const std::set<std::string> cpu{"", "x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4"};
  const std::string backend = text(plan.backend()), target = text(plan.target());
  const bool cuda = backend == "cuda";
  if (!cuda && backend != "cpu")
    defects.add("backend '{}': must be cpu or cuda", backend);
  else if (cuda ? !target.empty() && target != "emulated" && !target.starts_with("sm_") : !cpu.count(target))
    defects.add("target '{}': is not a target of the {} backend", target, backend);
}

void checkTensors(const plan::Plan &plan, Defects &defects) {
  Rule rule(defects, "T2");
  for (uint32_t t = 0; t < length(plan.tensors()); ++t) {
    const plan::Tensor &tensor = *plan.tensors()->Get(t);
    if (tensor.kind() != plan::TensorKind::Activation && text(tensor.name()).empty()) // data and checkpoints use it
      defects.add("tensor {} has no name", t);
    if (tensor.parameter() >= 0 &&
        plan.tensors()->Get(static_cast<uint32_t>(tensor.parameter()))->kind() != plan::TensorKind::Parameter)
      defects.add("tensor {}: tensor {} is not a parameter", t, tensor.parameter());
  }
}

void checkGroupsOf(const plan::Plan &plan, uint32_t r, Defects &defects) {
  const plan::Rank &rank = *plan.ranks()->Get(r);
  for (uint32_t g = 0; g < length(rank.groups()); ++g) {
    uint32_t group = rank.groups()->Get(g);
    const auto *members = plan.groups()->Get(group)->ranks();
    if (!members || std::find(members->begin(), members->end(), r) == members->end())
      defects.add("rank {}: is not in its group {}", r, group);
  }
}

void checkRank(const plan::Plan &plan, const Mesh &mesh, uint32_t r, Defects &defects) {
  Rule rule(defects, "T3");
  const plan::Rank &rank = *plan.ranks()->Get(r);
  std::vector<int64_t> coords;
  for (uint32_t a = 0; a < length(rank.coords()); ++a)
    coords.push_back(rank.coords()->Get(a));
  bool inside = coords.size() == mesh.axes.size();
  for (uint32_t a = 0; inside && a < coords.size(); ++a)
    inside = coords[a] < mesh.axes[a].size;
  const int64_t number = inside ? mesh.rank(coords) : r;
  if (!inside)
    defects.add("rank {}: coordinates [{}] are outside the mesh", r, fmt::join(coords, ", "));
  else if (number != r)
    defects.add("rank {}: coordinates [{}] are those of rank {}", r, fmt::join(coords, ", "), number);
  checkGroupsOf(plan, r, defects);
  for (uint32_t p = 0; p < length(rank.peers()); ++p)
    if (rank.peers()->Get(p) == r)
      defects.add("rank {}: peer {} is the rank itself", r, p);
  const int64_t stage = inside ? mesh.coordinate(AxisRole::Pipeline, coords) : 0;
  if (const uint32_t found = plan.programs()->Get(rank.program())->stage(); inside && found != stage)
    defects.add("rank {}: its program is of stage {}, its coordinate on pp is {}", r, found, stage);
}

void checkMembers(const plan::Plan &plan, uint32_t g, Defects &defects);

void checkGroups(const plan::Plan &plan, Defects &defects) {
  Rule rule(defects, "T4");
  for (uint32_t g = 0; g < length(plan.groups()); ++g) {
    const auto *members = plan.groups()->Get(g)->ranks();
    std::set<uint32_t> distinct;
    for (uint32_t i = 0; i < length(members); ++i)
      if (!distinct.insert(members->Get(i)).second)
        defects.add("group {}: member {} is rank {}", g, i, members->Get(i));
    if (distinct.empty())
      defects.add("group {}: it is empty", g);
  }
  for (uint32_t g = 0; g < length(plan.groups()) && defects.count() == 0; ++g) {
    checkMembers(plan, g, defects);
  }
}

/// The mesh axes named by a group, in member order; nullopt if the name contains an unknown axis.
std::optional<std::vector<uint32_t>> namedAxes(const plan::Plan &plan, const std::string &name) {
  std::vector<uint32_t> axes;
  for (size_t begin = 0; begin <= name.size();) {
    const size_t end = std::min(name.find('+', begin), name.size());
    uint32_t a = 0;
    while (a < length(plan.mesh()) && text(plan.mesh()->Get(a)->name()) != name.substr(begin, end - begin))
      ++a;
    if (a == length(plan.mesh()) || std::find(axes.begin(), axes.end(), a) != axes.end())
      return std::nullopt;
    axes.push_back(a);
    begin = end + 1;
  }
  return axes;
}

/// The members of a group must differ only along its axes, be in the axes' order, and be complete; along pipeline
/// stages a subset of the coordinates is allowed.
void checkMembers(const plan::Plan &plan, uint32_t g, Defects &defects) {
  const plan::Group &group = *plan.groups()->Get(g);
  const auto axes = namedAxes(plan, text(group.axis()));
  if (!axes)
    return defects.add("group {}: '{}' names no axes of the mesh", g, text(group.axis()));
  uint64_t all = 1, last = 0;
  bool stages = false;
  for (uint32_t a : *axes) {
    all *= plan.mesh()->Get(a)->size();
    stages = stages || roleOf(text(plan.mesh()->Get(a)->name())) == AxisRole::Pipeline;
  }
  const auto *first = plan.ranks()->Get(group.ranks()->Get(0))->coords();
  for (uint32_t i = 0; i < length(group.ranks()); ++i) {
    const auto *coords = plan.ranks()->Get(group.ranks()->Get(i))->coords();
    uint64_t place = 0;
    for (uint32_t a : *axes)
      place = place * plan.mesh()->Get(a)->size() + coords->Get(a);
    for (uint32_t a = 0; a < coords->size(); ++a)
      if (coords->Get(a) != first->Get(a) && std::find(axes->begin(), axes->end(), a) == axes->end())
        return defects.add("group {}: its member rank {} differs along another axis than {}", g, group.ranks()->Get(i),
                           text(group.axis()));
    if (i && place <= last)
      return defects.add("group {}: its member rank {} is not in the order of {}", g, group.ranks()->Get(i),
                         text(group.axis()));
    last = place;
  }
  if (stages ? length(group.ranks()) > all : length(group.ranks()) != all)
    defects.add("group {}: {} members along {}, the mesh has {}", g, length(group.ranks()), text(group.axis()), all);
}

/// Each entry of a rank's scalars is the start of a share, which follows from the rank's coordinates.
void checkStarts(const plan::Plan &plan, Defects &defects) {
  Rule rule(defects, "T7");
  for (uint32_t r = 0; r < length(plan.ranks()); ++r) {
    const plan::Rank &rank = *plan.ranks()->Get(r);
    const auto *starts = plan.programs()->Get(rank.program())->starts();
    if (length(starts) != length(rank.scalars())) {
      defects.add("rank {}: {} scalars, but its program describes {}", r, length(rank.scalars()), length(starts));
      continue;
    }
    for (uint32_t s = 0; s < length(starts); ++s) {
      const plan::ShardStart &start = *starts->Get(s);
      int64_t parts = 1, part = 0;
      bool sound = sane({start.size(), start.scale()});
      for (uint32_t a = 0; sound && a < length(start.axes()); ++a) {
        const int64_t size = plan.mesh()->Get(start.axes()->Get(a))->size();
        parts *= size;
        part = part * size + rank.coords()->Get(start.axes()->Get(a));
        sound = parts <= int64_t{length(plan.ranks())};
      }
      if (!sound)
        return defects.add("rank {}: scalar {} is a share of {} times {}", r, s, start.size(), start.scale());
      if (const int64_t wanted = splitPart(start.size(), parts, part).begin * start.scale();
          wanted != rank.scalars()->Get(s))
        defects.add("rank {}: scalar {} is {}, but its coordinates give {}", r, s, rank.scalars()->Get(s), wanted);
    }
  }
}

/// The parts of a program that depend on the rank, each once.
class RankCheck {
public:
  RankCheck(const plan::Plan &plan, uint32_t first, const std::vector<uint32_t> &axes, Defects &defects)
      : plan(plan), program(*plan.programs()->Get(plan.ranks()->Get(first)->program())), first(first), axes(axes),
        mesh(meshSizes(plan)), defects(defects) {
    for (uint32_t i = 0; i < length(program.slots()); ++i)
      addSlot(i);
    for (uint32_t s = 0; s < length(program.segments()); ++s)
      for (uint32_t i = 0; i < length(program.segments()->Get(s)->steps()); ++i) {
        const plan::Step &step = *program.segments()->Get(s)->steps()->Get(i);
        if (const auto *op = step.op_as_Random())
          addShape(op->out(), op->shape(), false);
        if (const auto *op = step.op_as_Collective())
          addShares(*op);
      }
  }

  void check(uint32_t r) {
    const plan::Rank &rank = *plan.ranks()->Get(r), &like = *plan.ranks()->Get(first);
    std::vector<uint32_t> lengths = lengthsOf(rank), wanted = lengthsOf(like);
    if (lengths != wanted)
      return defects.add(
          "rank {}: it has [{}] groups, peers and scalars, rank {}, which runs the same program, has [{}]", r,
          fmt::join(lengths, ", "), first, fmt::join(wanted, ", "));
    for (uint32_t g = 0; g < length(rank.groups()); ++g) {
      uint32_t mine = rank.groups()->Get(g), theirs = like.groups()->Get(g);
      uint32_t members = length(plan.groups()->Get(mine)->ranks());
      if (members != length(plan.groups()->Get(theirs)->ranks()) || axes[mine] != axes[theirs])
        return defects.add("rank {}: its group {} ({} members) is not along the axes of rank {}'s, which runs the same "
                           "program",
                           r, g, members, first);
    }
    checkShapes(r, rank);
    checkShares(r, rank);
  }

private:
  struct Shape {
    uint32_t slot;
    std::vector<int64_t> global;
    bool exact; ///< the slot must have exactly this shape; otherwise it only must be large enough
  };
  struct Share {
    uint32_t slot, group;
    const flatbuffers::Vector<int64_t> *sizes;
    uint64_t unitBytes;
  };

  static std::vector<uint32_t> lengthsOf(const plan::Rank &rank) {
    return {length(rank.groups()), length(rank.peers()), length(rank.scalars())};
  }

  const plan::Slot &slotAt(uint32_t slot) const { return *program.slots()->Get(slot); }

  void addSlot(uint32_t i) {
    if (slotAt(i).tensor() >= 0)
      addShape(i, plan.tensors()->Get(static_cast<uint32_t>(slotAt(i).tensor()))->shape(), true);
  }

  void addShape(uint32_t slot, const flatbuffers::Vector<int64_t> *global, bool exact) {
    const plan::Sharding *sharding = slotAt(slot).sharding();
    if (!sharding)
      return; // equal on all ranks
    Shape shape{slot, {}, exact};
    if (global)
      shape.global.assign(global->begin(), global->end());
    std::vector<int64_t> key{exact, static_cast<int64_t>(slotAt(slot).bytes()), int64_t{length(slotAt(slot).shape())}};
    for (uint32_t d = 0; d < length(slotAt(slot).shape()); ++d)
      key.push_back(slotAt(slot).shape()->Get(d));
    key.insert(key.end(), shape.global.begin(), shape.global.end());
    for (uint32_t d = 0; d < length(sharding->dims()); ++d) {
      const auto *factors = sharding->dims()->Get(d)->factors();
      key.push_back(-1 - int64_t{length(factors)});
      for (uint32_t f = 0; f < length(factors); ++f) {
        key.push_back(factors->Get(f)->size());
        key.push_back(length(factors->Get(f)->axes()));
        for (uint32_t a = 0; a < length(factors->Get(f)->axes()); ++a)
          key.push_back(factors->Get(f)->axes()->Get(a));
      }
    }
    if (known.insert(std::move(key)).second)
      shapes.push_back(std::move(shape));
  }

  void addShares(const plan::Collective &op) {
    bool gather = op.kind() == plan::CollectiveKind::AllGather;
    if (!gather && op.kind() != plan::CollectiveKind::ReduceScatter)
      return;
    for (uint32_t i = 0; i < length(op.buffers()); ++i) {
      const plan::CollectiveBuffer &b = *op.buffers()->Get(i);
      shares.push_back({gather ? b.in() : b.out(), op.group(), b.sizes(),
                        static_cast<uint64_t>(b.outer() * b.inner()) * dtypeSize(op.dtype())});
    }
  }

  void checkShapes(uint32_t r, const plan::Rank &rank) {
    std::vector<uint32_t> coords(rank.coords()->begin(), rank.coords()->end());
    for (const Shape &shape : shapes) {
      const plan::Slot &slot = slotAt(shape.slot);
      std::vector<int64_t> local = localShape(slot.sharding(), shape.global, mesh, coords), mine;
      uint64_t bytes = dtypeSize(slot.dtype());
      for (int64_t size : local)
        bytes *= static_cast<uint64_t>(size);
      if (slot.shape())
        mine.assign(slot.shape()->begin(), slot.shape()->end());
      if (shape.exact ? local != mine : bytes > slot.bytes())
        defects.add("rank {}: slot {} of its program is [{}], but its coordinates give [{}]", r, shape.slot,
                    fmt::join(mine, ", "), fmt::join(local, ", "));
    }
  }

  void checkShares(uint32_t r, const plan::Rank &rank) {
    for (const Share &share : shares) {
      const auto *members = plan.groups()->Get(rank.groups()->Get(share.group))->ranks();
      auto me = static_cast<uint32_t>(std::find(members->begin(), members->end(), r) - members->begin());
      uint64_t bytes = static_cast<uint64_t>(share.sizes->Get(me)) * share.unitBytes;
      if (bytes > slotAt(share.slot).bytes())
        defects.add("rank {}: a share of {} bytes in slot {} of {}", r, bytes, share.slot, slotAt(share.slot).bytes());
    }
  }

  const plan::Plan &plan;
  const plan::Program &program;
  uint32_t first;
  const std::vector<uint32_t> &axes; ///< per group
  std::vector<uint32_t> mesh;
  Defects &defects;
  std::set<std::vector<int64_t>> known;
  std::vector<Shape> shapes;
  std::vector<Share> shares;
};

} // namespace

std::vector<uint32_t> groupAxes(const plan::Plan &plan) {
  std::vector<uint32_t> list(length(plan.groups()));
  for (uint32_t g = 0; g < list.size(); ++g) {
    const auto *members = plan.groups()->Get(g)->ranks();
    const auto *first = plan.ranks()->Get(members->Get(0))->coords();
    for (uint32_t rank : *members)
      for (uint32_t a = 0; a < first->size(); ++a)
        if (plan.ranks()->Get(rank)->coords()->Get(a) != first->Get(a))
          list[g] |= 1u << a;
  }
  return list;
}

void checkTables(const plan::Plan &plan, Defects &defects) {
  Rule rule(defects, "T1");
  uint64_t ranks = checkMesh(plan, defects);
  if (defects.count())
    return;
  if (ranks != length(plan.ranks()) || ranks == 0)
    return defects.add("the mesh has {} ranks, the plan {}", ranks, length(plan.ranks()));
  if (plan.eval_batch() % std::max(1u, plan.microbatches()))
    defects.add("a batch of {} rows for evaluation is not cut into {} microbatches", plan.eval_batch(),
                plan.microbatches());
  checkBackend(plan, defects);
  checkTensors(plan, defects);
  const Mesh mesh = meshOf(plan);
  for (uint32_t r = 0; r < length(plan.ranks()); ++r)
    checkRank(plan, mesh, r, defects);
  checkGroups(plan, defects);
  checkKernels(plan, defects);
  checkChoices(plan, defects);
}

void checkRanks(const plan::Plan &plan, Defects &defects) {
  Rule rule(defects, "R1");
  const std::vector<uint32_t> axes = groupAxes(plan);
  std::map<uint32_t, RankCheck> checks;
  for (uint32_t r = 0; r < length(plan.ranks()) && !defects.full(); ++r) {
    auto [check, fresh] = checks.try_emplace(plan.ranks()->Get(r)->program(), plan, r, axes, defects);
    if (!fresh)
      check->second.check(r);
  }
  checkStarts(plan, defects);
}

} // namespace cleave::check
