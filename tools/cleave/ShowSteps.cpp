// The listing of `cleave show --steps`: what every program does, step by step.
#include "runtime/plan/Backend.h"
#include "runtime/plan/DTypes.h"
#include "runtime/plan/plan_generated.h"
#include "runtime/session/Progress.h"
#include "tools/cleave/Commands.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <iterator>
#include <map>
#include <vector>

namespace cleave::tool {
namespace {

using Out = std::back_insert_iterator<std::string>;

std::string text(const flatbuffers::String *value) { return value ? value->str() : std::string(); }

/// Shape as "[4, 8]".
std::string shapeText(const flatbuffers::Vector<int64_t> *shape) {
  std::vector<int64_t> sizes;
  if (shape)
    sizes.assign(shape->begin(), shape->end());
  return fmt::format("[{}]", fmt::join(sizes, ", "));
}

/// "%3" and, if it is not 0, the byte offset of the view.
std::string viewText(const plan::View *view) {
  if (!view)
    return "-";
  return view->offset() ? fmt::format("%{}+{}", view->slot(), view->offset()) : fmt::format("%{}", view->slot());
}

std::string argumentsText(const plan::Kernel &kernel) {
  std::string args;
  for (uint32_t i = 0; kernel.args() && i < kernel.args()->size(); ++i)
    args += (i ? ", " : "") + fmt::format("%{}", kernel.args()->Get(i));
  return args;
}

std::string launchText(const plan::KernelInfo &info, uint64_t blocks) {
  return fmt::format("{} blocks of {} threads, {} registers, {} bytes shared{}", blocks, info.threads(),
                     info.registers(), info.shared_bytes(),
                     info.spill_bytes() ? fmt::format(", {} bytes spilled", info.spill_bytes()) : "");
}

std::string kernelText(const plan::Plan &plan, const plan::Kernel &kernel) {
  const plan::KernelInfo &info = *plan.kernels()->Get(kernel.kernel());
  const std::string ops = text(info.ops());
  const std::string launch = info.threads() ? launchText(info, kernel.blocks())
                                            : fmt::format("over {} by {}", kernel.extent(), kernel.grain());
  return fmt::format("kernel {}({}) {}{}", text(info.symbol()), argumentsText(kernel), launch,
                     ops.empty() ? "" : "  ; " + ops);
}

/// The calls follow on separate lines (printSegment).
std::string batchText(const plan::Plan &plan, const plan::KernelBatch &batch) {
  const plan::KernelInfo &info = *plan.kernels()->Get(batch.calls()->Get(0)->kernel());
  uint64_t blocks = 0;
  for (const plan::Kernel *call : *batch.calls())
    blocks += call->blocks();
  const std::string ops = text(info.ops());
  return fmt::format("kernel {} of {} calls, {}{}", text(info.symbol()), batch.calls()->size(),
                     launchText(info, blocks), ops.empty() ? "" : "  ; " + ops);
}

std::string collectiveText(const plan::Collective &collective) {
  std::string buffers;
  for (uint32_t i = 0; collective.buffers() && i < collective.buffers()->size(); ++i) {
    const plan::CollectiveBuffer &buffer = *collective.buffers()->Get(i);
    buffers += fmt::format("{}%{} -> %{}", i ? ", " : "", buffer.in(), buffer.out());
  }
  return fmt::format("{} group {} {} {} {}", plan::EnumNameCollectiveKind(collective.kind()), collective.group(),
                     plan::EnumNameReduceKind(collective.reduce()), dtypeName(collective.dtype()), buffers);
}

std::string epilogueText(const plan::Matmul &op) {
  if (op.epilogue() == plan::Epilogue::None)
    return "";
  const char *direction = op.epilogue() == plan::Epilogue::Gelu ? " aux -> " : " aux ";
  return fmt::format(" epilogue {}{}", plan::EnumNameEpilogue(op.epilogue()),
                     op.aux() ? direction + viewText(op.aux()) : "");
}

std::string attentionText(const plan::Attention &op) {
  const bool forward = op.kind() == plan::AttentionKind::Forward;
  const std::string inputs = fmt::format("{} {} {}", viewText(op.q()), viewText(op.k()), viewText(op.v()));
  return fmt::format("attention {} {}{} -> {} {}x{} rows {} keys {} width {}{}", plan::EnumNameAttentionKind(op.kind()),
                     inputs, forward ? "" : " " + viewText(op.dout()),
                     forward ? viewText(op.out())
                             : fmt::format("{} {} {}", viewText(op.dq()), viewText(op.dk()), viewText(op.dv())),
                     op.batch(), op.heads(), op.rows(), op.keys(), op.width(), op.causal() ? " causal" : "");
}

std::string opText(const plan::Plan &plan, const plan::Step &step) {
  if (const auto *op = step.op_as_Matmul())
    return fmt::format("matmul {} x {} {}{} m {} n {} k {}{}{}", viewText(op->a()), viewText(op->b()),
                       op->accumulate() ? "+> " : "-> ", viewText(op->c()), op->m(), op->n(), op->k(),
                       op->batch() && op->batch()->size() ? " batch " + shapeText(op->batch()) : "",
                       op->bias() >= 0 ? fmt::format(" bias %{}", op->bias()) : "") +
           epilogueText(*op) + (op->row_sums() >= 0 ? fmt::format(" row sums -> %{}", op->row_sums()) : "");
  if (const auto *op = step.op_as_Conv())
    return fmt::format(
        "conv {} src %{} weights %{} dst %{} {}x{}x{}x{} -> {}x{}x{} kernel {}x{}{}{}",
        plan::EnumNameConvKind(op->kind()), op->src(), op->weights(), op->dst(), op->n(), op->ic(), op->ih(), op->iw(),
        op->oc(), op->oh(), op->ow(), op->kh(), op->kw(), op->bias() >= 0 ? fmt::format(" bias %{}", op->bias()) : "",
        op->epilogue() == plan::Epilogue::None ? ""
                                               : fmt::format(" epilogue {}", plan::EnumNameEpilogue(op->epilogue())));
  if (const auto *op = step.op_as_Pool())
    return fmt::format("pool {} src %{} dst %{} {}x{}x{}x{} -> {}x{} window {}x{}", plan::EnumNamePoolKind(op->kind()),
                       op->src(), op->dst(), op->n(), op->c(), op->ih(), op->iw(), op->oh(), op->ow(), op->kh(),
                       op->kw());
  if (const auto *op = step.op_as_Attention())
    return attentionText(*op);
  if (const auto *op = step.op_as_Kernel())
    return kernelText(plan, *op);
  if (const auto *op = step.op_as_KernelBatch())
    return batchText(plan, *op);
  if (const auto *op = step.op_as_Copy())
    return fmt::format("copy {} -> {} {}", viewText(op->src()), viewText(op->dst()), shapeText(op->shape()));
  if (const auto *op = step.op_as_Fill())
    return fmt::format("fill %{} with {}", op->dst(), op->value());
  if (const auto *op = step.op_as_Embedding())
    return fmt::format("embedding %{} of %{} -> %{}", op->ids(), op->table(), op->out());
  if (const auto *op = step.op_as_EmbeddingGrad())
    return fmt::format("embedding gradient %{} by %{} -> %{}", op->grad(), op->ids(), op->dtable());
  if (const auto *op = step.op_as_Gather())
    return fmt::format("gather %{} at %{} -> %{}", op->src(), op->index(), op->out());
  if (const auto *op = step.op_as_ScatterAdd())
    return fmt::format("scatter-add %{} at %{} -> %{}", op->src(), op->index(), op->out());
  if (const auto *op = step.op_as_Random())
    return fmt::format("random -> %{}", op->out());
  if (const auto *op = step.op_as_Collective())
    return collectiveText(*op);
  if (const auto *op = step.op_as_Send())
    return fmt::format("send %{} ({} bytes) to peer {} tag {}", op->slot(), op->bytes(), op->peer(), op->tag());
  if (const auto *op = step.op_as_Recv())
    return fmt::format("recv %{} ({} bytes) from peer {} tag {}", op->slot(), op->bytes(), op->peer(), op->tag());
  return plan::EnumNameStepOp(step.op_type());
}

/// The library that runs a step on a GPU.
std::string libraryOf(const plan::Plan &plan, const plan::Step &step) {
  if (backendOf(plan) != Target::Kind::Cuda)
    return "";
  switch (step.op_type()) {
  case plan::StepOp::Matmul:
    return "cublasLt ";
  case plan::StepOp::Conv:
  case plan::StepOp::Attention:
    return "cudnn ";
  case plan::StepOp::Collective:
  case plan::StepOp::Send:
  case plan::StepOp::Recv:
    return fmt::format("nccl stream {} ", step.stream());
  default:
    return "";
  }
}

void printSlots(const plan::Plan &plan, const plan::Program &program, Out out) {
  for (uint32_t i = 0; program.slots() && i < program.slots()->size(); ++i) {
    const plan::Slot &slot = *program.slots()->Get(i);
    const std::string tensor = slot.tensor() >= 0 ? text(plan.tensors()->Get(uint32_t(slot.tensor()))->name()) : "";
    const std::string where = slot.space() == plan::Space::Persistent ? fmt::format("at {}", slot.offset())
                                                                      : plan::EnumNameSpace(slot.space());
    fmt::format_to(out, "  %{:<4} {:<5} {:<22} {:>11} bytes  {:<12} {}{}{}\n", i, dtypeName(slot.dtype()),
                   shapeText(slot.shape()), grouped(int64_t(slot.bytes())), where, text(slot.name()),
                   tensor.empty() ? "" : " = " + tensor + " ",
                   tensor.empty() ? "" : shardingText(plan, slot.sharding()));
  }
}

void printSegment(const plan::Plan &plan, const plan::Segment &segment, uint32_t index, Out out) {
  fmt::format_to(out, "\n  segment {} {} {}\n", index, plan::EnumNameSegmentKind(segment.kind()), text(segment.name()));
  for (uint32_t i = 0; segment.steps() && i < segment.steps()->size(); ++i) {
    const plan::Step &step = *segment.steps()->Get(i);
    const std::string path = text(plan.strings()->Get(step.path())), place = text(plan.strings()->Get(step.location()));
    std::string line = fmt::format("    {:>4}  {:<72}  {}{}", i, libraryOf(plan, step) + opText(plan, step), path,
                                   place.empty() ? "" : "  " + place);
    line.erase(line.find_last_not_of(' ') + 1);
    fmt::format_to(out, "{}\n", line);
    if (const auto *batch = step.op_as_KernelBatch())
      for (const plan::Kernel *call : *batch->calls())
        fmt::format_to(out, "          ({}) {} blocks\n", argumentsText(*call), call->blocks());
  }
}

void printActions(const plan::Program &program, const flatbuffers::Vector<flatbuffers::Offset<plan::Action>> *actions,
                  const char *name, Out out) {
  if (!actions || actions->size() == 0)
    return;
  const auto nameOf = [&](const plan::Action &action) {
    return fmt::format("{}({})", text(program.segments()->Get(action.segment())->name()), action.microbatch());
  };
  std::string line = fmt::format("\n  {}:", name);
  for (const plan::Action *action : *actions) {
    const std::string word = " " + nameOf(*action);
    if (line.size() + word.size() > 118) {
      fmt::format_to(out, "{}\n", line);
      line = "    ";
    }
    line += word;
  }
  fmt::format_to(out, "{}\n", line);
  // Print the waits between streams. Steps without a wait may overlap.
  for (const plan::Action *action : *actions)
    for (uint32_t i = 0; action->waits() && i < action->waits()->size(); ++i) {
      const plan::Wait &wait = *action->waits()->Get(i);
      fmt::format_to(out, "    {} step {} waits for {} step {}\n", nameOf(*action), wait.step(),
                     nameOf(*actions->Get(wait.on_action())), wait.on_step());
    }
}

} // namespace

std::string showSteps(const plan::Plan &plan) {
  std::string page;
  const Out out(page);
  std::map<uint32_t, std::vector<uint32_t>> users;
  for (uint32_t rank = 0; rank < plan.ranks()->size(); ++rank)
    users[plan.ranks()->Get(rank)->program()].push_back(rank);
  for (uint32_t i = 0; i < plan.programs()->size(); ++i) {
    const plan::Program &program = *plan.programs()->Get(i);
    fmt::format_to(out, "{}program {}, stage {}, ranks {}: arena {} MiB, input {} MiB\n", i ? "\n" : "", i,
                   program.stage(), numberRanges(users[i]), mebibytes(double(program.arena_bytes())),
                   mebibytes(double(program.input_bytes())));
    printSlots(plan, program, out);
    for (uint32_t s = 0; program.segments() && s < program.segments()->size(); ++s)
      printSegment(plan, *program.segments()->Get(s), s, out);
    printActions(program, program.train(), "train", out);
    printActions(program, program.eval(), "eval", out);
  }
  return page;
}

} // namespace cleave::tool
