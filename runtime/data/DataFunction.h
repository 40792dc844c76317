// A data set is a function: a sample depends on (seed, epoch, index) alone. Otherwise ranks that share a sample would
// compute with different ones, and a resumed run would see other data.
#pragma once
#include "runtime/data/DataSource.h"

#include <span>
#include <vector>

namespace cleave {

/// Up to eight samples of a split, spread evenly, as a training's first epoch or an evaluation reads them.
std::vector<SampleId> someSamples(const DataSource &source, Split split);

/// A checksum of a field's values, at least 0.
int64_t checksum(std::span<const std::byte> values);

/// Checksums of a sample's first `fields` fields, read in one call. The memory is filled with `before`, which shows
/// what is not written.
std::vector<int64_t> checksums(const DataSource &source, const SampleId &sample, uint64_t seed, size_t fields,
                               std::byte before = {});

/// Reads some samples of each split that is needed twice: again in another order, on another thread, and each field
/// alone. Throws userError that names the field and the sample if that gives other values.
void checkFunction(const DataSource &source, uint64_t seed, DataNeeds needs);

} // namespace cleave
