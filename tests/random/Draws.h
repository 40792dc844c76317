// Shared by the tables of ops: tests of shapes, and second operands.
#pragma once
#include "tests/random/Tables.h"

namespace cleave::random_models {

int64_t elementsOf(const Shape &shape);
Drawing::Test rankAtLeast(int64_t rank);
Drawing::Test rankIs(int64_t rank);
/// A dimension of x, sometimes counted from the end.
int64_t dimOf(Drawing &d, int x);
bool canBroadcast(const Shape &a, const Shape &b);
/// A second operand for x: another value, a parameter along some dimension, or x's own mean over one; -1: none fits.
int secondOperand(Drawing &d, int x);
/// Calls the op on a value.
bool drawUnary(Drawing &d, const OpKind &self);
/// Along a dimension of a value; ints: the dimension.
bool drawAlong(Drawing &d, const OpKind &self);
/// Over some dimensions of a value; ints: keepDim, then the dimensions.
bool drawReduce(Drawing &d, const OpKind &self);
std::vector<int64_t> tail(const Call &c);

/// The part of the table that is in Functions.cpp.
std::vector<OpKind> functionKinds();

} // namespace cleave::random_models
