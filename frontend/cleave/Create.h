// Tensors that are made, not given: constants, random numbers, ranges, masks.
#pragma once
#include "cleave/Tensor.h"

#include <initializer_list>
#include <vector>

namespace cleave {

/// A tensor of numbers known when the model is traced, in row-major order: f32, or i32 from a vector of int32_t. It
/// becomes part of the plan's code; what is larger belongs in a Buffer or the data. C1: sizes are positive. C2: as many
/// values as elements. C3: at most 2^18 elements.
Tensor constant(Shape shape, const std::vector<float> &values, Where where = Where::current());
Tensor constant(Shape shape, const std::vector<int32_t> &values, Where where = Where::current());
Tensor constant(Shape shape, std::initializer_list<double> values, Where where = Where::current());

/// Uniform numbers in [0, 1), and standard normal ones (Box and Muller 1958), f32, new in every step. They are counted
/// by seed, place in the model and element, so that no split changes them. C1: sizes are positive.
Tensor rand(Shape shape, Where where = Where::current());
Tensor randn(Shape shape, Where where = Where::current());

/// start, start + step, ... up to but without end, f32. C1: step is not 0 and leads from start towards end.
Tensor arange(double start, double end, double step = 1, Where where = Where::current());

/// 1 at each id's place of a new last dimension of size `classes`, 0 elsewhere; all 0 for ids outside [0, classes).
/// C1: ids are i32. C2: classes is positive.
Tensor oneHot(Tensor ids, int64_t classes, DType type = DType::I32, Where where = Where::current());

/// The last two dimensions' lower or upper triangle, zeros elsewhere; `diagonal` > 0 is above the main one.
/// C1: the rank is at least 2.
Tensor tril(Tensor x, int64_t diagonal = 0, Where where = Where::current());
Tensor triu(Tensor x, int64_t diagonal = 0, Where where = Where::current());

} // namespace cleave
