// Writes initial values, piece by piece.
#include "runtime/executor/Initialise.h"

#include "runtime/device/Parallel.h"
#include "runtime/device/Philox.h"
#include "runtime/plan/DTypes.h"
#include "runtime/plan/Slices.h"
#include "runtime/plan/Text.h"
#include "runtime/plan/plan_generated.h"

#include <algorithm>
#include <span>

namespace cleave {

namespace {

/// Values first ... first + values.size() - 1 of an Init that is not constant.
void initialValues(std::span<double> values, const plan::Init &init, uint64_t key, uint64_t first) {
  const auto count = static_cast<int64_t>(values.size());
  const double a = init.a(), b = init.b();
  if (init.kind() == plan::InitKind::Normal) {
    philoxFillNormal(values.data(), key, 1, first, count);
    for (double &value : values)
      value = a + b * value;
    return;
  }
  std::vector<float> uniform(values.size());
  philoxFill(uniform.data(), key, 0, first, count);
  // computed in double and rounded once: stays below b unless b is the nearest f32
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = a + (b - a) * double{uniform[i]};
}

} // namespace

void initialiseSlot(const plan::Plan &plan, const plan::Rank &rank, const plan::Slot &slot, std::byte *memory,
                    unsigned threads) {
  if (slot.tensor() < 0)
    return;
  const plan::Tensor *tensor = plan.tensors()->Get(static_cast<uint32_t>(slot.tensor()));
  const plan::Init *init = tensor->init();
  if (!init || (init->kind() == plan::InitKind::Constant && init->a() == 0))
    return;
  std::vector<int64_t> global;
  if (tensor->shape())
    global.assign(tensor->shape()->begin(), tensor->shape()->end());
  std::vector<uint32_t> coords(rank.coords()->begin(), rank.coords()->end());
  auto mesh = meshSizes(plan);
  // An average begins as its parameter; other states are constant.
  const bool state = tensor->kind() == plan::TensorKind::State && tensor->parameter() >= 0;
  const plan::Tensor *drawn = state ? plan.tensors()->Get(static_cast<uint32_t>(tensor->parameter())) : tensor;
  uint64_t key = plan.seed() ^ fnv1a64(text(drawn->name()));
  const plan::DType dtype = slot.dtype();
  auto pieces = localPieces(slot.sharding(), global, mesh, coords, 4096);
  parallelRange(threads, static_cast<int64_t>(pieces.size()), 1, [&](int64_t begin, int64_t end) {
    std::vector<double> values;
    for (const Piece &piece : std::span(pieces).subspan(size_t(begin), size_t(end - begin))) {
      values.resize(size_t(piece.count));
      if (init->kind() == plan::InitKind::Constant)
        std::ranges::fill(values, init->a());
      else
        initialValues(values, *init, key, static_cast<uint64_t>(piece.global));
      if (dtype == plan::DType::F32) { // most are
        float *to = reinterpret_cast<float *>(memory) + piece.local;
        std::ranges::transform(values, to, [](double value) { return static_cast<float>(value); });
      } else {
        for (int64_t i = 0; i < piece.count; ++i)
          storeElement(memory, piece.local + i, dtype, values[size_t(i)]);
      }
    }
  });
}

} // namespace cleave
