// Sums of small products that become one product: which do, where the rows come from, and that the values stay.
#include "ir/GraphModule.h"
#include "ir/interpreter/Interpreter.h"
#include "passes/select/Selection.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"

#include <catch2/catch.hpp>

using namespace cleave;
using namespace cleave::passes;

namespace {

/// The function @f before and after `joinPads` and `joinSteps`.
struct Joined {
  GraphModule before, after;
  mlir::func::FuncOp function;

  explicit Joined(const std::string &text)
      : before(GraphModule::parse(text, "test")), after(GraphModule::parse(text, "test")) {
    function = after.module().lookupSymbol<mlir::func::FuncOp>("f");
    joinPads(function);
    joinSteps(function);
    REQUIRE(after.verify() == "");
    const auto expected = results(before.module().lookupSymbol<mlir::func::FuncOp>("f")), found = results(function);
    REQUIRE(expected.size() == found.size());
    for (size_t i = 0; i < expected.size(); ++i)
      CHECK(expected[i].values == found[i].values);
  }

  template <typename Op> std::vector<Op> all() {
    std::vector<Op> found;
    function.walk([&](Op op) { found.push_back(op); });
    return found;
  }

private:
  /// Of small integers: every order of additions gives the same bits.
  static std::vector<ir::HostTensor> results(mlir::func::FuncOp function) {
    std::vector<ir::HostTensor> inputs;
    for (mlir::BlockArgument argument : function.getArguments()) {
      auto type = mlir::cast<mlir::RankedTensorType>(argument.getType());
      std::vector<double> numbers(static_cast<size_t>(type.getNumElements()));
      for (size_t i = 0; i < numbers.size(); ++i)
        numbers[i] = static_cast<double>((7 * i + 5 * argument.getArgNumber()) % 11) - 5;
      inputs.emplace_back(type.getShape().vec(), ir::dtypeOf(type), numbers);
    }
    return ir::evaluate(function, inputs);
  }
};

const std::string left = "tensor<2x8xf32>", right = "tensor<2x6xf32>", sum = "tensor<8x6xf32>";

/// @f with the operands %a0, %b0, %a1, ... of `count` products with `rows` rows, %p0, ..., and their sum %s.
std::string sumOf(int count, const std::string &more, const std::string &results, const std::string &types,
                  const std::string &arguments = "", const std::string &aType = left,
                  const std::string &bType = right) {
  std::string head, body;
  for (int i = 0; i < count; ++i) {
    const std::string n = std::to_string(i);
    head += (i ? ", %a" : "%a") + n + ": " + aType + ", %b" + n + ": " + bType;
    body += "%p" + n + " = cleave.matmul %a" + n + ", %b" + n + " {transA} : (" + aType + ", " + bType + ") -> " + sum +
            "\n";
    if (i)
      body += (i + 1 < count ? "%s" + n : "%s") + " = cleave.add " + (i > 1 ? "%s" + std::to_string(i - 1) : "%p0") +
              ", %p" + n + " : " + sum + "\n";
  }
  return "func.func @f(" + head + arguments + ") -> (" + types + ") {\n" + body + more + "return " + results + " : " +
         types + "\n}";
}

using Ints = std::vector<int64_t>;

} // namespace

TEST_CASE("a sum of small products is one product", "[select]") {
  Joined joined(sumOf(4, "", "%s", sum));
  REQUIRE(joined.all<ir::MatmulOp>().size() == 1);
  CHECK(joined.all<ir::AddOp>().empty());
  auto product = joined.all<ir::MatmulOp>()[0];
  CHECK(sizesOf(product.getA()) == Ints{8, 8});
  CHECK(sizesOf(product.getB()) == Ints{8, 6});
}

TEST_CASE("few products, and products of many rows, are added as they are", "[select]") {
  CHECK(Joined(sumOf(3, "", "%s", sum)).all<ir::MatmulOp>().size() == 3);
  // 4 products of 4 rows: 4 * 4 * (8 + 6) elements are copied instead of 3 * 8 * 6 that are added
  CHECK(Joined(sumOf(4, "", "%s", sum, "", "tensor<4x8xf32>", "tensor<4x6xf32>")).all<ir::MatmulOp>().size() == 4);
}

TEST_CASE("other addends stay", "[select]") {
  // a product that something else reads, too, and one of another type
  Joined joined(sumOf(5,
                      "%q = cleave.matmul %c, %d {transA} : (tensor<3x8xf32>, tensor<3x6xf32>) -> " + sum +
                          "\n%t = cleave.add %q, %s : " + sum + "\n%u = cleave.tanh %p2 : " + sum + "\n",
                      "%t, %u", sum + ", " + sum, ", %c: tensor<3x8xf32>, %d: tensor<3x6xf32>"));
  auto products = joined.all<ir::MatmulOp>();
  REQUIRE(products.size() == 3);
  CHECK(joined.all<ir::AddOp>().size() == 2);
  CHECK(joined.all<ir::ConcatOp>().size() == 2);
}

TEST_CASE("rows that are concatenated already are read there", "[select]") {
  // The left operands are steps of %c, [2, 5, 8], which another product sums. Its first step has no product. %c is made
  // after the sum, which is then added to a gradient.
  const std::string step = "tensor<2x1x8xf32>", whole = "tensor<2x5x8xf32>";
  const auto text = [&](const std::string &use) {
    std::string more = use, pieces;
    for (int i = 0; i < 4; ++i)
      more +=
          "%r" + std::to_string(i) + " = cleave.reshape %a" + std::to_string(i) + " : " + left + " -> " + step + "\n";
    more += "%z = cleave.reshape %e : " + left + " -> " + step +
            "\n%c = cleave.concat %z, %r3, %r2, %r1, %r0 {dim = 1 : "
            "i64} : (" +
            step + ", " + step + ", " + step + ", " + step + ", " + step + ") -> " + whole +
            "\n%f = cleave.reshape %c : " + whole + " -> tensor<10x8xf32>\n" +
            "%w = cleave.matmul %f, %x {transA} : (tensor<10x8xf32>, tensor<10x3xf32>) -> tensor<8x3xf32>\n";
    return sumOf(4, more, "%t, %w", sum + ", tensor<8x3xf32>",
                 ", %g: " + sum + ", %e: " + left + ", %x: tensor<10x3xf32>");
  };
  Joined joined(text("%t = cleave.add %g, %s : " + sum + "\n"));
  auto products = joined.all<ir::MatmulOp>();
  REQUIRE(products.size() == 2);
  auto concats = joined.all<ir::ConcatOp>();
  REQUIRE(concats.size() == 2);
  CHECK(sizesOf(concats[0].getResult()) == Ints{2, 5, 8});
  CHECK(sizesOf(concats[1].getResult()) == Ints{2, 5, 6});
  CHECK(ir::splatOf(concats[1].getInputs()[0]) == 0.0);
  // If an op before %c reads the sum, the product has a concatenation of its own.
  Joined early(text("%t = cleave.tanh %s : " + sum + "\n"));
  CHECK(early.all<ir::MatmulOp>().size() == 2);
  CHECK(early.all<ir::ConcatOp>().size() == 3);
}

TEST_CASE("sums over the rows of all steps are those of their concatenation", "[select]") {
  const std::string step = "tensor<2x1x8xf32>", whole = "tensor<2x5x8xf32>";
  const auto text = [&](const std::string &use, int steps) {
    std::string head, body, pieces, types;
    for (int i = 0; i < 5; ++i) {
      const std::string n = std::to_string(i), sum = "%s" + n;
      head += (i ? ", %a" : "%a") + n + ": " + left;
      if (i && i < steps)
        body +=
            sum + " = cleave.add " + (i > 1 ? "%s" + std::to_string(i - 1) : "%a0") + ", %a" + n + " : " + left + "\n";
    }
    body +=
        "%r = cleave.reduce sum %s" + std::to_string(steps - 1) + " dims [0] : " + left + " -> tensor<8xf32>\n" + use;
    for (int i = 0; i < 5; ++i) {
      const std::string n = std::to_string(i);
      body += "%c" + n + " = cleave.reshape %a" + n + " : " + left + " -> " + step + "\n";
      pieces += (i ? ", %c" : "%c") + n, types += (i ? ", " : "") + step;
    }
    return "func.func @f(" + head + ", %g: tensor<8xf32>) -> (tensor<8xf32>, " + whole + ") {\n" + body +
           "%c = cleave.concat " + pieces + " {dim = 1 : i64} : (" + types + ") -> " + whole +
           "\nreturn %t, %c : " + "tensor<8xf32>, " + whole + "\n}";
  };
  const std::string added = "%t = cleave.add %g, %r : tensor<8xf32>\n";
  Joined joined(text(added, 5));
  CHECK(joined.all<ir::AddOp>().size() == 1);
  REQUIRE(joined.all<ir::ReduceOp>().size() == 1);
  CHECK(sizesOf(joined.all<ir::ReduceOp>()[0].getInput()) == Ints{2, 5, 8});
  // Not if the concatenation has other matrices, too, or comes after a user of the sums.
  CHECK(Joined(text(added, 4)).all<ir::AddOp>().size() == 4);
  CHECK(Joined(text("%t = cleave.tanh %r : tensor<8xf32>\n", 5)).all<ir::AddOp>().size() == 4);
}
