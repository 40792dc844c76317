// Functions of the DSL: the mistakes that each rejects; all functions compiled, split, run and compared with the
// interpreter.
#include "tests/support/FunctionModels.h"
#include "tests/unit/frontend/Support.h"

#include <cmath>
#include <cstdlib>

using namespace cleave;
using namespace cleave::test;

namespace {

/// The error of a model that misuses a function on images [4, 1, 28, 28].
std::string wrong(std::function<Tensor(Tensor)> body) {
  Lambda model([body](Lambda &, Tensor x) { return body(x); });
  return mistake([&] { traced(model); });
}

struct Mistake {
  const char *rule;
  std::function<Tensor(Tensor)> body;
};

void checkMistakes(const std::vector<Mistake> &mistakes) {
  for (const Mistake &m : mistakes) {
    INFO(m.rule);
    const std::string message = wrong(m.body);
    INFO(message);
    CHECK(has(message, std::string("(rule ") + m.rule + ")"));
    CHECK(has(message, "FunctionsTest.cpp:"));
  }
}

/// Makes a tensor of a loss, since a body returns a tensor. The expected error comes before.
Tensor lossOf(const Loss &loss) { return loss.sum; }

} // namespace

TEST_CASE("rules of pointwise functions name themselves") {
  checkMistakes({{"lt C1", [](Tensor x) { return x < arange(28); }},
                 {"eq C2", [](Tensor x) { return eq(x, full({3}, 1)); }},
                 {"ge C1", [](Tensor x) { return cast(x, DType::I32) >= 0.5; }},
                 {"logicalAnd C1", [](Tensor x) { return logicalAnd(x > 0, x); }},
                 {"logicalOr C2", [](Tensor x) { return logicalOr(x > 0, full({3}, 1, DType::I1)); }},
                 {"logicalNot C1", [](Tensor x) { return logicalNot(x); }},
                 {"isnan C1", [](Tensor) { return isnan(arange(3)); }},
                 {"where C1", [](Tensor x) { return where(x > 0, x, arange(28)); }},
                 {"where C2", [](Tensor x) { return where(x > 0, x, full({3}, 1)); }},
                 {"where C2", [](Tensor x) { return where(full({3}, 1, DType::I1), x, x); }},
                 {"where C3", [](Tensor x) { return where(x, x, x); }},
                 {"maskedFill C2",
                  [](Tensor x) {
                    return maskedFill(x, full({2, 4, 1, 28, 28}, 1, DType::I1), 0);
                  }},
                 {"maskedFill C3", [](Tensor x) { return maskedFill(x, x, 0); }},
                 {"clamp C2", [](Tensor x) { return clamp(x, full({3}, 1), 2); }},
                 {"clamp C3", [](Tensor x) { return clamp(x, 2, 1); }},
                 {"sin C1", [](Tensor) { return sin(arange(3)); }},
                 {"cos C1", [](Tensor) { return cos(arange(3)); }},
                 {"tan C1", [](Tensor) { return tan(arange(3)); }},
                 {"log1p C1", [](Tensor) { return log1p(arange(3)); }},
                 {"expm1 C1", [](Tensor) { return expm1(arange(3)); }},
                 {"sinh C1", [](Tensor) { return sinh(arange(3)); }},
                 {"floor C1", [](Tensor) { return floor(arange(3)); }},
                 {"ceil C1", [](Tensor) { return ceil(arange(3)); }},
                 {"round C1", [](Tensor) { return round(arange(3)); }},
                 {"isinf C1", [](Tensor) { return isinf(arange(3)); }},
                 {"isfinite C1", [](Tensor) { return isfinite(arange(3)); }},
                 {"remainder C3", [](Tensor) { return remainder(arange(3), arange(3)); }},
                 {"atan2 C2", [](Tensor x) { return atan2(x, full({3}, 1)); }},
                 {"selu C1", [](Tensor) { return selu(arange(3)); }},
                 {"relu6 C1", [](Tensor) { return relu6(arange(3)); }},
                 {"hardSwish C1", [](Tensor) { return hardSwish(arange(3)); }},
                 {"mish C1", [](Tensor) { return mish(arange(3)); }},
                 {"logSigmoid C1", [](Tensor) { return logSigmoid(arange(3)); }},
                 {"prelu C2", [](Tensor x) { return prelu(x, full({3}, 1)); }},
                 {"sign C1", [](Tensor) { return sign(arange(3)); }},
                 {"softplus C2", [](Tensor x) { return softplus(x, 0); }},
                 {"leakyRelu C1", [](Tensor) { return leakyRelu(arange(3)); }},
                 {"elu C1", [](Tensor) { return elu(arange(3)); }}});
}

TEST_CASE("rules of functions that make tensors name themselves") {
  checkMistakes({{"constant C1", [](Tensor) { return constant({0}, std::vector<float>{}); }},
                 {"constant C2",
                  [](Tensor) {
                    return constant({2, 2}, {1, 2, 3});
                  }},
                 {"constant C3", [](Tensor) { return constant({1 << 19}, std::vector<float>(1 << 19)); }},
                 {"rand C1",
                  [](Tensor) {
                    return cleave::rand({2, -1});
                  }},
                 {"randn C1", [](Tensor) { return randn({0}); }},
                 {"arange C1", [](Tensor) { return arange(0, 1, -0.5); }},
                 {"arange C1", [](Tensor) { return arange(0, 1, 0); }},
                 {"oneHot C1", [](Tensor x) { return oneHot(x, 3); }},
                 {"oneHot C2", [](Tensor) { return oneHot(arange(3), 0); }},
                 {"tril C1", [](Tensor) { return tril(arange(3)); }},
                 {"triu C1", [](Tensor) { return triu(arange(3)); }}});
}

TEST_CASE("causal attention aligned at the lower right needs a key for every query") {
  const auto attention = [](CausalAlignment alignment, int64_t queries) {
    return [=](Tensor) {
      Tensor q = full({1, 1, queries, 2}, 1), k = full({1, 1, 2, 2}, 1);
      return tenLogits(expand(
          reshape(scaledDotProductAttention(q, k, k, {.causal = true, .alignment = alignment}), {1, -1}), {40, -1}));
    };
  };
  checkMistakes({{"scaledDotProductAttention C3", attention(CausalAlignment::LowerRight, 3)}});
  Lambda model([&](Lambda &, Tensor x) { return attention(CausalAlignment::UpperLeft, 3)(x) + 0 * tenLogits(x); });
  const std::string forward = forwardPart(traced(model));
  CHECK(count(forward, "cleave.attention ") == 2); // queries 0 and 1 causal, query 2 sees both keys
  CHECK(count(forward, "causal") == 1);
}

TEST_CASE("rules of reductions name themselves") {
  checkMistakes({{"var C1", [](Tensor x) { return var(x, {4}); }},
                 {"var C2", [](Tensor x) { return var(x, {1}); }},
                 {"var C3", [](Tensor) { return var(arange(3)); }},
                 {"stddev C2", [](Tensor x) { return stddev(x, {0}, {.correction = 4}); }},
                 {"norm C1",
                  [](Tensor x) {
                    return norm(x, 2, {1, 1});
                  }},
                 {"norm C2", [](Tensor x) { return norm(x, NAN); }},
                 {"norm C3", [](Tensor) { return norm(arange(3)); }},
                 {"logsumexp C3", [](Tensor) { return logsumexp(arange(3)); }},
                 {"prod C1", [](Tensor x) { return prod(x, 4); }},
                 {"cumsum C1", [](Tensor x) { return cumsum(x, -5); }},
                 {"cumsum C2", [](Tensor x) { return cumsum(x > 0, 1); }},
                 {"cumprod C1", [](Tensor x) { return cumprod(x, -5); }},
                 {"cumprod C2", [](Tensor x) { return cumprod(x > 0, 1); }},
                 {"any C1",
                  [](Tensor x) {
                    return any(x, {1, 1});
                  }},
                 {"all C1", [](Tensor x) { return all(x, {4}); }},
                 {"maxWithIndices C1", [](Tensor x) { return maxWithIndices(x, 4).values; }},
                 {"minWithIndices C1", [](Tensor x) { return minWithIndices(x, -5).values; }},
                 {"argmax C1", [](Tensor x) { return argmax(x, 7); }},
                 {"argmin C1", [](Tensor x) { return argmin(x, -7); }},
                 {"sort C1", [](Tensor x) { return sort(x, 4).values; }},
                 {"topk C1", [](Tensor x) { return topk(x, 2, 4).values; }},
                 {"topk C2", [](Tensor x) { return topk(x, 29).values; }}});
}

TEST_CASE("rules of shapes name themselves") {
  checkMistakes(
      {{"expand C1", [](Tensor x) { return expand(x, {28}); }},
       {"expand C2",
        [](Tensor x) {
          return expand(x, {4, 3, 14, 28});
        }},
       {"repeat C1", [](Tensor x) { return repeat(x, {2}); }},
       {"repeat C2",
        [](Tensor x) {
          return repeat(x, {1, 1, 0, 1});
        }},
       {"stack C1", [](Tensor) { return stack({}); }},
       {"stack C2", [](Tensor x) { return stack({x}, 6); }},
       {"stack C3",
        [](Tensor x) {
          return stack({x, flatten(x)});
        }},
       {"split C1", [](Tensor x) { return split(x, 2, 4)[0]; }},
       {"split C2", [](Tensor x) { return split(x, int64_t{0}, 1)[0]; }},
       {"split C2",
        [](Tensor x) {
          return split(x, {20, 9}, 2)[0];
        }},
       {"chunk C2", [](Tensor x) { return chunk(x, 0, 2)[0]; }},
       {"pad C1", [](Tensor x) { return pad(x, {1}); }},
       {"pad C2",
        [](Tensor x) {
          return pad(x, {-14, -14});
        }},
       {"pad C1", [](Tensor x) { return pad(x, {1}, PadMode::Reflect); }},
       {"pad C2",
        [](Tensor x) {
          return pad(x, {28, 0}, PadMode::Reflect);
        }},
       {"pad C2",
        [](Tensor x) {
          return pad(x, {0, 29}, PadMode::Circular);
        }},
       {"pad C2",
        [](Tensor x) {
          return pad(x, {-1, 0}, PadMode::Replicate);
        }},
       {"roll C1",
        [](Tensor x) {
          return roll(x, {1, 1}, {2, -2});
        }},
       {"roll C2", [](Tensor x) { return roll(x, {1}, {}); }},
       {"indexSelect C1", [](Tensor x) { return indexSelect(x, 4, arange(3)); }},
       {"indexSelect C2", [](Tensor x) { return indexSelect(x, 2, full({3}, 1)); }},
       {"scatterAdd C1", [](Tensor x) { return scatterAdd(x, 2, arange(28), x); }},
       {"scatterAdd C2", [](Tensor x) { return scatterAdd(x, 4, cast(x, DType::I32), x); }},
       {"scatterAdd C3", [](Tensor x) { return scatterAdd(slice(x, 3, 0, 2), 2, cast(x, DType::I32), x); }},
       {"scatterAdd C4", [](Tensor x) { return scatterAdd(x, 2, x, x); }},
       {"scatterAdd C5", [](Tensor x) { return scatterAdd(cast(x, DType::BF16), 2, cast(x, DType::I32), x); }},
       {"indexAdd C1", [](Tensor x) { return indexAdd(x, 2, arange(3), x); }},
       {"indexAdd C2", [](Tensor x) { return indexAdd(x, 4, arange(3), x); }},
       {"indexAdd C3", [](Tensor x) { return indexAdd(slice(x, 3, 0, 2), 2, arange(28), x); }},
       {"indexAdd C4", [](Tensor x) { return indexAdd(x, 2, full({28}, 1), x); }},
       {"indexAdd C5", [](Tensor x) { return indexAdd(cast(x, DType::I32), 2, arange(28), x); }},
       {"flip C1",
        [](Tensor x) {
          return flip(x, {2, 2});
        }},
       {"einsum C1", [](Tensor x) { return einsum("abcd->a1", {x}); }},
       {"einsum C1", [](Tensor x) { return einsum("abcd->aa", {x}); }},
       {"einsum C1", [](Tensor x) { return einsum("abcd->e", {x}); }},
       {"einsum C2", [](Tensor x) { return einsum("abc->a", {x}); }},
       {"einsum C2", [](Tensor x) { return einsum("abcd,abcd->a", {x}); }},
       {"einsum C3", [](Tensor x) { return einsum("aacd->cd", {x}); }},
       {"einsum C4", [](Tensor x) {
          return einsum("abcd,d", {x, arange(28)});
        }}});
}

TEST_CASE("padding with a few of the input's own elements concatenates slices") {
  const auto padded = [](int64_t amount, PadMode mode) {
    Lambda model([=](Lambda &, Tensor x) { return tenLogits(pad(x, {amount, amount}, mode)); });
    return forwardPart(traced(model));
  };
  for (const PadMode mode : {PadMode::Reflect, PadMode::Replicate, PadMode::Circular})
    CHECK(!has(padded(3, mode), "gather"));
  CHECK(has(padded(9, PadMode::Reflect), "gather"));
  CHECK(!has(padded(9, PadMode::Circular), "gather"));
}

TEST_CASE("rules of convolutions and sizes of pictures name themselves") {
  const auto weight = [](Shape shape) { return full(shape, 1); };
  checkMistakes({{"conv1d C1",
                  [=](Tensor x) {
                    return conv1d(x, weight({3, 1, 3}));
                  }},
                 {"conv1d C2",
                  [=](Tensor x) {
                    return conv1d(flatten(x, 1, 2), weight({3, 1, 3}));
                  }},
                 {"conv1d C3",
                  [=](Tensor x) {
                    return conv1d(flatten(x, 1, 2), weight({3, 14, 3}), {}, {.groups = 2});
                  }},
                 {"conv1d C4",
                  [=](Tensor x) {
                    return conv1d(flatten(x, 1, 2), weight({3, 28, 29}));
                  }},
                 {"conv1d C5",
                  [=](Tensor x) {
                    return conv1d(flatten(x, 1, 2), weight({3, 28, 3}), {}, {.stride = 0});
                  }},
                 {"conv1d C6",
                  [=](Tensor x) {
                    return conv1d(flatten(x, 1, 2), weight({3, 28, 3}), weight({2}));
                  }},
                 {"maxPool1d C1", [](Tensor x) { return maxPool1d(x, 2); }},
                 {"maxPool1d C2", [](Tensor x) { return maxPool1d(flatten(x, 1, 2), 15, {.dilation = 2}); }},
                 {"maxPool1d C4", [](Tensor x) { return maxPool1d(flatten(x, 1, 2), 2, {.dilation = 0}); }},
                 {"maxPool2d C4",
                  [](Tensor x) {
                    return maxPool2d(x, 2, {.dilation = {1, 0}});
                  }},
                 {"avgPool1d C3", [](Tensor x) { return avgPool1d(flatten(x, 1, 2), 2, {.padding = 2}); }},
                 {"cosineSimilarity C2", [](Tensor x) { return cosineSimilarity(x, full({3}, 1)); }},
                 {"cosineSimilarity C1", [](Tensor x) { return cosineSimilarity(x, arange(28)); }},
                 {"cosineSimilarity C3", [](Tensor x) { return cosineSimilarity(x, x, 4); }},
                 {"cosineSimilarity C4", [](Tensor) { return cosineSimilarity(arange(3), arange(3), 0); }},
                 {"convTranspose2d C1",
                  [=](Tensor x) {
                    return convTranspose2d(x, weight({1, 3, 3}));
                  }},
                 {"convTranspose2d C2",
                  [=](Tensor x) {
                    return convTranspose2d(x, weight({3, 1, 3, 3}));
                  }},
                 {"convTranspose2d C3",
                  [=](Tensor x) {
                    return convTranspose2d(x, weight({1, 1, 3, 3}), {}, {.groups = 2});
                  }},
                 {"convTranspose2d C4",
                  [=](Tensor x) {
                    return convTranspose2d(x, weight({1, 1, 1, 1}), {}, {.padding = 14});
                  }},
                 {"convTranspose2d C5",
                  [=](Tensor x) {
                    return convTranspose2d(x, weight({1, 1, 3, 3}), {}, {.dilation = 0});
                  }},
                 {"convTranspose2d C6",
                  [=](Tensor x) {
                    return convTranspose2d(x, weight({1, 2, 3, 3}), weight({1}));
                  }},
                 {"convTranspose2d C7",
                  [=](Tensor x) {
                    return convTranspose2d(x, weight({1, 2, 3, 3}), {}, {.stride = 2, .outputPadding = 2});
                  }},
                 {"convTranspose2d C8",
                  [=](Tensor x) {
                    return convTranspose2d(cast(x, DType::BF16), weight({1, 2, 3, 3}));
                  }},
                 {"interpolate C1", [](Tensor x) { return interpolate(flatten(x), {.size = 3}); }},
                 {"interpolate C2", [](Tensor x) { return interpolate(x, {}); }},
                 {"interpolate C2", [](Tensor x) { return interpolate(x, {.size = 3, .scale = 2}); }},
                 {"interpolate C3", [](Tensor x) { return interpolate(x, {.size = 3, .alignCorners = true}); }},
                 {"interpolate C4", [](Tensor x) { return interpolate(cast(x, DType::I32), {.size = 3}); }},
                 {"adaptiveAvgPool2d C1", [](Tensor x) { return adaptiveAvgPool2d(flatten(x), 1); }},
                 {"adaptiveAvgPool2d C2", [](Tensor x) { return adaptiveAvgPool2d(x, 0); }},
                 {"adaptiveMaxPool2d C3", [](Tensor x) { return adaptiveMaxPool2d(x > 0, 2); }}});
}

TEST_CASE("rules of losses name themselves") {
  const auto labels = [] { return cast(full({4}, 1), DType::I32); };
  const auto scores = [](Tensor x) { return tenLogits(x); };
  checkMistakes(
      {{"crossEntropy C1", [=](Tensor x) { return lossOf(crossEntropy(x, labels(), {.labelSmoothing = 0.1})); }},
       {"crossEntropy C2", [=](Tensor x) { return lossOf(crossEntropy(scores(x), full({4}, 1), {.ignoreIndex = 3})); }},
       {"crossEntropy C3", [=](Tensor x) { return lossOf(crossEntropy(scores(x), labels(), {.labelSmoothing = 1})); }},
       {"crossEntropy C4",
        [=](Tensor x) {
          return lossOf(crossEntropy(scores(x), labels(), {.classWeights = {1, 2}}));
        }},
       {"nllLoss C1", [=](Tensor x) { return lossOf(nllLoss(x, labels())); }},
       {"nllLoss C3", [=](Tensor x) { return lossOf(nllLoss(scores(x), labels(), {.labelSmoothing = 0.1})); }},
       {"topCorrect C1", [=](Tensor x) { return topCorrect(x, labels(), 5); }},
       {"topCorrect C2", [=](Tensor x) { return topCorrect(scores(x), full({4}, 1), 5); }},
       {"topCorrect C3", [=](Tensor x) { return topCorrect(scores(x), labels(), 0); }},
       {"l1Loss C1", [=](Tensor x) { return lossOf(l1Loss(x, scores(x))); }},
       {"huberLoss C2", [](Tensor x) { return lossOf(huberLoss(x, x, 0.0)); }},
       {"bceWithLogits C2", [](Tensor x) { return lossOf(bceWithLogits(x, x, -1.0)); }},
       {"bceLoss C1", [=](Tensor x) { return lossOf(bceLoss(x, scores(x))); }},
       {"cosineEmbeddingLoss C1", [=](Tensor x) { return lossOf(cosineEmbeddingLoss(x, scores(x), x)); }},
       {"cosineEmbeddingLoss C2", [](Tensor x) { return lossOf(cosineEmbeddingLoss(x, x, x)); }},
       {"tripletMarginLoss C1", [=](Tensor x) { return lossOf(tripletMarginLoss(x, x, scores(x))); }},
       {"tripletMarginLoss C2", [](Tensor x) { return lossOf(tripletMarginLoss(x, x, x, {.p = NAN})); }},
       {"crossEntropy C4",
        [=](Tensor x) {
          return lossOf(crossEntropy(scores(x), scores(x), {.classWeights = {1, 2}}));
        }},
       {"ctcLoss C1", [=](Tensor x) { return lossOf(ctcLoss(x, labels())); }},
       {"ctcLoss C2",
        [](Tensor x) {
          return lossOf(ctcLoss(flatten(x, 1, 2), full({4, 2}, 1)));
        }},
       {"ctcLoss C3",
        [=](Tensor x) { return lossOf(ctcLoss(flatten(x, 1, 2), unsqueeze(labels(), 1), {.blank = 28})); }},
       {"ctcLoss C4",
        [=](Tensor x) { return lossOf(ctcLoss(flatten(x, 1, 2), unsqueeze(labels(), 1), {.lengths = arange(3)})); }},
       {"ctcLoss C5",
        [=](Tensor x) { return lossOf(ctcLoss(cast(flatten(x, 1, 2), DType::I32), unsqueeze(labels(), 1))); }},
       {"klDivLoss C2",
        [](Tensor x) { return lossOf(klDivLoss(x, x, {.batchMean = true, .reduction = Reduction::Sum})); }},
       {"klDivLoss C1", [=](Tensor x) { return lossOf(klDivLoss(x, scores(x))); }}});
}

TEST_CASE("modules of convolutions have PyTorch's shapes and beginnings") {
  struct Layers : Module {
    Conv1d line{*this, "line", 4, 6, {.kernel = 3, .groups = 2}};
    ConvTranspose2d up{*this, "up", 4, 6, {.kernel = {2, 3}, .groups = 2, .bias = false}};
  } layers;
  CHECK(layers.line.weight.shape() == Shape{6, 2, 3});
  CHECK(layers.up.weight.shape() == Shape{4, 3, 2, 3});
  CHECK(!layers.up.bias);
  CHECK(layers.line.weight.initial().b == Approx(1 / std::sqrt(6.0)));
  CHECK(layers.up.weight.initial().b == Approx(1 / std::sqrt(18.0)));
  CHECK(has(mistake([] {
              Module root;
              ConvTranspose2d up(root, "up", 4, 6, {.groups = 4});
            }),
            "rule convTranspose2d C3"));
}

TEST_CASE("a plan of every function agrees with the interpreter") {
  for (auto &[name, model] : functionModels()) {
    Trainer trainer(model.make(), model.config);
    for (std::string mesh : {"dp=1", "dp=2,tp=2"}) {
      INFO(name << " " << mesh);
      const CheckResult result = trainer.check({.mesh = mesh, .microbatches = 2, .steps = 2});
      CHECK(result.difference == "");
      CHECK(result.tensors > 4);
    }
  }
}

/// Discontinuous functions (comparisons, positions) may jump elsewhere if rounding differs; tests/parity/functions.cpp
/// tests them one by one.
TEST_CASE("a plan of functions without jumps agrees with the interpreter in half precision") {
  for (auto &[name, model] : functionModels()) {
    if (name == "pointwise" || name == "order")
      continue;
    Trainer trainer(model.make(), model.config);
    for (std::string level : {"O1", "O2"}) {
      INFO(name << " " << level);
      const CheckResult result = trainer.check({.mesh = "dp=2", .steps = 2, .precision = "bf16", .optLevel = level});
      CHECK(result.difference == "");
    }
  }
}

TEST_CASE("kernels of every function compile for GPUs") {
  for (auto &[name, model] : functionModels()) {
    INFO(name);
    Trainer trainer(model.make(), model.config);
    CHECK(!trainer.plan({.mesh = "dp=2", .backend = "cuda", .target = "sm_90", .precision = "bf16"}).empty());
  }
}

/// Kernels for GPUs, emulated on the CPU: needs the fakes of NVIDIA's libraries (CLEAVE_CUDA_LIBRARIES).
TEST_CASE("a plan of every function agrees with the interpreter on a GPU that is played", "[.gpu]") {
  REQUIRE(std::getenv("CLEAVE_CUDA_LIBRARIES"));
  for (auto &[name, model] : functionModels()) {
    Trainer trainer(model.make(), model.config);
    for (std::string layout : {"nchw", "nhwc"}) {
      INFO(name << " " << layout);
      const CheckResult result =
          trainer.check({.mesh = "dp=1", .steps = 2, .backend = "cuda", .target = "emulated", .layout = layout});
      CHECK(result.difference == "");
    }
  }
}
