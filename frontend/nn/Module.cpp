// The module tree, and the values of parameters and buffers in a trace.
#include "cleave/Module.h"
#include "frontend/trace/Diagnose.h"
#include "frontend/trace/Trace.h"

#include <algorithm>
#include <fmt/format.h>

namespace cleave {

static std::string joined(const std::string &path, const std::string &name) {
  return path.empty() ? name : path + "." + name;
}

static void checkShape(const char *op, const std::string &name, const Shape &shape, Where where) {
  int64_t elements = 1;
  for (int64_t size : shape)
    if (size < 1 || __builtin_mul_overflow(elements, size, &elements) || elements > mostElements)
      failRule(op, 1,
               fmt::format("{}: sizes must be positive and elements at most 2^40, found {}", name, shapeText(shape)),
               {}, where);
}

/// Refuses modules, parameters and buffers that forward makes: they would be new ones in every trace.
static void requireOutsideForward(const char *kind, const std::string &name, Where where) {
  if (Trace *trace = Trace::active(); trace && trace->inForward)
    failAt(
        fmt::format("{}{}a {} is made inside forward: make it a member of the module, so that it exists before forward "
                    "runs, and use it in forward",
                    name, name.empty() ? "" : ": ", kind),
        {}, where);
}

// ---- modules ------------------------------------------------------------------------------------------------------

void Module::takeName(const std::string &name, const char *rule, Where where) {
  Module *root = this;
  while (root->parent)
    root = root->parent;
  if (++root->parts > mostParts)
    failAt(fmt::format("a model may have at most {} modules, parameters and buffers; {} exceeds this", mostParts,
                       joined(path(), name)),
           {}, where);
  if (name.empty() || name.find_first_of(".* \t\n\"") != std::string::npos)
    failAt(
        fmt::format("{}: a name must not be empty nor contain dots, stars, quotes or spaces, found \"{}\"", rule, name),
        {}, where);
  if (!names.insert(name).second)
    failAt(fmt::format("{}: the name \"{}\" is already taken in {}", rule, name, path().empty() ? "the model" : path()),
           {}, where);
}

Module::Module(Where where) : place(where) {
  requireOutsideForward("module", "", where);
  noteModulePlace(place);
}

Module::Module(Module &parent, std::string name, Where where)
    : place(where), parent(&parent), ownName(std::move(name)) {
  requireOutsideForward("module", ownName, where);
  noteModulePlace(parent.place);
  place = userPlace(where);
  noteModulePlace(place);
  parent.takeName(ownName, "module C1", where);
  parent.childList.push_back(this);
  parent.members.push_back({.child = this});
}

Module::~Module() = default;

std::string Module::path() const { return parent ? joined(parent->path(), ownName) : ownName; }

Module &Module::freeze() {
  for (Parameter *parameter : parameters())
    parameter->requiresGrad(false);
  for (Buffer *buffer : buffers())
    buffer->freeze();
  return *this;
}

void Module::collect(std::vector<Parameter *> *parameters, std::vector<Buffer *> *buffers) const {
  for (const Member &member : members) {
    if (member.parameter && parameters)
      parameters->push_back(member.parameter);
    if (member.buffer && buffers)
      buffers->push_back(member.buffer);
    if (member.child)
      member.child->collect(parameters, buffers);
  }
}

std::vector<Parameter *> Module::parameters() const {
  std::vector<Parameter *> all;
  collect(&all, nullptr);
  return all;
}

std::vector<Buffer *> Module::buffers() const {
  std::vector<Buffer *> all;
  collect(nullptr, &all);
  return all;
}

int64_t Module::parameterCount() const {
  int64_t count = 0;
  for (const Parameter *parameter : parameters())
    count += parameter->elements();
  return count;
}

static Tensor noForward(const Module &module, int tensors) {
  failAt(fmt::format("{}: the module defines no forward of {} tensor{} taken by value",
                     module.path().empty() ? "the model" : module.path(), tensors, tensors == 1 ? "" : "s"),
         {}, callSite());
}

Tensor Module::forward(Tensor) { return noForward(*this, 1); }
Tensor Module::forward(Tensor, Tensor) { return noForward(*this, 2); }
Tensor Module::forward(Tensor, Tensor, Tensor) { return noForward(*this, 3); }

Tensor Module::operator()(Tensor x, Where where) {
  PathScope scope(Trace::current(ownName.c_str(), where), path(), where);
  return forward(x);
}
Tensor Module::operator()(Tensor x, Tensor y, Where where) {
  PathScope scope(Trace::current(ownName.c_str(), where), path(), where);
  return forward(x, y);
}
Tensor Module::operator()(Tensor x, Tensor y, Tensor z, Where where) {
  PathScope scope(Trace::current(ownName.c_str(), where), path(), where);
  return forward(x, y, z);
}

ModuleCall::ModuleCall(const Module &module, Where where) {
  Trace::current(module.name().c_str(), where).enter(module.path(), where);
}
ModuleCall::~ModuleCall() { Trace::active()->leave(); }

// ---- parameters and buffers -----------------------------------------------------------------------------------------

Parameter::Parameter(Module &owner, std::string name, Shape shape, Init init, Where where)
    : owner(&owner), ownName(std::move(name)), sizes(std::move(shape)), made(userPlace(where)) {
  requireOutsideForward("parameter", ownName, where);
  checkShape("parameter", ownName, sizes, where);
  owner.takeName(ownName, "parameter C2", where);
  owner.members.push_back({.parameter = this});
  begin = init.resolve(sizes);
}

Parameter::~Parameter() = default;
std::string Parameter::path() const { return joined(owner->path(), ownName); }

int64_t Parameter::elements() const {
  int64_t count = 1;
  for (int64_t size : sizes)
    count *= size;
  return count;
}

static Tensor stateOf(const void *key, const std::string &path, Where where) {
  Trace &trace = Trace::current(path.c_str(), where);
  auto found = trace.state.find(key);
  if (found == trace.state.end())
    failAt(fmt::format("{}: belongs to another model than the one that is traced", path), {}, where);
  return tensorOf(found->second);
}

Tensor Parameter::tensor(Where where) const { return stateOf(this, path(), where); }

Buffer::Buffer(Module &owner, std::string name, Shape shape, Init init, Where where)
    : owner(&owner), ownName(std::move(name)), sizes(std::move(shape)) {
  requireOutsideForward("buffer", ownName, where);
  checkShape("buffer", ownName, sizes, where);
  owner.takeName(ownName, "buffer C2", where);
  owner.members.push_back({.buffer = this});
  begin = init.resolve(sizes);
}

Buffer::~Buffer() = default;
std::string Buffer::path() const { return joined(owner->path(), ownName); }
Tensor Buffer::tensor(Where where) const { return stateOf(this, path(), where); }

void Buffer::set(Tensor value, Where where) {
  const Tensor before = tensor(where);
  if (value.shape() != before.shape() || value.dtype() != before.dtype())
    failRule("buffer", 3, fmt::format("{}: the new value must have the buffer's type", path()),
             {{"buffer", before.str()}, {"value", value.str()}}, where);
  Trace &trace = *Trace::active();
  if (!trace.training() || frozen())
    return;
  trace.state[this] = valueOf(value);
  if (std::find(trace.changed.begin(), trace.changed.end(), this) == trace.changed.end())
    trace.changed.push_back(this);
}

size_t internal::checkedIndex(const Module &list, ListIndex index, int64_t size) {
  if (index.number < 0 || index.number >= size)
    failAt(fmt::format("{} has {} modules, counted from 0: there is no [{}]",
                       list.path().empty() ? "the list" : list.path(), size, index.number),
           {}, index.where);
  return static_cast<size_t>(index.number);
}

} // namespace cleave
