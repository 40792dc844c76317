// Reshards as steps, steps as messages with their bytes.
#include "partitioner/sharding/Messages.h"

#include <algorithm>

namespace cleave::partitioner {

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
  const auto moves = [&](size_t d) { return !(scattered && scattered->dim == d) && from.dims[d] != to.dims[d]; };
  for (size_t d = 0; d < from.dims.size(); ++d)
    if (moves(d) && from.dims[d].split())
      steps.push_back({Kind::Gather, {}, {d}});
  for (size_t d = 0; d < from.dims.size(); ++d)
    if (moves(d) && to.dims[d].split())
      steps.push_back({Kind::Slice, {}, {d}});
  return steps;
}

int64_t Message::bytesSent() const { return (kind == Collective::AllReduce ? 2 : 1) * bytes * (members - 1) / members; }

namespace {

// The piece of the first rank, which has the largest share of everything, on its way from one sharding to another.
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
    if (mesh.size(factor.axes) == 1)
      return;
    elements = elements / share(factor) * factor.size;
    add(Collective::AllGather, factor.axes);
  }
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
      for (const Factor &factor : from.dims[step.place.dim].factors)
        piece.gather(factor);
      break;
    case ReshardStep::Kind::Slice:
      for (const Factor &factor : to.dims[step.place.dim].factors)
        piece.keepShare(factor);
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
