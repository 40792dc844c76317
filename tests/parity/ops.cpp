// Compares every op and its gradient in the reference interpreter with PyTorch's numbers (goldens/ops.json, made by
// make_goldens.py): as traced, and after simplification and decomposition.
#include "ir/graph/Graph.h"
#include "passes/decompose/Decompose.h"
#include "passes/differentiate/Differentiate.h"
#include "passes/simplify/Simplify.h"
#include "tests/unit/passes/Programs.h"

#include <catch2/catch.hpp>

using namespace cleave;
using namespace cleave::testing;

TEST_CASE("ops and gradients equal PyTorch's", "[parity]") {
  for (const auto &example : golden("ops.json")) {
    std::string name = example["name"];
    DYNAMIC_SECTION(name) {
      GraphModule whole = GraphModule::parse(example["ir"], name);
      passes::differentiate(whole.module(), 1);
      REQUIRE(whole.verify().empty());
      GraphModule parts = whole.clone();
      passes::simplify(parts.module());
      passes::decompose(parts.module());
      passes::simplify(parts.module());
      REQUIRE(parts.verify().empty());
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
  }
}
