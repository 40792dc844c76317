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
#include <iterator>
#include <set>

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

Loader::Reads Loader::readsOf(const plan::Plan &plan, unsigned rank, bool eval) {
  Reads reads{bind(plan, rank, eval, source), {}};
  std::vector<Place> all;
  std::set<int64_t> ends; // where a place begins or ends
  for (const Bound &bound : reads.bound) {
    const InputPart &part = bound.part;
    uint64_t rowBytes = dtypeSize(part.dtype);
    for (size_t d = 1; d < part.shape.size(); ++d)
      rowBytes *= static_cast<uint64_t>(part.shape[d]);
    for (const Box &box : part.boxes) {
      bool whole = part.dtype == plan::DType::F32 || part.dtype == plan::DType::I32;
      for (size_t d = 1; d < part.global.size(); ++d)
        whole = whole && box.size[d] == part.global[d] && part.shape[d] == part.global[d];
      if (!whole)
        scratch[bound.field].resize(size_t(source.fields()[bound.field].bytes()));
      const int64_t first = part.microbatch * part.global[0] + box.globalStart[0];
      all.push_back({&bound, &box, first, part.offset + uint64_t(box.localStart[0]) * rowBytes, rowBytes, whole});
      ends.insert({first, first + box.size[0]});
    }
  }
  std::sort(all.begin(), all.end(), [](const Place &a, const Place &b) { return a.bound->field < b.bound->field; });
  for (auto begin = ends.begin(); begin != ends.end() && std::next(begin) != ends.end(); ++begin) {
    Rows rows{*begin, *std::next(begin), {}};
    for (const Place &place : all)
      if (place.first <= rows.first && rows.first < place.first + place.box->size[0])
        rows.places.push_back(place);
    if (!rows.places.empty())
      reads.rows.push_back(std::move(rows));
  }
  return reads;
}

Loader::Loader(const plan::Plan &plan, unsigned rank, const DataSource &source, SampleOrder &order)
    : source(source), order(order), seed(plan.seed()), scratch(source.fields().size()), wanted(source.fields().size()),
      train(readsOf(plan, rank, false)), eval(readsOf(plan, rank, true)) {
  if (!train.rows.empty() || !eval.rows.empty())
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

void Loader::start(const BatchRef &batch, std::byte *buffer, std::vector<RowChecksum> *into) {
  if (!helper.joinable())
    return;
  {
    std::lock_guard lock(mutex);
    assert(!busy && "one batch at a time");
    job = batch;
    target = buffer;
    sums = into;
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
      fill(job, target, sums);
    } catch (...) {
      caught = std::current_exception();
    }
    lock.lock();
    failure = caught;
    busy = false;
    changed.notify_all();
  }
}

void Loader::fill(const BatchRef &batch, std::byte *buffer, std::vector<RowChecksum> *checksums) {
  assert(batch.count > 0 && "a batch has samples");
  const std::vector<Rows> &all = (batch.split == Split::Train ? train : eval).rows;
  const auto epochOrder = batch.split == Split::Train && !all.empty() ? order.of(batch.epoch) : nullptr;
  if (checksums)
    checksums->clear();
  for (const Rows &rows : all)
    for (int64_t row = rows.first; row < rows.end; ++row) {
      const int64_t position = batch.first + row % batch.count;
      const int64_t index = epochOrder ? int64_t((*epochOrder)[size_t(position)]) : position;
      fillRow({batch.split, index, epochOrder ? batch.epoch : 0}, row, rows.places, buffer, checksums);
    }
}

/// Copies the part of a sample inside a box (dimensions 1...) to its position in a row of the local tensor, which has
/// shape part.shape[1...]. Converts to a 16-bit type if the slot has one.
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

void Loader::checkLabels(const SampleId &sample, const Bound &bound, const std::byte *labels) const {
  const DataField &field = source.fields()[bound.field];
  for (int64_t i = 0; i < field.elements(); ++i) {
    int32_t label;
    std::memcpy(&label, labels + 4 * i, sizeof label);
    if (label >= bound.classes || (label < 0 && !field.isLabel()))
      throw userError(fmt::format("data field {}: values lie in [0, {}){}, found {} in {}", field.name, bound.classes,
                                  field.isLabel() ? ", or are negative to be ignored" : "", label, sampleName(sample)));
  }
}

void Loader::fillRow(const SampleId &sample, int64_t row, const std::vector<Place> &places, std::byte *buffer,
                     std::vector<RowChecksum> *checksums) {
  const auto in = [&](const Place &place) {
    return buffer + place.offset + uint64_t(row - place.first) * place.rowBytes;
  };
  std::fill(wanted.begin(), wanted.end(), nullptr);
  for (const Place &place : places) {
    std::byte *&to = wanted[place.bound->field];
    if (place.whole)
      to = in(place); // read in place
    else if (!to)
      to = scratch[place.bound->field].data();
  }
  readSample(source, sample, seed, wanted);
  const Bound *last = nullptr;
  for (const Place &place : places) {
    const Bound &bound = *place.bound;
    const std::byte *from = wanted[bound.field];
    if (checksums && (!last || last->field != bound.field))
      checksums->push_back({row, bound.field, checksum({from, size_t(source.fields()[bound.field].bytes())})});
    last = &bound;
    if (bound.classes > 0)
      checkLabels(sample, bound, from);
    if (!place.whole)
      placeSample(from, bound.part, *place.box, in(place));
    else if (in(place) != from)
      std::memcpy(in(place), from, place.rowBytes);
  }
}

} // namespace cleave
