// Further shape functions: repeating, splitting, padding, moving and adding slices, and einsum.
#pragma once
#include "cleave/Tensor.h"

#include <string>
#include <vector>

namespace cleave {

/// Repeats dimensions of size 1 to `shape`, which may have additional leading dimensions; -1 keeps a size. C1: shape
/// has at least the input's rank. C2: sizes agree or the input's is 1.
Tensor expand(Tensor x, Shape shape, Where where = Where::current());
/// Repeats the whole tensor counts[i] times along dimension i; additional counts add leading dimensions. C1: there are
/// at least as many counts as dimensions. C2: counts are positive.
Tensor repeat(Tensor x, std::vector<int64_t> counts, Where where = Where::current());
/// Concatenates tensors along a new dimension. C1: at least one. C2: the new dimension lies in [0, rank]. C3: shapes
/// and types agree.
Tensor stack(const std::vector<Tensor> &tensors, int64_t dim = 0, Where where = Where::current());
/// Cuts dimension `dim` into pieces of `size` elements (the last may be smaller), or of the given sizes. C1: the
/// dimension exists. C2: sizes are positive, and given sizes add up to the dimension.
std::vector<Tensor> split(Tensor x, int64_t size, int64_t dim = 0, Where where = Where::current());
std::vector<Tensor> split(Tensor x, const std::vector<int64_t> &sizes, int64_t dim = 0, Where where = Where::current());
/// Cuts dimension `dim` into at most `count` pieces of equal size; the last may be smaller. C1: the dimension exists.
/// C2: count is positive.
std::vector<Tensor> chunk(Tensor x, int64_t count, int64_t dim = 0, Where where = Where::current());
/// Pads x with `value`. `amounts` are pairs (before, after), starting with the last dimension; negative amounts remove
/// elements. C1: amounts are pairs, at most one per dimension. C2: no dimension becomes empty.
Tensor pad(Tensor x, std::vector<int64_t> amounts, double value = 0, Where where = Where::current());
/// What padding repeats: Reflect the elements next to the edge, without the edge; Replicate the edge; Circular the
/// opposite end.
enum class PadMode : uint8_t { Reflect, Replicate, Circular };
/// Pads x with its own elements. C1: amounts are pairs, at most one per dimension. C2: amounts are not negative,
/// smaller than the dimension for Reflect, and at most the dimension for Circular.
Tensor pad(Tensor x, std::vector<int64_t> amounts, PadMode mode, Where where = Where::current());
/// Moves elements along dims[i] by shifts[i] places towards the end; those that leave it enter at the start. C1: dims
/// lie in [0, rank) and differ. C2: there is one shift per dimension.
Tensor roll(Tensor x, std::vector<int64_t> shifts, std::vector<int64_t> dims, Where where = Where::current());
/// Slices index[0], index[1], ... of dimension `dim`. C1: the dimension exists. C2: the index
/// is a vector of i32.
Tensor indexSelect(Tensor x, int64_t dim, Tensor index, Outside outside = Outside::Error,
                   Where where = Where::current());
/// Adds source[.., j, ..] to x[.., index[.., j, ..], ..] along `dim`, the inverse of gather; elements of the source
/// without an index are not added. C1: ranks agree. C2: the dimension exists. C3: the index is at most as large as the
/// source and, in other dimensions, as x. C4: the index is i32. C5: x and source have one float type.
Tensor scatterAdd(Tensor x, int64_t dim, Tensor index, Tensor source, Outside outside = Outside::Error,
                  Where where = Where::current());
/// Adds slice j of the source to slice index[j] of x along `dim`. C1: ranks agree, and the index is a vector with one
/// element for each slice of the source. C2, C4 and C5 as scatterAdd. C3: other sizes of x and source agree.
Tensor indexAdd(Tensor x, int64_t dim, Tensor index, Tensor source, Outside outside = Outside::Error,
                Where where = Where::current());
/// Reverses the order of the elements along `dims`. C1: dims lie in [0, rank) and differ.
Tensor flip(Tensor x, std::vector<int64_t> dims, Where where = Where::current());

/// Einstein summation: "bij,bjk->bik". A letter names a dimension, letters that are not in the result are summed, "..."
/// stands for leading dimensions that are broadcast, and a letter used twice in one operand takes its diagonal. Without
/// "->" the result has the letters that occur once, in alphabetical order. Operands are multiplied from left to right,
/// as matrix products if a dimension is summed. C1: the text is well formed. C2: one term per operand, with one letter
/// per dimension. C3: sizes of equal letters agree or are 1. C4: element types agree.
Tensor einsum(const std::string &text, const std::vector<Tensor> &operands, Where where = Where::current());

} // namespace cleave
