// Reads the work of every kind of step from its sizes.
#include "partitioner/cost/Work.h"

#include "runtime/base/Flops.h"
#include "runtime/plan/CheckParts.h"
#include "runtime/plan/DTypes.h"
#include "runtime/plan/plan_generated.h"

namespace cleave::partitioner {

using check::length;

const char *workClassName(WorkClass kind) {
  static constexpr const char *names[workClassCount] = {"nothing", "product", "convolution", "attention", "elementwise",
                                                        "copy",    "lookup",  "pooling",     "random"};
  return names[static_cast<size_t>(kind)];
}

namespace {

double product(std::initializer_list<int64_t> sizes) {
  double all = 1;
  for (int64_t size : sizes)
    all *= static_cast<double>(size);
  return all;
}

Rate rateOf(const plan::Plan &plan, plan::DType type) {
  if (type == plan::DType::F16)
    return Rate::Fp16;
  if (type == plan::DType::BF16)
    return Rate::Bf16;
  const bool tf32 = plan.training() && plan.training()->precision() == plan::Precision::Tf32;
  return tf32 ? Rate::Tf32 : Rate::Fp32;
}

class WorkReader {
public:
  WorkReader(const plan::Plan &plan, const plan::Program &program, const plan::Step &step)
      : plan(plan), program(program), step(step) {}

  StepWork read() const {
    switch (step.op_type()) {
    case plan::StepOp::Matmul:
      return matmul(*step.op_as_Matmul());
    case plan::StepOp::Conv:
      return conv(*step.op_as_Conv());
    case plan::StepOp::Pool:
      return pool(*step.op_as_Pool());
    case plan::StepOp::Attention:
      return attention(*step.op_as_Attention());
    case plan::StepOp::Kernel:
      return moving(WorkClass::Stream, callBytes(*step.op_as_Kernel()));
    case plan::StepOp::KernelBatch:
      return batch(*step.op_as_KernelBatch());
    case plan::StepOp::Copy:
      return copy(*step.op_as_Copy());
    case plan::StepOp::Fill:
      return moving(WorkClass::Stream, slotBytes(step.op_as_Fill()->dst()));
    case plan::StepOp::Embedding:
      return lookup(*step.op_as_Embedding());
    case plan::StepOp::EmbeddingGrad:
      return scatter(*step.op_as_EmbeddingGrad());
    case plan::StepOp::Gather:
      return indexed(*step.op_as_Gather(), false);
    case plan::StepOp::ScatterAdd:
      return indexed(*step.op_as_ScatterAdd(), true);
    case plan::StepOp::Random:
      return moving(WorkClass::Random, slotBytes(step.op_as_Random()->out()));
    default:
      return {}; // communication (Collectives.h)
    }
  }

private:
  double slotBytes(uint32_t slot) const { return static_cast<double>(check::valueBytes(*program.slots()->Get(slot))); }
  plan::DType typeOf(uint32_t slot) const { return program.slots()->Get(slot)->dtype(); }

  static StepWork moving(WorkClass kind, double bytes) {
    StepWork work;
    work.kind = kind;
    work.bytes = bytes;
    return work;
  }

  /// Elements of an operand of a product: batch dimensions with stride 0 are shared.
  static double operandElements(const plan::View &view, const plan::Matmul &op, int64_t rows, int64_t columns) {
    double all = product({rows, columns});
    for (uint32_t d = 0; d < length(op.batch()); ++d)
      if (view.strides()->Get(d) != 0)
        all *= static_cast<double>(op.batch()->Get(d));
    return all;
  }

  StepWork matmul(const plan::Matmul &op) const {
    StepWork work;
    work.kind = WorkClass::Product;
    work.m = op.m(), work.n = op.n(), work.k = op.k();
    for (uint32_t d = 0; d < length(op.batch()); ++d)
      work.batch *= op.batch()->Get(d);
    work.flops = 2 * product({work.m, work.n, work.k, work.batch});
    work.rate = rateOf(plan, typeOf(op.a()->slot()));
    const auto bytes = [&](const plan::View &view, int64_t rows, int64_t columns) {
      return operandElements(view, op, rows, columns) * static_cast<double>(dtypeSize(typeOf(view.slot())));
    };
    const double result = bytes(*op.c(), op.m(), op.n());
    work.bytes = bytes(*op.a(), op.m(), op.k()) + bytes(*op.b(), op.k(), op.n()) + result * (op.accumulate() ? 2 : 1);
    if (op.aux())
      work.bytes += bytes(*op.aux(), op.m(), op.n());
    return work;
  }

  StepWork conv(const plan::Conv &op) const {
    StepWork work;
    work.kind = WorkClass::Convolution;
    work.batch = std::max<int64_t>(1, op.groups());
    const int64_t in = op.ic() / work.batch, out = op.oc() / work.batch, window = op.kh() * op.kw();
    work.flops = 2 * product({op.n(), op.oc(), op.oh(), op.ow(), in, window});
    switch (op.kind()) {
    case plan::ConvKind::Forward:
      work.m = op.n() * op.oh() * op.ow(), work.n = out, work.k = in * window;
      break;
    case plan::ConvKind::BackwardData: // with a stride, only a part of the window reaches each input element
      work.m = op.n() * op.ih() * op.iw(), work.n = in;
      work.k = std::max<int64_t>(1, out * window / std::max<int64_t>(1, op.stride_h() * op.stride_w()));
      break;
    case plan::ConvKind::BackwardWeights:
      work.m = out, work.n = in * window, work.k = op.n() * op.oh() * op.ow();
      break;
    }
    work.winograd = op.kh() == 3 && op.kw() == 3 && op.stride_h() == 1 && op.stride_w() == 1 && op.dilation_h() == 1 &&
                    op.dilation_w() == 1 && op.groups() <= 1;
    work.rate = rateOf(plan, typeOf(op.src()));
    work.bytes = slotBytes(op.src()) + slotBytes(op.weights()) + slotBytes(op.dst());
    if (op.accumulate())
      work.bytes += slotBytes(op.kind() == plan::ConvKind::BackwardWeights ? op.weights() : op.dst());
    return work;
  }

  StepWork pool(const plan::Pool &op) const {
    return moving(WorkClass::Pooling, slotBytes(op.src()) + slotBytes(op.dst()) +
                                          (op.workspace() >= 0 ? slotBytes(static_cast<uint32_t>(op.workspace())) : 0));
  }

  StepWork attention(const plan::Attention &op) const {
    StepWork work;
    work.kind = WorkClass::Attention;
    work.backward = op.kind() == plan::AttentionKind::Backward;
    work.flops = attentionFlops(op.batch(), op.heads(), op.rows(), op.keys(), op.width(), work.backward ? 5 : 2,
                                op.causal());
    work.m = op.rows(), work.n = op.keys(), work.k = op.width(), work.batch = op.batch() * op.heads();
    work.rate = rateOf(plan, op.dtype());
    const auto size = static_cast<double>(dtypeSize(op.dtype()));
    const double rows = product({op.batch(), op.heads(), op.rows(), op.width()}) * size,
                 keys = product({op.batch(), op.heads(), op.keys(), op.width()}) * size;
    work.bytes = work.backward ? 4 * rows + 4 * keys : 2 * rows + 2 * keys;
    work.scoreBytes = product({op.batch(), op.heads(), op.rows(), op.keys()}) * size;
    return work;
  }

  /// Bytes of every argument, counted once, as far as the kernel's code accesses it.
  double callBytes(const plan::Kernel &call) const {
    double bytes = 0;
    for (uint32_t i = 0; i < length(call.args()); ++i)
      bytes += static_cast<double>(check::argumentBytes(plan, call, i));
    return bytes;
  }

  StepWork batch(const plan::KernelBatch &op) const {
    double bytes = 0;
    for (uint32_t i = 0; i < length(op.calls()); ++i)
      bytes += callBytes(*op.calls()->Get(i));
    return moving(WorkClass::Stream, bytes);
  }

  StepWork copy(const plan::Copy &op) const {
    double elements = 1;
    for (uint32_t d = 0; d < length(op.shape()); ++d)
      elements *= static_cast<double>(op.shape()->Get(d));
    return moving(WorkClass::Copy, 2 * elements * static_cast<double>(dtypeSize(op.dtype())));
  }

  StepWork lookup(const plan::Embedding &op) const {
    return moving(WorkClass::Lookup, product({2, op.count(), op.width()}) * static_cast<double>(dtypeSize(op.dtype())));
  }

  /// The whole gradient of the table is written.
  StepWork scatter(const plan::EmbeddingGrad &op) const {
    const auto size = static_cast<double>(dtypeSize(op.dtype()));
    return moving(WorkClass::Lookup, (product({op.rows(), op.width()}) + product({op.count(), op.width()})) * size);
  }

  template <typename Op> StepWork indexed(const Op &op, bool adds) const {
    const auto size = static_cast<double>(dtypeSize(op.dtype()));
    const double picked = product({op.outer(), op.count(), op.inner()}),
                 all = product({op.outer(), op.extent(), op.inner()});
    return moving(WorkClass::Lookup, (adds ? all + picked : 2 * picked) * size + picked * 4);
  }

  const plan::Plan &plan;
  const plan::Program &program;
  const plan::Step &step;
};

} // namespace

StepWork workOf(const plan::Plan &plan, const plan::Program &program, const plan::Step &step) {
  return WorkReader(plan, program, step).read();
}

} // namespace cleave::partitioner
