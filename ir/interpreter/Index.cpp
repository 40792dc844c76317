// Kernels of constants, indices, random numbers and lookups.
#include "ir/dist/Dist.h"
#include "ir/dist/Sharding.h"
#include "ir/graph/Graph.h"
#include "ir/interpreter/Executable.h"
#include "ir/interpreter/Philox.h"
#include "ir/interpreter/RankPort.h"
#include "ir/interpreter/Slices.h"
#include "runtime/base/Error.h"

#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;

namespace cleave::ir {

static Kernel constant(ConstantOp op) {
  HostTensor value = emptyTensor(op.getType());
  if (isa<FloatType>(op.getType().getElementType()))
    for (const APFloat &element : op.getValue().getValues<APFloat>())
      value.values.push_back(element.convertToDouble());
  else
    for (const APInt &element : op.getValue().getValues<APInt>())
      value.values.push_back(value.dtype == DType::I1 || value.dtype == DType::U8 ? double(element.getZExtValue())
                                                                                  : double(element.getSExtValue()));
  return [value](const Operands &, Environment &) { return one(value); };
}

static Kernel iota(IotaOp op) {
  return [type = emptyTensor(op.getType()), dim = op.getDim()](const Operands &in, Environment &) {
    HostTensor out = type;
    int64_t count = elementCount(out.shape), stride = stridesOf(out.shape)[dim], size = out.shape[dim];
    double offset = in.empty() ? 0 : in[0]->values[0];
    for (int64_t i = 0; i < count; ++i)
      out.values.push_back(roundTo(out.dtype, i / stride % size + offset));
    return one(std::move(out));
  };
}

/// The stream of random numbers, and where in it the elements of a tensor with `elements` elements lie.
struct RandomPlaces {
  RandomPlaces(const Context &context, int64_t elements, bool shared)
      : context(context), elements(elements), stream(uint64_t(context.trainingStep)), shared(shared) {
    if (context.samples)
      stream = context.samples->stream;
  }
  uint64_t operator()(int64_t element) const {
    if (shared)
      return uint64_t(element);
    if (!context.samples)
      return uint64_t(context.microbatch * elements + element);
    const Context::Samples &s = *context.samples;
    const int64_t rows = s.rowsOfMicrobatch, begin = context.microbatch * rows;
    if (elements % rows) // no numbers of rows: new ones in each microbatch
      return uint64_t((s.first + begin) * (elements / rows + 1) + element);
    const int64_t each = elements / rows, sample = s.first + (begin + element / each) % s.count;
    return uint64_t(sample * each + element % each);
  }

  const Context &context;
  const int64_t elements;
  uint64_t stream;
  const bool shared; ///< by all samples
};

/// Random numbers depend on the global element index: each rank computes the numbers of the elements that it holds.
static Kernel randomUniform(RandomUniformOp op) {
  HostTensor type = emptyTensor(op.getType());
  std::vector<int64_t> global = type.shape;
  Sharding sharding = Sharding::replicated(global);
  auto shardings = op->getAttrOfType<ArrayAttr>(dist::attr::shardings);
  auto globals = op->getAttrOfType<ArrayAttr>(dist::attr::globals);
  if (shardings && globals) {
    global = cast<RankedTensorType>(cast<TypeAttr>(globals[0]).getValue()).getShape().vec();
    sharding = *Sharding::parse(cast<dist::ShardingAttr>(shardings[0]).getText().str());
    if (!sharding.resolve(global))
      throw Error(Status::Internal, "interpreter: random_uniform's sharding does not fit its global type");
  }
  std::optional<float> atLeast;
  if (op.getAtLeast())
    atLeast = static_cast<float>(op.getAtLeast()->convertToDouble());
  return [type, global, sharding, name = hashName(op.getName()), atLeast,
          shared = op.getShared()](const Operands &, Environment &environment) {
    const Context &context = environment.context;
    HostTensor out = type;
    out.values.resize(elementCount(out.shape));
    const RandomPlaces place(context, elementCount(global), shared);
    auto fill = [&](int64_t to, int64_t element) {
      const float number = philoxUniform(context.seed ^ name, place.stream, place(element));
      out.values[to] = atLeast ? number >= *atLeast : roundTo(out.dtype, number);
    };
    if (environment.rank)
      forEachElement(globalIndices(sharding, environment.rank->mesh(), environment.rank->coords()), global, fill);
    else
      for (int64_t i = 0; i < out.size(); ++i)
        fill(i, i);
    return one(std::move(out));
  };
}

// ---- lookups: an index outside the dimension reads zero and its gradient is dropped --------------------------------

/// Calls f(outer, j, inner, i) for every element i of `shape`, seen as [outer, shape[dim], inner].
template <typename F> static void around(const std::vector<int64_t> &shape, int64_t dim, F f) {
  int64_t inner = stridesOf(shape)[dim], count = elementCount(shape);
  for (int64_t i = 0; i < count; ++i)
    f(i / inner / shape[dim], i / inner % shape[dim], i % inner, i);
}

static Kernel gather(GatherOp op) {
  return [type = emptyTensor(op.getType()), dim = int64_t(op.getDim())](const Operands &in, Environment &) {
    HostTensor out = type;
    out.values.assign(elementCount(out.shape), 0);
    int64_t extent = in[0]->shape[dim], inner = stridesOf(out.shape)[dim];
    around(out.shape, dim, [&](int64_t o, int64_t, int64_t k, int64_t i) {
      int64_t j = in[1]->values[i];
      if (j >= 0 && j < extent)
        out.values[i] = in[0]->values[(o * extent + j) * inner + k];
    });
    return one(std::move(out));
  };
}

static Kernel scatterAdd(ScatterAddOp op) {
  return [type = emptyTensor(op.getType()), dim = int64_t(op.getDim())](const Operands &in, Environment &) {
    HostTensor out = type;
    out.values.assign(elementCount(out.shape), 0);
    int64_t extent = out.shape[dim], inner = stridesOf(out.shape)[dim];
    around(in[0]->shape, dim, [&](int64_t o, int64_t, int64_t k, int64_t i) {
      int64_t j = in[1]->values[i];
      if (j >= 0 && j < extent)
        out.values[(o * extent + j) * inner + k] += addend(in[0]->values[i]);
    });
    out.round();
    return one(std::move(out));
  };
}

static Kernel embedding(EmbeddingOp op) {
  return [type = emptyTensor(op.getType())](const Operands &in, Environment &) {
    HostTensor out = type;
    out.values.assign(elementCount(out.shape), 0);
    int64_t rows = in[0]->shape[0], width = in[0]->shape[1], start = in.size() > 2 ? in[2]->values[0] : 0;
    for (int64_t i = 0; i < in[1]->size(); ++i) {
      int64_t row = int64_t(in[1]->values[i]) - start;
      if (row >= 0 && row < rows)
        std::copy_n(in[0]->values.begin() + row * width, width, out.values.begin() + i * width);
    }
    return one(std::move(out));
  };
}

static Kernel embeddingGrad(EmbeddingGradOp op) {
  return [type = emptyTensor(op.getType())](const Operands &in, Environment &) {
    HostTensor out = type;
    out.values.assign(elementCount(out.shape), 0);
    int64_t rows = out.shape[0], width = out.shape[1], start = in.size() > 2 ? in[2]->values[0] : 0;
    for (int64_t i = 0; i < in[1]->size(); ++i) {
      int64_t row = int64_t(in[1]->values[i]) - start;
      if (row < 0 || row >= rows)
        continue;
      for (int64_t k = 0; k < width; ++k)
        out.values[row * width + k] += addend(in[0]->values[i * width + k]);
    }
    out.round();
    return one(std::move(out));
  };
}

Kernel indexKernel(Operation *op) {
  return llvm::TypeSwitch<Operation *, Kernel>(op)
      .Case([](ConstantOp op) { return constant(op); })
      .Case([](IotaOp op) { return iota(op); })
      .Case([](RandomUniformOp op) { return randomUniform(op); })
      .Case([](GatherOp op) { return gather(op); })
      .Case([](ScatterAddOp op) { return scatterAdd(op); })
      .Case([](EmbeddingOp op) { return embedding(op); })
      .Case([](EmbeddingGradOp op) { return embeddingGrad(op); })
      .Default([](Operation *) { return Kernel(); });
}

} // namespace cleave::ir
