// A valid plan with fields and list entries of its objects modified, packed and sealed again: the checker finds a
// defect, or the plan runs. The input is a byte that selects the plan, then modifications of four bytes: the number of
// the field or list (two bytes), how to modify it, and a value.
#include "tests/fuzz/RunPlan.h"

#include <cstring>
#include <functional>

using namespace cleave;

namespace {

using Alteration = std::function<void(uint8_t how, uint8_t value)>;

uint64_t otherNumber(uint64_t old, uint8_t how, uint8_t value) {
  switch (how % 6) {
  case 0:
    return value;
  case 1:
    return old + value % 16 + 1;
  case 2:
    return old - value % 16 - 1;
  case 3:
    return old * (value % 7 + 2);
  case 4:
    return uint64_t(1) << value % 64;
  default:
    return ~uint64_t(0) - value;
  }
}

/// Lists a function for every field and every list of a plan's objects; the function alters that field or list.
class Fields {
public:
  explicit Fields(plan::PlanT &plan) { visit(plan); }
  std::vector<Alteration> all;

private:
  template <class T> void number(T &field) {
    all.push_back([&field](uint8_t how, uint8_t value) {
      if constexpr (std::is_same_v<T, bool>)
        field = value & 1;
      else
        field = static_cast<T>(otherNumber(static_cast<uint64_t>(field), how, value));
    });
  }
  template <class... T> void numbers(T &...fields) { (number(fields), ...); }

  template <class T> static std::unique_ptr<T> copyOf(const std::unique_ptr<T> &from) {
    flatbuffers::FlatBufferBuilder builder;
    builder.Finish(T::TableType::Pack(builder, from.get()));
    return std::unique_ptr<T>(flatbuffers::GetRoot<typename T::TableType>(builder.GetBufferPointer())->UnPack());
  }
  template <class T> static T copyOf(const T &from) { return from; }

  /// Lists the numbers of a struct of the schema, four bytes each.
  template <class T> void words(T &entry) {
    static_assert(sizeof(T) % sizeof(uint32_t) == 0);
    for (size_t at = 0; at < sizeof(T); at += sizeof(uint32_t))
      all.push_back([&entry, at](uint8_t how, uint8_t value) {
        auto *bytes = reinterpret_cast<uint8_t *>(&entry) + at;
        uint32_t word;
        std::memcpy(&word, bytes, sizeof word);
        word = static_cast<uint32_t>(otherNumber(word, how, value));
        std::memcpy(bytes, &word, sizeof word);
      });
  }

  /// Drops, repeats or swaps entries. This may invalidate the functions of entries, so all fields are listed again
  /// after each modification.
  template <class T> void list(std::vector<T> &entries) {
    all.push_back([&entries](uint8_t how, uint8_t value) {
      if (entries.empty())
        return;
      const auto at = entries.begin() + static_cast<long>(value % entries.size());
      if (how % 3 == 0)
        entries.erase(at);
      else if (how % 3 == 1 && entries.size() < 64) {
        T copy = copyOf(*at);
        entries.insert(entries.begin() + static_cast<long>(how % (entries.size() + 1)), std::move(copy));
      } else
        std::iter_swap(at, entries.begin() + static_cast<long>(how % entries.size()));
    });
    for (T &entry : entries)
      if constexpr (std::is_arithmetic_v<T>)
        number(entry);
      else if constexpr (requires { *entry; })
        visit(*entry);
      else if constexpr (std::is_trivially_copyable_v<T>)
        words(entry);
  }
  template <class... T> void lists(std::vector<T> &...entries) { (list(entries), ...); }
  template <class T> void visitIf(std::unique_ptr<T> &entry) {
    if (entry)
      visit(*entry);
  }

  void visit(plan::PlanT &p) {
    numbers(p.threads, p.microbatches, p.batch, p.seed);
    lists(p.mesh, p.tensors, p.kernels, p.groups, p.programs, p.ranks, p.stages, p.strings, p.code_hash);
    visitIf(p.data);
    visitIf(p.training);
  }
  void visit(plan::DataT &d) {
    numbers(d.kind, d.context, d.vocab);
    list(d.fields);
  }
  void visit(plan::DataFieldT &f) {
    numbers(f.dtype, f.classes);
    list(f.shape);
  }
  void visit(plan::TrainingT &t) {
    numbers(t.precision, t.level, t.reduce);
    visitIf(t.rate);
    visitIf(t.optimizer);
  }
  void visit(plan::LearningRateT &r) { numbers(r.kind, r.warmup, r.steps, r.every); }
  void visit(plan::OptimizerT &o) { numbers(o.kind, o.nesterov); }
  void visit(plan::MeshAxisT &a) { number(a.size); }
  void visit(plan::StageT &s) { list(s.ranks); }
  void visit(std::string &) {}
  void visit(plan::TensorT &t) {
    numbers(t.kind, t.dtype, t.trainable, t.parameter);
    list(t.shape);
  }
  void visit(plan::KernelInfoT &k) {
    numbers(k.batch, k.scalars, k.extent, k.grain);
    list(k.arguments);
  }
  void visit(plan::KernelArgumentT &a) { numbers(a.dtype, a.base, a.per_extent, a.written); }
  void visit(plan::GroupT &g) { list(g.ranks); }
  void visit(plan::RankT &r) {
    number(r.program);
    lists(r.coords, r.scalars, r.groups, r.peers);
  }
  void visit(plan::ProgramT &p) {
    numbers(p.stage, p.arena_bytes, p.input_bytes, p.workspace_bytes, p.peak_bytes, p.lower_bound_bytes);
    lists(p.slots, p.segments, p.layouts, p.train, p.eval, p.inputs, p.scalars, p.metrics, p.starts);
  }
  void visit(plan::SlotT &s) {
    numbers(s.dtype, s.bytes, s.tensor, s.space, s.offset);
    list(s.shape);
    visitIf(s.sharding);
  }
  void visit(plan::ShardingT &s) {
    number(s.partial_kind);
    lists(s.dims, s.partial_axes);
  }
  void visit(plan::DimT &d) { list(d.factors); }
  void visit(plan::FactorT &f) {
    number(f.size);
    list(f.axes);
  }
  void visit(plan::SegmentT &s) {
    numbers(s.kind, s.stage);
    lists(s.slots, s.steps, s.leaves);
  }
  void visit(plan::LayoutT &l) { list(l.offsets); }
  void visit(plan::ActionT &a) {
    numbers(a.segment, a.microbatch, a.layout);
    lists(a.wait_sends, a.waits);
  }
  void visit(plan::NamedSlotT &n) { number(n.slot); }
  void visit(plan::ShardStartT &s) {
    numbers(s.size, s.scale);
    list(s.axes);
  }
  void visit(plan::ViewT &v) {
    numbers(v.slot, v.offset);
    list(v.strides);
  }
  void visit(plan::CollectiveBufferT &b) {
    numbers(b.in, b.out, b.count, b.outer, b.inner);
    list(b.sizes);
  }
  void visit(plan::KernelT &k) {
    numbers(k.kernel, k.extent, k.grain, k.outputs, k.blocks, k.signature);
    lists(k.args, k.scalars);
  }

  void visit(plan::StepT &s) {
    numbers(s.path, s.location, s.stream);
    list(s.values);
    plan::StepOpUnion &op = s.op;
    if (auto *m = op.AsMatmul()) {
      numbers(m->m, m->n, m->k, m->dtype, m->accumulate, m->bias, m->epilogue, m->row_sums);
      list(m->batch);
      for (auto *view : {&m->a, &m->b, &m->c, &m->aux})
        visitIf(*view);
    } else if (auto *k = op.AsKernel())
      visit(*k);
    else if (auto *b = op.AsKernelBatch())
      list(b->calls);
    else if (auto *c = op.AsCopy()) {
      numbers(c->dtype, c->src_offset_scalar);
      list(c->shape);
      visitIf(c->src), visitIf(c->dst);
    } else if (auto *f = op.AsFill())
      numbers(f->dst, f->dtype);
    else if (auto *g = op.AsGather())
      numbers(g->src, g->index, g->out, g->outer, g->extent, g->count, g->inner, g->dtype);
    else if (auto *c = op.AsCollective()) {
      numbers(c->kind, c->group, c->reduce, c->dtype);
      lists(c->buffers, c->axes);
    } else if (auto *m = op.AsSend())
      numbers(m->slot, m->bytes, m->peer, m->tag);
    else if (auto *m = op.AsRecv())
      numbers(m->slot, m->bytes, m->peer, m->tag);
  }
};

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size == 0)
    return 0;
  const fuzz::GoodPlan &good = fuzz::goodPlan(*data);
  const bool renumber = *data / 3 % 2; // number values again, so that other rules must find the fault
  plan::PlanT plan;
  flatbuffers::GetRoot<plan::Plan>(good.bytes.data())->UnPackTo(&plan);
  for (++data, --size; size >= 4; data += 4, size -= 4) {
    const std::vector<Alteration> all = Fields(plan).all;
    all[static_cast<size_t>(data[0] | data[1] << 8) % all.size()](data[2], data[3]);
  }
  if (renumber)
    test::forgetValues(plan);
  fuzz::checkAndRun(sealPlan(renumber ? test::flatbuffer(plan) : test::pack(plan)), good.ranks);
  return 0;
}
