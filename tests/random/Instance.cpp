// Creates members and interprets bodies.
#include "tests/random/Instance.h"
#include "tests/random/Tables.h"

#include <stdexcept>

namespace cleave::random_models {

Instance::Instance(const Recipe &recipe, int cls, bool marks) : recipe(recipe), number(cls), marks(marks) { declare(); }

Instance::Instance(Module &parent, std::string name, const Recipe &recipe, int cls, bool marks)
    : Module(parent, std::move(name)), recipe(recipe), number(cls), marks(marks) {
  declare();
}

void Instance::declare() {
  while (held.size() < cls().members.size())
    held.push_back(make(cls().members[held.size()]));
}

Instance::Held Instance::make(const Part &member) {
  Held held;
  const Init begin = member.reals.size() == 2   ? init::uniform(member.reals[0], member.reals[1])
                     : member.reals.size() == 1 ? init::constant(member.reals[0])
                                                : init::zeros();
  if (member.kind == "Parameter")
    held.parameter = std::make_unique<Parameter>(*this, member.name, member.ints, begin);
  else if (member.kind == "Buffer")
    held.buffer = std::make_unique<Buffer>(*this, member.name, member.ints, begin);
  else if (member.kind == "Module")
    held.module = std::make_unique<Instance>(*this, member.name, recipe, member.cls, marks);
  else if (member.kind == "List")
    held.module = std::make_unique<ModuleList<Instance>>(*this, member.name, member.ints.at(0), recipe, member.cls, marks);
  else if (const LayerKind *kind = layerKind(member.kind))
    held.module = kind->make(*this, member);
  else
    throw std::logic_error("no member of kind " + member.kind);
  if (member.frozen && held.parameter)
    held.parameter->requiresGrad(false);
  if (member.frozen && held.module)
    held.module->freeze();
  return held;
}

Module &Instance::module(int member, int64_t at) {
  Module &module = *held.at(static_cast<size_t>(member)).module;
  return at < 0 ? module : static_cast<ModuleList<Instance> &>(module)[at];
}

void Instance::grow(int member) {
  static_cast<ModuleList<Instance> &>(module(member)).emplace(recipe, cls().members[static_cast<size_t>(member)].cls, marks);
}

Tensor Instance::emit(const Node &node, const std::vector<Tensor> &values) {
  Call call{node, *this, {}};
  for (int value : node.in)
    if (Tensor operand = values.at(static_cast<size_t>(value)); operand.defined())
      call.in.push_back(operand);
    else
      throw std::logic_error(node.op + " reads value " + std::to_string(value) + " of " + cls().name + ", which is none");
  return opKind(node.op).emit(call);
}

std::vector<Tensor> Instance::outputs(std::vector<Tensor> values) {
  for (const Node &node : cls().body.nodes)
    values.push_back(emit(node, values));
  return outputsOf(values);
}

std::vector<Tensor> Instance::outputsOf(const std::vector<Tensor> &values) const {
  const Body &body = cls().body;
  std::vector<Tensor> list{values.at(static_cast<size_t>(body.result))};
  if (body.second >= 0)
    list.push_back(values.at(static_cast<size_t>(body.second)));
  for (const int other : body.others)
    list.push_back(values.at(static_cast<size_t>(other)));
  return list;
}

Tensor callModule(Module &module, const std::vector<Tensor> &in) {
  if (in.size() == 1)
    return module(in[0]);
  if (in.size() == 2)
    return module(in[0], in[1]);
  return module(in.at(0), in.at(1), in.at(2));
}

} // namespace cleave::random_models
