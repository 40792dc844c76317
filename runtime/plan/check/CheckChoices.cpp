// Checks a plan's records of its training and of the data that it expects.
#include "runtime/base/Error.h"
#include "runtime/base/Precision.h"
#include "runtime/plan/StoredTransforms.h"
#include "runtime/plan/Text.h"
#include "runtime/plan/check/Defects.h"

#include <set>

namespace cleave::check {

namespace {

/// The half type and the optimisation level must fit together.
void checkPrecision(const plan::Training &training, Defects &defects) {
  const plan::Precision precision = training.precision(), reduce = training.reduce();
  const bool half = precision == plan::Precision::Bf16 || precision == plan::Precision::Fp16;
  if (half != (training.level() > 0))
    defects.add("precision {} at level O{}", static_cast<int>(precision), training.level());
  if (reduce != plan::Precision::Fp32 && (!half || reduce != precision))
    defects.add("gradients are reduced in precision {}, the run has {}", static_cast<int>(reduce),
                static_cast<int>(precision));
  const double scale = training.loss_scale();
  if (training.loss_scaling() == plan::LossScaling::None ? scale != 0 : !(scale >= 1 && scale <= LossScale::largest))
    defects.add("a loss scale of {}", scale);
}

/// Whether a rule is about elements of the field.
bool liesIn(const plan::IndexRule &rule, const plan::DataField &field) {
  const uint32_t rank = length(field.shape());
  if (length(rule.start()) != rank || length(rule.size()) != rank)
    return false;
  for (uint32_t d = 0; d < rank; ++d)
    if (rule.size()->Get(d) < 1 || rule.start()->Get(d) > field.shape()->Get(d) - rule.size()->Get(d))
      return false;
  return true;
}

void checkField(const plan::DataField &field, uint32_t index, Defects &defects) {
  if (!field.name() || field.name()->size() == 0)
    defects.add("data field {} has no name", index);
  if (field.dtype() != plan::DType::F32 && field.dtype() != plan::DType::I32 && field.dtype() != plan::DType::U8)
    defects.add("data field {} must be of f32, i32 or u8, found {}", index, dtypeName(field.dtype()));
  for (uint32_t d = 0; d < length(field.shape()); ++d)
    if (field.shape()->Get(d) < 1)
      defects.add("data field {}: dimension {} is {}", index, d, field.shape()->Get(d));
  for (uint32_t i = 0; i < length(field.indices()); ++i)
    if (!liesIn(*field.indices()->Get(i), field))
      defects.add("data field {}: indices {} are no elements of it", index, i);
}

/// The defect of an input of this name that reads this tensor; "" if there is none, or if the plan does not describe
/// its data.
std::string inputProblem(const plan::Plan &plan, const std::string &name, const plan::Tensor &tensor) {
  if (!plan.data())
    return "";
  for (uint32_t i = 0; i < length(plan.data()->fields()); ++i) {
    const plan::DataField &field = *plan.data()->fields()->Get(i);
    if (field.name()->string_view() != name)
      continue;
    uint64_t sample = 1, wanted = 1; // elements per sample
    for (uint32_t d = 0; d < length(field.shape()); ++d)
      sample *= static_cast<uint64_t>(field.shape()->Get(d));
    for (uint32_t d = 1; d < length(tensor.shape()); ++d)
      wanted *= static_cast<uint64_t>(tensor.shape()->Get(d));
    const bool alike = field.dtype() == plan::DType::F32
                           ? tensor.dtype() != plan::DType::I32 && tensor.dtype() != plan::DType::U8
                           : tensor.dtype() == field.dtype();
    return alike && sample == wanted ? ""
                                     : fmt::format("reads {} {} a sample, the data's field has {} {}", wanted,
                                                   dtypeName(tensor.dtype()), sample, dtypeName(field.dtype()));
  }
  return "is no field of the data";
}

void checkTransforms(const flatbuffers::Vector<flatbuffers::Offset<plan::Transform>> *transforms, Defects &defects) {
  StoredTransforms stored;
  for (uint32_t i = 0; i < length(transforms); ++i)
    stored.emplace_back(transforms->Get(i)->UnPack());
  try {
    transformsOf(stored);
  } catch (const Error &error) {
    defects.add("{}", error.what());
  }
}

} // namespace

void checkChoices(const plan::Plan &plan, Defects &defects) {
  Rule rule(defects, "T9");
  if (const plan::Training *training = plan.training())
    checkPrecision(*training, defects);
  const plan::Data *data = plan.data();
  if (!data)
    return;
  for (uint32_t i = 0; i < length(data->fields()); ++i)
    checkField(*data->fields()->Get(i), i, defects);
  checkTransforms(data->train(), defects);
  checkTransforms(data->eval(), defects);
}

void checkFields(const plan::Plan &plan, uint32_t index, Defects &defects) {
  const plan::Program &program = *plan.programs()->Get(index);
  std::set<uint32_t> bound;
  for (uint32_t i = 0; i < length(program.inputs()); ++i) {
    const plan::NamedSlot &input = *program.inputs()->Get(i);
    const plan::Slot *slot = program.slots()->Get(input.slot());
    if (slot->space() != plan::Space::Input) {
      defects.add("program {}: input {} must be an input slot, found slot {}", index, i, input.slot());
      continue;
    }
    if (!bound.insert(input.slot()).second)
      defects.add("program {}: slot {} is bound to two inputs", index, input.slot());
    const uint32_t tensor = slot->tensor() < 0 ? length(plan.tensors()) : static_cast<uint32_t>(slot->tensor());
    const std::string name = text(input.name());
    if (tensor >= length(plan.tensors()) || plan.tensors()->Get(tensor)->name()->string_view() != name)
      defects.add("program {}: input '{}' is slot {}, which has another tensor", index, name, input.slot());
    else if (const std::string problem = inputProblem(plan, name, *plan.tensors()->Get(tensor)); !problem.empty())
      defects.add("program {}: input '{}' {}", index, name, problem);
  }
  for (uint32_t i = 0; i < length(program.slots()); ++i)
    if (program.slots()->Get(i)->space() == plan::Space::Input && !bound.count(i))
      defects.add("program {}: input slot {} is bound to no field of the data", index, i);
}

} // namespace cleave::check
