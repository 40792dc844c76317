// Ops as free functions with PyTorch's names. Every function checks its arguments when it is called. The comments
// number the rules of each function (C1, C2, ...); a violated rule is a user error that names the rule and the user's
// line. Negative dimensions count from the end. The element type is f32 unless stated otherwise. Shapes in comments: n
// samples, c channels, h x w images, b batch, t positions. `/` in a shape rounds down.
#pragma once
#include "cleave/Tensor.h"

#include <string>
#include <utility>
#include <vector>

namespace cleave {

namespace internal {
/// Marks the ops that are added during its lifetime (perMicrobatch).
class PerMicrobatch {
public:
  explicit PerMicrobatch(Where where);
  ~PerMicrobatch();
  PerMicrobatch(const PerMicrobatch &) = delete;
};
} // namespace internal

/// Height and width; one number sets both.
struct Pair {
  Pair(int64_t both) : h(both), w(both) {}
  Pair(int64_t h, int64_t w) : h(h), w(w) {}
  int64_t h, w;
};

// ---- linear algebra ---------------------------------------------------------------------------------------------

/// a [..., m, k] times b [..., k, n]; leading dimensions are broadcast. C1: ranks are at least 2. C2: the contracted
/// sizes agree. C3: leading dimensions can be broadcast. C4: types agree.
Tensor matmul(Tensor a, Tensor b, Where where = Where::current());
/// x [..., in] times the transpose of weight [out, in], plus bias [out] -> [..., out]. C1: the input's rank is at least
/// 2 and the weight's is 2. C2: the input's last dimension is the weight's. C3: the bias is [out]. C4: the element
/// types of input and weight agree.
Tensor linear(Tensor x, Tensor weight, Tensor bias = {}, Where where = Where::current());

struct ConvOptions {
  Pair stride = 1, padding = 0, dilation = 1;
  int64_t groups = 1;
};
/// 2-D convolution: x [n, c, h, w], weight [o, c / groups, kh, kw], bias [o] -> [n, o, H, W], H = (h + 2 padding -
/// dilation (kh - 1) - 1) / stride + 1, W likewise. C1: ranks are 4. C2: the input has groups times the weight's
/// channels. C3: groups divides o. C4: the output is not empty. C5: stride and dilation are positive, padding is not
/// negative. C6: the bias is [o].
Tensor conv2d(Tensor x, Tensor weight, Tensor bias = {}, ConvOptions options = {}, Where where = Where::current());

/// How a causal mask is aligned if there are t queries and s keys, t != s. UpperLeft: query i attends to keys 0 to i;
/// the first query is the first position. LowerRight: to keys 0 to i + s - t; the last query is the last position, as
/// in sampling with stored keys and values.
enum class CausalAlignment : uint8_t { UpperLeft, LowerRight };
struct AttentionOptions {
  bool causal = false; ///< a query does not attend to later keys
  double scale = 0;    ///< factor of the scores; 0: 1 / sqrt(d)
  Tensor mask = {};    ///< float: added to the scores; i1: true where a query may attend to a key
  double dropout = 0;  ///< probability of dropping an element of the softmax; only in training
  CausalAlignment alignment = CausalAlignment::UpperLeft;
};
/// Attention, softmax(scale q k^T + mask) v (Vaswani et al. 2017): q [b, heads, t, d], k and v [b, kvHeads, s, d] ->
/// [b, heads, t, d]. If kvHeads < heads, each head of k and v serves heads / kvHeads consecutive heads of q (grouped
/// queries, Ainslie et al. 2023). A query for which an i1 mask excludes every key yields zeros. C1: ranks are 4. C2:
/// batch and d agree, k and v have the same shape, kvHeads divides heads. C3: with LowerRight, causal attention needs t
/// <= s. C4: the mask is i1 or of q's type and can be broadcast to [b, heads, t, s]. C5: 0 <= dropout < 1. C6: q, k and
/// v have one float type.
Tensor scaledDotProductAttention(Tensor q, Tensor k, Tensor v, AttentionOptions options = {},
                                 Where where = Where::current());

struct RotaryOptions {
  double base = 10000;
  int64_t start = 0; ///< position of the first row
};
/// Rotary position embedding (Su et al. 2021) of x [..., t, d], as in Llama: element i of the first half of d and
/// element i of the second half are rotated by the angle position * base^(-2 i / d), in radians. C1: the rank is at
/// least 2. C2: d is even. C3: the base is positive, the start not negative. C4: x has a float type. C5:
/// there are at most 2^26 angles, t d / 2.
Tensor rotaryEmbedding(Tensor x, RotaryOptions options = {}, Where where = Where::current());

/// Cosine of the angle between a and b along `dim`: sum(a b) / (max(|a|, eps) max(|b|, eps)). C1: element types agree.
/// C2: shapes can be broadcast. C3: the dimension exists in the broadcast shape. C4: the type is a float type.
Tensor cosineSimilarity(Tensor a, Tensor b, int64_t dim = 1, double eps = 1e-8, Where where = Where::current());

/// Looks up rows of weight [rows, width]: ids [...] in [0, rows) -> [..., width]. C1: the weight's rank is 2. C2: ids
/// are i32.
Tensor embedding(Tensor ids, Tensor weight, Outside outside = Outside::Error, Where where = Where::current());

// ---- pooling ----------------------------------------------------------------------------------------------------

struct MaxPoolOptions {
  Pair stride = 0; ///< 0: the kernel's size
  Pair padding = 0;
  Pair dilation = 1;
  bool ceilMode =
      false; ///< the result's size is rounded up; a last window that starts outside image and padding is dropped
};
/// Maximum of each window of x [n, c, h, w] -> [n, c, H, W], H = (h + 2 padding - dilation (kernel - 1) - 1) / stride +
/// 1, W likewise; padding is never the maximum. C1: the rank is 4. C2: the output is not empty. C3: padding is smaller
/// than the kernel. C4: kernel, stride and dilation are positive.
Tensor maxPool2d(Tensor x, Pair kernel, MaxPoolOptions options = {}, Where where = Where::current());
struct AvgPoolOptions {
  Pair stride = 0; ///< 0: the kernel's size
  Pair padding = 0;
  bool ceilMode = false;       ///< as in MaxPoolOptions; what a window has beyond the padding never counts
  bool countIncludePad = true; ///< padding counts as zeros; otherwise the mean is over the elements of the image
};
/// Mean of each window. Shapes and rules as maxPool2d: C1 to C4.
Tensor avgPool2d(Tensor x, Pair kernel, AvgPoolOptions options = {}, Where where = Where::current());
/// Mean of each image: [n, c, h, w] -> [n, c]. C1: the rank is 4.
Tensor globalAvgPool(Tensor x, Where where = Where::current());

// ---- normalisation and regularisation ------------------------------------------------------------------------------

struct BatchNormOptions {
  double momentum = 0.1, eps = 1e-5;
  int64_t group = 0; ///< > 0: statistics over each group of that many consecutive samples; 0: over the whole microbatch
};
class Buffer;
/// Batch normalisation (Ioffe and Szegedy 2015): (x - mean) / sqrt(variance + eps) * weight + bias per channel. x is
/// [n, c, ...], all other tensors are [c]. Training uses the microbatch's statistics and sets running = (1 - momentum)
/// running + momentum statistic (unbiased variance, as in PyTorch); evaluation uses the running statistics, and so does
/// training if they are frozen. C1: the rank is at least 2. C2: weight, bias and statistics have shape [c]. C3: group
/// divides n. C4: there is more than one value per channel.
Tensor batchNorm2d(Tensor x, Tensor weight, Tensor bias, Buffer &runningMean, Buffer &runningVar,
                   BatchNormOptions options = {}, Where where = Where::current());
/// (x - mean) / sqrt(variance + eps) * weight + bias over the last dimension, of size c (Ba et al. 2016). C1: weight
/// and bias are [c].
Tensor layerNorm(Tensor x, Tensor weight, Tensor bias, double eps = 1e-5, Where where = Where::current());
/// x / sqrt(mean(x^2) + eps) * weight over the last dimension, of size c (Zhang and Sennrich 2019). C1: weight is [c]
/// and has x's float type.
Tensor rmsNorm(Tensor x, Tensor weight, double eps = 1e-5, Where where = Where::current());
/// x [n, c, ...]: splits the channels into `groups` groups and normalises each over its channels and positions (Wu and
/// He 2018). weight and bias are optional. C1: the rank is at least 2. C2: groups divides c. C3: weight and bias have
/// shape [c]. C4: there is more than one value per group. C5: x has a float type.
Tensor groupNorm(Tensor x, int64_t groups, Tensor weight = {}, Tensor bias = {}, double eps = 1e-5,
                 Where where = Where::current());
/// Normalises every channel of every sample of x [n, c, ...] separately (Ulyanov et al. 2016). C1: the rank is at least
/// 3. C3 to C5 as groupNorm.
Tensor instanceNorm(Tensor x, Tensor weight = {}, Tensor bias = {}, double eps = 1e-5, Where where = Where::current());
/// Zeroes elements with probability p and scales the others by 1 / (1 - p) (Srivastava et al. 2014); identity in
/// evaluation. C1: 0 <= p < 1.
Tensor dropout(Tensor x, double p = 0.5, Where where = Where::current());

// ---- elementwise ------------------------------------------------------------------------------------------------

// Elementwise functions of one tensor. C1 of all of them, from relu to round: x has a float type.

Tensor relu(Tensor x, Where where = Where::current());
/// x Phi(x), where Phi is the standard normal distribution function, or its tanh approximation (Hendrycks and Gimpel
/// 2016).
enum class Gelu : uint8_t { Exact, Tanh };
Tensor gelu(Tensor x, Gelu kind = Gelu::Exact, Where where = Where::current());
/// x sigmoid(x).
Tensor silu(Tensor x, Where where = Where::current());
Tensor tanh(Tensor x, Where where = Where::current());
Tensor sigmoid(Tensor x, Where where = Where::current());
Tensor exp(Tensor x, Where where = Where::current());
Tensor log(Tensor x, Where where = Where::current());
Tensor sqrt(Tensor x, Where where = Where::current());
Tensor rsqrt(Tensor x, Where where = Where::current());
Tensor abs(Tensor x, Where where = Where::current());
Tensor erf(Tensor x, Where where = Where::current());
/// log(1 + x) and e^x - 1, accurate for small x.
Tensor log1p(Tensor x, Where where = Where::current());
Tensor expm1(Tensor x, Where where = Where::current());
Tensor sinh(Tensor x, Where where = Where::current());
/// The next smaller, the next larger and the nearest integer (halves to even); the gradient is 0.
Tensor floor(Tensor x, Where where = Where::current());
Tensor ceil(Tensor x, Where where = Where::current());
Tensor round(Tensor x, Where where = Where::current());
/// x to the power y, and the larger and smaller operand. Broadcasting and rules as for the arithmetic operators.
Tensor pow(Operand x, Operand y);
Tensor maximum(Operand x, Operand y);
Tensor minimum(Operand x, Operand y);
/// x - y floor(x / y), which has y's sign. C1, C2 as for the arithmetic operators. C3: the operands have a float type.
Tensor remainder(Operand x, Operand y);
/// The angle of the point (x, y) in [-pi, pi]. C1, C2 as for the arithmetic operators. C3: the operands have a float
/// type.
Tensor atan2(Operand y, Operand x);
/// Softmax along `dim`, and its logarithm; the result has x's shape. C1: 0 <= dim < rank.
Tensor softmax(Tensor x, int64_t dim = -1, Where where = Where::current());
Tensor logSoftmax(Tensor x, int64_t dim = -1, Where where = Where::current());
/// Converts the element type: to a float type rounds to nearest even, float to integer truncates, to i1 is x != 0.
Tensor cast(Tensor x, DType type, Where where = Where::current());

// ---- reductions -------------------------------------------------------------------------------------------------

/// Reduces over `dims` (empty: all), which are removed, or kept with size 1 if keepDim. C1: dims lie in [0, rank) and
/// differ.
Tensor sum(Tensor x, std::vector<int64_t> dims = {}, bool keepDim = false, Where where = Where::current());
Tensor mean(Tensor x, std::vector<int64_t> dims = {}, bool keepDim = false, Where where = Where::current());
Tensor max(Tensor x, std::vector<int64_t> dims = {}, bool keepDim = false, Where where = Where::current());
Tensor min(Tensor x, std::vector<int64_t> dims = {}, bool keepDim = false, Where where = Where::current());

// ---- shapes -----------------------------------------------------------------------------------------------------

/// x's elements in row-major order under another shape. One size may be -1: it is inferred. C1: element counts agree.
/// C2: at most one size is -1, the others are positive.
Tensor reshape(Tensor x, Shape shape, Where where = Where::current());
/// Merges dimensions start..end into one. C1: 0 <= start <= end < rank.
Tensor flatten(Tensor x, int64_t start = 0, int64_t end = -1, Where where = Where::current());
/// Swaps two dimensions. C1: both lie in [0, rank).
Tensor transpose(Tensor x, int64_t a, int64_t b, Where where = Where::current());
/// Dimension i of the result is dims[i] of x. C1: dims is a permutation of [0, rank).
Tensor permute(Tensor x, std::vector<int64_t> dims, Where where = Where::current());
/// Elements [start, end) of a dimension. C1: the dimension exists. C2: 0 <= start < end <= size (negative: from the
/// end).
Tensor slice(Tensor x, int64_t dim, int64_t start, int64_t end, Where where = Where::current());
/// Element `index` of a dimension, which is removed. Rules as slice.
Tensor select(Tensor x, int64_t dim, int64_t index, Where where = Where::current());
/// Joins tensors along dimension `dim`. C1: at least one tensor. C2: the dimension exists. C3: other dimensions and
/// element types agree.
Tensor concat(const std::vector<Tensor> &tensors, int64_t dim, Where where = Where::current());
/// result[.., j, ..] = x[.., index[.., j, ..], ..] along `dim`. C1: ranks agree. C2: the dimension exists. C3: in
/// other dimensions the index is at most as large as x. C4: the index is i32.
Tensor gather(Tensor x, int64_t dim, Tensor index, Outside outside = Outside::Error, Where where = Where::current());
/// unsqueeze inserts a dimension of size 1 that becomes dimension `dim` of the result; squeeze removes dimension `dim`.
/// C1: the dimension exists (unsqueeze: in the result). C2 (squeeze): its size is 1.
Tensor unsqueeze(Tensor x, int64_t dim, Where where = Where::current());
Tensor squeeze(Tensor x, int64_t dim, Where where = Where::current());
/// 0, 1, ..., count - 1 as i32. C1: count is positive.
Tensor arange(int64_t count, Where where = Where::current());
/// A tensor filled with one value. C1: sizes are positive.
Tensor full(Shape shape, double value, DType type = DType::F32, Where where = Where::current());

// ---- marks ------------------------------------------------------------------------------------------------------

/// Returns x and requests a sharding for it. Each dimension has one entry: mesh axes joined by "+", "whole" for not
/// split, or "" for no request: `withSharding(x, {"dp", "whole", "tp"})`. C1: one entry per dimension. C2: axes are dp
/// or tp.
Tensor withSharding(Tensor x, std::vector<std::string> axes, Where where = Where::current());
/// Says that the ops in `body` combine the samples of a microbatch on purpose: `perMicrobatch([&] { return matmul(a,
/// transpose(b, 0, 1)); })`. Otherwise a warning says that the number of microbatches changes what the model computes.
/// Returns what `body` returns.
template <class Body> auto perMicrobatch(Body &&body, Where where = Where::current());
/// Assigns all following ops to pipeline stage `k`. C1: stages do not decrease and are not negative.
void stage(int64_t k, Where where = Where::current());

template <class Body> auto perMicrobatch(Body &&body, Where where) {
  const internal::PerMicrobatch scope(where);
  return std::forward<Body>(body)();
}

} // namespace cleave
