// The listing of `cleave show --steps`: what every program does, step by step.
#include "runtime/plan/Text.h"
#include "runtime/plan/steps/Kernels.h"
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

/// Shape as "[4, 8]".
std::string shapeText(const flatbuffers::Vector<int64_t> *shape) {
  std::vector<int64_t> sizes;
  if (shape)
    sizes.assign(shape->begin(), shape->end());
  return fmt::format("[{}]", fmt::join(sizes, ", "));
}

/// The library that runs a step on a GPU.
std::string libraryOf(const plan::Plan &plan, const plan::Step &step) {
  if (backendOf(plan) != Target::Kind::Cuda)
    return "";
  switch (steps::onGpu(step).library) {
  case steps::OnGpu::None:
    return "";
  case steps::OnGpu::CublasLt:
    return "cublasLt ";
  case steps::OnGpu::Cudnn:
    return "cudnn ";
  case steps::OnGpu::Nccl:
    return fmt::format("nccl stream {} ", step.stream());
  }
  return "";
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
    std::string line = fmt::format("    {:>4}  {:<72}  {}{}", i, libraryOf(plan, step) + steps::text(step, plan), path,
                                   place.empty() ? "" : "  " + place);
    line.erase(line.find_last_not_of(' ') + 1);
    fmt::format_to(out, "{}\n", line);
    if (const auto *batch = step.op_as_KernelBatch())
      for (const plan::Kernel *call : *batch->calls())
        fmt::format_to(out, "          ({}) {} blocks\n", steps::argumentsText(*call), call->blocks());
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
