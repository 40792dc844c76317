// Synthetic data by Philox: element i of sample s of a field is element s * elements + i of the field's stream.
#include "runtime/data/Synthetic.h"
#include "runtime/device/Philox.h"

#include <algorithm>
#include <cassert>
#include <fmt/format.h>

namespace cleave {

SyntheticSource::SyntheticSource(std::vector<DataField> list, SyntheticSize size, uint64_t seed, int64_t vocab)
    : fieldList(std::move(list)), size(size) {
  for (const DataField &field : fieldList) {
    // Targets are the tokens shifted by one, so both use one stream.
    const std::string name = field.name == "targets" ? "tokens" : field.name;
    keys.push_back(seed ^ fnv1a64("cleave.data.synthetic." + name));
    range.push_back(std::max<int64_t>(1, field.classes > 0 ? field.classes : vocab > 0 ? vocab : 2));
  }
}

void SyntheticSource::read(Split split, int64_t index, size_t which, std::byte *dst) const {
  assert(index >= 0 && index < samples(split) && which < fieldList.size());
  const DataField &field = fieldList[which];
  const int64_t count = field.elements();
  const uint64_t stream = split == Split::Train ? 0 : 1;
  const uint64_t first = uint64_t(index) * uint64_t(count) + (field.name == "targets" ? 1 : 0);
  if (field.dtype == FieldType::F32) {
    philoxFill(reinterpret_cast<float *>(dst), keys[which], stream, first, count);
    return;
  }
  if (field.dtype == FieldType::U8) {
    constexpr int64_t atATime = 1024;
    float units[atATime];
    for (int64_t done = 0; done < count; done += atATime) {
      const int64_t part = std::min(atATime, count - done);
      philoxFill(units, keys[which], stream, first + uint64_t(done), part);
      for (int64_t i = 0; i < part; ++i)
        dst[done + i] = static_cast<std::byte>(256 * units[i]);
    }
    return;
  }
  int32_t *out = reinterpret_cast<int32_t *>(dst);
  for (int64_t i = 0; i < count; ++i) {
    const double u = philoxUniform(keys[which], stream, first + uint64_t(i));
    out[i] = int32_t(std::min<int64_t>(range[which] - 1, int64_t(u * double(range[which]))));
  }
}

} // namespace cleave
