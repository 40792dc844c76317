// Random data with the shapes that a model expects: f32 uniform in [0, 1), i32 labels in [0, classes). Each value
// depends only on (seed, split, field, sample). Targets of a text model are the tokens shifted by one.
#pragma once
#include "runtime/data/DataSource.h"

namespace cleave {

class SyntheticSource final : public DataSource {
public:
  SyntheticSource(std::vector<DataField> fields, SyntheticSize size, uint64_t seed, int64_t vocab = 0);

  const std::vector<DataField> &fields() const override { return fieldList; }
  int64_t samples(Split split) const override { return split == Split::Train ? size.train : size.eval; }
  void read(Split split, int64_t index, size_t field, std::byte *dst) const override;

private:
  std::vector<DataField> fieldList;
  SyntheticSize size;
  std::vector<uint64_t> keys; ///< per field and split
  std::vector<int64_t> range; ///< i32 fields: values lie in [0, range)
};

} // namespace cleave
