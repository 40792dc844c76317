// Draws calls one by one.
#include "tests/random/Drawing.h"
#include "frontend/trace/Trace.h"
#include "runtime/base/Error.h"
#include "tests/random/Tables.h"

#include <algorithm>

namespace cleave::random_models {

Drawing::Drawing(Chance &chance, Recipe &recipe, int cls, Instance &instance, Trace &trace, std::vector<Tensor> inputs,
                 int depth)
    : chance(chance), recipe(recipe), depth(depth), number(cls), instance(instance), trace(trace),
      values(std::move(inputs)), uses(values.size(), 0), constants(values.size(), false) {
  this->cls().body.inputs = static_cast<int>(values.size());
}

static bool isFloat(Tensor x) { return x.defined() && x.dtype() == DType::F32; }

int Drawing::choose(const std::vector<int> &candidates) {
  if (candidates.empty())
    return -1;
  std::vector<double> weights;
  for (int value : candidates)
    weights.push_back((uses[static_cast<size_t>(value)] ? 1 : 4) * (value + 4 >= count() ? 3 : 1));
  return candidates[chance.weighted(weights)];
}

int Drawing::pick(const Test &test) {
  std::vector<int> candidates;
  for (int value = 0; value < count(); ++value)
    if (isFloat(at(value)) && (whole() || !constants[static_cast<size_t>(value)]) && (!test || test(at(value))))
      candidates.push_back(value);
  return choose(candidates);
}

int Drawing::pickInteger(const Test &test) {
  std::vector<int> candidates;
  for (int value = 0; value < cls().body.inputs; ++value)
    if (at(value).defined() && at(value).dtype() == DType::I32 && test(at(value)))
      candidates.push_back(value);
  return choose(candidates);
}

static bool isConstant(const std::string &op) {
  return op == "full" || op == "constant" || op == "arange" || op == "arangeSteps";
}

int Drawing::add(const std::string &op, std::vector<int> in, std::vector<int64_t> ints, std::vector<double> reals,
                 int member, std::vector<std::string> words) {
  if (std::any_of(in.begin(), in.end(), [](int value) { return value < 0; }))
    return -1;
  Node node{op, std::move(in), std::move(ints), std::move(reals), std::move(words), member};
  Tensor made;
  try {
    made = instance.emit(node, values);
  } catch (const Error &error) {
    if (error.status != Status::User)
      throw;
    return -1;
  }
  if (made.defined() && (made.elements() > mostElements || made.rank() > 6))
    return -1;
  for (int value : node.in)
    ++uses[static_cast<size_t>(value)];
  // Mark values computed from constants only. Constant folding rounds them, so a graph that folds them has other
  // numbers than a graph that does not.
  constants.push_back(node.in.empty() ? isConstant(op)
                                      : node.member < 0 && std::all_of(node.in.begin(), node.in.end(), [&](int value) {
                                          return constants[static_cast<size_t>(value)];
                                        }));
  cls().body.nodes.push_back(std::move(node));
  values.push_back(made);
  uses.push_back(0);
  return count() - 1;
}

/// Adds an argument to the trace for each new parameter and buffer.
void Drawing::showMembers() {
  mlir::Block *body = trace.builder.getInsertionBlock();
  const auto show = [&](const void *key, const Shape &shape) {
    if (!trace.state.count(key))
      trace.state[key] = body->addArgument(trace.type(shape, trace.builder.getF32Type()), trace.builder.getUnknownLoc());
  };
  for (const Parameter *parameter : instance.parameters())
    show(parameter, parameter->shape());
  for (const Buffer *buffer : instance.buffers())
    show(buffer, buffer->shape());
}

int Drawing::declare(Part member) {
  cls().members.push_back(std::move(member));
  instance.declare();
  showMembers();
  return static_cast<int>(cls().members.size()) - 1;
}

std::string Drawing::newName(const std::string &prefix) { return prefix + std::to_string(cls().members.size()); }

int Drawing::parameter(Shape shape, double bound) {
  std::vector<int> known;
  for (size_t m = 0; m < cls().members.size(); ++m)
    if (cls().members[m].kind == "Parameter" && cls().members[m].ints == shape)
      known.push_back(static_cast<int>(m));
  int64_t elements = 1;
  for (int64_t size : shape)
    elements *= size;
  if (elements > mostElements)
    return -1;
  const int member = !known.empty() && chance.one(0.5)
                         ? chance.of(known)
                         : declare({"Parameter", newName("p"), shape, {-bound, bound}, {}, -1, chance.one(0.08)});
  return add("parameter", {}, {}, {}, member);
}

int Drawing::newModule(int x, int y, bool list) {
  const int made = static_cast<int>(recipe.classes.size());
  recipe.classes.push_back({"C" + std::to_string(made), {}, {}});
  const int member = declare({list ? "List" : "Module", newName(list ? "layers" : "block"), {1}, {}, {}, made});
  Instance &child = static_cast<Instance &>(instance.module(member, list ? 0 : -1));
  std::vector<Tensor> inputs{at(x)};
  if (y >= 0)
    inputs.push_back(at(y));
  {
    PathScope path(trace, child.path(), Where());
    Drawing inner(chance, recipe, made, child, trace, inputs, depth + 1);
    inner.calls(chance.whole(1, 5));
    const Shape wanted = inputs[0].shape();
    int result = inner.pick();
    const bool keeps = list || chance.one(0.5); // a residual block
    if (keeps) {
      result = inner.pick([&](Tensor t) { return t.shape() == wanted && t.opaque() != inputs[0].opaque(); });
      if (result < 0)
        result = inner.add("mul", {0, inner.parameter(wanted.size() > 1 ? Shape{wanted.back()} : wanted)});
      if (chance.one(0.6))
        result = inner.add("add", {0, result});
    }
    if (result < 0 || !inner.at(result).defined())
      result = 0;
    inner.finish(result);
  }
  if (list) {
    Part &m = cls().members[static_cast<size_t>(member)];
    for (const int64_t more = chance.whole(1, 3); m.ints[0] <= more; ++m.ints[0])
      instance.grow(member);
  }
  showMembers();
  std::vector<int> in{x};
  if (y >= 0)
    in.push_back(y);
  return add("call", in, {-1}, {}, member);
}

/// Factor on the weight of an op kind in one case. Each case leaves some kinds out and draws some often, so that cases
/// mix kinds differently ("Swarm testing", Groce et al., ISSTA 2012).
static double favour(uint64_t seed, const std::string &name) {
  Chance c(mix(seed) ^ hashOf(name));
  return c.of<double>({0, 0, 1, 1, 1, 1, 1, 1, 2, 6});
}

void Drawing::finish(int result) {
  Body &body = cls().body;
  body.result = result;
  body.shapes.clear();
  for (const Tensor value : values)
    body.shapes.push_back(isFloat(value) ? value.shape() : Shape());
}

void Drawing::calls(int64_t count) {
  std::vector<double> weights;
  for (const OpKind &kind : opKinds())
    if (!kind.draw || (whole() && !kind.exact))
      weights.push_back(0);
    else // products and means of whole numbers soon need too many digits to be exact
      weights.push_back(kind.weight * favour(recipe.seed, kind.name) *
                        (whole() && (kind.name == "mul" || kind.name == "mean") ? 0.25 : 1));
  for (int64_t made = 0, tries = 0; made < count && tries < 12 * count; ++tries) {
    const OpKind &kind = opKinds()[chance.weighted(weights)];
    made += kind.draw(*this, kind);
  }
}

} // namespace cleave::random_models
