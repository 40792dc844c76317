// Reshards as steps, steps as messages with their bytes.
#include "partitioner/sharding/Messages.h"

#include <algorithm>
#include <ranges>

namespace cleave::partitioner {

namespace {

using Axes = std::vector<std::string>;

/// Cuts a factor of `dim` in two, so that a boundary between factors lies before the `inner` innermost elements, if
/// each rank then holds the same elements as before. This is possible for a factor that is not split, for one whose
/// shares are whole runs of the inner part, and for one that is split over two axes and cut between them.
void cutAt(const Mesh &mesh, DimSharding &dim, int64_t inner) {
  int64_t below = 1;
  for (size_t f = dim.factors.size(); f-- > 0; below *= dim.factors[f].size) {
    Factor &factor = dim.factors[f];
    if (inner <= below || inner >= below * factor.size)
      continue;
    const int64_t minor = inner / below, major = factor.size / minor;
    if (inner % below || factor.size % minor)
      return;
    size_t kept = factor.axes.size(); // axes of the major factor
    while (kept > 0 && major % mesh.size(Axes(factor.axes.begin(), factor.axes.begin() + kept)))
      --kept;
    const Axes majorAxes(factor.axes.begin(), factor.axes.begin() + kept),
        minorAxes(factor.axes.begin() + kept, factor.axes.end());
    const bool whole = minorAxes.empty() || (major == mesh.size(majorAxes) && minor % mesh.size(minorAxes) == 0);
    if (!whole)
      return;
    factor = {major, majorAxes};
    dim.factors.insert(dim.factors.begin() + static_cast<ptrdiff_t>(f) + 1, {minor, minorAxes});
    return;
  }
}

/// Cuts factors of `dim` at the factor boundaries of `other`, and between axes.
void refine(const Mesh &mesh, DimSharding &dim, const DimSharding &other) {
  for (size_t f = 0; f < dim.factors.size(); ++f)
    if (const Factor factor = dim.factors[f]; factor.axes.size() > 1) {
      int64_t below = 1;
      for (size_t g = f + 1; g < dim.factors.size(); ++g)
        below *= dim.factors[g].size;
      cutAt(mesh, dim, factor.size / mesh.size(factor.axes.front()) * below);
    }
  int64_t inner = 1;
  for (size_t f = other.factors.size(); f-- > 0; inner *= other.factors[f].size)
    cutAt(mesh, dim, inner);
}

bool sameSizes(const DimSharding &a, const DimSharding &b) {
  return std::ranges::equal(a.factors, b.factors, {}, &Factor::size, &Factor::size);
}

/// Rewrites both with the same factor sizes, if that is possible.
void refineBoth(const Mesh &mesh, DimSharding &from, DimSharding &to) {
  DimSharding finerFrom = from, finerTo = to;
  refine(mesh, finerFrom, to);
  refine(mesh, finerTo, finerFrom);
  refine(mesh, finerFrom, finerTo);
  if (sameSizes(finerFrom, finerTo))
    from = std::move(finerFrom), to = std::move(finerTo);
}

/// What a reshard does in one dimension.
struct DimMoves {
  DimSharding from, to;                 ///< refined
  bool aligned = true;                  ///< both have the same factor sizes
  std::vector<size_t> gathered, sliced; ///< factors of `from` that become whole, factors of `to` that become split
  DimSharding now;                      ///< the factors between two steps

  DimMoves(const Mesh &mesh, const DimSharding &before, const DimSharding &after) : from(before), to(after) {
    if (before == after)
      return;
    refineBoth(mesh, from, to);
    aligned = sameSizes(from, to);
    const auto stays = [&](size_t f) { return aligned && from.factors[f].axes == to.factors[f].axes; };
    for (size_t f = 0; f < from.factors.size(); ++f)
      if (!stays(f) && mesh.size(from.factors[f].axes) > 1)
        gathered.push_back(f);
    for (size_t f = 0; f < to.factors.size(); ++f)
      if (!stays(f) && mesh.size(to.factors[f].axes) > 1)
        sliced.push_back(f);
    now = from;
  }

  DimSharding gather(size_t f) {
    DimSharding split = now;
    now.factors[f].axes.clear();
    return split;
  }
  DimSharding slice(size_t f) {
    now.factors[f].axes = to.factors[f].axes;
    return now;
  }
};

/// Finds a factor of another dimension to which the split of factor `f` of dimension `d` moves; both have equal shares.
/// Removes the two from the lists of factors to gather and to slice.
std::optional<FactorPlace> movedTo(const Mesh &mesh, std::vector<DimMoves> &dims, size_t d, size_t f) {
  const Factor &split = dims[d].from.factors[f];
  const auto even = [&](const Factor &factor) { return factor.size % mesh.size(split.axes) == 0; };
  if (!dims[d].aligned || !even(split))
    return std::nullopt;
  for (size_t e = 0; e < dims.size(); ++e)
    for (const size_t g : dims[e].sliced)
      if (e != d && dims[e].aligned && dims[e].to.factors[g].axes == split.axes && even(dims[e].to.factors[g]) &&
          mesh.size(dims[e].from.factors[g].axes) == 1) {
        std::erase(dims[d].gathered, f);
        std::erase(dims[e].sliced, g);
        return FactorPlace{e, g};
      }
  return std::nullopt;
}

} // namespace

std::vector<ReshardStep> reshardSteps(const Mesh &mesh, const Sharding &from, const Sharding &to) {
  using Kind = ReshardStep::Kind;
  std::vector<ReshardStep> steps;
  std::optional<FactorPlace> scattered = scatterPlace(mesh, from, to);
  if (scattered) {
    steps.push_back({Kind::ReduceScatter, to.dims[scattered->dim].factors[scattered->factor].axes, *scattered});
  } else {
    std::vector<std::string> finished;
    for (const std::string &axis : from.partialAxes)
      if (std::find(to.partialAxes.begin(), to.partialAxes.end(), axis) == to.partialAxes.end())
        finished.push_back(axis);
    if (mesh.size(finished) > 1)
      steps.push_back({Kind::AllReduce, finished});
  }
  std::vector<DimMoves> dims;
  for (size_t d = 0; d < from.dims.size(); ++d) {
    const DimSharding &after = to.dims[d];
    dims.emplace_back(mesh, scattered && scattered->dim == d ? after : from.dims[d], after);
  }
  std::vector<std::pair<FactorPlace, FactorPlace>> moved;
  for (size_t d = 0; d < dims.size(); ++d)
    for (const size_t f : std::vector(dims[d].gathered))
      if (const auto place = movedTo(mesh, dims, d, f))
        moved.push_back({{d, f}, *place});
  for (size_t d = 0; d < dims.size(); ++d)
    for (const size_t f : dims[d].gathered)
      steps.push_back({Kind::Gather, {}, {d, f}, dims[d].gather(f)});
  for (const auto &[place, target] : moved) {
    const std::vector<std::string> axes = dims[place.dim].from.factors[place.factor].axes;
    DimSharding before = dims[place.dim].gather(place.factor), after = dims[target.dim].slice(target.factor);
    steps.push_back({Kind::AllToAll, axes, place, std::move(before), target, std::move(after)});
  }
  for (size_t d = 0; d < dims.size(); ++d) {
    DimMoves &dim = dims[d];
    if (!dim.aligned)
      dim.now = dim.to, std::ranges::for_each(dim.now.factors, [](Factor &factor) { factor.axes.clear(); });
    for (const size_t f : dim.sliced)
      steps.push_back({Kind::Slice, {}, {d, f}, dim.slice(f)});
  }
  return steps;
}

const char *text(Collective kind) {
  switch (kind) {
  case Collective::AllReduce:
    return "all-reduce";
  case Collective::ReduceScatter:
    return "reduce-scatter";
  case Collective::AllGather:
    return "all-gather";
  case Collective::AllToAll:
    return "all-to-all";
  }
  return "";
}

int64_t Message::bytesSent() const { return (kind == Collective::AllReduce ? 2 : 1) * bytes * (members - 1) / members; }

namespace {

// Follows the piece of the first rank, which has the largest shares, through a reshard and collects the messages.
class Piece {
public:
  Piece(const Mesh &mesh, const Sharding &sharding, int64_t elementBits) : mesh(mesh), elementBits(elementBits) {
    for (int64_t size : sharding.localShape(mesh, std::vector<int64_t>(mesh.axes.size())))
      elements *= size;
  }

  void sum(const std::vector<std::string> &axes) { add(Collective::AllReduce, axes); }
  void scatter(const Factor &factor) {
    add(Collective::ReduceScatter, factor.axes);
    keepShare(factor);
  }
  void gather(const Factor &factor) {
    elements = elements / share(factor) * factor.size;
    add(Collective::AllGather, factor.axes);
  }
  void move(const std::vector<std::string> &axes) { add(Collective::AllToAll, axes); }
  void keepShare(const Factor &factor) { elements = elements / factor.size * share(factor); }

  std::vector<Message> messages;

private:
  const Mesh &mesh;
  int64_t elementBits, elements = 1;

  int64_t share(const Factor &factor) const { return shareSize(factor.size, mesh.size(factor.axes), 0); }
  void add(Collective kind, const std::vector<std::string> &axes) {
    messages.push_back({kind, {}, mesh.size(axes), elements * std::max<int64_t>(elementBits / 8, 1)});
    for (const MeshAxis &axis : mesh.axes) // the mesh's order, without axes of one member
      if (axis.size > 1 && std::find(axes.begin(), axes.end(), axis.name) != axes.end())
        messages.back().axes.push_back(axis.name);
  }
};

} // namespace

std::vector<Message> messagesOf(const Mesh &mesh, const Sharding &from, const Sharding &to, int64_t elementBits) {
  Piece piece(mesh, from, elementBits);
  for (const ReshardStep &step : reshardSteps(mesh, from, to))
    switch (step.kind) {
    case ReshardStep::Kind::AllReduce:
      piece.sum(step.axes);
      break;
    case ReshardStep::Kind::ReduceScatter:
      piece.scatter(to.dims[step.place.dim].factors[step.place.factor]);
      break;
    case ReshardStep::Kind::Gather:
      piece.gather(step.dim.factors[step.place.factor]);
      break;
    case ReshardStep::Kind::AllToAll:
      piece.move(step.axes);
      break;
    case ReshardStep::Kind::Slice:
      piece.keepShare(step.dim.factors[step.place.factor]);
      break;
    }
  return std::move(piece.messages);
}

std::vector<SolutionMessage> messagesOf(const ShardingProblem &problem, const ShardingSolution &solution) {
  std::vector<SolutionMessage> all;
  const auto add = [&](TensorId tensor, const Sharding &from, const Sharding &to, OpId marks, bool once) {
    const ProblemOp *maker = problem.makerOf(tensor);
    const ProblemOp &at = problem.ops[marks].kind == OpKind::Return && maker ? *maker : problem.ops[marks];
    for (Message &message : messagesOf(problem.mesh, from, to, problem.tensors[tensor].elementBits))
      all.push_back({std::move(message), tensor, at.stage, at.backward, once});
  };
  for (OpId op : solution.order)
    if (solution.isReshard(op)) {
      const AddedOp &reshard = solution.addedOp(op);
      const TensorId from = reshard.operands[0], to = solution.resultOf(op);
      add(solution.origin(from, problem), solution.shardingOf(from), solution.shardingOf(to), reshard.marks, false);
    }
  const OpId last = solution.problemOps - 1;
  for (TensorId tensor : solution.operandsOf(last)) {
    Sharding whole = solution.shardingOf(tensor);
    whole.partialAxes.clear();
    add(solution.origin(tensor, problem), solution.shardingOf(tensor), whole, last, true);
  }
  return all;
}

} // namespace cleave::partitioner
