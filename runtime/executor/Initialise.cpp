// Writes initial values, piece by piece.
#include "runtime/executor/Initialise.h"

#include "runtime/device/Parallel.h"
#include "runtime/device/Philox.h"
#include "runtime/plan/DTypes.h"
#include "runtime/plan/Slices.h"
#include "runtime/plan/Text.h"
#include "runtime/plan/plan_generated.h"

namespace cleave {

namespace {

double initialValue(const plan::Init &init, uint64_t key, uint64_t index) {
  switch (init.kind()) {
  case plan::InitKind::Constant:
    return init.a();
  case plan::InitKind::Uniform: {
    // computed in double and rounded once: stays below b unless b is the nearest f32
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
  // An average begins as its parameter; other states are constant.
  const bool state = tensor->kind() == plan::TensorKind::State && tensor->parameter() >= 0;
  const plan::Tensor *drawn = state ? plan.tensors()->Get(static_cast<uint32_t>(tensor->parameter())) : tensor;
  uint64_t key = plan.seed() ^ fnv1a64(text(drawn->name()));
  auto pieces = localPieces(slot.sharding(), global, mesh, coords, 4096);
  parallelRange(threads, static_cast<int64_t>(pieces.size()), 1, [&](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p) {
      const Piece &piece = pieces[static_cast<size_t>(p)];
      for (int64_t i = 0; i < piece.count; ++i)
        storeElement(memory, piece.local + i, slot.dtype(),
                     initialValue(*init, key, static_cast<uint64_t>(piece.global + i)));
    }
  });
}

} // namespace cleave
