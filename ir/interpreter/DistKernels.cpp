// Kernels of the distribution dialect's ops. A collective exchanges every member's tensor and reduces in member
// order.
#include "ir/dist/Dist.h"
#include "ir/interpreter/Executable.h"
#include "ir/interpreter/RankPort.h"
#include "runtime/base/Error.h"

#include "llvm/ADT/TypeSwitch.h"

#include <algorithm>

using namespace mlir;

namespace cleave::ir {

using Parts = std::vector<std::shared_ptr<const std::vector<HostTensor>>>;

static std::vector<std::string> namesOf(ArrayAttr axes) {
  std::vector<std::string> names;
  for (StringRef name : axes.getAsValueRange<StringAttr>())
    names.push_back(name.str());
  return names;
}

static std::string joined(const std::string &op, const std::vector<std::string> &axes, const std::string &more) {
  std::string text = op;
  for (const std::string &axis : axes)
    text += " " + axis;
  return text + " " + more;
}

static RankPort &portOf(Environment &environment) {
  if (!environment.rank)
    throw Error(Status::Internal, "interpreter: an op of the local phase in a function on global shapes");
  return *environment.rank;
}

/// Reduces tensor `index` of all members in member order, rounding once.
static HostTensor reduced(const Parts &parts, size_t index, PartialKind kind) {
  HostTensor out = (*parts[0])[index];
  for (size_t member = 1; member < parts.size(); ++member) {
    const HostTensor &other = (*parts[member])[index];
    if (other.shape != out.shape)
      throw Error(Status::Internal,
                  "distributed interpreter: members reduce " + typeText(out) + " and " + typeText(other));
    for (size_t i = 0; i < out.values.size(); ++i) {
      double value = other.values[i], &result = out.values[i];
      switch (kind) {
      case PartialKind::Sum:
        result += value;
        break;
      case PartialKind::Max:
        result = value > result || value != value ? value : result;
        break;
      case PartialKind::Min:
        result = value < result || value != value ? value : result;
        break;
      case PartialKind::Or:
        result = result != 0 || value != 0;
      }
    }
  }
  out.round();
  return out;
}

/// Slice [outer, from .. from + size, inner] of dimension `dim`.
static HostTensor sliced(const HostTensor &in, int64_t dim, int64_t from, int64_t size) {
  HostTensor out;
  out.dtype = in.dtype;
  out.shape = in.shape;
  out.shape[dim] = size;
  int64_t inner = stridesOf(in.shape)[dim], outer = elementCount({in.shape.begin(), in.shape.begin() + dim});
  for (int64_t o = 0; o < outer; ++o) {
    auto start = in.values.begin() + (o * in.shape[dim] + from) * inner;
    out.values.insert(out.values.end(), start, start + size * inner);
  }
  return out;
}

static Kernel allReduce(dist::AllReduceOp op) {
  auto stages = op.getStages();
  std::vector<int64_t> members;
  if (stages)
    members = stages->vec();
  return [axes = namesOf(op.getAxes()), kind = op.getReduction(), members,
          count = op.getInputs().size()](const Operands &in, Environment &environment) {
    std::vector<HostTensor> mine, results;
    std::string types;
    for (const HostTensor *input : in) {
      mine.push_back(*input);
      types += " " + typeText(*input);
    }
    Parts parts =
        portOf(environment)
            .exchange(axes, members, joined("all_reduce", axes, std::string(text(kind)) + types), std::move(mine));
    for (size_t i = 0; i < count; ++i)
      results.push_back(reduced(parts, i, kind));
    return results;
  };
}

static int64_t mineAmong(RankPort &port, const std::vector<std::string> &axes) {
  return port.mesh().linear(axes, port.coords());
}

static Error wrongShares(const std::string &op, size_t sizes, size_t members) {
  return Error(Status::Internal, "distributed interpreter: " + op + " with " + std::to_string(sizes) + " sizes for " +
                                     std::to_string(members) + " members");
}

static Kernel allGather(dist::AllGatherOp op) {
  return [type = emptyTensor(op.getResult().getType()), axes = namesOf(op.getAxes()), dim = int64_t(op.getDim()),
          sizes = op.getSizes().vec()](const Operands &in, Environment &environment) {
    Parts parts = portOf(environment).exchange(axes, {}, joined("all_gather", axes, typeText(type)), one(*in[0]));
    if (parts.size() != sizes.size())
      throw wrongShares("all_gather", sizes.size(), parts.size());
    HostTensor out = type;
    out.values.resize(elementCount(out.shape));
    int64_t inner = stridesOf(out.shape)[dim], outer = elementCount({out.shape.begin(), out.shape.begin() + dim}),
            at = 0;
    for (size_t member = 0; member < parts.size(); ++member) {
      const HostTensor &share = (*parts[member])[0];
      if (share.shape[dim] != sizes[member])
        throw Error(Status::Internal, "distributed interpreter: all_gather of a share of " +
                                          std::to_string(share.shape[dim]) + ", not " + std::to_string(sizes[member]));
      for (int64_t o = 0; o < outer; ++o)
        std::copy_n(share.values.begin() + o * sizes[member] * inner, sizes[member] * inner,
                    out.values.begin() + (o * out.shape[dim] + at) * inner);
      at += sizes[member];
    }
    return one(std::move(out));
  };
}

static Kernel reduceScatter(dist::ReduceScatterOp op) {
  return [axes = namesOf(op.getAxes()), dim = int64_t(op.getDim()), sizes = op.getSizes().vec(),
          kind = op.getReduction()](const Operands &in, Environment &environment) {
    RankPort &port = portOf(environment);
    Parts parts = port.exchange(
        axes, {}, joined("reduce_scatter", axes, std::string(text(kind)) + " " + typeText(*in[0])), one(*in[0]));
    if (parts.size() != sizes.size())
      throw wrongShares("reduce_scatter", sizes.size(), parts.size());
    int64_t mine = mineAmong(port, axes), from = 0;
    for (int64_t member = 0; member < mine; ++member)
      from += sizes[member];
    return one(sliced(reduced(parts, 0, kind), dim, from, sizes[mine]));
  };
}

static Kernel allToAll(dist::AllToAllOp op) {
  return [axes = namesOf(op.getAxes())](const Operands &in, Environment &environment) {
    RankPort &port = portOf(environment);
    Parts parts = port.exchange(axes, {}, joined("all_to_all", axes, typeText(*in[0])), one(*in[0]));
    const int64_t members = static_cast<int64_t>(parts.size()), mine = mineAmong(port, axes);
    if (in[0]->shape[0] != members)
      throw Error(Status::Internal, "distributed interpreter: all_to_all of " + typeText(*in[0]) + " among " +
                                        std::to_string(members) + " members");
    HostTensor out = *in[0];
    const int64_t block = stridesOf(out.shape)[0];
    for (int64_t member = 0; member < members; ++member)
      std::copy_n((*parts[member])[0].values.begin() + mine * block, block, out.values.begin() + member * block);
    return one(std::move(out));
  };
}

static Kernel shardOffset(dist::ShardOffsetOp op) {
  return [axes = namesOf(op.getAxes()), size = int64_t(op.getSize())](const Operands &, Environment &environment) {
    RankPort &port = portOf(environment);
    return one({{}, DType::I32, double(shareStart(size, port.mesh().size(axes), mineAmong(port, axes)))});
  };
}

static Kernel shardSlice(dist::ShardSliceOp op) {
  return [type = emptyTensor(op.getResult().getType()), axes = namesOf(op.getAxes()), dim = int64_t(op.getDim()),
          outer = int64_t(op.getOuter()), size = int64_t(op.getSize()),
          inner = int64_t(op.getInner())](const Operands &in, Environment &environment) {
    RankPort &port = portOf(environment);
    int64_t parts = port.mesh().size(axes), mine = mineAmong(port, axes);
    HostTensor open = *in[0];
    open.shape.erase(open.shape.begin() + dim);
    open.shape.insert(open.shape.begin() + dim, {outer, size, inner});
    HostTensor out = sliced(open, dim + 1, shareStart(size, parts, mine), shareSize(size, parts, mine));
    if (out.size() != elementCount(type.shape))
      throw Error(Status::Internal,
                  "distributed interpreter: shard_slice gives " + typeText(out) + " for " + typeText(type));
    out.shape = type.shape;
    return one(std::move(out));
  };
}

static Kernel send(dist::SendOp op) {
  return [stage = int64_t(op.getStage()), tag = int64_t(op.getTag())](const Operands &in, Environment &environment) {
    portOf(environment).send(stage, tag, *in[0]);
    return std::vector<HostTensor>{};
  };
}

static Kernel receive(dist::RecvOp op) {
  return [type = emptyTensor(op.getResult().getType()), stage = int64_t(op.getStage()),
          tag = int64_t(op.getTag())](const Operands &, Environment &environment) {
    HostTensor out = portOf(environment).receive(stage, tag);
    if (out.shape != type.shape || out.dtype != type.dtype)
      throw Error(Status::Internal, "distributed interpreter: tag " + std::to_string(tag) + " from stage " +
                                        std::to_string(stage) + " is " + typeText(out) + ", not " + typeText(type));
    return one(std::move(out));
  };
}

Kernel distKernel(Operation *op) {
  return llvm::TypeSwitch<Operation *, Kernel>(op)
      .Case([](dist::ReshardOp) { return [](const Operands &in, Environment &) { return one(*in[0]); }; })
      .Case([](dist::AllReduceOp op) { return allReduce(op); })
      .Case([](dist::AllGatherOp op) { return allGather(op); })
      .Case([](dist::ReduceScatterOp op) { return reduceScatter(op); })
      .Case([](dist::AllToAllOp op) { return allToAll(op); })
      .Case([](dist::ShardOffsetOp op) { return shardOffset(op); })
      .Case([](dist::ShardSliceOp op) { return shardSlice(op); })
      .Case([](dist::SendOp op) { return send(op); })
      .Case([](dist::RecvOp op) { return receive(op); })
      .Default([](Operation *) { return Kernel(); });
}

} // namespace cleave::ir
