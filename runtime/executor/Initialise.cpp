// Initial values, box by box and row by row.
#include "runtime/executor/Initialise.h"

#include "runtime/device/Parallel.h"
#include "runtime/device/Philox.h"
#include "runtime/plan/DTypes.h"
#include "runtime/plan/Slices.h"
#include "runtime/plan/plan_generated.h"

namespace cleave {

namespace {

double initialValue(const plan::Init &init, uint64_t key, uint64_t index) {
  switch (init.kind()) {
  case plan::InitKind::Constant:
    return init.a();
  case plan::InitKind::Uniform: {
    // in double, rounded once: stays below b except where that is the nearest f32
    double u = philoxUniform(key, 0, index);
    return init.a() + (init.b() - init.a()) * u;
  }
  case plan::InitKind::Normal:
    return init.a() + init.b() * philoxNormal(key, 1, index);
  }
  return 0;
}

} // namespace

void initialiseSlot(const plan::Plan &plan, const plan::Rank &rank, const plan::Slot &slot, std::byte *memory,
                    unsigned threads) {
  if (slot.tensor() < 0)
    return;
  const plan::Tensor *tensor = plan.tensors()->Get(static_cast<uint32_t>(slot.tensor()));
  const plan::Init *init = tensor->init();
  if (!init)
    return;
  std::vector<int64_t> global;
  if (tensor->shape())
    global.assign(tensor->shape()->begin(), tensor->shape()->end());
  std::vector<uint32_t> coords(rank.coords()->begin(), rank.coords()->end());
  auto mesh = meshSizes(plan);
  auto local = localShape(slot.sharding(), global, mesh, coords);
  uint64_t key = plan.seed() ^ fnv1a64(tensor->name() ? tensor->name()->str() : "");
  for (const Box &box : localBoxes(slot.sharding(), global, mesh, coords)) {
    size_t rank = global.size();
    int64_t rows = 1, inner = rank ? box.size[rank - 1] : 1;
    for (size_t d = 0; d + 1 < rank; ++d)
      rows *= box.size[d];
    parallelRange(threads, rows, 1 + 4096 / inner, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        int64_t rest = row, globalAt = 0, localAt = 0, globalStep = 1, localStep = 1;
        for (size_t d = rank; d-- > 0;) {
          int64_t i = 0;
          if (d + 1 < rank) {
            i = rest % box.size[d];
            rest /= box.size[d];
          }
          globalAt += (box.globalStart[d] + i) * globalStep;
          localAt += (box.localStart[d] + i) * localStep;
          globalStep *= global[d];
          localStep *= local[d];
        }
        for (int64_t i = 0; i < inner; ++i)
          storeElement(memory, localAt + i, slot.dtype(),
                       initialValue(*init, key, static_cast<uint64_t>(globalAt + i)));
      }
    });
  }
}

} // namespace cleave
