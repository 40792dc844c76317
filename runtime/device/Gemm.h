// Matrix products by our own loops (GemmKernels.h), for processors with AVX2, AVX-512 and AVX-512 BF16.
#pragma once
#include "runtime/device/Device.h"
#include "runtime/device/MatmulShape.h"

#include <cstdlib>
#include <map>
#include <memory>
#include <set>
#include <string>

namespace cleave {

struct Workspace;

/// A product of a step, in the form that libraries accept.
struct MatmulPlan {
  MatmulShape shape;
  StepOperand a, b, c, bias; ///< a and b as in `shape`, possibly exchanged
  plan::DType aType, bType, cType, biasType;
  bool accumulate, hasBias;
  uint32_t bSlot; ///< of the program
};

/// A matrix in panels.
struct PackedMatrix {
  struct Free {
    void operator()(float *memory) const { std::free(memory); }
  };
  explicit PackedMatrix(int64_t count);
  std::unique_ptr<float, Free> floats;
  uint64_t iteration = 0; ///< in which it was packed; 0: never
};

/// The matrices of a rank that several products of an iteration use, and that do not change between them: packed once.
class PackedMatrices {
public:
  /// Whether the right matrix of this product is one, and the product is so small that packing takes a part of its time
  /// that matters.
  bool keeps(const MatmulPlan &plan, const SlotScope &scope);
  /// The one of a right matrix, in `count` floats whose order `order` describes.
  std::shared_ptr<PackedMatrix> find(const MatmulPlan &plan, const std::string &order, int64_t count);

private:
  void read(const SlotScope &scope);

  const plan::Program *program = nullptr; ///< that was read
  std::set<uint32_t> changing;            ///< slots that a forward or backward pass writes
  std::map<std::string, int64_t> uses;    ///< of right matrices, in an iteration
  std::map<std::string, std::shared_ptr<PackedMatrix>> matrices;
};

/// Null if there are no loops for its types, its strides or the plan's processors.
std::unique_ptr<Op> makeGemm(const MatmulPlan &plan, const SlotScope &scope, PackedMatrices &matrices,
                             Workspace &workspace, unsigned threads);

} // namespace cleave
