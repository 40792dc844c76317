// Reads samples several times and compares them.
#include "runtime/data/DataFunction.h"
#include "runtime/base/Error.h"
#include "runtime/base/Thread.h"
#include "runtime/device/Philox.h"

#include <algorithm>
#include <exception>
#include <fmt/format.h>

namespace cleave {

std::vector<SampleId> someSamples(const DataSource &source, Split split) {
  constexpr int64_t most = 8;
  const int64_t samples = source.samples(split), count = std::min(samples, most);
  std::vector<SampleId> list;
  for (int64_t i = 0; i < count; ++i)
    list.push_back({split, count == 1 ? 0 : i * (samples - 1) / (count - 1), split == Split::Train ? 1 : 0});
  return list;
}

int64_t checksum(std::span<const std::byte> values) {
  return static_cast<int64_t>(fnv1a64({reinterpret_cast<const char *>(values.data()), values.size()}) >> 1);
}

std::vector<int64_t> checksums(const DataSource &source, const SampleId &sample, uint64_t seed, size_t fields,
                               std::byte before) {
  std::vector<std::vector<std::byte>> values(fields);
  std::vector<std::byte *> to(source.fields().size());
  for (size_t field = 0; field < fields; ++field) {
    values[field].assign(static_cast<size_t>(source.fields()[field].bytes()), before);
    to[field] = values[field].data();
  }
  readSample(source, sample, seed, to);
  std::vector<int64_t> sums;
  for (const auto &one : values)
    sums.push_back(checksum(one));
  return sums;
}

namespace {

constexpr std::byte pattern{0xA5};

[[noreturn]] void refuse(const DataSource &source, const SampleId &sample, size_t field, const char *found) {
  throw userError(
      fmt::format("data field {} of {}: {}; a sample must depend on (seed, epoch, index) alone, so that all "
                  "ranks read the same",
                  source.fields()[field].name, sampleName(sample), found));
}

/// Compares the samples with their first checksums, in reverse order.
void readAgain(const DataSource &source, uint64_t seed, const std::vector<SampleId> &list,
               const std::vector<std::vector<int64_t>> &first) {
  for (size_t i = list.size(); i-- > 0;) {
    const std::vector<int64_t> again = checksums(source, list[i], seed, first[i].size(), pattern);
    for (size_t field = 0; field < again.size(); ++field)
      if (again[field] != first[i][field])
        refuse(source, list[i], field,
               "read again, it has other values: draw random numbers from the generator that Dataset::read gets, keep "
               "nothing from earlier reads, and write every element");
  }
  std::vector<std::byte> values;
  for (size_t i = list.size(); i-- > 0;)
    for (size_t field = first[i].size(); field-- > 0;) {
      values.assign(static_cast<size_t>(source.fields()[field].bytes()), pattern);
      readField(source, list[i], seed, field, values.data());
      if (checksum(values) != first[i][field])
        refuse(source, list[i], field,
               "read without the other fields, it has other values: in Dataset::read, draw the numbers that fields "
               "share before asking which fields are wanted, and a field's own numbers from a stream of its own");
    }
}

} // namespace

void checkFunction(const DataSource &source, uint64_t seed, DataNeeds needs) {
  const size_t fields = source.fields().size() - (needs.labels || source.fields().empty() ? 0 : 1);
  std::vector<SampleId> list;
  for (const Split split : {Split::Train, Split::Eval})
    if (split == Split::Train ? needs.train : needs.eval)
      for (const SampleId &sample : someSamples(source, split))
        list.push_back(sample);
  std::vector<std::vector<int64_t>> first;
  for (const SampleId &sample : list)
    first.push_back(checksums(source, sample, seed, fields));
  std::exception_ptr failure;
  startThread("reading samples again", [&] {
    try {
      readAgain(source, seed, list, first);
    } catch (...) {
      failure = std::current_exception();
    }
  }).join();
  if (failure)
    std::rethrow_exception(failure);
}

} // namespace cleave
