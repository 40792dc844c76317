// Runs the ranks of a distributed program as threads; cuts whole tensors into slots and assembles them again.
#include "ir/interpreter/Distributed.h"

#include "ir/dist/Dist.h"
#include "ir/graph/Graph.h"
#include "ir/interpreter/Executable.h"
#include "ir/interpreter/Slices.h"
#include "ir/interpreter/World.h"
#include "runtime/base/Error.h"
#include "runtime/base/Thread.h"

#include "mlir/IR/BuiltinOps.h"

#include <optional>
#include <thread>

using namespace mlir;

namespace cleave::ir {

namespace {

/// An argument or result of a local function.
struct SlotInfo {
  SlotKey key; // microbatch 0
  HostTensor type;
  std::optional<Sharding> sharding; // resolved; set together with the global type
  HostTensor global;
};

struct LocalFunction {
  std::string name;
  std::vector<SlotInfo> arguments, results;
  Executable executable;
};

} // namespace

static bool perMicrobatch(SlotKind kind) { return kind == SlotKind::Input || kind == SlotKind::Stash; }

static SlotKey keyAt(SlotKey key, int64_t microbatch) {
  if (perMicrobatch(key.kind))
    key.microbatch = microbatch;
  return key;
}

static std::string slotText(const SlotKey &key) { return std::string(text(key.kind)) + " " + key.name; }

static std::string textOf(DictionaryAttr attributes, StringRef name) {
  auto value = attributes ? dyn_cast_or_null<StringAttr>(attributes.get(name)) : StringAttr();
  return value ? value.str() : "";
}

static SlotInfo slotInfo(DictionaryAttr attributes, Type type, const std::string &function) {
  SlotInfo info;
  info.key = {slotKindOf(textOf(attributes, attr::kind)), textOf(attributes, attr::name), 0};
  if (info.key.kind == SlotKind::None)
    throw Error(Status::Internal,
                "distributed interpreter: an argument or result of @" + function + " has no cleave.kind");
  if (info.key.name.empty())
    info.key.name = text(info.key.kind); // a metric ("loss"): the kind is also the name
  info.type = emptyTensor(type);
  auto sharding = dyn_cast_or_null<dist::ShardingAttr>(attributes.get(dist::attr::sharding));
  auto global = dyn_cast_or_null<TypeAttr>(attributes.get(dist::attr::global));
  if (sharding && global) {
    info.global = emptyTensor(global.getValue());
    info.sharding = Sharding::parse(sharding.getText().str());
    if (!info.sharding || !info.sharding->resolve(info.global.shape))
      throw Error(Status::Internal, "distributed interpreter: the sharding of " + slotText(info.key) + " in @" +
                                        function + " does not fit " + typeText(info.global));
  }
  return info;
}

/// The slots of every function; with `code`, also its compiled program.
static std::map<std::string, LocalFunction> readFunctions(const DistributedProgram &program, bool code) {
  std::map<std::string, LocalFunction> functions;
  for (auto func : cast<ModuleOp>(program.module).getOps<func::FuncOp>()) {
    LocalFunction &function = functions[func.getSymName().str()];
    function.name = func.getSymName().str();
    for (unsigned i = 0; i < func.getNumArguments(); ++i)
      function.arguments.push_back(slotInfo(func.getArgAttrDict(i), func.getArgument(i).getType(), function.name));
    for (unsigned i = 0; i < func.getNumResults(); ++i)
      function.results.push_back(slotInfo(func.getResultAttrDict(i), func.getResultTypes()[i], function.name));
    if (code)
      function.executable = executableOf(func.getBody().front());
  }
  return functions;
}

static void runSegment(const LocalFunction &function, int64_t rank, int64_t microbatch, Slots &slots,
                       Environment &environment) {
  std::string where =
      " in @" + function.name + " on rank " + std::to_string(rank) + ", microbatch " + std::to_string(microbatch);
  Operands inputs;
  for (const SlotInfo &argument : function.arguments) {
    auto found = slots.find(keyAt(argument.key, microbatch));
    if (found == slots.end())
      throw Error(Status::Internal,
                  "distributed interpreter: " + slotText(argument.key) + " is read before it is written" + where);
    if (found->second.shape != argument.type.shape || found->second.dtype != argument.type.dtype)
      throw Error(Status::Internal, "distributed interpreter: " + slotText(argument.key) + " is " +
                                        typeText(found->second) + ", not " + typeText(argument.type) + where);
    inputs.push_back(&found->second);
  }
  std::vector<HostTensor> results = function.executable.run(inputs, environment);
  for (size_t i = 0; i < results.size(); ++i)
    slots[keyAt(function.results[i].key, microbatch)] = std::move(results[i]);
}

std::vector<Slots> runDistributed(const DistributedProgram &program, std::vector<Slots> slots, const Context &context) {
  auto functions = readFunctions(program, true);
  int64_t ranks = program.mesh.ranks();
  if ((int64_t)slots.size() != ranks || (int64_t)program.functions.size() != ranks ||
      (int64_t)program.schedules.size() != ranks)
    throw Error(Status::Internal, "distributed interpreter: slots, functions and schedules are needed for " +
                                      std::to_string(ranks) + " ranks");
  World world(program.mesh);
  std::vector<std::thread> threads;
  const Rounding rounding = currentRounding();
  const auto run = [&](int64_t rank) {
    RoundingScope scope(rounding);
    try {
      Port port(world, rank);
      Environment environment{context, &port};
      for (const ScheduledSegment &item : program.schedules[rank]) {
        auto symbol = program.functions[rank].find(item.segment);
        if (symbol == program.functions[rank].end())
          continue;
        environment.context.microbatch = port.microbatch = item.microbatch;
        runSegment(functions.at(symbol->second), rank, item.microbatch, slots[rank], environment);
      }
      world.finish();
    } catch (...) {
      world.fail(std::current_exception());
    }
  };
  try {
    for (int64_t rank = 0; rank < ranks; ++rank)
      threads.push_back(startThread("a rank of the interpreter", run, rank));
  } catch (const Error &) { // ends those that run
    world.fail(std::current_exception());
  }
  for (std::thread &thread : threads)
    thread.join();
  world.check();
  return slots;
}

/// Calls f(info) once for each slot of a rank's functions, preferring an occurrence that has a sharding.
template <typename F>
static void forEachSlot(const DistributedProgram &program, const std::map<std::string, LocalFunction> &functions,
                        int64_t rank, F f) {
  std::map<SlotKey, const SlotInfo *> seen;
  for (const auto &[segment, symbol] : program.functions[rank])
    for (const auto *list : {&functions.at(symbol).arguments, &functions.at(symbol).results})
      for (const SlotInfo &info : *list) {
        const SlotInfo *&known = seen[info.key];
        if (!known || (!known->sharding && info.sharding))
          known = &info;
      }
  for (const auto &[key, info] : seen)
    f(*info);
}

std::vector<Slots> scatterSlots(const DistributedProgram &program, const Slots &whole) {
  auto functions = readFunctions(program, false);
  std::vector<Slots> slots(program.mesh.ranks());
  for (int64_t rank = 0; rank < (int64_t)slots.size(); ++rank) {
    std::vector<int64_t> coords = program.mesh.coords(rank);
    forEachSlot(program, functions, rank, [&](const SlotInfo &info) {
      SlotKey first = info.key;
      first.microbatch = 0;
      for (auto it = whole.lower_bound(first);
           it != whole.end() && it->first.kind == first.kind && it->first.name == first.name; ++it) {
        if (info.sharding && it->second.shape != info.global.shape)
          throw userError("interpreter: " + slotText(info.key) + " is " + typeText(it->second) + ", not " +
                          typeText(info.global));
        slots[rank][it->first] =
            info.sharding ? localPiece(it->second, *info.sharding, program.mesh, coords) : it->second;
      }
    });
  }
  return slots;
}

Slots gatherSlots(const DistributedProgram &program, const std::vector<Slots> &slots) {
  auto functions = readFunctions(program, false);
  struct Whole {
    HostTensor tensor;
    std::vector<int> writer; // rank that wrote each element, -1 if none
  };
  std::map<SlotKey, Whole> wholes;
  for (int64_t rank = 0; rank < (int64_t)slots.size(); ++rank) {
    std::vector<int64_t> coords = program.mesh.coords(rank);
    forEachSlot(program, functions, rank, [&](const SlotInfo &info) {
      if (!info.sharding || !info.sharding->partialAxes.empty())
        return;
      auto indices = globalIndices(*info.sharding, program.mesh, coords);
      for (auto it = slots[rank].lower_bound(info.key);
           it != slots[rank].end() && it->first.kind == info.key.kind && it->first.name == info.key.name; ++it) {
        Whole &whole = wholes[it->first];
        if (whole.writer.empty()) {
          whole.tensor = HostTensor(info.global.shape, info.global.dtype);
          whole.writer.assign(whole.tensor.values.size(), -1);
        }
        forEachElement(indices, info.global.shape, [&](int64_t from, int64_t to) {
          double value = it->second.values[from], &result = whole.tensor.values[to];
          bool same = value == result || (value != value && result != result);
          if (whole.writer[to] >= 0 && !same)
            throw Error(Status::Internal, slotText(it->first) + ": element " + std::to_string(to) + " is " +
                                              std::to_string(value) + " on rank " + std::to_string(rank) + ", " +
                                              std::to_string(result) + " on rank " + std::to_string(whole.writer[to]));
          result = value;
          whole.writer[to] = static_cast<int>(rank);
        });
      }
    });
  }
  Slots result;
  for (auto &[key, whole] : wholes)
    result[key] = std::move(whole.tensor);
  return result;
}

} // namespace cleave::ir
