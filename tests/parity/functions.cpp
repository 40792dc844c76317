// Compares every function of the DSL and its gradient in the reference interpreter with PyTorch's numbers
// (goldens/functions.json, made by make_goldens.py from the cases in functions.py), as traced and after decomposition.
// Also compares the gradients of smooth functions with finite differences.
#include "passes/decompose/Decompose.h"
#include "passes/differentiate/Differentiate.h"
#include "passes/precision/Precision.h"
#include "passes/simplify/Simplify.h"
#include "tests/parity/TracedFunction.h"
#include "tests/unit/passes/Programs.h"

#include <catch2/catch.hpp>
#include <cleave/cleave.h>
#include <cmath>
#include <set>

using namespace cleave;
using namespace cleave::testing;

namespace {

Tensor number(Tensor x) { return cast(x, DType::F32); }
Tensor mean(const Loss &loss) { return loss.sum / loss.weight; }
/// Multiplies piece i by i + 1 and concatenates the pieces.
Tensor numbered(std::vector<Tensor> pieces, int64_t dim) {
  for (size_t i = 0; i < pieces.size(); ++i)
    pieces[i] *= i + 1;
  return concat(pieces, dim);
}

const std::vector<float> table{1, -2.5f, 3, 0.5f, 0, 7}, classWeights{0.25f, 1, 0, 0.5f};
constexpr double inf = INFINITY;

using Functions = std::map<std::string, Function>;

void addPointwise(Functions &f) {
  f["eq"] = [](In i) { return number(eq(i.x, i.y)); };
  f["ne"] = [](In i) { return number(ne(i.x, i.y)); };
  f["lt"] = [](In i) { return number(lt(i.x, i.y)); };
  f["le"] = [](In i) { return number(le(i.x, i.y)); };
  f["gt"] = [](In i) { return number(gt(i.x, i.y)); };
  f["ge"] = [](In i) { return number(ge(i.x, i.y)); };
  f["operators"] = [](In i) {
    return number(i.x < 0.5) + 2 * number(i.x <= 1) + 4 * number(i.x > -1) + 8 * number(0 >= i.x);
  };
  f["logical"] = [](In i) {
    Tensor p = i.x > 0, q = i.y > 0;
    return number(logicalAnd(p, q)) + 2 * number(logicalOr(p, q)) + 4 * number(logicalXor(p, q)) +
           8 * number(logicalNot(p));
  };
  f["isnan"] = [](In i) { return number(isnan(i.x)); };
  f["where"] = [](In i) { return where(i.x > i.y, i.x * i.y, 2 * i.y); };
  f["where_numbers"] = [](In i) { return where(i.x > 0, 1, -2) * i.x + where(i.x > 1, i.x, 3); };
  f["maskedFill"] = [](In i) { return maskedFill(i.x, select(i.x, 0, 0) > 0.5, -7); };
  f["clamp"] = f["clamp_at_bounds"] = [](In i) { return clamp(i.x, -0.5, 1); };
  f["clamp_one_side"] = [](In i) { return clamp(i.x, 0.25, inf) - clamp(i.x, -inf, -0.25); };
  f["clamp_tensors"] = f["clamp_tensors_at_bounds"] = [](In i) { return clamp(i.x, i.y, i.z); };
  f["detach"] = [](In i) { return i.x * detach(i.x); };
  f["sin"] = [](In i) { return sin(i.x); };
  f["cos"] = [](In i) { return cos(i.x); };
  f["tan"] = [](In i) { return tan(i.x); };
  f["sinh"] = f["sinh_wide"] = [](In i) { return sinh(i.x); };
  f["log1p"] = f["log1p_wide"] = [](In i) { return log1p(i.x); };
  f["expm1"] = f["expm1_wide"] = [](In i) { return expm1(i.x); };
  f["floor"] = [](In i) { return floor(i.x); };
  f["ceil"] = [](In i) { return ceil(i.x); };
  f["round"] = [](In i) { return round(i.x); };
  f["remainder"] = f["remainder_signs"] = [](In i) { return remainder(i.x, i.y); };
  f["atan2"] = [](In i) { return atan2(i.y, i.x); };
  f["isinf"] = [](In i) { return number(isinf(i.x)); };
  f["isfinite"] = [](In i) { return number(isfinite(i.x)); };
  f["sign"] = [](In i) { return sign(i.x); };
  f["softplus"] = [](In i) { return softplus(i.x); };
  f["softplus_beta"] = [](In i) { return softplus(i.x, 2.5); };
  f["leakyRelu"] = [](In i) { return leakyRelu(i.x, 0.2); };
  f["leakyRelu_at_zero"] = [](In i) { return leakyRelu(i.x); };
  f["elu"] = [](In i) { return elu(i.x); };
  f["selu"] = f["selu_wide"] = [](In i) { return selu(i.x); };
  f["relu6"] = f["relu6_wide"] = [](In i) { return relu6(i.x); };
  f["hardSwish"] = f["hardSwish_wide"] = [](In i) { return hardSwish(i.x); };
  f["mish"] = [](In i) { return mish(i.x); };
  f["logSigmoid"] = [](In i) { return logSigmoid(i.x); };
  f["prelu"] = f["prelu_one"] = [](In i) { return prelu(i.x, i.y); };
  f["elu_alpha"] = [](In i) { return elu(i.x, 0.5); };
}

void addCreate(Functions &f) {
  f["constant"] = [](In i) { return i.x * constant({2, 3}, table); };
  f["constant_i32"] = [](In i) { return i.x * number(constant({4}, std::vector<int32_t>{3, 1, -4, 1})); };
  f["constant_outside_kernels"] = [](In i) { return matmul(i.x, constant({2, 3}, {1, -2.5, 3, 0.5, 0, 7})); };
  f["arange"] = [](In i) { return i.x * arange(-1, 2.3, 0.5); };
  f["arange_down"] = [](In i) { return i.x * arange(3, -1, -1); };
  f["oneHot"] = [](In i) { return i.x * oneHot(i.ids, 4, DType::F32); };
  for (int64_t d : {-2, 0, 1}) {
    f["tril_" + std::to_string(d)] = [d](In i) { return tril(i.x, d); };
    f["triu_" + std::to_string(d)] = [d](In i) { return triu(i.x, d); };
  }
}

void addReductions(Functions &f) {
  f["var"] = [](In i) { return var(i.x, {0, 2}); };
  f["var_all"] = [](In i) { return var(i.x, {}, {.correction = 0}); };
  f["stddev"] = [](In i) { return stddev(i.x, {1}, {.keepDim = true}); };
  f["stddev_of_equal"] = [](In i) { return stddev(i.x, {1}); };
  f["norm"] = [](In i) { return norm(i.x, 2, {1, 2}); };
  for (auto [name, p] : {std::pair("0.5", 0.5), {"1", 1.0}, {"3", 3.0}, {"0", 0.0}, {"inf", inf}, {"-inf", -inf}})
    f[std::string("norm_") + name] = [p = p](In i) { return norm(i.x + 0.013, p, {1}, true); };
  f["norm_of_zero"] = [](In i) { return norm(i.x, 2, {1}); };
  f["logsumexp"] = [](In i) { return logsumexp(i.x, {0, 2}); };
  f["logsumexp_large"] = [](In i) { return logsumexp(i.x, {1}, true); };
  f["prod"] = [](In i) { return prod(i.x); };
  f["prod_dim"] = [](In i) { return prod(i.x, 1); };
  f["prod_with_zeros"] = [](In i) { return prod(i.x, -1, true); };
  f["cumsum"] = [](In i) { return cumsum(i.x, 1); };
  f["cumsum_first"] = [](In i) { return cumsum(i.x, 0); };
  f["cumprod"] = [](In i) { return cumprod(i.x, 1); };
  f["cumprod_with_zeros"] = [](In i) { return cumprod(i.x, 0); };
  f["any"] = [](In i) { return number(any(i.x, {1})); };
  f["any_of_mask"] = [](In i) { return number(any(i.x > 1, {0, 2}, true)); };
  f["all"] = [](In i) { return number(all(i.x, {1})); };
  f["all_of_all"] = [](In i) { return number(all(i.x > -3)); };
  f["maxWithIndices"] = [](In i) {
    const Sorted best = maxWithIndices(i.x, 1);
    return best.values * (1 + number(best.indices));
  };
  f["minWithIndices"] = [](In i) { return minWithIndices(i.x, -1, true).values; };
  f["maxWithIndices_ties"] = [](In i) { return maxWithIndices(i.x, 1).values; };
  f["argmax"] = [](In i) { return number(argmax(i.x, 1)); };
  f["argmax_all"] = [](In i) { return number(argmax(i.x)); };
  f["argmin"] = [](In i) { return number(argmin(i.x, 0, true)); };
  f["sort"] = [](In i) { return sort(i.x).values; };
  f["sort_places"] = [](In i) { return number(sort(i.x, 0, true).indices); };
  f["sort_stable"] = [](In i) { return number(sort(i.x).indices); };
  f["sort_ties"] = [](In i) { return sort(i.x, 1, true).values; };
  f["topk"] = [](In i) { return topk(i.x, 3).values; };
  f["topk_places"] = [](In i) { return number(topk(i.x, 4, 0, false).indices); };
  f["topk_many"] = [](In i) { return topk(i.x, 7).values; };
}

void addRearrange(Functions &f) {
  f["expand"] = [](In i) { return expand(i.x, {2, -1, 4}); };
  f["repeat"] = [](In i) { return repeat(i.x, {2, 1, 3, 2}); };
  f["stack"] = [](In i) { return stack({i.x, i.y, i.x}, 1); };
  f["split"] = [](In i) { return numbered(split(i.x, 3), 0); };
  f["split_sizes"] = [](In i) { return numbered(split(i.x, {1, 4, 2}, 1), 1); };
  f["chunk"] = [](In i) { return numbered(chunk(i.x, 3, -1), 1); };
  f["pad"] = [](In i) { return pad(i.x, {1, 2, 0, 1}); };
  f["pad_value"] = [](In i) { return pad(i.x, {2, -1, -1, 1}, 2.5); };
  f["pad_reflect"] = [](In i) { return pad(i.x, {3, 1, 2, 2}, PadMode::Reflect); };
  f["pad_replicate"] = [](In i) { return pad(i.x, {5, 0, 1, 2}, PadMode::Replicate); };
  f["pad_circular"] = [](In i) { return pad(i.x, {4, 1, 0, 3}, PadMode::Circular); };
  f["roll"] = [](In i) { return roll(i.x, {-1, 6, 1}, {0, -1, 1}); };
  f["indexSelect"] = [](In i) { return indexSelect(i.x, 1, i.ids); };
  f["scatterAdd"] = [](In i) { return scatterAdd(i.x, 1, i.ids, i.y); };
  f["indexAdd"] = [](In i) { return indexAdd(i.x, 0, i.ids, i.y); };
  f["flip"] = [](In i) { return flip(i.x, {0, -1}); };
  f["einsum_batched"] = [](In i) { return einsum("bij,bjk->bik", {i.x, i.y}); };
  f["einsum_heads"] = [](In i) { return einsum("bqhd,bkhd->bhqk", {i.x, i.y}); };
  f["einsum_three"] = [](In i) { return einsum("ij, jk, k", {i.x, i.y, i.z}); };
  f["einsum_outer"] = [](In i) { return einsum("i,j->ji", {i.x, i.y}); };
  f["einsum_elementwise"] = [](In i) { return einsum("ij,ij->i", {i.x, i.y}); };
  f["einsum_dots"] = [](In i) { return einsum("...ij,...jk->...ki", {i.x, i.y}); };
  f["einsum_trace"] = [](In i) { return einsum("iij->j", {i.x}); };
  f["einsum_diagonal"] = [](In i) { return einsum("iji->ij", {i.x}); };
  f["einsum_sums"] = [](In i) { return einsum("ijk->k", {i.x}); };
  f["einsum_implicit"] = [](In i) { return einsum("ba,bc", {i.x, i.y}); };
}

void addPictures(Functions &f) {
  f["conv1d"] = [](In i) { return conv1d(i.x, i.w, i.b, {.stride = 2, .padding = 1, .dilation = 2, .groups = 2}); };
  f["convTranspose2d"] = [](In i) {
    return convTranspose2d(i.x, i.w, i.b, {.stride = 2, .padding = 1, .outputPadding = 1});
  };
  f["convTranspose2d_groups"] = [](In i) {
    return convTranspose2d(
        i.x, i.w, {}, {.stride = {3, 2}, .padding = {0, 1}, .outputPadding = {2, 0}, .dilation = {2, 1}, .groups = 2});
  };
  f["maxPool2d_ceil"] = [](In i) {
    return maxPool2d(i.x, {2, 3}, {.stride = {2, 4}, .padding = {0, 1}, .ceilMode = true});
  };
  f["maxPool2d_dilated"] = [](In i) {
    return maxPool2d(i.x, {2, 3}, {.stride = {1, 2}, .padding = 1, .dilation = {3, 2}, .ceilMode = true});
  };
  f["avgPool2d_ceil"] = [](In i) { return avgPool2d(i.x, 3, {.stride = 2, .padding = 1, .ceilMode = true}); };
  f["avgPool2d_without_pad"] = [](In i) {
    return avgPool2d(i.x, 3, {.stride = 2, .padding = 1, .countIncludePad = false});
  };
  f["avgPool2d_both"] = [](In i) {
    return avgPool2d(i.x, {2, 3}, {.stride = {3, 2}, .padding = 1, .ceilMode = true, .countIncludePad = false});
  };
  f["maxPool1d"] = [](In i) { return maxPool1d(i.x, 3, {.stride = 2, .padding = 1, .dilation = 2, .ceilMode = true}); };
  f["avgPool1d"] = [](In i) { return avgPool1d(i.x, 4, {.padding = 2, .ceilMode = true, .countIncludePad = false}); };
  for (Pair size : {Pair(6, 8), Pair(3, 2), Pair(5, 3), Pair(2, 7)}) {
    const std::string name = "_" + std::to_string(size.h) + "x" + std::to_string(size.w);
    f["nearest" + name] = [=](In i) { return interpolate(i.x, {.size = size}); };
    f["bilinear" + name] = [=](In i) { return interpolate(i.x, {.size = size, .mode = Interpolation::Bilinear}); };
    f["corners" + name] = [=](In i) {
      return interpolate(i.x, {.size = size, .mode = Interpolation::Bilinear, .alignCorners = true});
    };
    f["adaptiveAvg" + name] = [=](In i) { return adaptiveAvgPool2d(i.x, size); };
    f["adaptiveMax" + name] = [=](In i) { return adaptiveMaxPool2d(i.x, size); };
  }
  f["nearest_scale"] = [](In i) { return interpolate(i.x, {.scale = 1.7}); };
  f["bilinear_scale"] = [](In i) { return interpolate(i.x, {.scale = 1.7, .mode = Interpolation::Bilinear}); };
  f["adaptiveAvg_1x1"] = [](In i) { return adaptiveAvgPool2d(i.x, 1); };
}

void addLosses(Functions &f) {
  f["crossEntropy_smoothed"] = [](In i) { return mean(crossEntropy(i.x, i.labels, {.labelSmoothing = 0.1})); };
  f["crossEntropy_weighted"] = [](In i) { return mean(crossEntropy(i.x, i.labels, {.classWeights = classWeights})); };
  f["crossEntropy_both"] = [](In i) {
    return mean(crossEntropy(i.x, i.labels, {.labelSmoothing = 0.2, .classWeights = classWeights, .ignoreIndex = 1}));
  };
  f["crossEntropy_ignored"] = [](In i) { return mean(crossEntropy(i.x, i.labels, {.ignoreIndex = 3})); };
  f["nllLoss"] = [](In i) { return mean(nllLoss(i.x, i.labels, {.classWeights = classWeights, .ignoreIndex = 0})); };
  f["l1Loss"] = [](In i) { return mean(l1Loss(i.x, i.t)); };
  f["huberLoss"] = [](In i) { return mean(huberLoss(i.x, i.t, 0.7)); };
  f["bceWithLogits"] = [](In i) { return mean(bceWithLogits(i.x, i.t)); };
  f["bceWithLogits_weighted"] = [](In i) { return mean(bceWithLogits(i.x, i.t, 2.5)); };
  f["klDivLoss"] = [](In i) { return mean(klDivLoss(i.x, constant({2, 3}, {0.5, 0.5, 0, 0.125, 0.25, 0.625}))); };
  f["klDivLoss_batch"] = [](In i) { return mean(klDivLoss(i.x, i.t, {.logTarget = true, .batchMean = true})); };
  constexpr auto sum = Reduction::Sum;
  const auto soft = [] { return constant({3, 4}, {0.5, 0.25, 0.25, 0, 0, 1, 0, 0, 0.1, 0.2, 0.3, 0.4}); };
  f["crossEntropy_soft"] = [=](In i) { return mean(crossEntropy(i.x, soft())); };
  f["crossEntropy_soft_options"] = [](In i) {
    return mean(crossEntropy(i.x, i.t, {.labelSmoothing = 0.2, .classWeights = classWeights}));
  };
  f["crossEntropy_sum"] = [](In i) {
    return mean(crossEntropy(i.x, i.labels, {.classWeights = classWeights, .ignoreIndex = 1, .reduction = sum}));
  };
  f["crossEntropy_soft_sum"] = [=](In i) { return mean(crossEntropy(i.x, soft(), {.reduction = sum})); };
  f["nllLoss_sum"] = [](In i) { return mean(nllLoss(i.x, i.labels, {.reduction = sum})); };
  f["mseLoss_sum"] = [](In i) { return mean(mseLoss(i.x, i.t, sum)); };
  f["l1Loss_sum"] = [](In i) { return mean(l1Loss(i.x, i.t, sum)); };
  f["huberLoss_sum"] = [](In i) { return mean(huberLoss(i.x, i.t, 0.7, sum)); };
  f["bceWithLogits_sum"] = [](In i) { return mean(bceWithLogits(i.x, i.t, 1, sum)); };
  f["klDivLoss_sum"] = [](In i) { return mean(klDivLoss(i.x, i.t, {.logTarget = true, .reduction = sum})); };
  f["bceLoss"] = [](In i) { return mean(bceLoss(i.x, i.t)); };
  f["bceLoss_sum"] = [](In i) { return mean(bceLoss(i.x, i.t, sum)); };
  f["cosineSimilarity"] = [](In i) { return cosineSimilarity(i.x, i.y, -1); };
  const auto sides = [] { return constant({6}, {1, -1, 1, -1, 0, -1}); };
  f["cosineEmbeddingLoss"] = [=](In i) { return mean(cosineEmbeddingLoss(i.x, i.y, sides(), {.margin = -0.3})); };
  f["cosineEmbeddingLoss_sum"] = [=](In i) { return mean(cosineEmbeddingLoss(i.x, i.y, sides(), {.reduction = sum})); };
  const auto words = [](std::vector<int32_t> labels) { return constant({3, 3}, labels); };
  f["ctcLoss"] = [=](In i) { return mean(ctcLoss(logSoftmax(i.x), words({1, 1, 2, 3, 2, -1, 2, -1, -1}))); };
  f["ctcLoss_options"] = [=](In i) {
    const Tensor lengths = constant({3}, std::vector<int32_t>{6, 5, 3});
    return mean(ctcLoss(logSoftmax(i.x), words({1, 1, 2, 0, 2, -1, -1, -1, -1}),
                        {.blank = 3, .lengths = lengths, .reduction = sum}));
  };
  f["ctcLoss_impossible"] = [=](In i) {
    return mean(ctcLoss(logSoftmax(i.x), words({1, 1, 2, 3, 2, -1, 2, -1, -1}), {.zeroInfinity = true}));
  };
  f["tripletMarginLoss"] = [](In i) { return mean(tripletMarginLoss(i.x, i.y, i.z)); };
  f["tripletMarginLoss_options"] = [](In i) {
    return mean(tripletMarginLoss(i.x, i.y, i.z, {.margin = 0.5, .p = 3, .swap = true, .reduction = sum}));
  };
}

const Functions &functions() {
  static const Functions all = [] {
    Functions f;
    addPointwise(f), addCreate(f), addReductions(f), addRearrange(f), addPictures(f), addLosses(f);
    return f;
  }();
  return all;
}

/// Whether finite differences apply. They do not if inputs lie on a kink or a jump, if values are so large that a small
/// step is lost in rounding, or if the function stops gradients.
bool isSmooth(const std::string &name) {
  static const std::set<std::string> others{"eq",
                                            "ne",
                                            "lt",
                                            "le",
                                            "gt",
                                            "clamp_tensors_at_bounds",
                                            "ge",
                                            "isnan",
                                            "operators",
                                            "logical",
                                            "clamp_at_bounds",
                                            "sign",
                                            "elu",
                                            "softplus",
                                            "var_all",
                                            "leakyRelu_at_zero",
                                            "sinh_wide",
                                            "log1p_wide",
                                            "expm1_wide",
                                            "selu_wide",
                                            "relu6_wide",
                                            "hardSwish_wide",
                                            "floor",
                                            "ceil",
                                            "round",
                                            "remainder_signs",
                                            "any",
                                            "all",
                                            "maxWithIndices_ties",
                                            "bceLoss",
                                            "bceLoss_sum",
                                            "argmax",
                                            "sort_stable",
                                            "sort_ties",
                                            "norm_0.5",
                                            "stddev_of_equal",
                                            "norm_0",
                                            "detach",
                                            "norm_inf",
                                            "norm_-inf",
                                            "norm_of_zero",
                                            "logsumexp_large",
                                            "bceWithLogits_weighted"};
  return !others.count(name);
}

} // namespace

TEST_CASE("functions and their gradients equal PyTorch's", "[parity][functions]") {
  std::set<std::string> left;
  for (const auto &[name, function] : functions())
    left.insert(name);
  for (const auto &example : golden("functions.json")) {
    const std::string name = example["name"];
    INFO(name);
    left.erase(name);
    REQUIRE(functions().count(name));
    GraphModule whole = traced(example, functions().at(name));
    REQUIRE(whole.verify() == "");
    passes::differentiate(whole.module(), 1);
    REQUIRE(whole.verify() == "");
    GraphModule parts = whole.clone();
    passes::simplify(parts.module());
    passes::decompose(parts.module());
    passes::simplify(parts.module());
    REQUIRE(parts.verify() == "");
    CHECK(countOps(parts, "train", "cleave.detach") == 0);
    for (const GraphModule *module : {&whole, &parts}) {
      Arrays results = evaluate(*module, "train", argumentsOf(example));
      CHECK(apart(results.at("buffer:result"), arrayOf(example["result"])) < 5e-6);
      for (const auto &[parameter, gradient] : example["gradients"].items()) {
        INFO(parameter);
        const Array wanted = arrayOf(gradient);
        CHECK(apart(gradientOf(results, parameter, wanted.shape), wanted) < 1e-5);
      }
    }
  }
  CHECK(left == std::set<std::string>{}); // functions without a golden
}

TEST_CASE("gradients of functions equal finite differences", "[functions]") {
  constexpr double step = 1e-3;
  for (const auto &example : golden("functions.json")) {
    const std::string name = example["name"];
    if (!isSmooth(name))
      continue;
    INFO(name);
    GraphModule module = traced(example, functions().at(name));
    passes::differentiate(module.module(), 1);
    const Arrays arguments = argumentsOf(example), found = evaluate(module, "train", arguments);
    for (const auto &[parameter, wanted] : example["gradients"].items()) {
      const Array gradient = gradientOf(found, parameter, wanted["shape"]);
      const size_t every = gradient.data.size() / 12 + 1; // about a dozen elements of each parameter
      for (size_t i = 0; i < gradient.data.size(); i += every) {
        double slope = 0;
        for (int sign : {-1, 1}) {
          Arrays moved = arguments;
          double &value = moved.at("parameter:" + parameter).data[i];
          value = static_cast<float>(value + sign * step);
          slope += sign * evaluate(module, "train", moved).at("loss").data[0] / (2 * step);
        }
        INFO(parameter << " element " << i);
        CHECK(gradient.data[i] == Approx(slope).margin(1e-2).epsilon(1e-2));
      }
    }
  }
}

TEST_CASE("functions keep their meaning under mixed precision", "[functions]") {
  // These cases have inputs that differ by less than the half type can represent, so results may differ.
  const std::set<std::string> tooFine{"sin", "cos", "var_all", "lt", "bceWithLogits_weighted"};
  for (const auto &example : golden("functions.json"))
    for (int64_t level : {1, 2, 3}) {
      const std::string name = example["name"];
      INFO(name << " O" << level);
      GraphModule module = traced(example, functions().at(name), false);
      passes::applyPrecision(module.module(), Precision::Type::Bf16, level);
      REQUIRE(module.verify() == "");
      Arrays arguments = argumentsOf(example);
      for (const auto &[key, value] : Arrays(arguments))
        if (key.starts_with("parameter:"))
          arguments["input:" + key.substr(10)] = value;
      const Array result = evaluate(module, "forward", arguments).at("buffer:result");
      // The operands and the result of a product are rounded by 2^-9 each, relative to terms whose magnitudes add up to
      // several times the result.
      if (!tooFine.count(name))
        CHECK(apart(result, arrayOf(example["result"])) < (level == 1 ? 2e-2 : 4e-2));
    }
}

TEST_CASE("places and counts are exact whatever the precision", "[functions]") {
  const auto example =
      nlohmann::json::parse(R"({"floats": {"x": {"shape": [1000]}, "c": {"shape": [1000]}}, "ints": {}})");
  Array x{{1000}, std::vector<double>(1000, 0)}, c{{1000}, std::vector<double>(1000, 1)};
  x.data[500] = 1;
  const std::map<std::string, std::pair<Function, std::function<double(int64_t)>>> cases{
      {"sort",
       {[](In i) { return number(sort(i.x, 0, true).indices); },
        [](int64_t i) { return i == 0 ? 500.0 : static_cast<double>(i <= 500 ? i - 1 : i); }}},
      {"arange", {[](In i) { return i.x * 0 + arange(0, 1000, 1); }, [](int64_t i) { return static_cast<double>(i); }}},
      {"argmax", {[](In i) { return i.x * 0 + number(argmax(i.x)); }, [](int64_t) { return 500.0; }}}};
  for (const auto &[name, functionAndWanted] : cases) {
    INFO(name);
    GraphModule module = traced(example, functionAndWanted.first, false);
    passes::applyPrecision(module.module(), Precision::Type::Bf16, 2);
    const Array found = evaluate(module, "forward", {{"input:x", x}, {"input:c", c}}).at("buffer:result");
    for (int64_t i = 0; i < 1000; ++i) {
      INFO(i);
      REQUIRE(found.data[static_cast<size_t>(i)] == functionAndWanted.second(i));
    }
  }
}

TEST_CASE("random numbers are uniform and normal, and each draw has its own", "[functions]") {
  const auto example = nlohmann::json::parse(R"({"floats": {"c": {"shape": [4, 5000]}}, "ints": {}})");
  std::map<std::string, Array> drawn;
  for (const auto &[name, function] : Functions{{"rand",
                                                 [](In) {
                                                   return cleave::rand({4, 5000});
                                                 }},
                                                {"randn", [](In) {
                                                   return randn({4, 5000});
                                                 }}}) {
    GraphModule module = traced(example, function);
    drawn[name] =
        evaluate(module, "forward", {{"input:c", {{4, 5000}, std::vector<double>(20000, 1)}}}).at("buffer:result");
  }
  const auto moment = [](const Array &a, int power, double center) {
    double sum = 0;
    for (double value : a.data)
      sum += std::pow(value - center, power);
    return sum / static_cast<double>(a.data.size());
  };
  for (double value : drawn["rand"].data)
    REQUIRE((value >= 0 && value < 1));
  CHECK(moment(drawn["rand"], 1, 0) == Approx(0.5).margin(0.01));
  CHECK(moment(drawn["rand"], 2, 0.5) == Approx(1.0 / 12).margin(0.002));
  CHECK(moment(drawn["randn"], 1, 0) == Approx(0).margin(0.03));
  CHECK(moment(drawn["randn"], 2, 0) == Approx(1).margin(0.03));
  CHECK(moment(drawn["randn"], 4, 0) == Approx(3).margin(0.25));
  CHECK(std::set<double>(drawn["randn"].data.begin(), drawn["randn"].data.end()).size() > 19000);
}
