// Einstein summation as transposes, matrix products and reductions. Each dimension of an operand has a label.
// Dimensions are summed as early as possible.
#include "cleave/Functional.h"
#include "cleave/Rearrange.h"
#include "frontend/trace/Compose.h"
#include "frontend/trace/Diagnose.h"

#include <algorithm>
#include <fmt/format.h>
#include <map>

namespace cleave {
namespace {

using namespace ir;
using mlir::Value;

/// A letter, or 256 + i for dimension i, counted from the right, of the dimensions that "..." stands for.
using Label = int;
using Labels = std::vector<Label>;

bool has(const Labels &labels, Label label) { return llvm::is_contained(labels, label); }

struct Term {
  Value value;
  Labels labels;
};

class Einsum {
public:
  Einsum(const std::string &text, const std::vector<Tensor> &operands, Where where)
      : ops("einsum", where), text(text), operands(operands) {}

  Tensor run() {
    parse();
    for (size_t i = 0; i < terms.size(); ++i)
      narrow(i);
    Term result = terms[0];
    for (size_t i = 1; i < terms.size(); ++i)
      result = product(result, terms[i], i);
    return finish(result);
  }

private:
  [[noreturn]] void fail(int rule, const std::string &message) {
    Facts facts;
    for (size_t i = 0; i < operands.size(); ++i)
      facts.push_back(fact(operands[i], fmt::format("operand {}", i + 1)));
    failRule("einsum", rule, fmt::format("\"{}\": {}", text, message), facts, ops.where);
  }

  /// Labels of "ab...c", with `dots` dimensions for "...".
  Labels labelsOf(const std::string &word, int64_t dots) {
    Labels labels;
    for (size_t i = 0; i < word.size(); ++i)
      if (word.compare(i, 3, "...") == 0) {
        for (int64_t d = dots; d-- > 0;)
          labels.push_back(static_cast<Label>(256 + d));
        i += 2;
      } else if (std::isalpha(static_cast<unsigned char>(word[i]))) {
        labels.push_back(word[i]);
      } else {
        fail(1, fmt::format("'{}' is not a letter", word[i]));
      }
    return labels;
  }

  static int64_t letters(const std::string &word) {
    return static_cast<int64_t>(std::count_if(word.begin(), word.end(), [](char c) { return c != '.'; }));
  }

  void parse() {
    std::string plain;
    for (char c : text)
      if (c != ' ')
        plain += c;
    const size_t arrow = plain.find("->");
    std::vector<std::string> words{""};
    for (char c : plain.substr(0, arrow))
      if (c == ',')
        words.emplace_back();
      else
        words.back() += c;
    if (words.size() != operands.size())
      fail(2, fmt::format("{} terms for {} operands", words.size(), operands.size()));
    int64_t most = 0;
    for (size_t i = 0; i < words.size(); ++i)
      most = std::max(most, addTerm(words[i], operands[i]));
    parseOutput(arrow == std::string::npos ? nullptr : &plain, arrow, most);
  }

  /// Returns the number of dimensions that "..." stands for.
  int64_t addTerm(const std::string &word, Tensor operand) {
    if (operand.dtype() != operands[0].dtype())
      fail(4, "element types must agree");
    const size_t dots = word.find("...");
    const bool more = dots != std::string::npos;
    const int64_t hidden = more ? operand.rank() - letters(word) : 0;
    if (hidden < 0 || letters(word) + hidden != operand.rank() ||
        std::count(word.begin(), word.end(), '.') != (more ? 3 : 0))
      fail(2, fmt::format("the term \"{}\" does not fit rank {}", word, operand.rank()));
    Term term{valueOf(operand), labelsOf(word, hidden)};
    for (size_t d = 0; d < term.labels.size(); ++d) {
      const int64_t size = operand.size(static_cast<int64_t>(d));
      int64_t &known = sizes.try_emplace(term.labels[d], size).first->second;
      if (known != size && known != 1 && size != 1)
        fail(3, term.labels[d] < 256
                    ? fmt::format("dimension '{}' has sizes {} and {}", char(term.labels[d]), known, size)
                    : fmt::format("dimensions of {} and {} cannot be broadcast", known, size));
      known = std::max(known, size);
    }
    terms.push_back(term);
    return hidden;
  }

  void parseOutput(const std::string *plain, size_t arrow, int64_t dots) {
    if (plain) {
      output = labelsOf(plain->substr(arrow + 2), dots);
    } else {
      std::map<Label, int> uses;
      for (const Term &term : terms)
        for (Label label : term.labels)
          ++uses[label];
      output = labelsOf("...", dots);
      for (auto [label, count] : uses)
        if (label < 256 && count == 1)
          output.push_back(label);
    }
    for (size_t i = 0; i < output.size(); ++i)
      if (!sizes.count(output[i]) || std::count(output.begin(), output.end(), output[i]) > 1)
        fail(1, "the result's letters must differ and occur in a term");
  }

  /// Whether a label is used by the result or by a term with index `from` or higher.
  bool needed(Label label, size_t from) const {
    if (has(output, label))
      return true;
    for (size_t i = from; i < terms.size(); ++i)
      if (has(terms[i].labels, label))
        return true;
    return false;
  }

  /// Takes diagonals of repeated letters, removes dimensions of size 1, and sums dimensions that neither the result nor
  /// another term uses.
  void narrow(size_t number) {
    Term &term = terms[number];
    for (size_t i = 0; i < term.labels.size(); ++i)
      for (size_t j = i + 1; j < term.labels.size();)
        term.labels[i] == term.labels[j] ? diagonal(term, i, j) : void(++j);
    Shape kept;
    Labels labels;
    for (size_t d = 0; d < term.labels.size(); ++d)
      if (const int64_t size = Ops::size(term.value, static_cast<int64_t>(d)); size != 1) {
        kept.push_back(size);
        labels.push_back(term.labels[d]);
      }
    term = {ops.reshape(term.value, kept), labels};
    const Labels own = std::move(term.labels);
    term.labels.clear();
    std::vector<int64_t> dims;
    for (size_t d = 0; d < own.size(); ++d)
      if (needed(own[d], 0))
        term.labels.push_back(own[d]);
      else
        dims.push_back(static_cast<int64_t>(d));
    term.value = ops.sum(term.value, dims);
  }

  void diagonal(Term &term, size_t i, size_t j) {
    const Shape shape = Ops::shape(term.value);
    if (shape[i] != shape[j])
      fail(3, fmt::format("a diagonal needs equal sizes, found {} and {}", shape[i], shape[j]));
    Value on =
        ops.compare(Predicate::Eq, ops.iota(shape, static_cast<int64_t>(i)), ops.iota(shape, static_cast<int64_t>(j)));
    Value rest = ops.select(on, term.value, ops.constantLike(term.value, 0));
    term.value = ops.sum(rest, {static_cast<int64_t>(j)});
    term.labels.erase(term.labels.begin() + static_cast<int64_t>(j));
  }

  Value ordered(const Term &term, const Labels &labels) {
    std::vector<int64_t> dims;
    for (Label label : labels)
      if (auto at = llvm::find(term.labels, label); at != term.labels.end())
        dims.push_back(at - term.labels.begin());
    return valueOf(permute(tensorOf(term.value), dims, ops.where));
  }

  Shape shapeOf(const Labels &labels) const {
    Shape shape;
    for (Label label : labels)
      shape.push_back(sizes.at(label));
    return shape;
  }
  int64_t countOf(const Labels &labels) const {
    int64_t count = 1;
    for (Label label : labels)
      count *= sizes.at(label);
    return count;
  }
  static Labels joined(std::initializer_list<Labels> parts) {
    Labels all;
    for (const Labels &part : parts)
      all.insert(all.end(), part.begin(), part.end());
    return all;
  }

  /// a times b, summed over the labels that neither the result nor a term after `number` uses.
  Term product(const Term &a, const Term &b, size_t number) {
    Labels batch, summed, left, right;
    for (Label label : a.labels)
      (!has(b.labels, label) ? left : needed(label, number + 1) ? batch : summed).push_back(label);
    for (Label label : b.labels)
      if (!has(a.labels, label))
        right.push_back(label);
    const Labels all = joined({batch, left, right});
    if (summed.empty() || (left.empty() && right.empty()) || !isFloat(tensorOf(a.value)))
      return elementwise(a, b, all, summed);
    Shape x = shapeOf(batch), y = x;
    x.insert(x.end(), {countOf(left), countOf(summed)});
    y.insert(y.end(), {countOf(summed), countOf(right)});
    Value matrixA = ops.reshape(ordered(a, joined({batch, left, summed})), x);
    Value matrixB = ops.reshape(ordered(b, joined({batch, summed, right})), y);
    return {ops.reshape(ops.matmul(matrixA, matrixB), shapeOf(all)), all};
  }

  Term elementwise(const Term &a, const Term &b, const Labels &all, const Labels &summed) {
    const Labels wide = joined({all, summed});
    const auto spread = [&](const Term &term) {
      std::vector<int64_t> dims;
      for (size_t d = 0; d < wide.size(); ++d)
        if (has(term.labels, wide[d]))
          dims.push_back(static_cast<int64_t>(d));
      Value value = ordered(term, wide);
      return dims.size() == wide.size() ? value : ops.broadcast(value, shapeOf(wide), dims);
    };
    std::vector<int64_t> dims;
    for (size_t d = all.size(); d < wide.size(); ++d)
      dims.push_back(static_cast<int64_t>(d));
    return {ops.sum(ops.mul(spread(a), spread(b)), dims), all};
  }

  Tensor finish(const Term &result) {
    return tensorOf(ops.reshape(ordered(result, output), shapeOf(output))); // restores dimensions of size 1
  }

  Ops ops;
  const std::string &text;
  const std::vector<Tensor> &operands;
  std::map<Label, int64_t> sizes;
  std::vector<Term> terms;
  Labels output;
};

} // namespace

Tensor einsum(const std::string &text, const std::vector<Tensor> &operands, Where where) {
  Trace::current("einsum", where);
  return Einsum(text, operands, where).run();
}

} // namespace cleave
