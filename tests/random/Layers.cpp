// The tables of layers and losses.
#include "tests/random/Tables.h"

namespace cleave::random_models {

namespace {

RecurrentOptions recurrentOptions(const Part &m) {
  return {.layers = m.ints[2], .bias = m.ints[3] != 0, .bidirectional = m.ints[4] != 0};
}

/// The layers' own initialisations do not matter for whole numbers: see Whole::begin.
std::vector<LayerKind> makeLayers() {
  std::vector<LayerKind> k;
  k.push_back({"Linear", 5, true, "$i0, $i1, {.bias = bool($i2)}",
               [](Module &parent, const Part &m) -> std::unique_ptr<Module> {
                 return std::make_unique<Linear>(parent, m.name, m.ints[0], m.ints[1],
                                                 LinearOptions{.bias = m.ints[2] != 0});
               },
               [](Drawing &d, Tensor x, Part &m) {
                 m.ints = {x.size(-1), d.chance.whole(1, 10), d.chance.one(0.8)};
                 return true;
               }});
  k.push_back({"Conv2d", 3, true, "$i0, $i1, {.kernel = $i2, .stride = $i3, .padding = $i4, .dilation = $i7, .groups = $i5, .bias = bool($i6)}",
               [](Module &parent, const Part &m) -> std::unique_ptr<Module> {
                 return std::make_unique<Conv2d>(parent, m.name, m.ints[0], m.ints[1],
                                                 Conv2dOptions{.kernel = m.ints[2],
                                                               .stride = m.ints[3],
                                                               .padding = m.ints[4],
                                                               .dilation = m.ints[7],
                                                               .groups = m.ints[5],
                                                               .bias = m.ints[6] != 0});
               },
               [](Drawing &d, Tensor x, Part &m) {
                 if (x.rank() != 4)
                   return false;
                 const int64_t groups = x.size(1) % 2 == 0 && d.chance.one(0.25) ? 2 : 1;
                 m.ints = {x.size(1),          d.chance.whole(1, 4) * groups, d.chance.whole(1, 3), d.chance.one(0.3) ? 2 : 1,
                           d.chance.whole(0, 1), groups,                        d.chance.one(0.6),    d.chance.one(0.15) ? 2 : 1};
                 return true;
               }});
  k.push_back({"Conv1d", 1, true, "$i0, $i1, {.kernel = $i2, .stride = $i3, .padding = $i4, .bias = bool($i5)}",
               [](Module &parent, const Part &m) -> std::unique_ptr<Module> {
                 return std::make_unique<Conv1d>(
                     parent, m.name, m.ints[0], m.ints[1],
                     Conv1dLayerOptions{
                         .kernel = m.ints[2], .stride = m.ints[3], .padding = m.ints[4], .bias = m.ints[5] != 0});
               },
               [](Drawing &d, Tensor x, Part &m) {
                 m.ints = {x.size(1), d.chance.whole(1, 4), d.chance.whole(1, 3), d.chance.one(0.3) ? 2 : 1,
                           d.chance.whole(0, 1), d.chance.one(0.6)};
                 return x.rank() == 3;
               }});
  k.push_back({"ConvTranspose2d", 1, true, "$i0, $i1, {.kernel = $i2, .stride = $i3, .padding = $i4, .bias = bool($i5)}",
               [](Module &parent, const Part &m) -> std::unique_ptr<Module> {
                 return std::make_unique<ConvTranspose2d>(
                     parent, m.name, m.ints[0], m.ints[1],
                     ConvTranspose2dOptions{
                         .kernel = m.ints[2], .stride = m.ints[3], .padding = m.ints[4], .bias = m.ints[5] != 0});
               },
               [](Drawing &d, Tensor x, Part &m) {
                 m.ints = {x.rank() == 4 ? x.size(1) : 0, d.chance.whole(1, 4), d.chance.whole(1, 3),
                           d.chance.one(0.5) ? 2 : 1,     d.chance.whole(0, 1), d.chance.one(0.6)};
                 return x.rank() == 4;
               }});
  k.push_back({"Sequential", 2, true,
               "layer<Linear>($i0, $i1), [](Tensor x) { return relu(x); }, layer<Dropout>(0.5), layer<Linear>($i1, $i2)",
               [](Module &parent, const Part &m) -> std::unique_ptr<Module> {
                 return std::make_unique<Sequential>(
                     parent, m.name, layer<Linear>(m.ints[0], m.ints[1]), [](Tensor x) { return relu(x); },
                     layer<Dropout>(0.5), layer<Linear>(m.ints[1], m.ints[2]));
               },
               [](Drawing &d, Tensor x, Part &m) {
                 m.ints = {x.size(-1), d.chance.whole(1, 8), d.chance.one(0.5) ? x.size(-1) : d.chance.whole(1, 8)};
                 return true;
               }});
  k.push_back({"BatchNorm2d", 2, false, "$i0, {.momentum = 0.25, .group = $i1}",
               [](Module &parent, const Part &m) -> std::unique_ptr<Module> {
                 return std::make_unique<BatchNorm2d>(parent, m.name, m.ints[0],
                                                      BatchNormOptions{.momentum = 0.25, .group = m.ints[1]});
               },
               [](Drawing &d, Tensor x, Part &m) {
                 const int64_t many = x.elements() / x.size(1);
                 m.ints = {x.size(1), x.size(0) % 2 == 0 && many > x.size(0) && d.chance.one(0.25) ? 2 : 0};
                 return many >= 4;
               }});
  k.push_back({"LayerNorm", 2, false, "$i0",
               [](Module &parent, const Part &m) -> std::unique_ptr<Module> {
                 return std::make_unique<LayerNorm>(parent, m.name, m.ints[0]);
               },
               [](Drawing &, Tensor x, Part &m) {
                 m.ints = {x.size(-1)};
                 return x.size(-1) >= 3;
               }});
  k.push_back({"RmsNorm", 1, false, "$i0",
               [](Module &parent, const Part &m) -> std::unique_ptr<Module> {
                 return std::make_unique<RmsNorm>(parent, m.name, m.ints[0]);
               },
               [](Drawing &, Tensor x, Part &m) {
                 m.ints = {x.size(-1)};
                 return x.size(-1) >= 2;
               }});
  k.push_back({"GroupNorm", 1, false, "$i0, $i1",
               [](Module &parent, const Part &m) -> std::unique_ptr<Module> {
                 return std::make_unique<GroupNorm>(parent, m.name, m.ints[0], m.ints[1]);
               },
               [](Drawing &d, Tensor x, Part &m) {
                 const int64_t c = x.size(1);
                 m.ints = {c % 2 == 0 && d.chance.one(0.5) ? 2 : 1, c};
                 return x.elements() / x.size(0) / c >= 3;
               }});
  k.push_back({"InstanceNorm2d", 0.5, false, "$i0, {.affine = true}",
               [](Module &parent, const Part &m) -> std::unique_ptr<Module> {
                 return std::make_unique<InstanceNorm2d>(parent, m.name, m.ints[0], GroupNormOptions{.affine = true});
               },
               [](Drawing &, Tensor x, Part &m) {
                 m.ints = {x.size(1)};
                 return x.rank() == 4 && x.size(2) * x.size(3) >= 3;
               }});
  k.push_back({"MultiheadAttention", 1.5, false, "$i0, $i1, {.dropout = $r0, .bias = bool($i2), .causal = bool($i3)}",
               [](Module &parent, const Part &m) -> std::unique_ptr<Module> {
                 return std::make_unique<MultiheadAttention>(
                     parent, m.name, m.ints[0], m.ints[1],
                     MultiheadAttentionOptions{.dropout = m.reals[0], .bias = m.ints[2] != 0, .causal = m.ints[3] != 0});
               },
               [](Drawing &d, Tensor x, Part &m) {
                 if (x.rank() != 3 || x.size(1) > 8)
                   return false;
                 const int64_t w = x.size(-1), heads = w % 3 == 0 && d.chance.one(0.4) ? 3 : w % 2 == 0 ? 2 : 1;
                 m.ints = {w, heads, d.chance.one(0.7), d.chance.one(0.5)};
                 m.reals = {d.chance.one(0.2) ? 0.25 : 0.0};
                 return true;
               }});
  const auto recurrent = [](Drawing &d, Tensor x, Part &m) {
    m.ints = {x.size(-1), d.chance.whole(1, 4), d.chance.one(0.3) ? 2 : 1, d.chance.one(0.8), d.chance.one(0.3)};
    return x.rank() == 3 && x.size(1) <= 6;
  };
  k.push_back({"LSTM", 1, false, "$i0, $i1, {.layers = $i2, .bias = bool($i3), .bidirectional = bool($i4)}",
               [](Module &parent, const Part &m) -> std::unique_ptr<Module> {
                 return std::make_unique<LSTM>(parent, m.name, m.ints[0], m.ints[1], recurrentOptions(m));
               },
               recurrent});
  k.push_back({"GRU", 1, false, "$i0, $i1, {.layers = $i2, .bias = bool($i3), .bidirectional = bool($i4)}",
               [](Module &parent, const Part &m) -> std::unique_ptr<Module> {
                 return std::make_unique<GRU>(parent, m.name, m.ints[0], m.ints[1], recurrentOptions(m));
               },
               recurrent});
  k.push_back({"Embedding", 1.5, true, "$i0, $i1",
               [](Module &parent, const Part &m) -> std::unique_ptr<Module> {
                 return std::make_unique<Embedding>(parent, m.name, m.ints[0], m.ints[1]);
               },
               [](Drawing &d, Tensor, Part &m) {
                 m.ints = {d.chance.whole(5, 9), d.chance.whole(2, 8)};
                 return true;
               }});
  k.push_back({"Dropout", 0.7, true, "$r0",
               [](Module &parent, const Part &m) -> std::unique_ptr<Module> {
                 return std::make_unique<Dropout>(parent, m.name, m.reals[0]);
               },
               [](Drawing &d, Tensor, Part &m) {
                 m.reals = {d.chance.one(0.5) ? 0.5 : 0.25};
                 return true;
               }});
  return k;
}

std::vector<LossKind> makeLosses() {
  std::vector<LossKind> k;
  k.push_back({"crossEntropy", 3, false, "crossEntropy",
               [](Tensor p, Tensor t) { return crossEntropy(p, t); }, true});
  k.push_back({"mseLoss", 2, true, "mseLoss", [](Tensor p, Tensor t) { return mseLoss(p, t); }, false});
  k.push_back({"product", 2, true,
               "[](Tensor p, Tensor t) { return Loss{sum(p * t), full({}, 1.0), {}, 1}; }",
               [](Tensor p, Tensor t) { return Loss{sum(p * t), full({}, 1.0), {}, 1}; }, false});
  k.push_back({"absolute", 1, true,
               "[](Tensor p, Tensor t) { return Loss{sum(abs(p - t)), full({}, double(p.size(0))), {}, p.size(0)}; }",
               [](Tensor p, Tensor t) {
                 return Loss{sum(abs(p - t)), full({}, static_cast<double>(p.size(0))), {}, p.size(0)};
               },
               false});
  k.push_back({"several", 1, false,
               "[](Tensor p, Tensor t) {\n"
               "    Loss a = crossEntropy(p, t);\n"
               "    return Loss{a.sum + 0.125 * sum(p * p), a.weight, a.correct, a.staticWeight};\n"
               "  }",
               [](Tensor p, Tensor t) {
                 Loss a = crossEntropy(p, t);
                 return Loss{a.sum + 0.125 * sum(p * p), a.weight, a.correct, a.staticWeight};
               },
               true});
  k.push_back({"weighted", 1, true,
               "[](Tensor p, Tensor t) {\n"
               "    Tensor w = minimum(abs(t), 1.0);\n"
               "    return Loss{sum(w * p * p), sum(w), {}, p.elements()};\n"
               "  }",
               [](Tensor p, Tensor t) {
                 Tensor w = minimum(abs(t), 1.0);
                 return Loss{sum(w * p * p), sum(w), {}, p.elements()};
               },
               false});
  k.push_back({"crossEntropyOptions", 1.5, false,
               "[](Tensor p, Tensor t) {\n"
               "    std::vector<float> weights;\n"
               "    for (int64_t i = 0; i < p.size(-1); ++i)\n"
               "      weights.push_back(0.25f * float(i % 4 + 1));\n"
               "    return crossEntropy(p, t, {.labelSmoothing = 0.1, .classWeights = weights, .ignoreIndex = 1});\n"
               "  }",
               [](Tensor p, Tensor t) {
                 std::vector<float> weights;
                 for (int64_t i = 0; i < p.size(-1); ++i)
                   weights.push_back(0.25F * static_cast<float>(i % 4 + 1));
                 return crossEntropy(p, t, {.labelSmoothing = 0.1, .classWeights = weights, .ignoreIndex = 1});
               },
               true});
  k.push_back({"topCorrect", 0.7, false,
               "[](Tensor p, Tensor t) {\n"
               "    Loss loss = crossEntropy(p, t);\n"
               "    Tensor coarse = round(p * 0.7 + 0.13);\n"
               "    loss.top = {{2, topCorrect(p, t, 2)}, {1, topCorrect(maskedFill(coarse, coarse > 2.0, NAN), t, 1)}};\n"
               "    return loss;\n"
               "  }",
               [](Tensor p, Tensor t) {
                 Loss loss = crossEntropy(p, t);
                 Tensor coarse = round(p * 0.7 + 0.13); // has ties; values that are halves of integers do not meet one
                 loss.top = {{2, topCorrect(p, t, 2)}, {1, topCorrect(maskedFill(coarse, coarse > 2.0, NAN), t, 1)}};
                 return loss;
               },
               true});
  k.push_back({"nllLoss", 0.7, false, "[](Tensor p, Tensor t) { return nllLoss(logSoftmax(p), t); }",
               [](Tensor p, Tensor t) { return nllLoss(logSoftmax(p), t); }, true});
  k.push_back({"l1Loss", 0.7, true, "[](Tensor p, Tensor t) { return l1Loss(p, t); }",
               [](Tensor p, Tensor t) { return l1Loss(p, t); }, false});
  k.push_back({"huberLoss", 0.7, false, "[](Tensor p, Tensor t) { return huberLoss(p, t, 0.4); }",
               [](Tensor p, Tensor t) { return huberLoss(p, t, 0.4); }, false});
  k.push_back({"bceWithLogits", 0.7, false, "[](Tensor p, Tensor t) { return bceWithLogits(p, abs(t), 1.5); }",
               [](Tensor p, Tensor t) { return bceWithLogits(p, abs(t), 1.5); }, false});
  k.push_back({"klDivLoss", 0.7, false, "[](Tensor p, Tensor t) { return klDivLoss(logSoftmax(p), softmax(t)); }",
               [](Tensor p, Tensor t) { return klDivLoss(logSoftmax(p), softmax(t)); }, false});
  k.push_back({"l1Sum", 0.7, false, "[](Tensor p, Tensor t) { return l1Loss(p, t, Reduction::Sum); }",
               [](Tensor p, Tensor t) { return l1Loss(p, t, Reduction::Sum); }, false});
  k.push_back(
      {"crossEntropySum", 0.7, false,
       "[](Tensor p, Tensor t) {\n"
       "    return crossEntropy(p, t, {.labelSmoothing = 0.1, .reduction = Reduction::Sum});\n"
       "  }",
       [](Tensor p, Tensor t) { return crossEntropy(p, t, {.labelSmoothing = 0.1, .reduction = Reduction::Sum}); },
       true});
  k.push_back({"softCrossEntropy", 0.7, false,
               "[](Tensor p, Tensor t) { return crossEntropy(p, softmax(t), {.labelSmoothing = 0.1}); }",
               [](Tensor p, Tensor t) { return crossEntropy(p, softmax(t), {.labelSmoothing = 0.1}); }, false});
  k.push_back({"bceLoss", 0.7, false, "[](Tensor p, Tensor t) { return bceLoss(sigmoid(p), sigmoid(t)); }",
               [](Tensor p, Tensor t) { return bceLoss(sigmoid(p), sigmoid(t)); }, false});
  k.push_back({"cosineEmbedding", 0.7, false,
               "[](Tensor p, Tensor t) {\n"
               "    Tensor a = 0.5 + reshape(p, {p.size(0), -1}), b = reshape(t, {p.size(0), -1});\n"
               "    return cosineEmbeddingLoss(a, b, where(select(b, 1, 0) > 0.1, 1, -1 + 0 * sum(b, {1})));\n"
               "  }",
               [](Tensor p, Tensor t) {
                 Tensor a = 0.5 + reshape(p, {p.size(0), -1}), b = reshape(t, {p.size(0), -1});
                 return cosineEmbeddingLoss(a, b, where(select(b, 1, 0) > 0.1, 1, -1 + 0 * sum(b, {1})));
               },
               false});
  k.push_back(
      {"triplet", 0.7, false,
       "[](Tensor p, Tensor t) {\n"
       "    Tensor a = reshape(p, {p.size(0), -1}), b = reshape(where(cleave::isnan(t), 0, t), {p.size(0), -1});\n"
       "    return tripletMarginLoss(a, b, flip(b, {1}) - 1, {.swap = true});\n"
       "  }",
       [](Tensor p, Tensor t) {
         Tensor a = reshape(p, {p.size(0), -1}), b = reshape(where(cleave::isnan(t), 0, t), {p.size(0), -1});
         return tripletMarginLoss(a, b, flip(b, {1}) - 1, {.swap = true});
       },
       false});
  k.push_back(
      {"ctcLoss", 0.7, false,
       "[](Tensor p, Tensor t) {\n"
       "    Tensor x = reshape(p, {p.size(0), -1}), y = select(reshape(t, {p.size(0), -1}), 1, 0);\n"
       "    x = slice(x, 1, 0, std::min<int64_t>(x.size(1), 5));\n"
       "    y = where(cleave::isnan(y), 0, y);\n"
       "    Tensor labels = stack({where(y > 0, 1, 2 + 0 * y), where(y > 0.3, 1, -1 + 0 * y)}, 1);\n"
       "    return ctcLoss(logSoftmax(stack({x, -x, 0.5 * x}, 2)), cast(labels, DType::I32), {.zeroInfinity = true});\n"
       "  }",
       [](Tensor p, Tensor t) {
         Tensor x = reshape(p, {p.size(0), -1}), y = select(reshape(t, {p.size(0), -1}), 1, 0);
         x = slice(x, 1, 0, std::min<int64_t>(x.size(1), 5));
         y = where(cleave::isnan(y), 0, y);
         Tensor labels = stack({where(y > 0, 1, 2 + 0 * y), where(y > 0.3, 1, -1 + 0 * y)}, 1);
         return ctcLoss(logSoftmax(stack({x, -x, 0.5 * x}, 2)), cast(labels, DType::I32), {.zeroInfinity = true});
       },
       false});
  return k;
}

} // namespace

const std::vector<LayerKind> &layerKinds() {
  static const std::vector<LayerKind> kinds = makeLayers();
  return kinds;
}
const LayerKind *layerKind(const std::string &name) {
  for (const LayerKind &kind : layerKinds())
    if (kind.name == name)
      return &kind;
  return nullptr;
}

const std::vector<LossKind> &lossKinds() {
  static const std::vector<LossKind> kinds = makeLosses();
  return kinds;
}
const LossKind &lossKind(const std::string &name) {
  for (const LossKind &kind : lossKinds())
    if (kind.name == name)
      return kind;
  throw std::logic_error("no loss " + name);
}

} // namespace cleave::random_models
