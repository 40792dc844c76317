// Compares every function of the DSL and its gradient with PyTorch's at special values: NaN, infinities, zeros, large
// and tiny numbers, ties (goldens/special.json, made by make_goldens.py from special.py). The interpreter, and the
// compiled kernels of the fused function, must agree with PyTorch, unless docs/dsl.md has a row with the reason.
#include "frontend/trace/Compose.h"
#include "ir/graph/Graph.h"
#include "passes/decompose/Decompose.h"
#include "passes/differentiate/Differentiate.h"
#include "passes/fuse/Fuse.h"
#include "passes/simplify/Simplify.h"
#include "runtime/base/InputFile.h"
#include "tests/parity/TracedFunction.h"
#include "tests/unit/passes/FusedFunction.h"
#include "tests/unit/passes/Programs.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <map>
#include <regex>
#include <set>
#include <sstream>

using namespace cleave;
using namespace cleave::testing;

namespace {

Tensor number(Tensor x) { return cast(x, DType::F32); }
Tensor mean(const Loss &loss) { return loss.sum / loss.weight; }
constexpr double inf = INFINITY;
using Functions = std::map<std::string, Function>;

void addElementwise(Functions &f) {
  f["operator+"] = [](In i) { return i.x + i.y; };
  f["operator-"] = [](In i) { return i.x - i.y; };
  f["operator*"] = [](In i) { return i.x * i.y; };
  f["operator/"] = [](In i) { return i.x / i.y; };
  f["operator+="] = [](In i) { return i.x += i.y; };
  f["operator-="] = [](In i) { return i.x -= i.y; };
  f["operator*="] = [](In i) { return i.x *= i.y; };
  f["operator/="] = [](In i) { return i.x /= i.y; };
  f["pow"] = [](In i) { return pow(i.x, i.y); };
  for (double p : {0.5, -0.5, 2.0, -1.0, 0.0})
    f[fmt::format("pow:{:g}", p)] = [p](In i) { return pow(i.x, p); };
  f["maximum"] = [](In i) { return maximum(i.x, i.y); };
  f["minimum"] = [](In i) { return minimum(i.x, i.y); };
  f["eq"] = [](In i) { return number(eq(i.x, i.y)); };
  f["ne"] = [](In i) { return number(ne(i.x, i.y)); };
  f["lt"] = [](In i) { return number(lt(i.x, i.y)); };
  f["le"] = [](In i) { return number(le(i.x, i.y)); };
  f["gt"] = [](In i) { return number(gt(i.x, i.y)); };
  f["ge"] = [](In i) { return number(ge(i.x, i.y)); };
  f["operator<"] = [](In i) { return number(i.x < i.y); };
  f["operator<="] = [](In i) { return number(i.x <= i.y); };
  f["operator>"] = [](In i) { return number(i.x > i.y); };
  f["operator>="] = [](In i) { return number(i.x >= i.y); };
  f["logicalAnd"] = [](In i) { return number(logicalAnd(i.x > 0, i.y > 0)); };
  f["logicalOr"] = [](In i) { return number(logicalOr(i.x > 0, i.y > 0)); };
  f["logicalXor"] = [](In i) { return number(logicalXor(i.x > 0, i.y > 0)); };
  f["logicalNot"] = [](In i) { return number(logicalNot(i.x > 0)); };
  f["isnan"] = [](In i) { return number(isnan(i.x)); };
  f["where"] = [](In i) { return where(i.x > i.y, i.x, i.y); };
  f["maskedFill"] = [](In i) { return maskedFill(i.x, i.x > 0, -7); };
  f["clamp"] = [](In i) { return clamp(i.x, -0.5, 1); };
  f["clamp:lower"] = [](In i) { return clamp(i.x, 0, inf); };
  f["clamp:tensor"] = [](In i) { return clamp(i.x, i.y, inf); };
  f["clamp:tensors"] = [](In i) { return clamp(i.x, i.y, i.z); };
  f["clamp:NaN"] = [](In i) { return clamp(i.x, minimum(i.y, i.z), i.z); };
  f["detach"] = [](In i) { return i.x * detach(i.x); };
  f["remainder"] = [](In i) { return remainder(i.x, i.y); };
  f["atan2"] = [](In i) { return atan2(i.x, i.y); };
  f["isinf"] = [](In i) { return number(isinf(i.x)); };
  f["isfinite"] = [](In i) { return number(isfinite(i.x)); };
  f["tan"] = [](In i) { return tan(i.x); };
  f["sinh"] = [](In i) { return sinh(i.x); };
  f["log1p"] = [](In i) { return log1p(i.x); };
  f["expm1"] = [](In i) { return expm1(i.x); };
  f["floor"] = [](In i) { return floor(i.x); };
  f["ceil"] = [](In i) { return ceil(i.x); };
  f["round"] = [](In i) { return round(i.x); };
  f["exp"] = [](In i) { return exp(i.x); };
  f["log"] = [](In i) { return log(i.x); };
  f["sqrt"] = [](In i) { return sqrt(i.x); };
  f["rsqrt"] = [](In i) { return rsqrt(i.x); };
  f["rsqrt:sign"] = [](In i) { return number(rsqrt(i.x) < 0); };
  f["abs"] = [](In i) { return abs(i.x); };
  f["erf"] = [](In i) { return erf(i.x); };
  f["sin"] = [](In i) { return sin(i.x); };
  f["cos"] = [](In i) { return cos(i.x); };
  f["sign"] = [](In i) { return sign(i.x); };
  f["relu"] = [](In i) { return relu(i.x); };
  f["gelu"] = [](In i) { return gelu(i.x); };
  f["gelu:tanh"] = [](In i) { return gelu(i.x, Gelu::Tanh); };
  f["silu"] = [](In i) { return silu(i.x); };
  f["tanh"] = [](In i) { return tanh(i.x); };
  f["sigmoid"] = [](In i) { return sigmoid(i.x); };
  f["softplus"] = [](In i) { return softplus(i.x); };
  f["leakyRelu"] = [](In i) { return leakyRelu(i.x); };
  f["elu"] = [](In i) { return elu(i.x); };
  f["selu"] = [](In i) { return selu(i.x); };
  f["relu6"] = [](In i) { return relu6(i.x); };
  f["hardSwish"] = [](In i) { return hardSwish(i.x); };
  f["mish"] = [](In i) { return mish(i.x); };
  f["logSigmoid"] = [](In i) { return logSigmoid(i.x); };
  f["prelu"] = [](In i) { return prelu(i.x, i.y); };
  f["cast"] = [](In i) { return number(cast(i.x, DType::BF16)); };
  f["softmax"] = [](In i) { return softmax(i.x); };
  f["logSoftmax"] = [](In i) { return logSoftmax(i.x); };
  f["oneHot"] = [](In i) { return i.x * oneHot(i.ids, 3, DType::F32); };
  f["tril"] = [](In i) { return tril(i.x); };
  f["triu"] = [](In i) { return triu(i.x); };
}

void addReductions(Functions &f) {
  f["sum"] = [](In i) { return sum(i.x, {1}); };
  f["mean"] = [](In i) { return cleave::mean(i.x, {1}); };
  f["max"] = [](In i) { return max(i.x, {1}); };
  f["min"] = [](In i) { return min(i.x, {1}); };
  f["var"] = [](In i) { return var(i.x, {1}); };
  f["stddev"] = [](In i) { return stddev(i.x, {1}); };
  for (double p : {0.0, 0.5, 1.0, 2.0, 3.0, -1.0, inf, -inf})
    f[fmt::format("norm:{:g}", p)] = [p](In i) { return norm(i.x, p, {1}); };
  f["logsumexp"] = [](In i) { return logsumexp(i.x, {1}); };
  f["prod"] = [](In i) { return prod(i.x, 1); };
  f["cumsum"] = [](In i) { return cumsum(i.x, 1); };
  f["cumprod"] = [](In i) { return cumprod(i.x, 1); };
  f["any"] = [](In i) { return number(any(i.x, {1})); };
  f["all"] = [](In i) { return number(all(i.x, {1})); };
  f["maxWithIndices"] = [](In i) { return maxWithIndices(i.x, 1).values; };
  f["maxWithIndices:places"] = [](In i) { return number(maxWithIndices(i.x, 1).indices); };
  f["minWithIndices"] = [](In i) { return minWithIndices(i.x, 1).values; };
  f["argmax"] = [](In i) { return number(argmax(i.x, 1)); };
  f["argmin"] = [](In i) { return number(argmin(i.x, 1)); };
  f["sort"] = [](In i) { return sort(i.x, 1).values; };
  f["sort:places"] = [](In i) { return number(sort(i.x, 1).indices); };
  f["sort:descending"] = [](In i) { return sort(i.x, 1, true).values; };
  f["sort:descending places"] = [](In i) { return number(sort(i.x, 1, true).indices); };
  f["topk"] = [](In i) { return topk(i.x, 3, 1).values; };
  f["topk:few"] = [](In i) { return topk(i.x, 1, 1).values; };
  f["topk:smallest"] = [](In i) { return topk(i.x, 3, 1, false).values; };
  f["topk:few smallest"] = [](In i) { return topk(i.x, 2, 1, false).values; };
}

/// A dimension with one element.
void addOfOne(Functions &f) {
  f["argmax:one"] = [](In i) { return number(argmax(i.x, 1)); };
  f["sort:one"] = [](In i) { return sort(i.x, 1).values; };
  f["topk:one"] = [](In i) { return topk(i.x, 1, 1).values; };
  f["norm:one"] = [](In i) { return norm(i.x, inf, {1}); };
  f["logsumexp:one"] = [](In i) { return logsumexp(i.x, {1}); };
  f["cumprod:one"] = [](In i) { return cumprod(i.x, 1); };
  f["softmax:one"] = [](In i) { return softmax(i.x, 1); };
}

void addShapes(Functions &f) {
  f["reshape"] = [](In i) { return reshape(i.x, {2, 6}); };
  f["flatten"] = [](In i) { return flatten(i.x); };
  f["transpose"] = [](In i) { return transpose(i.x, 0, 1); };
  f["permute"] = [](In i) { return permute(i.x, {2, 0, 1}); };
  f["unsqueeze"] = [](In i) { return unsqueeze(i.x, 1); };
  f["squeeze"] = [](In i) { return squeeze(i.x, 1); };
  f["slice"] = [](In i) { return slice(i.x, 1, 1, 3); };
  f["select"] = [](In i) { return select(i.x, 1, 1); };
  f["split"] = [](In i) { return split(i.x, {1, 3}, 1)[1]; };
  f["chunk"] = [](In i) { return chunk(i.x, 2, 1)[0]; };
  f["concat"] = [](In i) { return concat({i.x, i.y}, 1); };
  f["stack"] = [](In i) { return stack({i.x, i.y}, 1); };
  f["expand"] = [](In i) { return expand(i.x, {2, 3}); };
  f["repeat"] = [](In i) { return repeat(i.x, {2, 2}); };
  f["pad"] = [](In i) { return pad(i.x, {1, 2}, 0.5); };
  f["pad:reflect"] = [](In i) { return pad(i.x, {1, 2}, PadMode::Reflect); };
  f["roll"] = [](In i) { return roll(i.x, {1}, {1}); };
  f["indexSelect"] = [](In i) { return indexSelect(i.x, 1, i.ids); };
  f["scatterAdd"] = f["scatterAdd:fewer indices"] = [](In i) { return scatterAdd(i.x, 1, i.ids, i.y); };
  f["scatterAdd:source"] = [](In i) { return scatterAdd(i.y, 1, i.ids, i.x); };
  f["indexAdd"] = [](In i) { return indexAdd(i.y, 1, i.ids, i.x); };
  f["flip"] = [](In i) { return flip(i.x, {1}); };
  f["gather"] = f["gather:fewer indices"] = [](In i) { return gather(i.x, 1, i.ids); };
}

Function attention(AttentionOptions options) {
  return [=](In i) { return scaledDotProductAttention(i.x, i.y, i.z, options); };
}

void addProducts(Functions &f) {
  f["matmul"] = [](In i) { return matmul(i.x, i.y); };
  f["einsum"] = [](In i) { return einsum("ij,jk->ki", {i.x, i.y}); };
  f["einsum:trace"] = [](In i) { return einsum("ii->i", {i.x}); };
  f["linear"] = [](In i) { return linear(i.x, i.w, i.b); };
  f["cosineSimilarity"] = [](In i) { return cosineSimilarity(i.x, i.y); };
  f["embedding"] = [](In i) { return embedding(i.ids, i.x); };
  f["scaledDotProductAttention"] = attention({});
  f["scaledDotProductAttention:fewer queries"] = f["scaledDotProductAttention:more queries"] =
      attention({.causal = true});
  f["scaledDotProductAttention:lower right"] = attention({.causal = true, .alignment = CausalAlignment::LowerRight});
  f["scaledDotProductAttention:no key"] = [](In i) {
    Tensor seen = constant({2, 3}, std::vector<int32_t>{1, 1, 0, 0, 0, 0}) > 0;
    return scaledDotProductAttention(i.x, i.y, i.z, {.mask = seen});
  };
  f["rotaryEmbedding"] = [](In i) { return rotaryEmbedding(i.x); };
}

void addPictures(Functions &f) {
  f["conv2d"] = [](In i) { return conv2d(i.x, i.w, i.b, {.padding = 1}); };
  f["conv1d"] = [](In i) { return conv1d(i.x, i.w); };
  f["convTranspose2d"] = [](In i) { return convTranspose2d(i.x, i.w, {}, {.stride = 2}); };
  f["maxPool2d"] = [](In i) { return maxPool2d(i.x, 2); };
  f["maxPool2d:overlapping"] = [](In i) { return maxPool2d(i.x, 3, {.stride = 1, .padding = 1}); };
  f["avgPool2d"] = [](In i) { return avgPool2d(i.x, 2); };
  f["maxPool2d:dilated"] = [](In i) { return maxPool2d(i.x, 2, {.stride = 1, .dilation = 2}); };
  f["avgPool2d:corrected"] = [](In i) {
    return avgPool2d(i.x, 2, {.padding = 1, .ceilMode = true, .countIncludePad = false});
  };
  f["maxPool1d"] = [](In i) { return maxPool1d(i.x, 2, {.stride = 1, .ceilMode = true}); };
  f["avgPool1d"] = [](In i) { return avgPool1d(i.x, 2, {.padding = 1}); };
  f["globalAvgPool"] = [](In i) { return globalAvgPool(i.x); };
  f["adaptiveAvgPool2d"] = [](In i) { return adaptiveAvgPool2d(i.x, {2, 3}); };
  f["adaptiveMaxPool2d"] = [](In i) { return adaptiveMaxPool2d(i.x, {2, 3}); };
  f["interpolate"] = [](In i) { return interpolate(i.x, {.size = {4, 3}}); };
  f["interpolate:bilinear"] = [](In i) { return interpolate(i.x, {.size = {4, 3}, .mode = Interpolation::Bilinear}); };
}

void addNorms(Functions &f) {
  f["batchNorm2d"] = [](In i) { // without running statistics, which need a module
    return tensorOf(
        Ops("batchNorm2d", Where::current())
            .op<ir::BatchNormOp>(valueOf(i.x), valueOf(i.w), valueOf(i.b), llvm::APFloat(1e-5), uint64_t{0}, false)
            .getResult());
  };
  f["layerNorm"] = [](In i) { return layerNorm(i.x, i.w, i.b); };
  f["rmsNorm"] = [](In i) { return rmsNorm(i.x, i.w); };
  f["groupNorm"] = [](In i) { return groupNorm(i.x, 2, i.w, i.b); };
  f["instanceNorm"] = [](In i) { return instanceNorm(i.x); };
}

void addLosses(Functions &f) {
  f["crossEntropy"] = f["crossEntropy:ignored"] = [](In i) { return mean(crossEntropy(i.x, i.labels)); };
  f["topCorrect"] = [](In i) { return i.x * topCorrect(i.x, i.labels, 2); };
  f["crossEntropy:smoothed"] = [](In i) { return mean(crossEntropy(i.x, i.labels, {.labelSmoothing = 0.1})); };
  f["nllLoss"] = [](In i) { return mean(nllLoss(i.x, i.labels)); };
  f["mseLoss"] = [](In i) { return mean(mseLoss(i.x, i.t)); };
  f["l1Loss"] = [](In i) { return mean(l1Loss(i.x, i.t)); };
  f["huberLoss"] = [](In i) { return mean(huberLoss(i.x, i.t)); };
  f["bceWithLogits"] = [](In i) { return mean(bceWithLogits(i.x, i.t)); };
  f["klDivLoss"] = [](In i) { return mean(klDivLoss(i.x, i.t)); };
  f["crossEntropy:soft"] = [](In i) { return mean(crossEntropy(i.x, i.t)); };
  f["bceLoss"] = [](In i) { return mean(bceLoss(i.x, i.t)); };
  f["cosineEmbeddingLoss"] = [](In i) { return mean(cosineEmbeddingLoss(i.x, i.y, constant({2}, {1, -1}))); };
  f["tripletMarginLoss"] = [](In i) { return mean(tripletMarginLoss(i.x, i.y, i.z)); };
  f["ctcLoss"] = [](In i) { return mean(ctcLoss(logSoftmax(i.x), constant({1, 2}, std::vector<int32_t>{1, 2}))); };
  f["weightedSum"] = [](In i) {
    return mean(weightedSum({{crossEntropy(i.x, i.labels), 1}, {crossEntropy(i.x, i.labels), 0.5}}));
  };
}

const Functions &functions() {
  static const Functions all = [] {
    Functions f;
    addElementwise(f), addReductions(f), addOfOne(f), addShapes(f), addProducts(f), addPictures(f), addNorms(f),
        addLosses(f);
    return f;
  }();
  return all;
}

// ---- docs/dsl.md --------------------------------------------------------------------------------------------------

/// Differences that are documented: by function, the kinds of inputs; "all" for a function that the table does not
/// have.
struct Documented {
  std::set<std::string> functions; ///< of the page's tables, without modules and marks
  std::map<std::string, std::set<std::string>> differences;
};

std::vector<std::string> inBackticks(const std::string &cell) {
  std::vector<std::string> words;
  const std::regex word("`([^`]+)`");
  for (std::sregex_iterator at(cell.begin(), cell.end(), word), end; at != end; ++at)
    words.push_back((*at)[1]);
  return words;
}

Documented documented() {
  Documented page;
  std::istringstream text(readTextFile(CLEAVE_DSL_PAGE, Status::Environment, 1 << 20));
  std::string section;
  for (std::string line; std::getline(text, line);) {
    if (line.starts_with("## "))
      section = line.substr(3);
    if (!line.starts_with("| `") || section == "Modules" || section == "Marks")
      continue;
    std::vector<std::string> cells;
    std::istringstream row(line.substr(1));
    for (std::string cell; std::getline(row, cell, '|');)
      cells.push_back(cell);
    if (section == "Special values") {
      REQUIRE(cells.size() >= 3);
      INFO(line);
      CHECK(cells[2].size() > 10); // the reason
      for (const std::string &name : inBackticks(cells[0]))
        for (const std::string &kind : inBackticks(cells[1]))
          page.differences[name].insert(kind);
    } else {
      for (const std::string &name : inBackticks(cells[0]))
        page.functions.insert(name);
    }
  }
  return page;
}

// ---- comparison ---------------------------------------------------------------------------------------------------

/// `scale`: the largest finite number of the tensor.
bool agree(double found, double wanted, double scale) {
  if (std::isnan(wanted) || std::isnan(found))
    return std::isnan(wanted) && std::isnan(found);
  if (std::isinf(wanted) || std::isinf(found))
    return wanted == found;
  const double size = std::abs(wanted);
  const bool tiny = size > 0 && size < 1e-30; // must not become 0
  return std::abs(found - wanted) <= (tiny ? 0.02 * size + 3e-45 : 1e-4 * size + 2e-6 * scale + 1e-20);
}

std::vector<double> numbersOf(const nlohmann::json &list) { return arrayOf({{"shape", {0}}, {"data", list}}).data; }

/// Lists the results and gradients of one run that differ from PyTorch's.
std::string differences(const Arrays &found, const nlohmann::json &kind) {
  std::string text;
  const auto compare = [&](const std::string &key, const std::vector<double> &got, const nlohmann::json &wanted) {
    const std::vector<double> want = numbersOf(wanted);
    REQUIRE(want.size() == got.size());
    double scale = 0;
    for (double number : want)
      scale = std::isfinite(number) ? std::max(scale, std::abs(number)) : scale;
    for (size_t i = 0; i < want.size(); ++i)
      if (!agree(got[i], want[i], scale)) {
        text += fmt::format(" {} [{:.5g}] wanted [{:.5g}]", key, fmt::join(got, ", "), fmt::join(want, ", "));
        return;
      }
  };
  compare("buffer:result", found.at("buffer:result").data, kind["result"]);
  for (const auto &[operand, gradient] : kind["gradients"].items())
    compare("gradient:" + operand, gradientOf(found, operand, {std::ssize(gradient)}).data, gradient);
  return text;
}

/// A case as `traced` takes it, and its arguments for one kind.
nlohmann::json exampleOf(const nlohmann::json &example) {
  nlohmann::json out{{"floats", {{"c", {{"shape", example["shape"]}}}}}, {"ints", example["ints"]}};
  for (const auto &[name, shape] : example["shapes"].items())
    out["floats"][name]["shape"] = shape;
  return out;
}

Arrays argumentsOf(const nlohmann::json &example, const nlohmann::json &kind) {
  Arrays arguments;
  for (const auto &[name, shape] : example["shapes"].items()) {
    std::vector<double> values =
        numbersOf(kind["values"].contains(name) ? kind["values"][name] : example["others"][name]);
    for (double &value : values) // PyTorch's input is f32
      value = static_cast<float>(value);
    arguments["parameter:" + name] = {shape, values};
  }
  for (const auto &[name, value] : example["ints"].items())
    arguments["input:" + name] = arrayOf(value);
  Array &c = arguments["input:c"] = {example["shape"], std::vector<double>(kind["result"].size())};
  for (size_t i = 0; i < c.data.size(); ++i)
    c.data[i] = static_cast<double>(i % 3 + 1);
  return arguments;
}

} // namespace

TEST_CASE("special values give PyTorch's results and gradients", "[parity][special]") {
  const Documented page = documented();
  std::set<std::string> missing = page.functions, without;
  for (const auto &[name, kinds] : page.differences)
    if (kinds.count("all"))
      missing.erase(name), without.insert(name);
  auto unused = page.differences;
  for (const nlohmann::json &example : golden("special.json")) {
    const std::string name = example["name"];
    INFO(name);
    const std::string function = name.substr(0, name.find(':'));
    missing.erase(function);
    CHECK(without.count(function) == 0);
    REQUIRE(functions().count(name));
    GraphModule whole = traced(exampleOf(example), functions().at(name));
    passes::differentiate(whole.module(), 1);
    REQUIRE(whole.verify() == "");
    GraphModule parts = whole.clone();
    passes::simplify(parts.module());
    passes::decompose(parts.module());
    passes::simplify(parts.module());
    GraphModule kernels = parts.clone();
    passes::fuse(kernels.module().lookupSymbol<mlir::func::FuncOp>("train"));
    FusedFunction compiled(kernels.module().lookupSymbol<mlir::func::FuncOp>("train"));
    for (const nlohmann::json &kind : example["kinds"]) {
      const std::string what = kind["kind"];
      const Arrays arguments = argumentsOf(example, kind);
      std::string text;
      for (const auto &[how, found] : {std::pair("interpreter", evaluate(whole, "train", arguments)),
                                       std::pair("decomposed", evaluate(parts, "train", arguments)),
                                       std::pair("kernels", evaluate(compiled, arguments))})
        if (const std::string each = differences(found, kind); !each.empty())
          text += fmt::format("\n  {}:{}", how, each);
      const bool listed = page.differences.count(function) && page.differences.at(function).count(what);
      if (listed && !text.empty())
        unused[function].erase(what);
      INFO(what << text);
      CHECK((listed || text.empty()));
    }
  }
  CHECK(missing == std::set<std::string>{}); // functions of docs/dsl.md without a case
  for (const auto &[name, kinds] : unused)   // rows of docs/dsl.md that no case needs
    if (!without.count(name)) {
      INFO(name);
      CHECK(kinds == std::set<std::string>{});
    }
}
