// The messages that a solution reports as its cost are the collectives of its plan.
#include "partitioner/sharding/Messages.h"
#include "frontend/trace/TraceModel.h"
#include "ir/dist/Dist.h"
#include "partitioner/annotate/ReadProblem.h"
#include "partitioner/sharding/Assign.h"
#include "passes/pipeline/Phases.h"

#include <catch2/catch.hpp>
#include <cleave/cleave.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <map>

using namespace cleave;
using namespace cleave::partitioner;

namespace {

struct Block : Module {
  LayerNorm norm1, norm2;
  Linear qkv, projection, up, down;
  Block(Module &parent, std::string name)
      : Module(parent, std::move(name)), norm1{*this, "norm1", 8}, norm2{*this, "norm2", 8}, qkv{*this, "qkv", 8, 24},
        projection{*this, "projection", 8, 8}, up{*this, "up", 8, 16}, down{*this, "down", 16, 8} {}
  Tensor forward(Tensor x) {
    const int64_t b = x.size(0), t = x.size(1);
    Tensor packed = reshape(qkv(norm1(x)), {b, t, 3, 4, 2});
    auto part = [&](int64_t i) { return transpose(select(packed, 2, i), 1, 2); };
    Tensor mixed = scaledDotProductAttention(part(0), part(1), part(2), {.causal = true});
    x = x + projection(reshape(transpose(mixed, 1, 2), {b, t, 8}));
    return x + down(gelu(up(norm2(x))));
  }
};

struct Gpt : Module {
  Embedding embed{*this, "embed", 12, 8}, positions{*this, "positions", 6, 8};
  ModuleList<Block> blocks{*this, "blocks", 2};
  LayerNorm norm{*this, "norm", 8};
  Tensor forward(Tensor tokens) { return linear(norm(blocks(embed(tokens) + positions.weight)), embed.weight); }
};

constexpr int64_t rows = 4;
using Counts = std::map<std::string, int>;

GraphModule traced(Gpt &gpt) {
  return traceModel(makeModel(gpt), {.data = Text{.context = 6, .vocab = 12}, .optimizer = Sgd{.lr = 0.1}}, rows);
}

std::string textOf(const char *kind, const std::vector<std::string> &axes, int64_t bytes) {
  return fmt::format("{} {} {}", kind, fmt::join(axes, "+"), bytes);
}

int64_t bytesOf(mlir::Value value) {
  auto type = mlir::cast<mlir::RankedTensorType>(value.getType());
  return type.getNumElements() * std::max(1u, type.getElementTypeBitWidth() / 8);
}

/// The collectives of one microbatch in the local programs: forward and backward.
Counts collectivesOf(mlir::ModuleOp module) {
  Counts counts;
  module.walk([&](mlir::func::FuncOp func) {
    const llvm::StringRef segment = func.getName().rsplit('.').second;
    if (segment != "forward" && segment != "backward")
      return;
    func.walk([&](mlir::Operation *op) {
      const auto axes = [&] {
        std::vector<std::string> names;
        for (mlir::StringRef axis : op->getAttrOfType<mlir::ArrayAttr>("axes").getAsValueRange<mlir::StringAttr>())
          names.push_back(axis.str());
        return names;
      };
      if (mlir::isa<dist::AllReduceOp>(op))
        for (mlir::Value operand : op->getOperands())
          ++counts[textOf("all-reduce", axes(), bytesOf(operand))];
      else if (mlir::isa<dist::ReduceScatterOp>(op))
        ++counts[textOf("reduce-scatter", axes(), bytesOf(op->getOperand(0)))];
      else if (mlir::isa<dist::AllGatherOp>(op))
        ++counts[textOf("all-gather", axes(), bytesOf(op->getResult(0)))];
      else if (mlir::isa<dist::AllToAllOp>(op))
        ++counts[textOf("all-to-all", axes(), bytesOf(op->getOperand(0)))];
    });
  });
  return counts;
}

Counts predicted(const std::string &mesh, const std::vector<ShardRule> &rules) {
  Gpt gpt;
  passes::CompileOptions options;
  options.strategy.mesh = parseMesh(mesh);
  options.strategy.shard = rules;
  options.batch = rows;
  GraphModule step = passes::step(traced(gpt), options);
  const ShardingProblem problem =
      readProblem(step.module().lookupSymbol<mlir::func::FuncOp>("train"), options.strategy, NamedShardings());
  Counts counts;
  for (const SolutionMessage &message : messagesOf(problem, assign(problem)))
    if (!message.oncePerIteration) {
      ++counts[textOf(text(message.message.kind), message.message.axes, message.message.bytes)];
    }
  return counts;
}

Counts applied(const std::string &mesh, const std::vector<ShardRule> &rules) {
  Gpt gpt;
  passes::CompileOptions options;
  options.strategy.mesh = parseMesh(mesh);
  options.strategy.shard = rules;
  options.batch = rows;
  GraphModule model = traced(gpt);
  LocalPrograms local = passes::applyStrategy(model, options);
  return collectivesOf(*local.module);
}

} // namespace

TEST_CASE("the messages of a solution are the collectives of its local programs") {
  const std::vector<ShardRule> none, rules{{"blocks.*.up.weight", {{"1", "tp"}}}, {"embed.weight", {{"1", "dp"}}}};
  for (const auto &[mesh, given] :
       {std::pair("dp=2", none), {"tp=2", none}, {"dp=2,tp=2", none}, {"dp=2,tp=2", rules}}) {
    INFO(mesh << (given.empty() ? "" : " with rules"));
    const Counts expected = applied(mesh, given);
    CHECK(predicted(mesh, given) == expected);
    CHECK((std::string(mesh) == "dp=2" || !expected.empty()));
  }
}
