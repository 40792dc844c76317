// Small hand-written plans and data, for the tests of data, checkpoints and sessions.
#pragma once
#include "runtime/data/DataSource.h"
#include "runtime/plan/PlanFile.h"
#include "runtime/plan/plan_generated.h"
#include "tests/support/PlanBuilder.h"

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace cleave::test {

/// A folder that its destructor removes.
class TemporaryFolder {
public:
  TemporaryFolder();
  ~TemporaryFolder();
  std::string path(const std::string &name = "") const { return name.empty() ? root.string() : (root / name).string(); }

private:
  std::filesystem::path root;
};

/// A sharding by factors: one list of {size, axes} per dimension.
struct FactorSpec {
  int64_t size;
  std::vector<uint8_t> axes;
};
std::unique_ptr<plan::ShardingT> sharding(const std::vector<std::vector<FactorSpec>> &dims);

struct LinearSpec {
  unsigned dp = 1, tp = 1;
  int64_t batch = 8, microbatches = 2, rows = 6, columns = 5;
  uint64_t seed = 3;
};

/// A plan that trains: y = <image, fc.weight> for images [1, rows, columns]. Loss = sum of y, gradient = sum of images;
/// per step fc.weight += lr * gradient, fc.count += 1. Rows are split over tp, the batch over dp (uneven is fine).
plan::PlanT linearPlan(const LinearSpec &spec);

/// Images whose elements are small integers that depend on sample and position; label = sample index modulo 10.
class CountingData final : public DataSource {
public:
  CountingData(int64_t rows, int64_t columns, int64_t train, int64_t eval);
  const std::vector<cleave::DataField> &fields() const override { return list; }
  int64_t samples(Split split) const override { return split == Split::Train ? train : eval; }
  void read(Split split, int64_t index, size_t field, std::byte *dst) const override;
  static float value(Split split, int64_t index, int64_t element);

private:
  std::vector<cleave::DataField> list;
  int64_t train, eval;
};

} // namespace cleave::test
