// Stride arithmetic, and selection of library calls: which ops are folded into a matrix product; the computed values do
// not change.
#include "ir/GraphModule.h"
#include "ir/library/Library.h"
#include "passes/select/Selection.h"
#include "passes/select/Select.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/Verifier.h"

#include <catch2/catch.hpp>

using namespace cleave;
using namespace cleave::passes;

namespace {

/// The function @f of a module after `joinPads` and selection.
struct Selected {
  GraphModule graph;
  mlir::func::FuncOp function;
  explicit Selected(const std::string &text, SelectOptions options = {}) : graph(GraphModule::parse(text, "test")) {
    function = graph.module().lookupSymbol<mlir::func::FuncOp>("f");
    joinPads(function);
    selectLibraryCalls(function, options);
    CHECK(graph.verify() == "");
  }
  template <typename Op> std::vector<Op> calls() {
    std::vector<Op> found;
    function.walk([&](Op call) { found.push_back(call); });
    return found;
  }
  std::vector<library::MatmulOp> products() { return calls<library::MatmulOp>(); }
  size_t ops() { return function.front().getOperations().size() - 1; }
};

using Ints = std::vector<int64_t>;
/// The offset, then the strides.
Ints view(library::ViewAttr view) {
  Ints numbers{view.getOffset()};
  numbers.insert(numbers.end(), view.getStrides().begin(), view.getStrides().end());
  return numbers;
}
/// The sizes m, n and k.
Ints sizes(library::MatmulOp call) {
  return {static_cast<int64_t>(call.getM()), static_cast<int64_t>(call.getN()), static_cast<int64_t>(call.getK())};
}

} // namespace

TEST_CASE("reshapes of strided memory", "[export]") {
  Strided whole = Strided::contiguous({2, 3, 4});
  CHECK(whole.strides == Sizes{12, 4, 1});
  CHECK(whole.reshaped({6, 4})->strides == Sizes{4, 1});
  CHECK(whole.reshaped({2, 1, 12})->strides == Sizes{12, 12, 1});
  Strided turned = whole.transposed(std::vector<int64_t>{1, 0, 2}); // [3, 2, 4]
  CHECK(turned.strides == Sizes{4, 12, 1});
  CHECK_FALSE(turned.reshaped({6, 4}));
  CHECK(turned.reshaped({3, 2, 2, 2})->strides == Sizes{4, 12, 2, 1});
  Strided cut = whole.sliced(std::vector<int64_t>{0, 1, 0}, std::vector<int64_t>{2, 1, 4});
  CHECK(cut.offset == 4);
  CHECK(cut.reshaped({2, 4})->strides == Sizes{12, 1});
  CHECK(cut.reshaped({2, 2, 2})->strides == Sizes{12, 2, 1});
  CHECK_FALSE(cut.reshaped({8}));
  CHECK(Strided::contiguous({1, 5}).reshaped({5, 1})->strides == Sizes{1, 1});
  CHECK(Strided::contiguous({}).reshaped({1, 1}));
}

TEST_CASE("a shared right operand makes rows of the batch", "[export]") {
  Selected s(R"(func.func @f(%x: tensor<2x3x4xf32>, %w: tensor<5x4xf32>, %b: tensor<5xf32>) -> tensor<2x3x5xf32> {
    %0 = cleave.matmul %x, %w {transB} : (tensor<2x3x4xf32>, tensor<5x4xf32>) -> tensor<2x3x5xf32>
    %1 = cleave.broadcast %b dims [2] : tensor<5xf32> -> tensor<2x3x5xf32>
    %2 = cleave.add %0, %1 : tensor<2x3x5xf32>
    return %2 : tensor<2x3x5xf32>
  })");
  REQUIRE(s.products().size() == 1);
  library::MatmulOp call = s.products()[0];
  CHECK(s.ops() == 1); // the bias is part of the call
  CHECK(call.getBias());
  CHECK(call.getBatch().empty());
  CHECK(sizes(call) == Ints{6, 5, 4});
  CHECK(view(call.getAView()) == Ints{0, 4, 1});
  CHECK(view(call.getBView()) == Ints{0, 1, 4});
  CHECK(view(call.getCView()) == Ints{0, 5, 1});
}

TEST_CASE("heads of a joined projection are read and written in place", "[export]") {
  // qkv [b=2, t=3, 3*h*d], h = 4, d = 5
  Selected s(R"(func.func @f(%qkv: tensor<2x3x60xf32>) -> tensor<2x3x20xf32> {
    %r = cleave.reshape %qkv : tensor<2x3x60xf32> -> tensor<2x3x3x4x5xf32>
    %q0 = cleave.slice %r starts [0, 0, 0, 0, 0] sizes [2, 3, 1, 4, 5] : tensor<2x3x3x4x5xf32> -> tensor<2x3x1x4x5xf32>
    %k0 = cleave.slice %r starts [0, 0, 1, 0, 0] sizes [2, 3, 1, 4, 5] : tensor<2x3x3x4x5xf32> -> tensor<2x3x1x4x5xf32>
    %q1 = cleave.reshape %q0 : tensor<2x3x1x4x5xf32> -> tensor<2x3x4x5xf32>
    %k1 = cleave.reshape %k0 : tensor<2x3x1x4x5xf32> -> tensor<2x3x4x5xf32>
    %q = cleave.transpose %q1 permutation [0, 2, 1, 3] : tensor<2x3x4x5xf32> -> tensor<2x4x3x5xf32>
    %k = cleave.transpose %k1 permutation [0, 2, 1, 3] : tensor<2x3x4x5xf32> -> tensor<2x4x3x5xf32>
    %s = cleave.matmul %q, %k {transB} : (tensor<2x4x3x5xf32>, tensor<2x4x3x5xf32>) -> tensor<2x4x3x3xf32>
    %o = cleave.matmul %s, %q : (tensor<2x4x3x3xf32>, tensor<2x4x3x5xf32>) -> tensor<2x4x3x5xf32>
    %t = cleave.transpose %o permutation [0, 2, 1, 3] : tensor<2x4x3x5xf32> -> tensor<2x3x4x5xf32>
    %f = cleave.reshape %t : tensor<2x3x4x5xf32> -> tensor<2x3x20xf32>
    return %f : tensor<2x3x20xf32>
  })");
  auto calls = s.products();
  REQUIRE(calls.size() == 2);
  CHECK(s.ops() == 2);
  CHECK(calls[0].getBatch().vec() == Ints{2, 4});
  CHECK(view(calls[0].getAView()) == Ints{0, 180, 5, 60, 1});
  CHECK(view(calls[0].getBView()) == Ints{20, 180, 5, 1, 60}); // k, n
  CHECK(view(calls[0].getCView()) == Ints{0, 36, 9, 3, 1});
  CHECK(view(calls[1].getCView()) == Ints{0, 60, 5, 20, 1});
}

TEST_CASE("attention writes as what follows reads", "[export]") {
  // Shape [b=2, h=4, t=3, d=8], in memory ordered [b, t, h, d].
  Selected s(
      R"(func.func @f(%q: tensor<2x4x3x8xbf16>, %k: tensor<2x4x3x8xbf16>, %w: tensor<32x5xbf16>) -> (tensor<6x5xbf16>, tensor<2x4x3xf32>) {
    %o, %l = cleave.attention %q, %k, %k {scale = 1.0} : (tensor<2x4x3x8xbf16>, tensor<2x4x3x8xbf16>, tensor<2x4x3x8xbf16>) -> (tensor<2x4x3x8xbf16>, tensor<2x4x3xf32>)
    %t = cleave.transpose %o permutation [0, 2, 1, 3] : tensor<2x4x3x8xbf16> -> tensor<2x3x4x8xbf16>
    %r = cleave.reshape %t : tensor<2x3x4x8xbf16> -> tensor<6x32xbf16>
    %y = cleave.matmul %r, %w : (tensor<6x32xbf16>, tensor<32x5xbf16>) -> tensor<6x5xbf16>
    return %y, %l : tensor<6x5xbf16>, tensor<2x4x3xf32>
  })");
  auto calls = s.calls<library::AttentionOp>();
  REQUIRE(calls.size() == 1);
  CHECK(s.ops() == 2);
  CHECK(view(calls[0].getOutView()) == Ints{0, 96, 8, 32, 1});
  CHECK(sizesOf(calls[0]->getResult(0)) == Ints{6, 32});
  CHECK(sizesOf(calls[0]->getResult(1)) == Ints{2, 4, 3});
  CHECK(view(s.products()[0].getAView()) == Ints{0, 32, 1});
}

TEST_CASE("attention keeps its order where something else is done with its result", "[export]") {
  // The last dimension must stay last; the layout of a result with two readers does not change.
  for (auto [permutation, turned, also] :
       {std::tuple("0, 1, 3, 2", "2x4x8x3", ""), std::tuple("0, 2, 1, 3", "2x3x4x8", ", %o")}) {
    const std::string type = "tensor<2x4x3x8xbf16>";
    const std::string extra = *also ? ", " + type : "";
    Selected s("func.func @f(%q: " + type + ") -> (tensor<" + turned + "xbf16>" + extra +
               ") {\n%o, %l = cleave.attention %q, %q, %q {scale = 1.0} : (" + type + ", " + type + ", " + type +
               ") -> (" + type + ", tensor<2x4x3xf32>)\n%t = cleave.transpose %o permutation [" + permutation +
               "] : " + type + " -> tensor<" + turned + "xbf16>\nreturn %t" + also + " : tensor<" + turned + "xbf16>" +
               extra + "\n}");
    INFO(permutation);
    CHECK(s.ops() == 2);
    CHECK(view(s.calls<library::AttentionOp>()[0].getOutView()) == Ints{0, 96, 24, 8, 1});
  }
}

TEST_CASE("attention reads the mask of a batch or of positions in place", "[export]") {
  const std::string heads = "tensor<2x4x3x8xf32>", scores = "tensor<2x4x3x3xf32>";
  for (auto [mask, dims, strides] : {std::tuple("2x3", "0, 3", Ints{0, 3, 0, 0, 1}), {"3x3", "2, 3", {0, 0, 0, 3, 1}}}) {
    Selected s(std::string("func.func @f(%q: ") + heads + ", %m: tensor<" + mask + "xf32>) -> " + heads +
               " {\n%b = cleave.broadcast %m dims [" + dims + "] : tensor<" + mask + "xf32> -> " + scores +
               "\n%o, %l = cleave.attention %q, %q, %q bias %b {scale = 1.0} : (" + heads + ", " + heads + ", " + heads +
               ", " + scores + ") -> (" + heads + ", tensor<2x4x3xf32>)\nreturn %o : " + heads + "\n}");
    INFO(mask);
    CHECK(s.ops() == 1);
    CHECK(view(*s.calls<library::AttentionOp>()[0].getBiasView()) == strides);
  }
}

TEST_CASE("gradients of attention are written as what follows reads", "[export]") {
  const std::string heads = "tensor<2x4x3x8xbf16>", rows = "tensor<2x3x4x8xbf16>";
  const std::string gradient = "%dq, %dk, %dv = cleave.attention_grad %g, %q, %q, %q, %q, %l {scale = 1.0} : (" +
                               heads + ", " + heads + ", " + heads + ", " + heads + ", " + heads +
                               ", tensor<2x4x3xf32>) -> (" + heads + ", " + heads + ", " + heads + ")\n";
  std::string turned;
  for (const char *name : {"q", "k", "v"})
    turned += std::string("%t") + name + " = cleave.transpose %d" + name + " permutation [0, 2, 1, 3] : " + heads +
              " -> " + rows + "\n";
  const std::string head = "func.func @f(%g: " + heads + ", %q: " + heads + ", %l: tensor<2x4x3xf32>) -> ";
  // Each gradient is a result of its own.
  Selected apart(head + "(" + rows + ", " + rows + ", " + rows + ") {\n" + gradient + turned +
                 "return %tq, %tk, %tv : " + rows + ", " + rows + ", " + rows + "\n}");
  CHECK(apart.ops() == 1);
  auto gradients = apart.calls<library::AttentionGradOp>()[0];
  for (library::ViewAttr written : {gradients.getDqView(), gradients.getDkView(), gradients.getDvView()})
    CHECK(view(written) == Ints{0, 96, 8, 32, 1});
  // The gradients are concatenated, as the gradient of one projection.
  Selected joined(head + "tensor<2x3x12x8xbf16> {\n" + gradient + turned +
                  "%c = cleave.concat %tq, %tk, %tv {dim = 2 : i64} : (" + rows + ", " + rows + ", " + rows +
                  ") -> tensor<2x3x12x8xbf16>\nreturn %c : tensor<2x3x12x8xbf16>\n}");
  CHECK(joined.ops() == 1);
  auto call = joined.calls<library::AttentionGradOp>()[0];
  REQUIRE(call->getNumResults() == 1);
  CHECK(view(call.getDqView()) == Ints{0, 288, 8, 96, 1});
  CHECK(view(call.getDkView()) == Ints{32, 288, 8, 96, 1});
  CHECK(view(call.getDvView()) == Ints{64, 288, 8, 96, 1});
}

TEST_CASE("what is stashed lies as it is read", "[export]") {
  const auto functions = [](const std::string &permutation, const std::string &turned, const std::string &more) {
    const std::string stash = " {cleave.kind = \"stash\", cleave.name = \"o\"}", heads = "tensor<2x4x3x8xf32>",
                      out = "tensor<" + turned + "xf32>",
                      turn = "cleave.transpose %o permutation [" + permutation + "] : " + heads + " -> " + out + "\n";
    return GraphModule::parse(
        "func.func @forward(%p: tensor<2x4x3x3xf32>, %v: " + heads + ") -> (" + out + ", " + heads + stash +
            ") {\n%o = cleave.matmul %p, %v : (tensor<2x4x3x3xf32>, " + heads + ") -> " + heads + "\n" + more +
            "%t = " + turn + "return %t, %o : " + out + ", " + heads + "\n}\nfunc.func @backward(%o: " + heads + stash +
            ", %g: " + heads + ") -> (" + out + ", " + heads + ") {\n%t = " + turn +
            "%m = cleave.mul %o, %g : " + heads + "\nreturn %t, %m : " + out + ", " + heads + "\n}",
        "test");
  };
  const auto laidOut = [](GraphModule &graph) {
    llvm::SmallVector<mlir::func::FuncOp> list;
    for (const char *name : {"forward", "backward"})
      list.push_back(graph.module().lookupSymbol<mlir::func::FuncOp>(name));
    layOutStashes(list);
    REQUIRE(mlir::succeeded(mlir::verify(graph.module())));
    return sizesOf(list[1].getArgument(0));
  };
  GraphModule turned = functions("0, 2, 1, 3", "2x3x4x8", "");
  CHECK(laidOut(turned) == Ints{2, 3, 4, 8});
  auto forward = turned.module().lookupSymbol<mlir::func::FuncOp>("forward");
  auto backward = turned.module().lookupSymbol<mlir::func::FuncOp>("backward");
  CHECK(forward.front().getTerminator()->getOperand(0) == forward.front().getTerminator()->getOperand(1));
  CHECK(backward.front().getTerminator()->getOperand(0) == backward.getArgument(0));
  auto back = backward.front().getTerminator()->getOperand(1).getDefiningOp()->getOperand(0);
  CHECK(sizesOf(back) == Ints{2, 4, 3, 8}); // the other reader still sees the original shape
  selectLibraryCalls(forward);
  CHECK(std::distance(forward.front().begin(), forward.front().end()) == 2);
  // No product can write [b, t, d, h], and a stash with other readers keeps its layout.
  GraphModule other = functions("0, 2, 3, 1", "2x3x8x4", "");
  CHECK(laidOut(other) == Ints{2, 4, 3, 8});
  GraphModule twice = functions("0, 2, 1, 3", "2x3x4x8", "%n = cleave.neg %o : tensor<2x4x3x8xf32>\n");
  CHECK(laidOut(twice) == Ints{2, 4, 3, 8});
}

TEST_CASE("gradients accumulate in their own memory", "[export]") {
  Selected s(R"(func.func @f(%g: tensor<4x5xf32> {cleave.kind = "gradient", cleave.name = "w"}, %x: tensor<3x4xf32>,
                             %dy: tensor<3x5xf32>) -> (tensor<4x5xf32> {cleave.kind = "gradient", cleave.name = "w"}) {
    %0 = cleave.matmul %x, %dy {transA} : (tensor<3x4xf32>, tensor<3x5xf32>) -> tensor<4x5xf32>
    %1 = cleave.add %g, %0 : tensor<4x5xf32>
    return %1 : tensor<4x5xf32>
  })");
  auto calls = s.products();
  REQUIRE(calls.size() == 1);
  CHECK(s.ops() == 1);
  CHECK(calls[0].getAccumulate());
  CHECK(calls[0].getInto() == s.function.getArgument(0));
  CHECK(view(calls[0].getAView()) == Ints{0, 1, 4});
}

TEST_CASE("a sum of products accumulates in the first one's memory", "[export]") {
  Selected s(R"(func.func @f(%x: tensor<3x4xf32>, %y: tensor<4x5xf32>) -> tensor<3x5xf32> {
    %0 = cleave.matmul %x, %y : (tensor<3x4xf32>, tensor<4x5xf32>) -> tensor<3x5xf32>
    %1 = cleave.matmul %x, %y : (tensor<3x4xf32>, tensor<4x5xf32>) -> tensor<3x5xf32>
    %2 = cleave.add %0, %1 : tensor<3x5xf32>
    return %2 : tensor<3x5xf32>
  })");
  auto calls = s.products();
  REQUIRE(calls.size() == 2);
  CHECK(s.ops() == 2);
  CHECK_FALSE(calls[0].getAccumulate());
  CHECK(calls[1].getAccumulate());
  CHECK(calls[1].getInto() == calls[0]->getResult(0));
}

TEST_CASE("gradients of slices are written into the whole", "[export]") {
  Selected s(R"(func.func @f(%x: tensor<3x4xf32>, %y: tensor<4x5xf32>, %z: tensor<3x2xf32>) -> tensor<3x7xf32> {
    %0 = cleave.matmul %x, %y : (tensor<3x4xf32>, tensor<4x5xf32>) -> tensor<3x5xf32>
    %p = cleave.pad %0 low [0, 0] high [0, 2] : tensor<3x5xf32> -> tensor<3x7xf32>
    %q = cleave.pad %z low [0, 5] high [0, 0] : tensor<3x2xf32> -> tensor<3x7xf32>
    %2 = cleave.add %p, %q : tensor<3x7xf32>
    return %2 : tensor<3x7xf32>
  })");
  auto products = s.products();
  auto copies = s.calls<library::CopyOp>();
  REQUIRE(products.size() == 1);
  REQUIRE(copies.size() == 1);
  CHECK(s.ops() == 2);
  CHECK(view(products[0].getCView()) == Ints{0, 7, 1});
  CHECK(copies[0].getInto() == products[0]->getResult(0));
  CHECK(view(copies[0].getResultView()) == Ints{5, 7, 1});
}

TEST_CASE("a transposed result is the product of the transposed", "[export]") {
  Selected s(R"(func.func @f(%x: tensor<3x4xf32>, %y: tensor<4x5xf32>) -> tensor<5x3xf32> {
    %0 = cleave.matmul %x, %y : (tensor<3x4xf32>, tensor<4x5xf32>) -> tensor<3x5xf32>
    %1 = cleave.transpose %0 permutation [1, 0] : tensor<3x5xf32> -> tensor<5x3xf32>
    return %1 : tensor<5x3xf32>
  })");
  auto calls = s.products();
  REQUIRE(calls.size() == 1);
  CHECK(s.ops() == 1);
  CHECK(sizes(calls[0]) == Ints{5, 3, 4});
  CHECK(view(calls[0].getAView()) == Ints{0, 1, 5});
  CHECK(view(calls[0].getBView()) == Ints{0, 1, 4});
  CHECK(view(calls[0].getCView()) == Ints{0, 3, 1});
}

TEST_CASE("a convolution takes its bias along", "[export]") {
  Selected s(
      R"(func.func @f(%x: tensor<1x2x4x4xf32>, %w: tensor<3x2x3x3xf32>, %b: tensor<3xf32>) -> tensor<1x3x4x4xf32> {
    %0 = "cleave.conv2d"(%x, %w) {stride = array<i64: 1, 1>, padding = array<i64: 1, 1, 1, 1>, dilation = array<i64: 1, 1>,
         groups = 1 : i64} : (tensor<1x2x4x4xf32>, tensor<3x2x3x3xf32>) -> tensor<1x3x4x4xf32>
    %1 = cleave.broadcast %b dims [1] : tensor<3xf32> -> tensor<1x3x4x4xf32>
    %2 = cleave.add %0, %1 : tensor<1x3x4x4xf32>
    return %2 : tensor<1x3x4x4xf32>
  })");
  auto calls = s.calls<library::Conv2dOp>();
  REQUIRE(calls.size() == 1);
  CHECK(s.ops() == 1);
  CHECK(calls[0].getBias() == s.function.getArgument(2));
}

TEST_CASE("a product takes one bias", "[export]") {
  Selected s(R"(func.func @f(%x: tensor<6x8xf32>, %w: tensor<8x16xf32>, %b: tensor<16xf32>, %d: tensor<16xf32>)
      -> tensor<6x16xf32> {
    %0 = cleave.matmul %x, %w : (tensor<6x8xf32>, tensor<8x16xf32>) -> tensor<6x16xf32>
    %1 = cleave.broadcast %b dims [1] : tensor<16xf32> -> tensor<6x16xf32>
    %2 = cleave.add %0, %1 : tensor<6x16xf32>
    %3 = cleave.broadcast %d dims [1] : tensor<16xf32> -> tensor<6x16xf32>
    %4 = cleave.add %2, %3 : tensor<6x16xf32>
    return %4 : tensor<6x16xf32>
  })");
  REQUIRE(s.products().size() == 1);
  CHECK(s.products()[0].getBias() == s.function.getArgument(2));
  CHECK(s.ops() == 3); // the call; the second bias is broadcast and added
}

namespace {

/// A linear layer with `k` inputs, `n` outputs and a bias, followed by `after`: `%3` is the sum with the bias, `%4` the
/// returned value.
std::string layer(const std::string &after, const std::string &type = "f32", int64_t k = 8, int64_t n = 16,
                  const std::string &results = "%4") {
  auto tensor = [&](std::initializer_list<int64_t> sizes) {
    std::string text = "tensor<";
    for (int64_t size : sizes)
      text += std::to_string(size) + "x";
    return text + type + ">";
  };
  const std::string x = tensor({2, 3, k}), w = tensor({n, k}), b = tensor({n}), y = tensor({2, 3, n});
  std::string all = "func.func @f(%x: " + x + ", %w: " + w + ", %b: " + b + ", %g: " + y + ") -> (" + y +
                    (results == "%4" ? "" : ", " + y) + ") {\n  %0 = cleave.matmul %x, %w {transB} : (" + x + ", " + w +
                    ") -> " + y + "\n  %2 = cleave.broadcast %b dims [2] : " + b + " -> " + y +
                    "\n  %3 = cleave.add %0, %2 : " + y + "\n  " + after + "\n  return " + results + " : " + y +
                    (results == "%4" ? "" : ", " + y) + "\n}";
  for (size_t at; (at = all.find("TYPE")) != std::string::npos;)
    all.replace(at, 4, y);
  return all;
}

constexpr SelectOptions withEpilogues{.epilogues = true};

template <typename Op> std::string epilogueOf(Op call) { return stringifyEpilogue(call.getEpilogue()).str(); }

} // namespace

TEST_CASE("activations go along with their products", "[export]") {
  for (std::string type : {"f32", "bf16", "f16"})
    for (std::string activation : {"relu", "gelu"}) {
      INFO(type << " " << activation);
      const std::string text =
          layer("%4 = cleave." + activation + " %3 " + (activation == "gelu" ? "{tanh} " : "") + ": TYPE", type);
      Selected s(text, withEpilogues);
      CHECK(s.ops() == 1);
      library::MatmulOp call = s.products().at(0);
      CHECK(epilogueOf(call) == activation);
      CHECK(call.getBias() == s.function.getArgument(2));
      CHECK(call->getNumResults() == 1);
      CHECK(sizes(call) == Ints{6, 16, 8});
      CHECK(view(call.getCView()) == Ints{0, 16, 1});
      Selected elsewhere(text); // options for CPUs
      CHECK(elsewhere.ops() == 2);
      CHECK(epilogueOf(elsewhere.products().at(0)) == "none");
    }
}

TEST_CASE("gelu leaves its input where the backward pass wants it", "[export]") {
  Selected s(layer("%4 = cleave.gelu %3 {tanh} : TYPE", "bf16", 8, 16, "%4, %3"), withEpilogues);
  CHECK(s.ops() == 1);
  library::MatmulOp call = s.products().at(0);
  CHECK(epilogueOf(call) == "gelu");
  REQUIRE(call->getNumResults() == 2);
  CHECK(view(*call.getAuxView()) == Ints{0, 16, 1});
  mlir::Operation *end = s.function.front().getTerminator();
  CHECK(end->getOperand(0) == call->getResult(0));
  CHECK(end->getOperand(1) == call->getResult(1));
}

TEST_CASE("gelu without a bias, with others that use its input", "[export]") {
  Selected s(R"(func.func @f(%x: tensor<6x8xf32>, %w: tensor<8x16xf32>) -> (tensor<2x48xf32>, tensor<16xf32>) {
    %0 = cleave.matmul %x, %w : (tensor<6x8xf32>, tensor<8x16xf32>) -> tensor<6x16xf32>
    %1 = cleave.reduce sum %0 dims [0] : tensor<6x16xf32> -> tensor<16xf32>
    %2 = cleave.gelu %0 {tanh} : tensor<6x16xf32>
    %3 = cleave.reshape %2 : tensor<6x16xf32> -> tensor<2x48xf32>
    return %3, %1 : tensor<2x48xf32>, tensor<16xf32>
  })",
             withEpilogues);
  CHECK(s.ops() == 2); // the call and the reduction
  library::MatmulOp call = s.products().at(0);
  CHECK(epilogueOf(call) == "gelu");
  CHECK_FALSE(call.getBias());
  REQUIRE(call->getNumResults() == 2);
  CHECK(call->getResult(1).hasOneUse());
  CHECK(s.function.front().getTerminator()->getOperand(0) == call->getResult(0));
}

TEST_CASE("the gradient of gelu goes along with the product before it", "[export]") {
  Selected s(R"(func.func @f(%dy: tensor<2x3x8xbf16>, %w: tensor<8x16xbf16>, %h: tensor<2x3x16xbf16>)
      -> (tensor<2x3x16xbf16>, tensor<16xbf16>) {
    %0 = cleave.matmul %dy, %w : (tensor<2x3x8xbf16>, tensor<8x16xbf16>) -> tensor<2x3x16xbf16>
    %1 = cleave.gelu_grad %0, %h {tanh} : tensor<2x3x16xbf16>
    %2 = cleave.reduce sum %1 dims [0, 1] : tensor<2x3x16xbf16> -> tensor<16xbf16>
    return %1, %2 : tensor<2x3x16xbf16>, tensor<16xbf16>
  })",
             withEpilogues);
  CHECK(s.ops() == 2);
  library::MatmulOp call = s.products().at(0);
  CHECK(epilogueOf(call) == "gelu_gradient");
  CHECK(call.getAux() == s.function.getArgument(2));
  CHECK(view(*call.getAuxView()) == Ints{0, 16, 1});
  CHECK(sizes(call) == Ints{6, 16, 8});
}

TEST_CASE("a bias's gradient goes along with that of the weight", "[export]") {
  const auto layer = [](const std::string &made, const std::string &biasDims = "[0, 1]") {
    return R"(func.func @f(%dy: tensor<2x3x16xbf16>, %x: tensor<6x8xbf16>, %w: tensor<16x16xbf16>, %h: tensor<2x3xf32>)
      -> (tensor<16x8xf32>, tensor<16xf32>) {
    )" + made +
           R"(
    %1 = cleave.reduce sum %0 dims )" +
           biasDims + R"( : tensor<2x3x16xbf16> -> tensor<16xbf16>
    %2 = cleave.cast %1 : tensor<16xbf16> -> tensor<16xf32>
    %3 = cleave.reshape %0 : tensor<2x3x16xbf16> -> tensor<6x16xbf16>
    %4 = cleave.matmul %3, %x {transA} : (tensor<6x16xbf16>, tensor<6x8xbf16>) -> tensor<16x8xbf16>
    %5 = cleave.cast %4 : tensor<16x8xbf16> -> tensor<16x8xf32>
    return %5, %2 : tensor<16x8xf32>, tensor<16xf32>
  })";
  };
  const auto goesAlong = [](Selected &&s) {
    auto calls = s.products();
    return calls.back().rowSums() != nullptr;
  };
  const std::string product =
      "%0 = cleave.matmul %dy, %w : (tensor<2x3x16xbf16>, tensor<16x16xbf16>) -> tensor<2x3x16xbf16>";
  Selected s(layer(product), withEpilogues);
  REQUIRE(goesAlong(Selected(layer(product), withEpilogues)));
  CHECK(s.ops() == 2);
  library::MatmulOp call = s.products().back();
  mlir::Operation *end = s.function.front().getTerminator();
  CHECK(end->getOperand(0) == call->getResult(0));
  CHECK(end->getOperand(1) == call->getResult(1));
  CHECK(sizes(call) == Ints{16, 8, 6});
  CHECK_FALSE(goesAlong(Selected(layer(product)))); // options for CPUs
  // An elementwise kernel that produces the value also computes its sum.
  CHECK_FALSE(goesAlong(Selected(layer("%0 = cleave.abs %dy : tensor<2x3x16xbf16>"), withEpilogues)));
  // A kernel that works on rows does not sum columns.
  CHECK(goesAlong(Selected(layer(R"(%6 = cleave.reduce sum %dy dims [2] : tensor<2x3x16xbf16> -> tensor<2x3xbf16>
    %7 = cleave.broadcast %6 dims [0, 1] : tensor<2x3xbf16> -> tensor<2x3x16xbf16>
    %0 = cleave.mul %7, %dy : tensor<2x3x16xbf16>)"),
                           withEpilogues)));
}

TEST_CASE("a convolution takes ReLU along where the library has it", "[export]") {
  const auto layer = [](const std::string &relu, const std::string &result) {
    return R"(func.func @f(%x: tensor<1x2x4x4xf32>, %w: tensor<3x2x3x3xf32>, %b: tensor<3xf32>) -> tensor<1x3x4x4xf32> {
    %0 = "cleave.conv2d"(%x, %w) {stride = array<i64: 1, 1>, padding = array<i64: 1, 1, 1, 1>, dilation = array<i64: 1, 1>,
         groups = 1 : i64} : (tensor<1x2x4x4xf32>, tensor<3x2x3x3xf32>) -> tensor<1x3x4x4xf32>
    %1 = cleave.broadcast %b dims [1] : tensor<3xf32> -> tensor<1x3x4x4xf32>
    %2 = cleave.add %0, %1 : tensor<1x3x4x4xf32>
    )" + relu +
           " return " + result + " : tensor<1x3x4x4xf32> }";
  };
  const std::string relu = "%3 = cleave.relu %2 : tensor<1x3x4x4xf32>\n";
  Selected along(layer(relu, "%3"), withEpilogues);
  CHECK(along.ops() == 1);
  CHECK(epilogueOf(along.calls<library::Conv2dOp>().at(0)) == "relu");
  CHECK(along.calls<library::Conv2dOp>().at(0).getBias() == along.function.getArgument(2));
  Selected without(layer(relu, "%3"));
  CHECK(without.ops() == 2);
  CHECK(epilogueOf(without.calls<library::Conv2dOp>().at(0)) == "none");
  // The sum with the bias has another reader, so it must exist.
  Selected used(layer(relu + "%4 = cleave.mul %3, %2 : tensor<1x3x4x4xf32>\n", "%4"), withEpilogues);
  CHECK(used.ops() == 3);
  CHECK(epilogueOf(used.calls<library::Conv2dOp>().at(0)) == "none");
}

TEST_CASE("epilogues that cuBLASLt does not have stay kernels", "[export]") {
  const auto plain = [](const std::string &text, size_t ops) {
    INFO(text);
    Selected s(text, withEpilogues);
    CHECK(s.ops() == ops);
    for (library::MatmulOp call : s.products())
      CHECK(epilogueOf(call) == "none");
  };
  plain(layer("%4 = cleave.gelu %3 : TYPE"), 2);                         // exact gelu
  plain(layer("%4 = cleave.relu %3 : TYPE", "f32", 8, 16, "%4, %3"), 2); // the input of relu is a result too
  plain(layer("%4 = cleave.silu %3 : TYPE"), 2);                         // cuBLASLt has no silu
  plain(layer("%4 = cleave.gelu %3 {tanh} : TYPE", "f32", 8, 20), 2);    // rows of 20: aux would not be aligned
  plain(layer("%4 = cleave.gelu %3 {tanh} : TYPE", "bf16", 10, 16), 2);  // rows of 20 bytes
  plain(layer("%4 = cleave.gelu_grad %g, %3 {tanh} : TYPE"), 2);         // the slope is taken at the product
  plain(layer("%4 = cleave.gelu_grad %3, %g {tanh} : TYPE"), 2);         // a bias between product and gelu_grad
  plain(layer("%5 = cleave.gelu %3 {tanh} : TYPE\n %6 = cleave.gelu %3 {tanh} : TYPE\n %4 = cleave.mul %5, %6 : TYPE"),
        4); // two activations of one product
  // Batches with different right operands.
  plain(R"(func.func @f(%x: tensor<2x8x8xf32>, %w: tensor<2x8x16xf32>) -> tensor<2x8x16xf32> {
    %0 = cleave.matmul %x, %w : (tensor<2x8x8xf32>, tensor<2x8x16xf32>) -> tensor<2x8x16xf32>
    %1 = cleave.relu %0 : tensor<2x8x16xf32>
    return %1 : tensor<2x8x16xf32>
  })",
        2);
  // A transposed result.
  plain(R"(func.func @f(%x: tensor<8x8xf32>, %w: tensor<8x16xf32>) -> tensor<16x8xf32> {
    %0 = cleave.matmul %x, %w : (tensor<8x8xf32>, tensor<8x16xf32>) -> tensor<8x16xf32>
    %1 = cleave.transpose %0 permutation [1, 0] : tensor<8x16xf32> -> tensor<16x8xf32>
    %2 = cleave.relu %1 : tensor<16x8xf32>
    return %2 : tensor<16x8xf32>
  })",
        2);
  // The input of gelu is computed after the product.
  plain(R"(func.func @f(%x: tensor<8x8xf32>, %w: tensor<8x16xf32>, %h: tensor<8x16xf32>) -> tensor<8x16xf32> {
    %0 = cleave.matmul %x, %w : (tensor<8x8xf32>, tensor<8x16xf32>) -> tensor<8x16xf32>
    %1 = cleave.abs %h : tensor<8x16xf32>
    %2 = cleave.gelu_grad %0, %1 {tanh} : tensor<8x16xf32>
    return %2 : tensor<8x16xf32>
  })",
        3);
}

TEST_CASE("a partial product has no activation before its sum", "[export]") {
  Selected s(R"(func.func @f(%x: tensor<8x8xf32>, %w: tensor<8x16xf32>) -> tensor<8x16xf32> {
    %0 = cleave.matmul %x, %w : (tensor<8x8xf32>, tensor<8x16xf32>) -> tensor<8x16xf32>
    %1 = dist.all_reduce %0 {axes = ["tp"], kind = "sum"} : (tensor<8x16xf32>) -> tensor<8x16xf32>
    %2 = cleave.relu %1 : tensor<8x16xf32>
    return %2 : tensor<8x16xf32>
  })",
             withEpilogues);
  CHECK(epilogueOf(s.products().at(0)) == "none");
}

TEST_CASE("gradients in f32 of products in half are written as f32", "[export]") {
  const auto gradient = [](const std::string &argument, const std::string &after, const std::string &result) {
    return "func.func @f(%x: tensor<3x4xbf16>, %dy: tensor<3x5xbf16>" + argument +
           ") -> (tensor<4x5xf32> {cleave.kind = \"gradient\", cleave.name = \"w\"}) {\n"
           "%0 = cleave.matmul %x, %dy {transA} : (tensor<3x4xbf16>, tensor<3x5xbf16>) -> tensor<4x5xbf16>\n"
           "%1 = cleave.cast %0 : tensor<4x5xbf16> -> tensor<4x5xf32>\n" +
           after + "return " + result + " : tensor<4x5xf32>\n}";
  };
  const auto isF32 = [](library::MatmulOp call) { return mlir::getElementTypeOrSelf(call->getResult(0)).isF32(); };
  Selected first(gradient("", "", "%1"));
  CHECK(first.ops() == 1);
  CHECK(isF32(first.products().at(0)));
  Selected later(gradient(", %g: tensor<4x5xf32> {cleave.kind = \"gradient\", cleave.name = \"w\"}",
                          "%2 = cleave.add %g, %1 : tensor<4x5xf32>\n", "%2"));
  CHECK(later.ops() == 1);
  CHECK(later.products().at(0).getAccumulate());
  CHECK(isF32(later.products().at(0)));
  // a kernel does the cast
  Selected read(gradient("", "%2 = cleave.exp %1 : tensor<4x5xf32>\n", "%2"));
  CHECK_FALSE(isF32(read.products().at(0)));
}

TEST_CASE("gradients in f32 of convolutions in half are written as f32 if the library can", "[export]") {
  const std::string text = R"(func.func @f(%x: tensor<1x8x8x4xbf16>, %dy: tensor<1x6x6x6xbf16>)
      -> (tensor<6x4x3x3xf32> {cleave.kind = "gradient", cleave.name = "w"}) {
    %0 = cleave.conv2d_weight_grad %dy, %x {channels_last, stride = array<i64: 1, 1>, padding = array<i64: 0, 0, 0, 0>,
      dilation = array<i64: 1, 1>, groups = 1 : i64}
      : (tensor<1x6x6x6xbf16>, tensor<1x8x8x4xbf16>) -> tensor<6x3x3x4xbf16>
    %1 = cleave.transpose %0 permutation [0, 3, 1, 2] : tensor<6x3x3x4xbf16> -> tensor<6x4x3x3xbf16>
    %2 = cleave.cast %1 : tensor<6x4x3x3xbf16> -> tensor<6x4x3x3xf32>
    return %2 : tensor<6x4x3x3xf32>
  })";
  const auto gradient = [](Selected &s) {
    return mlir::getElementTypeOrSelf(s.calls<library::Conv2dWeightGradOp>().at(0).getResult());
  };
  Selected wide(text, {.widenConvolutions = true}), narrow(text);
  CHECK(wide.ops() == 2);
  CHECK(gradient(wide).isF32());
  CHECK(narrow.ops() == 3);
  CHECK(gradient(narrow).isBF16());
}

TEST_CASE("where a library lacks a half type, a bias is added before the product is rounded", "[export]") {
  const auto text = [](const std::string &result) {
    return "func.func @f(%x: tensor<3x4xbf16>, %w: tensor<4x5xbf16>, %b: tensor<5xbf16>) -> (tensor<3x5xbf16>, "
           "tensor<3x5xbf16>) {\n"
           "%0 = cleave.matmul %x, %w : (tensor<3x4xbf16>, tensor<4x5xbf16>) -> tensor<3x5xbf16>\n"
           "%1 = cleave.broadcast %b dims [1] : tensor<5xbf16> -> tensor<3x5xbf16>\n"
           "%2 = cleave.add %1, %0 : tensor<3x5xbf16>\n"
           "return %2, " +
           result + " : tensor<3x5xbf16>, tensor<3x5xbf16>\n}";
  };
  const auto additionIsF32 = [&](const std::string &result) {
    GraphModule graph = GraphModule::parse(text(result), "test");
    auto function = graph.module().lookupSymbol<mlir::func::FuncOp>("f");
    widenLibraryOps(function, [](mlir::Type) { return false; });
    REQUIRE(mlir::succeeded(mlir::verify(graph.module())));
    bool single = false;
    function.walk([&](ir::AddOp add) { single = mlir::getElementTypeOrSelf(add.getResult()).isF32(); });
    return single;
  };
  CHECK(additionIsF32("%2"));
  CHECK_FALSE(additionIsF32("%0")); // with another reader, the product is rounded for all readers
}

TEST_CASE("what no later function reads is not stashed, and not computed", "[select]") {
  GraphModule graph = GraphModule::parse(R"(
func.func @forward(%x: tensor<4xf32> {cleave.kind = "input", cleave.name = "x"}) ->
    (tensor<4xf32> {cleave.kind = "stash", cleave.name = "a"}, tensor<4xf32> {cleave.kind = "stash", cleave.name = "b"},
     tensor<4xf32> {cleave.kind = "buffer", cleave.name = "c"}) {
  %a = cleave.exp %x : tensor<4xf32>
  %b = cleave.tanh %x : tensor<4xf32>
  return %a, %b, %x : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
}
func.func @backward(%a: tensor<4xf32> {cleave.kind = "stash", cleave.name = "a"},
                    %b: tensor<4xf32> {cleave.kind = "stash", cleave.name = "b"}) ->
    (tensor<4xf32> {cleave.kind = "gradient", cleave.name = "p"}) {
  %lost = cleave.neg %b : tensor<4xf32>
  %g = cleave.neg %a : tensor<4xf32>
  return %g : tensor<4xf32>
})",
                                         "test");
  auto forward = graph.module().lookupSymbol<mlir::func::FuncOp>("forward");
  auto backward = graph.module().lookupSymbol<mlir::func::FuncOp>("backward");
  dropUnreadStashes({forward, backward});
  CHECK(graph.verify().empty());
  REQUIRE(forward.getNumResults() == 2);
  CHECK(ir::resultText(forward, 0, ir::attr::name) == "a");
  CHECK(ir::resultText(forward, 1, ir::attr::name) == "c");
  CHECK(std::distance(forward.front().begin(), forward.front().end()) == 2); // exp and return
  CHECK(std::distance(backward.front().begin(), backward.front().end()) == 2);
}
