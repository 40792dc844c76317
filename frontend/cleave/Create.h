// Functions that create tensors: constants, random numbers, ranges, masks.
#pragma once
#include "cleave/Tensor.h"

#include <initializer_list>
#include <vector>

namespace cleave {

/// A constant tensor from values in row-major order: f32, or i32 from a vector of int32_t. It becomes part of the
/// plan's code; put larger tensors in a Buffer or the data set. C1: sizes are positive. C2: there is one value per
/// element. C3: at most 2^18 elements.
Tensor constant(Shape shape, const std::vector<float> &values, Where where = Where::current());
Tensor constant(Shape shape, const std::vector<int32_t> &values, Where where = Where::current());
Tensor constant(Shape shape, std::initializer_list<double> values, Where where = Where::current());

/// Uniform numbers in [0, 1), and standard normal numbers (Box and Muller 1958), f32, new in every training step. They
/// depend only on the seed, the step, the call's place in the model and the global element index, so they are the same
/// under every split. A dimension whose size follows the batch, as in randn({x.size(0), 8}), has numbers for each
/// sample; without one, as in randn({1, 8}), all samples share the numbers, in every microbatch. (The model is called
/// once more, with twice as many samples, to tell which; if its code fixes their number, dimension 0 has the samples if
/// its size is a multiple of that number, or for a vector that number.) C1: sizes are positive.
Tensor rand(Shape shape, Where where = Where::current());
Tensor randn(Shape shape, Where where = Where::current());

/// start, start + step, ..., excluding end, f32. C1: step is not 0 and leads from start towards end.
Tensor arange(double start, double end, double step = 1, Where where = Where::current());

/// Adds a last dimension of size `classes` with 1 at the id's position and 0 elsewhere; all 0 for negative ids, like
/// labels that losses ignore. C1: ids are i32. C2: classes is positive.
Tensor oneHot(Tensor ids, int64_t classes, DType type = DType::I32, Outside outside = Outside::Error,
              Where where = Where::current());

/// The lower or upper triangle of the last two dimensions, including diagonal number `diagonal`, and zeros elsewhere. 0
/// is the main diagonal; positive numbers are above it. C1: the rank is at least 2.
Tensor tril(Tensor x, int64_t diagonal = 0, Where where = Where::current());
Tensor triu(Tensor x, int64_t diagonal = 0, Where where = Where::current());

} // namespace cleave
