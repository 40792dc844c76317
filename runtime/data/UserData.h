// A data set that the user wrote. What it throws becomes the user's error, with the name of what was read.
#pragma once
#include "runtime/data/DataSource.h"

namespace cleave {

class UserData final : public DataSource {
public:
  /// `data` must outlive this object.
  explicit UserData(const Dataset &data) : data(data) {}

  const std::vector<DataField> &fields() const override;
  int64_t samples(Split split) const override;
  std::vector<int64_t> shards(Split split) const override;
  std::string fingerprint(Split split) const override;
  void read(const SampleId &sample, Random &random, std::span<std::byte *const> to) const override;

private:
  const Dataset &data;
};

} // namespace cleave
