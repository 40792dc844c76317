// A rank's steps as Ops and its schedule as lists, for any device.
//
// For each segment a SlotScope numbers its slots and a maker converts its steps to Ops. When memory is allocated, each
// (segment, layout) gets two tables of slot addresses, one per input buffer. An action is a segment, a pair of tables
// and a microbatch.
#pragma once
#include "runtime/device/Device.h"
#include "runtime/plan/PlanFile.h"
#include "runtime/plan/plan_generated.h"

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace cleave {

struct ResolvedSegment {
  const plan::Segment *info = nullptr;
  std::unique_ptr<SlotScope> scope;
  std::vector<std::unique_ptr<Op>> ops; ///< one per step
};

struct ResolvedAction {
  const plan::Action *info = nullptr;
  ResolvedSegment *segment = nullptr;
  std::byte *const *tables[2] = {}; ///< per input buffer; set by place()
  int32_t microbatch = 0;
};

class Resolved {
public:
  using OpMaker = std::function<std::unique_ptr<Op>(const plan::Step &step, SlotScope &scope)>;
  Resolved(const plan::Plan &plan, const plan::Program &program, const plan::Rank &rank, const OpMaker &make);

  /// Creates the tables and passes them to the Ops. Arguments: start of the arena and of the two input buffers.
  void place(std::byte *arena, std::array<std::byte *, 2> inputs);

  std::vector<ResolvedSegment> segments;
  std::vector<ResolvedAction> train, eval;

private:
  void resolve(uint32_t segment, const OpMaker &make);
  std::vector<ResolvedAction> list(const flatbuffers::Vector<flatbuffers::Offset<plan::Action>> *actions,
                                   const OpMaker &make);
  void makeTables(uint32_t segment, uint32_t layout, std::byte *arena, std::array<std::byte *, 2> inputs);

  const plan::Plan &plan;
  const plan::Program &program;
  const plan::Rank &rank;
  std::map<std::pair<uint32_t, uint32_t>, std::array<std::vector<std::byte *>, 2>> tables;
};

/// The slot of a scalar or metric; null if the program has none of that name.
const plan::Slot *findNamed(const plan::Program &program,
                            const flatbuffers::Vector<flatbuffers::Offset<plan::NamedSlot>> *names,
                            const std::string &name);

/// The module path of a step, "" if the plan has none.
std::string pathOf(const plan::Plan &plan, const plan::Step &step);

} // namespace cleave
