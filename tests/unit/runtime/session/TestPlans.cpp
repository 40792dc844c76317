// Hand-written plans and their data.
#include "tests/unit/runtime/session/TestPlans.h"
#include "runtime/plan/Slices.h"

#include <cstring>
#include <unistd.h>

namespace cleave::test {
using namespace plan;

TemporaryFolder::TemporaryFolder() {
  std::string name = (std::filesystem::temp_directory_path() / "cleave-test-XXXXXX").string();
  if (!mkdtemp(name.data()))
    throw std::runtime_error("no temporary folder");
  root = name;
}
TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(root, ignored);
}

std::unique_ptr<ShardingT> sharding(const std::vector<std::vector<FactorSpec>> &dims) {
  auto out = std::make_unique<ShardingT>();
  for (const auto &factors : dims) {
    auto dim = std::make_unique<DimT>();
    for (const FactorSpec &spec : factors) {
      auto factor = std::make_unique<FactorT>();
      factor->size = spec.size;
      factor->axes = spec.axes;
      dim->factors.push_back(std::move(factor));
    }
    out->dims.push_back(std::move(dim));
  }
  return out;
}

CountingData::CountingData(int64_t rows, int64_t columns, int64_t train, int64_t eval)
    : list{{"image", FieldType::F32, {1, rows, columns}, 0}, {"label", FieldType::I32, {}, 10}}, train(train),
      eval(eval) {}

float CountingData::value(Split split, int64_t index, int64_t element) {
  return float((index * 7 + element * 3 + (split == Split::Eval ? 1 : 0)) % 11 - 5);
}

void CountingData::read(Split split, int64_t index, size_t field, std::byte *dst) const {
  if (field == 1) {
    const int32_t label = int32_t(index % 10);
    std::memcpy(dst, &label, 4);
    return;
  }
  for (int64_t i = 0; i < list[0].elements(); ++i) {
    const float x = value(split, index, i);
    std::memcpy(dst + 4 * i, &x, 4);
  }
}

namespace {

/// Builds one rank's program of the linear plan.
struct Builder {
  explicit Builder(const LinearSpec &spec) : spec(spec) {}
  const LinearSpec &spec;
  ProgramT program;
  uint64_t persistent = 0;
  int64_t local = 0, pixels = 0; ///< rows of a microbatch and elements of an image that this rank holds
  uint32_t image, label, y, ones, weight, gradient, loss, count, lr, step, counter, one, correct;

  uint32_t slot(const std::string &name, std::vector<int64_t> shape, Space space = Space::Persistent, int tensor = -1,
                std::unique_ptr<ShardingT> split = nullptr, plan::DType dtype = plan::DType::F32) {
    auto s = std::make_unique<SlotT>();
    s->name = name;
    s->dtype = dtype;
    s->bytes = 4;
    for (int64_t size : shape)
      s->bytes *= uint64_t(size);
    s->shape = std::move(shape);
    s->tensor = tensor;
    s->sharding = std::move(split);
    s->space = space;
    if (space == Space::Persistent) {
      s->offset = persistent;
      persistent += (s->bytes + 63) / 64 * 64;
    }
    program.slots.push_back(std::move(s));
    return uint32_t(program.slots.size() - 1);
  }

  template <typename Op> std::unique_ptr<StepT> make(Op op) {
    auto s = std::make_unique<StepT>();
    s->op.Set(std::move(op));
    return s;
  }
  static std::unique_ptr<ViewT> view(uint32_t slot, std::vector<int64_t> strides) {
    auto v = std::make_unique<ViewT>();
    v->slot = slot;
    v->strides = std::move(strides);
    return v;
  }
  std::unique_ptr<StepT> matmul(std::unique_ptr<ViewT> a, std::unique_ptr<ViewT> b, std::unique_ptr<ViewT> c, int64_t m,
                                int64_t n, int64_t k, bool accumulate) {
    MatmulT op;
    op.a = std::move(a);
    op.b = std::move(b);
    op.c = std::move(c);
    op.m = m;
    op.n = n;
    op.k = k;
    op.accumulate = accumulate;
    return make(std::move(op));
  }
  std::unique_ptr<StepT> fill(uint32_t dst, double value) {
    FillT op;
    op.dst = dst;
    op.value = value;
    return make(std::move(op));
  }
  std::unique_ptr<StepT> allReduce(uint32_t slot, uint32_t group, int64_t count) {
    CollectiveT op;
    op.kind = CollectiveKind::AllReduce;
    op.group = group;
    auto buffer = std::make_unique<CollectiveBufferT>();
    buffer->in = buffer->out = slot;
    buffer->count = count;
    op.buffers.push_back(std::move(buffer));
    return make(std::move(op));
  }
  template <typename... Steps>
  uint32_t segment(SegmentKind kind, const char *name, std::vector<uint32_t> slots, Steps... steps) {
    auto s = std::make_unique<SegmentT>();
    s->kind = kind;
    s->name = name;
    s->slots = std::move(slots);
    (s->steps.push_back(std::move(steps)), ...);
    program.segments.push_back(std::move(s));
    return uint32_t(program.segments.size() - 1);
  }
  uint32_t layout(std::vector<uint64_t> offsets) {
    auto l = std::make_unique<LayoutT>();
    l->offsets = std::move(offsets);
    program.layouts.push_back(std::move(l));
    return uint32_t(program.layouts.size() - 1);
  }
  static std::unique_ptr<ActionT> action(uint32_t segment, int microbatch, uint32_t layout) {
    auto a = std::make_unique<ActionT>();
    a->segment = segment;
    a->microbatch = microbatch;
    a->layout = layout;
    return a;
  }

  void slots(unsigned dp, unsigned tp) {
    const int64_t rows = spec.batch / spec.microbatches;
    local = splitPart(rows, spec.dp, dp).count;
    const int64_t height = splitPart(spec.rows, spec.tp, tp).count;
    pixels = height * spec.columns;
    image = slot("image", {local, 1, height, spec.columns}, Space::Input, 0,
                 sharding({{{rows, {0}}}, {{1, {}}}, {{spec.rows, {1}}}, {{spec.columns, {}}}}));
    label = slot("label", {local}, Space::Input, 1, sharding({{{rows, {0}}}}), plan::DType::I32);
    weight = slot("fc.weight", {height, spec.columns}, Space::Persistent, 2,
                  sharding({{{spec.rows, {1}}}, {{spec.columns, {}}}}));
    counter = slot("fc.count", {1}, Space::Persistent, 3, sharding({{{1, {}}}}));
    y = slot("y", {local, 1});
    ones = slot("ones", {local, 1});
    gradient = slot("gradient", {pixels, 1});
    loss = slot("loss", {1, 1});
    count = slot("weight", {1, 1});
    correct = slot("correct", {1, 1});
    lr = slot("lr", {1, 1});
    step = slot("step", {1, 1});
    one = slot("one", {1, 1});
  }

  void build(unsigned dp, unsigned tp) {
    slots(dp, tp);
    using V = std::vector<int64_t>;
    const auto sum = [&](uint32_t from, uint32_t to) {
      return matmul(view(ones, V{1, 1}), view(from, V{1, 1}), view(to, V{1, 1}), 1, 1, local, true);
    };
    const auto forward = [&](SegmentKind kind, const char *name) {
      return segment(
          kind, name, {image, label},
          matmul(view(image, V{pixels, 1}), view(weight, V{1, 1}), view(y, V{1, 1}), local, 1, pixels, false),
          sum(y, loss), sum(ones, count));
    };
    const uint32_t begin = segment(SegmentKind::Begin, "begin", {}, fill(ones, 1), fill(one, 1), fill(gradient, 0),
                                   fill(loss, 0), fill(count, 0), fill(correct, 0));
    const uint32_t f = forward(SegmentKind::Forward, "forward"), e = forward(SegmentKind::Eval, "eval");
    const uint32_t b = segment(
        SegmentKind::Backward, "backward", {image},
        matmul(view(image, V{1, pixels}), view(ones, V{1, 1}), view(gradient, V{1, 1}), pixels, 1, local, true));
    const uint32_t reduce = segment(SegmentKind::Reduce, "reduce", {}, allReduce(gradient, 0, pixels));
    const uint32_t metrics = segment(SegmentKind::Reduce, "metrics", {}, allReduce(loss, 1, 1), allReduce(count, 0, 1));
    const uint32_t update =
        segment(SegmentKind::Update, "update", {},
                matmul(view(gradient, V{1, 1}), view(lr, V{1, 1}), view(weight, V{1, 1}), pixels, 1, 1, true),
                matmul(view(one, V{1, 1}), view(one, V{1, 1}), view(counter, V{1, 1}), 1, 1, 1, true));
    const uint32_t none = layout({});
    const uint64_t images = (uint64_t(local * pixels) * 4 + 63) / 64 * 64,
                   labels = (uint64_t(local) * 4 + 63) / 64 * 64;
    std::vector<uint32_t> both, alone;
    for (int64_t m = 0; m < spec.microbatches; ++m) {
      const uint64_t at = uint64_t(m) * (images + labels);
      both.push_back(layout({at, at + images}));
      alone.push_back(layout({at}));
    }
    program.train.push_back(action(begin, 0, none));
    program.eval.push_back(action(begin, 0, none));
    for (int m = 0; m < spec.microbatches; ++m) {
      program.train.push_back(action(f, m, both[size_t(m)]));
      program.train.push_back(action(b, m, alone[size_t(m)]));
      program.eval.push_back(action(e, m, both[size_t(m)]));
    }
    for (uint32_t s : {reduce, metrics, update})
      program.train.push_back(action(s, 0, none));
    program.eval.push_back(action(metrics, 0, none));
    program.arena_bytes = persistent;
    program.input_bytes = uint64_t(spec.microbatches) * (images + labels);
    program.peak_bytes = program.lower_bound_bytes = program.arena_bytes + 2 * program.input_bytes;
    name(program.inputs, "image", image);
    name(program.inputs, "label", label);
    name(program.scalars, "lr", lr);
    name(program.scalars, "step", step);
    name(program.metrics, "loss", loss);
    name(program.metrics, "weight", count);
    name(program.metrics, "correct", correct);
  }
  static void name(std::vector<std::unique_ptr<NamedSlotT>> &list, const char *text, uint32_t slot) {
    auto named = std::make_unique<NamedSlotT>();
    named->name = text;
    named->slot = slot;
    list.push_back(std::move(named));
  }
};

std::unique_ptr<TensorT> tensor(const char *name, TensorKind kind, std::vector<int64_t> shape,
                                plan::DType dtype = plan::DType::F32) {
  auto t = std::make_unique<TensorT>();
  t->name = name;
  t->kind = kind;
  t->dtype = dtype;
  t->shape = std::move(shape);
  if (kind == TensorKind::Parameter || kind == TensorKind::State) {
    t->init = std::make_unique<InitT>();
    t->init->kind = kind == TensorKind::Parameter ? InitKind::Uniform : InitKind::Constant;
    t->init->a = kind == TensorKind::Parameter ? -1 : 0;
    t->init->b = 1;
  }
  return t;
}

std::unique_ptr<GroupT> group(const char *axis, std::vector<uint32_t> ranks) {
  auto g = std::make_unique<GroupT>();
  g->axis = axis;
  g->ranks = std::move(ranks);
  return g;
}

void addRanks(PlanT &plan, const LinearSpec &spec) {
  const unsigned ranks = spec.dp * spec.tp;
  std::vector<uint32_t> all;
  for (unsigned r = 0; r < ranks; ++r)
    all.push_back(r);
  for (unsigned tp = 0; tp < spec.tp; ++tp) {
    std::vector<uint32_t> members;
    for (unsigned dp = 0; dp < spec.dp; ++dp)
      members.push_back(dp * spec.tp + tp);
    plan.groups.push_back(group("dp", members));
  }
  plan.groups.push_back(group("dp+tp", all));
  for (unsigned r = 0; r < ranks; ++r) {
    Builder builder(spec);
    builder.build(r / spec.tp, r % spec.tp);
    plan.programs.push_back(std::make_unique<ProgramT>(std::move(builder.program)));
    auto rank = std::make_unique<RankT>();
    rank->program = r;
    rank->coords = {r / spec.tp, r % spec.tp, 0};
    rank->groups = {r % spec.tp, spec.tp};
    plan.ranks.push_back(std::move(rank));
  }
  auto stage = std::make_unique<StageT>();
  stage->layers = {"fc"};
  stage->ranks = all;
  stage->parameters = uint64_t(spec.rows * spec.columns);
  plan.stages.push_back(std::move(stage));
}

std::unique_ptr<DataFieldT> field(const char *name, plan::DType dtype, std::vector<int64_t> shape, int64_t classes = 0) {
  auto made = std::make_unique<DataFieldT>();
  made->name = name;
  made->dtype = dtype;
  made->shape = std::move(shape);
  made->classes = classes;
  return made;
}

} // namespace

PlanT linearPlan(const LinearSpec &spec) {
  PlanT plan;
  plan.backend = "cpu";
  plan.target = "x86-64";
  plan.threads = 1;
  plan.model = "linear";
  plan.options = R"({"rows":6})";
  plan.schedule = "1f1b";
  plan.microbatches = uint32_t(spec.microbatches);
  plan.batch = uint32_t(spec.batch);
  plan.seed = spec.seed;
  plan.data = std::make_unique<DataT>();
  plan.data->fields.push_back(field("image", plan::DType::F32, {1, spec.rows, spec.columns}));
  plan.data->fields.push_back(field("label", plan::DType::I32, {}, 10));
  plan.training = std::make_unique<TrainingT>();
  plan.training->rate = std::make_unique<LearningRateT>();
  plan.training->rate->base = 0x1p-13;
  plan.training->optimizer = std::make_unique<OptimizerT>();
  plan.strings = {""};
  const unsigned sizes[] = {spec.dp, spec.tp, 1};
  const char *names[] = {"dp", "tp", "pp"};
  for (int i = 0; i < 3; ++i) {
    auto axis = std::make_unique<MeshAxisT>();
    axis->name = names[i];
    axis->size = sizes[i];
    plan.mesh.push_back(std::move(axis));
  }
  const int64_t rows = spec.batch / spec.microbatches;
  plan.tensors.push_back(tensor("image", TensorKind::Input, {rows, 1, spec.rows, spec.columns}));
  plan.tensors.push_back(tensor("label", TensorKind::Input, {rows}, plan::DType::I32));
  plan.tensors.push_back(tensor("fc.weight", TensorKind::Parameter, {spec.rows, spec.columns}));
  plan.tensors.push_back(tensor("fc.count", TensorKind::State, {1}));
  addRanks(plan, spec);
  return plan;
}

} // namespace cleave::test
