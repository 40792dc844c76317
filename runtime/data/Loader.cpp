// The loader: reads samples and places them as listed by runtime/plan/Inputs.h.
#include "runtime/data/Loader.h"
#include "runtime/base/Error.h"
#include "runtime/base/Thread.h"
#include "runtime/plan/DTypes.h"
#include "runtime/plan/plan_generated.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <fmt/format.h>

namespace cleave {

std::vector<Loader::Bound> Loader::bind(const plan::Plan &plan, unsigned rank, bool eval, const DataSource &source) {
  std::vector<Bound> bound;
  const DataSpec spec = DataSpec::of(plan);
  for (InputPart &part : inputParts(plan, rank, eval)) {
    const bool integer = part.dtype == plan::DType::I32;
    if (!integer && part.dtype != plan::DType::F32 && part.dtype != plan::DType::BF16 && part.dtype != plan::DType::F16)
      throw environmentError(
          fmt::format("plan input {}: the type must be a float or i32, found {}", part.field, dtypeName(part.dtype)));
    if (part.global.empty())
      throw environmentError(fmt::format("plan input {}: an input has a batch dimension, found a scalar", part.field));
    const std::vector<int64_t> shape(part.global.begin() + 1, part.global.end());
    const size_t field = findField(source, part.field, integer ? FieldType::I32 : FieldType::F32, shape);
    const DataField &found = source.fields()[field];
    const int64_t model = spec.classes(part.field);
    const int64_t classes =
        model > 0 && found.classes > 0 ? std::min(model, found.classes) : std::max(model, found.classes);
    bound.push_back({std::move(part), field, integer ? classes : 0});
  }
  return bound;
}

Loader::Loader(const plan::Plan &plan, unsigned rank, const DataSource &source, SampleOrder &order)
    : source(source), order(order), train(bind(plan, rank, false, source)), eval(bind(plan, rank, true, source)) {
  size_t largest = 0;
  for (const auto *list : {&train, &eval})
    for (const Bound &bound : *list)
      largest = std::max(largest, size_t(source.fields()[bound.field].bytes()));
  sample.resize(largest);
  if (!train.empty() || !eval.empty())
    helper = startThread(fmt::format("reading the data of rank {}", rank), [this] { work(); });
}

Loader::~Loader() {
  {
    std::lock_guard lock(mutex);
    stop = true;
  }
  changed.notify_all();
  if (helper.joinable())
    helper.join();
}

void Loader::start(const BatchRef &batch, std::byte *buffer) {
  if (!helper.joinable())
    return;
  {
    std::lock_guard lock(mutex);
    assert(!busy && "one batch at a time");
    job = batch;
    target = buffer;
    busy = true;
  }
  changed.notify_all();
}

void Loader::wait() {
  std::unique_lock lock(mutex);
  changed.wait(lock, [this] { return !busy; });
  if (failure)
    std::rethrow_exception(std::exchange(failure, nullptr));
}

void Loader::work() {
  std::unique_lock lock(mutex);
  for (;;) {
    changed.wait(lock, [this] { return busy || stop; });
    if (stop)
      return;
    lock.unlock();
    std::exception_ptr caught;
    try {
      fill(job, target);
    } catch (...) {
      caught = std::current_exception();
    }
    lock.lock();
    failure = caught;
    busy = false;
    changed.notify_all();
  }
}

void Loader::fill(const BatchRef &batch, std::byte *buffer) {
  const auto &list = batch.split == Split::Train ? train : eval;
  const auto epochOrder = batch.split == Split::Train && !list.empty() ? order.of(batch.epoch) : nullptr;
  for (const Bound &bound : list)
    for (const Box &box : bound.part.boxes)
      fillBox(batch, bound, box, epochOrder.get(), buffer + bound.part.offset);
}

/// Copies the part of a sample inside a box (dimensions 1...) to its position in the local tensor, whose rows have
/// shape local[1...]. Converts to a 16-bit type if the slot has one.
static void placeSample(const std::byte *from, const InputPart &part, const Box &box, std::byte *row) {
  const size_t rank = part.global.size();
  int64_t count = 1;
  for (size_t d = 1; d < rank; ++d)
    count *= box.size[d];
  const plan::DType source = part.dtype == plan::DType::I32 ? plan::DType::I32 : plan::DType::F32;
  for (int64_t i = 0; i < count; ++i) {
    int64_t rest = i, at = 0, to = 0, strideFrom = 1, strideTo = 1;
    for (size_t d = rank; d-- > 1;) {
      const int64_t x = rest % box.size[d];
      rest /= box.size[d];
      at += (box.globalStart[d] + x) * strideFrom;
      to += (box.localStart[d] + x) * strideTo;
      strideFrom *= part.global[d];
      strideTo *= part.shape[d];
    }
    storeElement(row, to, part.dtype, loadElement(from, at, source));
  }
}

void Loader::checkLabels(Split split, int64_t index, const Bound &bound, const std::byte *labels) const {
  const DataField &field = source.fields()[bound.field];
  for (int64_t i = 0; i < field.elements(); ++i) {
    int32_t label;
    std::memcpy(&label, labels + 4 * i, sizeof label);
    if (label >= bound.classes || (label < 0 && !field.isLabel()))
      throw userError(fmt::format("data field {}: values lie in [0, {}){}, found {} in {} sample {}", field.name,
                                  bound.classes, field.isLabel() ? ", or are negative to be ignored" : "", label,
                                  split == Split::Train ? "training" : "evaluation", index));
  }
}

void Loader::fillBox(const BatchRef &batch, const Bound &bound, const Box &box, const std::vector<uint32_t> *epochOrder,
                     std::byte *slot) {
  const InputPart &part = bound.part;
  assert(batch.count > 0 && "a batch has samples");
  const size_t rank = part.global.size();
  int64_t rowBytes = int64_t(dtypeSize(part.dtype));
  bool whole = part.dtype == plan::DType::F32 || part.dtype == plan::DType::I32;
  for (size_t d = 1; d < rank; ++d) {
    rowBytes *= part.shape[d];
    whole = whole && box.size[d] == part.global[d] && part.shape[d] == part.global[d];
  }
  for (int64_t i = 0; i < box.size[0]; ++i) {
    std::byte *row = slot + (box.localStart[0] + i) * rowBytes;
    const int64_t inBatch = part.microbatch * part.global[0] + box.globalStart[0] + i;
    const int64_t position = batch.first + inBatch % batch.count;
    const int64_t index = epochOrder ? int64_t((*epochOrder)[size_t(position)]) : position;
    std::byte *to = whole ? row : sample.data();
    source.read(batch.split, index, bound.field, to);
    if (bound.classes > 0)
      checkLabels(batch.split, index, bound, to);
    if (!whole)
      placeSample(sample.data(), part, box, row);
  }
}

} // namespace cleave
