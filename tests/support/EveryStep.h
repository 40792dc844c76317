// A plan with a step of every kind and an entry in every list. Its structure is valid; it is not meant to run.
#pragma once
#include "tests/support/PlanBuilder.h"

namespace cleave::test {

/// The descriptions of training and data that a compiled plan has.
inline void describe(PlanT &plan) {
  plan.training = std::make_unique<plan::TrainingT>();
  plan.training->rate = std::make_unique<plan::LearningRateT>();
  plan.training->rate->kind = plan::RateKind::Step;
  plan.training->optimizer = std::make_unique<plan::OptimizerT>();
  plan.training->optimizer->ema = 0.5;
  plan.data = std::make_unique<plan::DataT>();
  plan.data->kind = plan::DataKind::Pictures;
  plan.data->train.push_back(std::make_unique<plan::TransformT>());
  plan.data->train[0]->kind = plan::TransformKind::HorizontalFlip;
  plan.data->train[0]->numbers = {0.5};
  plan.data->eval.push_back(std::make_unique<plan::TransformT>(*plan.data->train[0]));
  plan.data->class_names = {"cat", "dog"};
  plan.choices = std::make_unique<plan::ChoicesT>();
  plan.search = std::make_unique<plan::SearchT>();
  plan.search->step = 2, plan.search->estimate = 2.1, plan.search->lower = 1.5, plan.search->least = 1;
  plan.search->total = 10, plan.search->evaluated = 4, plan.search->pruned_by_bound = 3;
  plan.search->pruned_by_memory = 2, plan.search->refused = 1, plan.search->compiled = 2;
  plan::AlternativeT &other = *plan.alternatives.emplace_back(std::make_unique<plan::AlternativeT>());
  other.decision = "zero", other.value = "1";
  other.step = 3, other.busy = 2, other.communication = 0.75, other.idle = 0.25;
  other.peak_bytes = 1000, other.capacity = 2000;
  for (const auto &tensor : plan.tensors)
    if (tensor->kind == plan::TensorKind::Input) {
      auto &field = plan.data->fields.emplace_back(std::make_unique<plan::DataFieldT>());
      field->name = tensor->name;
      field->dtype = tensor->dtype;
      field->shape.assign(tensor->shape.begin() + 1, tensor->shape.end());
      auto &rule = field->indices.emplace_back(std::make_unique<plan::IndexRuleT>());
      rule->reader = "embedding at model.cpp:3", rule->below = 100;
      rule->start.assign(field->shape.size(), 0), rule->size = field->shape;
    }
}

class EveryStep {
public:
  PlanT plan = makePlan(2);

  EveryStep() {
    addGroup(plan, {0, 1}, "dp");
    for (uint32_t r = 0; r < 2; ++r) {
      plan.ranks[r]->peers = {1 - r};
      plan.ranks[r]->scalars = {2 * r};
    }
    auto start = std::make_unique<ShardStartT>();
    start->size = 4, start->axes = {0};
    w.program.starts.push_back(std::move(start));
    products();
    windows();
    lookUps();
    kernels();
    messages();
    schedule();
    plan.programs.push_back(w.finish());
    plan.strings.push_back("a layer");
    for (const auto &step : plan.programs.back()->segments[forward]->steps)
      step->layer = step->last_layer = static_cast<uint32_t>(plan.strings.size() - 1), step->role = StepRole::Gradients;
    describe(plan);
  }

private:
  ProgramWriter w;
  const uint32_t forward = w.segment();

  uint32_t slot(std::vector<int64_t> shape, plan::DType type = plan::DType::F32) { return w.slot("s", type, shape); }

  void products() {
    MatmulT op;
    op.a = w.view(slot({2, 3, 4}), {12, 4, 1});
    op.b = w.view(slot({2, 4, 5}), {20, 5, 1});
    op.c = w.view(slot({2, 3, 5}), {15, 5, 1});
    op.batch = {2}, op.m = 3, op.n = 5, op.k = 4;
    w.step(forward, std::move(op));
    MatmulT gelu;
    gelu.a = w.view(slot({3, 4}), {4, 1});
    gelu.b = w.view(slot({4, 5}), {5, 1});
    gelu.c = w.view(slot({3, 5}), {5, 1});
    gelu.aux = w.view(slot({3, 5}), {5, 1});
    gelu.m = 3, gelu.n = 5, gelu.k = 4;
    gelu.epilogue = Epilogue::Gelu;
    gelu.bias = static_cast<int>(slot({5}));
    w.step(forward, std::move(gelu));
    AttentionT attention;
    for (auto *view : {&attention.q, &attention.k, &attention.v, &attention.out, &attention.dout, &attention.dq,
                       &attention.dk, &attention.dv})
      *view = w.view(slot({1, 2, 3, 4}), {24, 12, 4, 1});
    attention.lse = static_cast<int>(slot({1, 2, 3}));
    attention.batch = 1, attention.heads = 2, attention.rows = attention.keys = 3, attention.width = 4;
    attention.kind = AttentionKind::Backward, attention.scale = 0.5, attention.causal = true;
    attention.bias = w.view(slot({1, 1, 3, 3}), {9, 0, 3, 1});
    attention.keep = w.view(slot({1, 2, 3, 3}, plan::DType::I1), {18, 9, 3, 1}), attention.dropout = 0.25;
    w.step(forward, std::move(attention));
  }

  void windows() {
    ConvT conv;
    conv.src = slot({1, 1, 4, 4}), conv.weights = slot({1, 1, 3, 3}), conv.dst = slot({1, 1, 2, 2});
    conv.bias = static_cast<int>(slot({1}));
    conv.n = conv.ic = conv.oc = conv.groups = 1;
    conv.ih = conv.iw = 4, conv.oh = conv.ow = 2, conv.kh = conv.kw = 3;
    conv.stride_h = conv.stride_w = conv.dilation_h = conv.dilation_w = 1;
    conv.winograd = true;
    w.step(forward, std::move(conv));
    PoolT pool;
    pool.src = slot({1, 1, 4, 4}), pool.dst = slot({1, 1, 2, 2});
    pool.workspace = static_cast<int>(slot({4}, plan::DType::I32));
    pool.n = pool.c = 1;
    pool.ih = pool.iw = 4, pool.oh = pool.ow = pool.kh = pool.kw = pool.stride_h = pool.stride_w = 2;
    w.step(forward, std::move(pool));
  }

  void lookUps() {
    EmbeddingT embedding;
    embedding.table = slot({4, 2}), embedding.ids = slot({3}, plan::DType::I32), embedding.out = slot({3, 2});
    embedding.rows = 4, embedding.width = 2, embedding.count = 3, embedding.start = 0;
    EmbeddingGradT gradient;
    gradient.ids = embedding.ids, gradient.grad = embedding.out, gradient.dtable = slot({4, 2});
    gradient.rows = 4, gradient.width = 2, gradient.count = 3;
    GatherT gather;
    gather.src = slot({1, 4, 2}), gather.index = slot({1, 3, 2}, plan::DType::I32), gather.out = slot({1, 3, 2});
    gather.outer = 1, gather.extent = 4, gather.count = 3, gather.inner = 2;
    ScatterAddT scatter;
    scatter.src = gather.out, scatter.index = gather.index, scatter.out = slot({1, 4, 2});
    scatter.outer = 1, scatter.extent = 4, scatter.count = 3, scatter.inner = 2;
    w.step(forward, std::move(embedding));
    w.step(forward, std::move(gradient));
    w.step(forward, std::move(gather));
    w.step(forward, std::move(scatter));
    RandomT random;
    random.out = slot({4, 2}), random.shape = {4, 2};
    w.step(forward, RandomT(random));
    random.out = slot({4, 2}, plan::DType::I1), random.dtype = plan::DType::I1, random.at_least = 0.25;
    w.step(forward, std::move(random));
    CopyT copy;
    copy.src = w.view(slot({4}), {1}), copy.dst = w.view(slot({2}), {1});
    copy.shape = {2}, copy.src_offset_scalar = 0;
    w.step(forward, std::move(copy));
  }

  void kernels() {
    plan.kernels.push_back(std::make_unique<KernelInfoT>());
    plan.kernels[0]->symbol = "add";
    KernelT call;
    call.args = {slot({8}), slot({4})};
    call.extent = 4, call.outputs = 1, call.scalars = {0}, call.offsets = {16, 0};
    KernelBatchT batch;
    batch.calls.push_back(std::make_unique<KernelT>(call));
    batch.calls.back()->args[1] = slot({4});
    w.step(forward, std::move(call));
    w.step(forward, std::move(batch));
  }

  void messages() {
    const uint32_t share = slot({2}), whole = slot({4}), other = slot({4});
    CollectiveT gather;
    gather.kind = CollectiveKind::AllGather;
    gather.buffers.push_back(std::make_unique<CollectiveBufferT>());
    gather.buffers[0]->in = share, gather.buffers[0]->out = whole, gather.buffers[0]->sizes = {2, 2};
    w.fill(forward, share, 1);
    w.step(forward, std::move(gather));
    w.allReduce(forward, whole, other, 4);
    w.send(forward, whole, 0, 1);
    w.recv(forward, other, 0, 1);
  }

  void schedule() {
    const int weight = addTensor(plan, "w", TensorKind::Parameter, {4}),
              input = addTensor(plan, "x", TensorKind::Input, {2, 4});
    addTensor(plan, "w.momentum", TensorKind::State, {4});
    plan.tensors.back()->parameter = weight;
    plan.tensors.back()->init = std::make_unique<InitT>();
    w.copy(forward, w.slot("x", plan::DType::F32, {1, 4}, Space::Input, input), w.slot("y", plan::DType::F32, {4}), 4);
    w.shard(static_cast<uint32_t>(w.program.slots.size()) - 2, {{{2, {0}}}, {{4, {}}}});
    const uint32_t lr = w.slot("lr", plan::DType::F32, {1}, Space::Persistent),
                   sum = w.slot("sum", plan::DType::F32, {4}, Space::Persistent, weight);
    w.shard(sum, {{{4, {}}}}, {0});
    w.named(w.program.scalars, "lr", lr);
    w.named(w.program.metrics, "loss", lr);
    for (const bool eval : {false, true}) {
      ActionT &action = w.action(forward, 0, eval);
      action.wait_sends = {SendId(1, 0)};
      action.waits = {plan::Wait(1, 0, 0)};
    }
    auto stage = std::make_unique<StageT>();
    stage->layers = {"fc"}, stage->ranks = {0, 1};
    plan.stages.push_back(std::move(stage));
    w.program.segments[forward]->stage = 0;
  }
};

} // namespace cleave::test
