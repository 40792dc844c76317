// Small models for tests of splits, kernels and precisions. Together they call every function of the DSL that the
// samples' models do not use, on activations and on parameters, within a sample and across samples.
#pragma once
#include <cleave/cleave.h>

#include <functional>
#include <map>
#include <string>

namespace cleave::test {

/// Called on intermediate values. A test may set it to add random withSharding marks; by default it does nothing.
inline std::function<Tensor(Tensor)> functionMark = [](Tensor x) { return x; };

/// Comparisons, selection, activations, constants, random numbers.
struct PointwiseModel : Module {
  Linear in{*this, "in", 12, 8}, out{*this, "out", 8, 5};
  Parameter limit{*this, "limit", {8}, init::constant(0.3)};
  PReLU slope{*this, "slope", 8};
  Tensor forward(Tensor image) {
    Tensor h = functionMark(in(flatten(image, 1)));
    Tensor mask = logicalOr(logicalAnd(h > 0.1, h < 0.9), logicalNot(h >= -0.5));
    Tensor y = where(mask, sin(3 * h), 2 * cos(h)) + maskedFill(softplus(h, 2), h <= 0, 0.5);
    y += clamp(h, -0.3, limit) * detach(elu(h)) + leakyRelu(h) * sign(h) + where(isnan(h), 0, h);
    y += atan2(h, 1 + abs(h)) * log1p(abs(h)) + expm1(-abs(h)) * sinh(0.1 * h) + cleave::tan(0.1 * tanh(h));
    y += 0.1 * (floor(h) + ceil(2 * h) - round(3 * h)) + remainder(h, 1 + abs(limit)) * where(isfinite(h), 0.1, 0);
    y += selu(h) + relu6(4 * h) - hardSwish(3 * h) + mish(h) * logSigmoid(h) + slope(where(isinf(h), 0, h));
    y = functionMark(y) * constant({8}, {1, 2, 0.5, -1, 0.25, 1, 1, 3}) + arange(0, 1, 0.125);
    y += 0.1 * cleave::rand({y.size(0), 8}) + 0.1 * randn({8}) + cast(eq(h, h), DType::F32);
    Tensor square = tril(matmul(transpose(y, 0, 1), y)) + triu(full({8, 8}, 0.125), 1); // across samples
    return out(functionMark(y + 0.01 * matmul(y, square)));
  }
};

/// Reductions, running sums, sorting.
struct OrderModel : Module {
  Linear in{*this, "in", 12, 8}, out{*this, "out", 30, 5};
  Tensor forward(Tensor image) {
    Tensor h = functionMark(in(flatten(image, 1)));
    Tensor best = oneHot(argmax(h, 1), 8, DType::F32) - oneHot(argmin(h, -1), 8, DType::F32);
    Tensor sums = functionMark(cumsum(h, 1)) + cumsum(h, 0) + best * h;
    Tensor some =
        concat({prod(1 + 0.3 * h, 1, true), var(h, {1}, {.keepDim = true}), stddev(h, {-1}, {.keepDim = true}),
                norm(h, 2, {1}, true), norm(h, 3, {1}, true), logsumexp(h, {1}, true)},
               1);
    some += cumprod(slice(h, 1, 0, 6), 1) + 0.1 * cumprod(slice(h, 1, 2, 8), 0);
    some += maxWithIndices(h, 1, true).values * slice(minWithIndices(h, 0).values, 0, 0, 6);
    some += 0.1 * cast(any(h > 0.5, {1}, true), DType::F32) - 0.1 * cast(all(h > -2, {0, 1}, true), DType::F32);
    Tensor across = var(h, {0}) + norm(h, 1, {0}) + logsumexp(h, {0}); // over the batch
    return out(concat(
        {functionMark(sort(h, 1).values) * across, topk(h, 3).values, topk(h, 5, 1, false).values, sums, some}, 1));
  }
};

/// Shape ops and einsum.
struct RearrangeModel : Module {
  Linear in{*this, "in", 12, 12}, out{*this, "out", 27, 5};
  Parameter weight{*this, "weight", {3, 4, 2}, init::uniform(-0.5, 0.5)};
  Tensor forward(Tensor image) {
    Tensor h = functionMark(in(flatten(image, 1)));
    const int64_t b = h.size(0);
    Tensor grid = reshape(h, {b, 3, 4});
    auto parts = chunk(h, 3, 1);
    Tensor stacked = stack({parts[0], parts[2], flip(parts[1], {1})}, 1); // [b, 3, 4]
    Tensor padded = slice(pad(grid, {1, -1, 0, 1}, 0.5), 1, 0, 3);
    Tensor mixed = einsum("bij,ijk->bik", {functionMark(grid + stacked + padded), weight}); // [b, 3, 2]
    Tensor scores = einsum("bik,bjk->bij", {mixed, mixed});                                 // [b, 3, 3]
    Tensor tiled = repeat(slice(mixed, 1, 0, 1), {1, 3, 2}) + expand(select(weight, 2, 0), {b, 3, 4});
    Tensor ids = constant({4}, std::vector<int32_t>{2, 0, 1, 2});
    grid = indexAdd(grid, 1, ids, roll(indexSelect(grid, 1, ids), {1}, {2}));
    tiled += scatterAdd(grid, 2, expand(arange(4), {b, 3, 4}), slice(pad(grid, {1, 2}, PadMode::Reflect), 2, 0, 4));
    Tensor around = pad(grid, {2, 0, 0, 1}, PadMode::Circular) * pad(grid, {0, 2, 1, 0}, PadMode::Replicate);
    tiled += slice(slice(around, 1, 1, 4), 2, 1, 5); // [b, 3, 4]
    auto pieces = split(h, {4, 6, 2}, 1);
    Tensor wide = expand(unsqueeze(pieces[2], 1), {-1, 3, 2});
    return out(functionMark(concat({flatten(mixed + wide, 1), flatten(scores, 1), flatten(tiled, 1)}, 1)));
  }
};

/// Convolutions, pooling and resizing of images [b, 2, 8, 8].
struct PictureModel : Module {
  Conv2d conv{*this, "conv", 2, 4, {.kernel = 3, .stride = 2, .padding = 1}};
  ConvTranspose2d up{*this, "up", 4, 6, {.kernel = 3, .stride = 2, .padding = 1, .outputPadding = 1}};
  ConvTranspose2d grouped{*this, "grouped", 6, 4, {.kernel = {2, 3}, .groups = 2}};
  Conv1d line{*this, "line", 4, 6, {.kernel = 3, .stride = 2, .padding = 1}};
  Linear out{*this, "out", 42, 5};
  Tensor forward(Tensor image) {
    Tensor x = functionMark(relu(conv(image))); // [b, 4, 4, 4]
    Tensor y = functionMark(tanh(up(x)));       // [b, 6, 8, 8]
    y = grouped(y);                             // [b, 4, 9, 10]
    y = adaptiveAvgPool2d(y, {4, 5}) + adaptiveMaxPool2d(y, {4, 5});
    y = functionMark(interpolate(y, {.size = {6, 7}, .mode = Interpolation::Bilinear})); // [b, 4, 6, 7]
    y += interpolate(x, {.size = {6, 7}}) + pad(interpolate(x, {.scale = 2}), {0, -1, -1, -1});
    y += pad(maxPool2d(y, 2, {.stride = 3, .dilation = 2, .ceilMode = true}), {0, 4, 0, 4});
    y += pad(avgPool2d(y, 2, {.padding = 1, .ceilMode = true, .countIncludePad = false}), {0, 3, 0, 2});
    Tensor z = functionMark(line(reshape(adaptiveAvgPool2d(y, {2, 7}), {y.size(0), 4, 14}))); // [b, 6, 7]
    z += pad(maxPool1d(z, 3, {.stride = 2}) + avgPool1d(z, 3, {.stride = 2}), {0, 4});
    return out(flatten(z * unsqueeze(cosineSimilarity(z, z * z), 1), 1));
  }
};

/// A plain network, trained with the sum of all losses (everyLoss).
struct LossModel : Module {
  Linear in{*this, "in", 12, 8}, out{*this, "out", 8, 5};
  Tensor forward(Tensor image) { return out(tanh(functionMark(in(flatten(image, 1))))); }
};

inline Loss everyLoss(Tensor logits, Tensor labels) {
  Tensor logs = logSoftmax(logits), hot = oneHot(labels, 5, DType::F32);
  // No loss may count a row without a label: the target of such a row is NaN.
  Tensor target = where(unsqueeze(labels, 1) >= 0, hot, 0 / (hot - hot));
  Loss all = crossEntropy(logits, labels, {.labelSmoothing = 0.1, .classWeights = {1, 2, 0, 0.5f, 1}});
  for (const Loss &loss :
       {crossEntropy(logits, labels, {.ignoreIndex = 2}), nllLoss(logs, labels), l1Loss(logits, target),
        huberLoss(logits, target, 0.4), bceWithLogits(logits, target, 1.5), klDivLoss(logs, target),
        crossEntropy(logits, target, {.labelSmoothing = 0.1}), bceLoss(sigmoid(logits), target),
        cosineEmbeddingLoss(logits, hot, 2 * select(target, 1, 0) - 1)}) {
    all.sum += loss.sum;
    all.weight += loss.weight;
  }
  return all;
}

struct FunctionModel {
  std::function<Model()> make;
  TrainConfig config;
};

/// The models by name. They are never freed.
inline std::map<std::string, FunctionModel> functionModels() {
  const auto fresh = []<class M>(M *) {
    return [] {
      static M *model = new M;
      return makeModel(*model);
    };
  };
  TrainConfig small{.data = SyntheticImages{.channels = 3, .height = 2, .width = 2, .classes = 5},
                    .optimizer = Sgd{.lr = 0.1, .momentum = 0.9},
                    .batch = 8};
  TrainConfig pictures = small, losses = small;
  pictures.data = SyntheticImages{.channels = 2, .height = 8, .width = 8, .classes = 5};
  losses.loss = everyLoss;
  return {{"pointwise", {fresh(static_cast<PointwiseModel *>(nullptr)), small}},
          {"order", {fresh(static_cast<OrderModel *>(nullptr)), small}},
          {"rearrange", {fresh(static_cast<RearrangeModel *>(nullptr)), small}},
          {"picture", {fresh(static_cast<PictureModel *>(nullptr)), pictures}},
          {"losses", {fresh(static_cast<LossModel *>(nullptr)), losses}}};
}

} // namespace cleave::test
