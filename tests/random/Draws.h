// Functions that the tables of ops share: tests of shapes, and common ways to draw operands.
#pragma once
#include "tests/random/Tables.h"

namespace cleave::random_models {

int64_t elementsOf(const Shape &shape);
Drawing::Test rankAtLeast(int64_t rank);
Drawing::Test rankIs(int64_t rank);
/// A dimension of x, sometimes counted from the end.
int64_t dimOf(Drawing &d, int x);
bool canBroadcast(const Shape &a, const Shape &b);
/// A second operand for x: another value, a parameter along one dimension, or the mean of x over one dimension (the sum
/// in cases of whole numbers). Returns -1 if none fits.
int secondOperand(Drawing &d, int x);
/// Draws a call of the op on one value.
bool drawUnary(Drawing &d, const OpKind &self);
/// Draws a call along one dimension of a value; ints: the dimension.
bool drawAlong(Drawing &d, const OpKind &self);
/// Draws a call over some dimensions of a value; ints: keepDim, then the dimensions.
bool drawReduce(Drawing &d, const OpKind &self);
/// All ints of the call but the first.
std::vector<int64_t> tail(const Call &c);

/// The entries defined in Functions.cpp.
std::vector<OpKind> functionKinds();

} // namespace cleave::random_models
