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
#include <limits>
#include <numeric>
#include <set>

namespace cleave {

std::vector<Loader::Bound> Loader::bind(const plan::Plan &plan, unsigned rank, bool eval, const DataSource &source) {
  std::vector<Bound> bound;
  const DataSpec spec = DataSpec::of(plan);
  for (InputPart &part : inputParts(plan, rank, eval)) {
    if (part.dtype == plan::DType::I64 || part.dtype == plan::DType::I1)
      throw environmentError(fmt::format("plan input {}: the type must be a float, i32 or u8, found {}", part.field,
                                         dtypeName(part.dtype)));
    if (part.global.empty())
      throw environmentError(fmt::format("plan input {}: an input has a batch dimension, found a scalar", part.field));
    const std::vector<int64_t> shape(part.global.begin() + 1, part.global.end());
    const size_t field = findField(source, part.field, fieldTypeOf(part.dtype), shape);
    ValueCheck check(spec, source.fields()[field]);
    bound.push_back({std::move(part), field, std::move(check)});
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
      bool whole = part.dtype == planned(fieldTypeOf(part.dtype)); // not converted
      for (size_t d = 1; d < part.global.size(); ++d)
        whole = whole && box.size[d] == part.global[d] && part.shape[d] == part.global[d];
      if (!whole)
        partial[bound.field] = true;
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

Loader::Loader(const plan::Plan &plan, unsigned rank, const DataSource &source, SampleOrder &order, unsigned count)
    : source(source), order(order), seed(plan.seed()), partial(source.fields().size()),
      train(readsOf(plan, rank, false)), eval(readsOf(plan, rank, true)) {
  if (train.rows.empty() && eval.rows.empty())
    return;
  const auto largest = [](const Reads &reads) {
    return std::accumulate(reads.rows.begin(), reads.rows.end(), int64_t{0},
                           [](int64_t sum, const Rows &rows) { return sum + rows.end - rows.first; });
  };
  const auto most = static_cast<size_t>(std::max(largest(train), largest(eval)));
  workers.resize(std::clamp<size_t>(count, 1, most));
  for (Worker &worker : workers) {
    worker.scratch.resize(partial.size());
    worker.wanted.resize(partial.size());
    for (size_t field = 0; field < partial.size(); ++field)
      if (partial[field])
        worker.scratch[field].resize(size_t(source.fields()[field].bytes()));
  }
  try {
    for (Worker &worker : workers)
      helpers.push_back(
          startThread(fmt::format("reading the data of rank {}", rank), [this, &worker] { work(worker); }));
  } catch (...) {
    end();
    throw;
  }
}

Loader::~Loader() { end(); }

void Loader::end() {
  {
    std::lock_guard lock(mutex);
    stop = true;
  }
  changed.notify_all();
  for (std::thread &helper : helpers)
    helper.join();
}

void Loader::start(const BatchRef &batch, std::byte *buffer, std::vector<RowChecksum> *into) {
  if (helpers.empty())
    return;
  assert(batch.count > 0 && "a batch has samples");
  {
    std::lock_guard lock(mutex);
    assert(working == 0 && "one batch at a time");
    job = batch;
    target = buffer;
    sums = into;
    nextRow = 0;
    working = workers.size();
    ++jobs;
  }
  changed.notify_all();
}

void Loader::wait() {
  std::unique_lock lock(mutex);
  changed.wait(lock, [this] { return working == 0; });
  if (failure)
    std::rethrow_exception(std::exchange(failure, nullptr));
}

void Loader::work(Worker &worker) {
  std::unique_lock lock(mutex);
  for (;;) {
    changed.wait(lock, [&] { return worker.jobs < jobs || stop; });
    if (stop)
      return;
    lock.unlock();
    worker.sums.clear();
    fill(worker);
    lock.lock();
    ++worker.jobs;
    if (--working > 0)
      continue;
    if (sums) {
      sums->clear();
      for (const Worker &each : workers)
        sums->insert(sums->end(), each.sums.begin(), each.sums.end());
      std::ranges::sort(*sums, {}, [](const RowChecksum &sum) { return std::pair(sum.row, sum.field); });
    }
    changed.notify_all();
  }
}

void Loader::fill(Worker &worker) {
  const auto epochOrder = job.split == Split::Train && !train.rows.empty() ? order.of(job.epoch) : nullptr;
  for (int64_t next = nextRow++, skipped = 0; const Rows &rows : (job.split == Split::Train ? train : eval).rows) {
    for (; next - skipped < rows.end - rows.first; next = nextRow++) {
      const int64_t row = rows.first + next - skipped, position = job.first + row % job.count;
      const int64_t index = epochOrder ? int64_t((*epochOrder)[size_t(position)]) : position;
      try {
        fillRow({job.split, index, epochOrder ? job.epoch : 0}, row, rows.places, worker);
      } catch (...) {
        std::lock_guard lock(mutex);
        if (!failure || row < failedRow)
          failure = std::current_exception(), failedRow = row;
        nextRow = std::numeric_limits<int64_t>::max() / 2; // earlier rows are being read already
        return;
      }
    }
    skipped += rows.end - rows.first;
  }
}

/// Copies the part of a sample inside a box (dimensions 1...) to its position in a row of the local tensor, which has
/// shape part.shape[1...]. Converts to a 16-bit type if the slot has one.
static void placeSample(const std::byte *from, const InputPart &part, const Box &box, std::byte *row) {
  const size_t rank = part.global.size();
  int64_t count = 1;
  for (size_t d = 1; d < rank; ++d)
    count *= box.size[d];
  const plan::DType source = planned(fieldTypeOf(part.dtype));
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

void Loader::fillRow(const SampleId &sample, int64_t row, const std::vector<Place> &places, Worker &worker) {
  std::vector<std::byte *> &wanted = worker.wanted;
  const auto in = [&](const Place &place) {
    return target + place.offset + uint64_t(row - place.first) * place.rowBytes;
  };
  std::fill(wanted.begin(), wanted.end(), nullptr);
  for (const Place &place : places) {
    std::byte *&to = wanted[place.bound->field];
    if (place.whole)
      to = in(place); // read in place
    else if (!to)
      to = worker.scratch[place.bound->field].data();
  }
  readSample(source, sample, seed, wanted);
  const Bound *last = nullptr;
  for (const Place &place : places) {
    const Bound &bound = *place.bound;
    const std::byte *from = wanted[bound.field];
    if (sums && (!last || last->field != bound.field))
      worker.sums.push_back({row, bound.field, checksum({from, size_t(source.fields()[bound.field].bytes())})});
    last = &bound;
    bound.check.require(sample, from);
    if (!place.whole)
      placeSample(from, bound.part, *place.box, in(place));
    else if (in(place) != from)
      std::memcpy(in(place), from, place.rowBytes);
  }
}

} // namespace cleave
