// Random numbers, for example for dropout, by global element index, so that any split draws the same ones.
#include "runtime/base/Error.h"
#include "runtime/device/HostDevice.h"
#include "runtime/device/Parallel.h"
#include "runtime/device/Philox.h"
#include "runtime/plan/DTypes.h"
#include "runtime/plan/Slices.h"
#include "runtime/plan/plan_generated.h"

#include <algorithm>
#include <numeric>

namespace cleave {

namespace {

class RandomOp final : public Op {
public:
  RandomOp(const plan::Random &random, SlotScope &scope, unsigned threads)
      : out{scope.local(random.out())}, key(scope.plan.seed() ^ random.key()), dtype(random.dtype()),
        atLeast(static_cast<float>(random.at_least())) {
    std::vector<int64_t> global;
    if (random.shape())
      global.assign(random.shape()->begin(), random.shape()->end());
    std::vector<uint32_t> coords(scope.rank.coords()->begin(), scope.rank.coords()->end());
    auto mesh = meshSizes(scope.plan);
    const plan::Sharding *sharding = scope.slot(random.out()).sharding();
    pieces = localPieces(sharding, global, mesh, coords, pieceElements);
    elements = std::accumulate(global.begin(), global.end(), int64_t{1}, std::multiplies<>());
    rows = random.shared() ? 0 : scope.rows();
    int64_t mine = 0;
    for (const Piece &piece : pieces)
      mine += piece.count;
    this->threads = mine < pieceElements ? 1 : threads;
  }

  void run(SlotTable slots, const RunContext &context) override {
    std::byte *to = out.at(slots);
    const RandomCounter counter(elements, rows, std::max(0, context.microbatch), context.random);
    parallelRange(threads, static_cast<int64_t>(pieces.size()), 1, [&](int64_t begin, int64_t end) {
      for (int64_t p = begin; p < end; ++p)
        for (Piece left = pieces[static_cast<size_t>(p)]; left.count > 0;) {
          Piece run = left;
          run.count = counter.run(left.global, left.count);
          fill(to, run, counter.place(left.global), context.random.stream);
          left.local += run.count, left.global += run.count, left.count -= run.count;
        }
    });
  }

private:
  static constexpr int64_t pieceElements = 4096;

  /// `place`: of the first element in the stream.
  void fill(std::byte *to, const Piece &piece, uint64_t place, uint64_t stream) const {
    if (dtype == plan::DType::F32)
      return philoxFill(reinterpret_cast<float *>(to) + piece.local, key, stream, place, piece.count);
    float values[256];
    for (int64_t done = 0; done < piece.count; done += 256) {
      int64_t count = std::min<int64_t>(256, piece.count - done);
      philoxFill(values, key, stream, place + static_cast<uint64_t>(done), count);
      if (dtype == plan::DType::I1)
        std::transform(values, values + count, to + piece.local + done,
                       [this](float value) { return std::byte{value >= atLeast}; });
      for (int64_t i = 0; dtype != plan::DType::I1 && i < count; ++i)
        storeElement(to, piece.local + done + i, dtype, values[i]);
    }
  }

  StepOperand out;
  uint64_t key;
  plan::DType dtype;
  float atLeast; ///< I1: the least number that is true
  std::vector<Piece> pieces;
  int64_t elements = 0, rows = 1;
  unsigned threads = 1;
};

} // namespace

std::unique_ptr<Op> makeHostOp(const plan::Random &op, SlotScope &scope, unsigned threads) {
  return std::make_unique<RandomOp>(op, scope, threads);
}

} // namespace cleave
