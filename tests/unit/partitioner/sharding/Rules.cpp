// Rules as einsums: a letter for each loop, preceded by its runs; an upper-case letter may not be split.
#include "partitioner/sharding/Rules.h"
#include "partitioner/sharding/Problem.h"

#include <catch2/catch.hpp>

#include <cctype>

using namespace cleave::partitioner;

static std::string einsum(const OpRule &rule) {
  std::string text;
  const auto add = [&](const std::vector<std::vector<RuleDim>> &side) {
    for (size_t i = 0; i < side.size(); ++i) {
      text += i ? "," : "";
      for (const RuleDim &dim : side[i]) {
        const char letter = static_cast<char>('a' + dim.loop);
        text += dim.runs > 1 ? std::to_string(dim.runs) : "";
        text += rule.loops[dim.loop] == LoopKind::Whole ? static_cast<char>(std::toupper(letter)) : letter;
      }
    }
  };
  add(rule.operands);
  text += "->";
  add(rule.results);
  return text;
}

static std::string kinds(const OpRule &rule) {
  std::string text;
  for (LoopKind kind : rule.loops)
    text += kind == LoopKind::Parallel ? 'p'
            : kind == LoopKind::Sum    ? '+'
            : kind == LoopKind::Max    ? 'M'
            : kind == LoopKind::Min    ? 'm'
                                       : '-';
  return text;
}

TEST_CASE("elementwise ops, broadcasts, reductions and transposes") {
  CHECK(einsum(elementwiseRule(2, 3)) == "ab,ab,ab->ab");
  CHECK(elementwiseRule(2, 2, 1, SumPassing::Linear).sums == SumPassing::Linear);
  CHECK(einsum(broadcastRule({1}, 3)) == "a->bac");
  CHECK(kinds(broadcastRule({1}, 3)) == "ppp");
  CHECK(einsum(reduceRule(3, {0, 2}, LoopKind::Max)) == "abc->b");
  CHECK(kinds(reduceRule(3, {0, 2}, LoopKind::Max)) == "MpM");
  CHECK(reduceRule(3, {0}, LoopKind::Max).sums == SumPassing::None);
  CHECK(reduceRule(3, {0}, LoopKind::Sum).sums == SumPassing::Linear);
  CHECK(einsum(transposeRule({2, 0, 1})) == "bca->abc");
}

TEST_CASE("windows move in runs of the largest size at whose multiples they begin and end") {
  CHECK(einsum(windowRule({12, 18}, {12, 6}, {0, 6})) == "a3b->ab");
  CHECK(einsum(windowRule({12, 18}, {12, 12}, {0, 6})) == "a3b->a2b");
  CHECK(einsum(windowRule({12, 6}, {12, 18}, {0, 12})) == "ab->a3b"); // a pad
  CHECK(einsum(windowRule({6, 7}, {6, 3}, {0, 2})) == "a7B->a3C");    // runs of one element
}

TEST_CASE("gathers and concatenations") {
  CHECK(einsum(alongRule(2, 2, 1)) == "aB,aB->aB");
  CHECK(einsum(gatherRule(3, 1)) == "aDb,acb->acb");     // the table stays whole
  CHECK(einsum(scatterAddRule(3, 1)) == "acb,acb->aDb"); // a sum over the indices
  CHECK(kinds(scatterAddRule(3, 1)) == "pp+-");
  CHECK(einsum(concatRule({{4, 6}, {4, 12}}, 1)) == "ab,a2b->a3b");
  CHECK(einsum(concatRule({{4, 2}, {4, 3}}, 1)) == "aB,aB->aB");
}

TEST_CASE("products: batches, rows, the contraction, columns") {
  CHECK(einsum(matmulRule(2, 2, false, false)) == "ab,bc->ac");
  CHECK(kinds(matmulRule(2, 2, false, false)) == "p+p");
  CHECK(einsum(matmulRule(2, 2, true, true)) == "ba,cb->ac");
  CHECK(einsum(matmulRule(3, 2, false, true)) == "abc,dc->abd"); // a weight shared by the batch
  const OpRule heads = matmulRule(4, 4, false, false);
  CHECK(einsum(heads) == "abcd,abde->abce");
  CHECK(heads.productBatches == std::vector<int>{0, 1});
  CHECK(heads.parameterOperand == -1);
  CHECK(matmulRule(3, 2, false, true).productBatches.empty());
  CHECK(matmulRule(3, 2, false, true).defaultLoop == 3); // columns: column parallel
}

TEST_CASE("embeddings") {
  const OpRule rule = embeddingRule(2), grad = embeddingGradRule(2);
  CHECK(einsum(rule) == "cd,ab->abd");
  CHECK(kinds(rule) == "pp+p");
  CHECK(rule.defaultLoop == 2);
  CHECK(einsum(grad) == "abc,ab->dc");
  CHECK(kinds(grad) == "++pp");
  CHECK(grad.gradientLoop == 3);
}

TEST_CASE("convolutions: samples and channels, in either layout") {
  CHECK(einsum(conv2dRule(1, false)) == "abDE,cbFG->acHI");
  CHECK(einsum(conv2dRule(3, false)) == "aDEb,cFGb->aHIc");
  CHECK(einsum(conv2dRule(1, true)) == "aBCD,EFGH->aIJK");
  CHECK(kinds(conv2dRule(1, false)).substr(0, 3) == "p+p");
  CHECK(einsum(conv2dInputGradRule(1, false)) == "abDE,bcFG->acHI");
  CHECK(einsum(conv2dWeightGradRule(1, false)) == "abDE,acFG->bcHI");
  CHECK(kinds(conv2dWeightGradRule(1, false)).substr(0, 3) == "+pp");
}

TEST_CASE("attention: samples and heads") {
  CHECK(einsum(samplesRule({4, 4, 4}, {4, 3}, 1)) == "abCD,abEF,abGH->abIJ,abK");
}

TEST_CASE("equal rules are kept once") {
  Interned<OpRule, RuleHash> rules;
  const int32_t product = rules.add(matmulRule(2, 2, false, false));
  CHECK(rules.add(matmulRule(2, 2, false, false)) == product);
  CHECK(rules.add(matmulRule(2, 2, false, true)) != product);
  OpRule batch = matmulRule(2, 2, false, false);
  batch.productBatches = {0}; // not part of the hash
  CHECK(rules.add(batch) != product);
  CHECK(rules.size() == 3);
  CHECK(rules[product] == matmulRule(2, 2, false, false));
}
