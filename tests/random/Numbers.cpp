// Data, references and bounds.
#include "tests/random/Numbers.h"
#include "ir/Phase.h"
#include "ir/graph/Graph.h"
#include "partitioner/annotate/MixedRows.h"
#include "runtime/data/Shuffle.h"
#include "runtime/device/RandomRows.h"
#include "runtime/plan/DTypes.h"
#include "runtime/plan/OptimizerFields.h"
#include "runtime/session/RankJob.h"
#include "tests/random/Chance.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <limits>

namespace cleave::random_models {

static double unit(uint64_t bits) { return static_cast<double>(mix(bits) >> 11) * 0x1p-53; }

// ---- data -----------------------------------------------------------------------------------------------------------

HashedData::HashedData(const Recipe &recipe)
    : seed(recipe.seed), batch(recipe.batch), evalSamples(recipe.evalSamples), wholeNumbers(recipe.wholeNumbers),
      drawn(recipe.drawnData) {
  inputs = recipe.fields.size() - recipe.targets();
  for (const Field &field : recipe.fields) {
    list.push_back({field.name, field.dtype, field.shape, field.declared ? field.classes : 0});
    classes.push_back(field.classes);
  }
}

double HashedData::hashed(Split split, int64_t index, size_t field, int64_t element) const {
  const uint64_t key = mix(mix(mix(seed ^ hashOf(list[field].name)) + static_cast<uint64_t>(index) * 2 + (split == Split::Eval)) +
                           static_cast<uint64_t>(element));
  const bool target = field >= inputs;
  if (list[field].dtype == FieldType::I32) {
    if (target && unit(key ^ 1) < 0.12)
      return -1; // a label that the loss ignores
    return std::floor(unit(key) * static_cast<double>(classes[field]));
  }
  if (list[field].dtype == FieldType::U8)
    return std::floor(unit(key) * bytesEnd());
  if (target && unit(key ^ 1) < 0.08)
    return std::nan(""); // a target that the loss ignores
  return wholeNumbers ? std::floor(unit(key) * 4) - 1 : static_cast<float>(2 * unit(key) - 1);
}

/// The first numbers are shared by all fields: the order of the elements, and a shift.
std::vector<double> HashedData::draw(Random random, size_t field) const {
  const bool reversed = random.chance(0.5);
  const auto shift = static_cast<double>(random.integer(0, 2));
  Random own = random.stream(field);
  std::vector<double> values;
  for (int64_t i = 0; i < list[field].elements(); ++i)
    if (list[field].dtype == FieldType::I32)
      values.push_back(field >= inputs && own.chance(0.12) ? -1 : static_cast<double>(own.integer(0, classes[field])));
    else if (list[field].dtype == FieldType::U8)
      values.push_back(static_cast<double>(own.integer(0, bytesEnd())));
    else
      values.push_back(wholeNumbers ? static_cast<double>(own.integer(-1, 3)) + shift
                                    : static_cast<float>(own.uniform(-1, 1) + 0.25 * shift));
  if (reversed)
    std::reverse(values.begin(), values.end());
  return values;
}

std::vector<double> HashedData::values(const SampleId &sample, size_t field) const {
  if (drawn)
    return draw(Random(runSeed, sample.epoch, sample.index), field);
  std::vector<double> values;
  for (int64_t i = 0; i < list[field].elements(); ++i)
    values.push_back(hashed(sample.split, sample.index, field, i));
  return values;
}

void HashedData::replace(size_t field, int64_t element, double value) { replaced = {field, element, value}; }

void HashedData::store(const std::vector<double> &values, size_t field, std::byte *to) const {
  for (size_t i = 0; i < values.size(); ++i) {
    const bool odd = replaced && replaced->field == field && replaced->element == static_cast<int64_t>(i);
    const double value = odd ? replaced->value : values[i];
    const auto real = static_cast<float>(value);
    const auto whole = static_cast<int32_t>(value);
    if (list[field].dtype == FieldType::U8)
      to[i] = static_cast<std::byte>(whole);
    else
      std::memcpy(to + 4 * i, list[field].dtype == FieldType::I32 ? static_cast<const void *>(&whole) : &real, 4);
  }
}

void HashedData::read(const SampleId &sample, Random &random, std::span<std::byte *const> to) const {
  if (!drawn)
    return Dataset::read(sample, random, to); // calls the other function
  for (size_t field = 0; field < to.size(); ++field)
    if (to[field])
      store(draw(random, field), field, to[field]);
}

void HashedData::read(Split split, int64_t index, size_t field, std::byte *to) const {
  store(values({split, index}, field), field, to);
}

// ---- slots ----------------------------------------------------------------------------------------------------------

ir::SlotKey groupKey(const std::string &group, const std::string &name) {
  return {ir::SlotKind::Metric, group + "/" + name};
}
bool ofGroup(const ir::SlotKey &key, const std::string &group) {
  return key.kind == ir::SlotKind::Metric && key.name.starts_with(group + "/");
}
std::string nameInGroup(const ir::SlotKey &key) {
  return key.kind == ir::SlotKind::Metric ? key.name.substr(key.name.find('/') + 1) : key.name;
}

static NamedSlot slotOf(mlir::DictionaryAttr attributes, mlir::Type type) {
  const auto text = [&](llvm::StringRef key) {
    auto value = attributes ? attributes.getAs<mlir::StringAttr>(key) : nullptr;
    return value ? value.str() : std::string();
  };
  auto tensor = llvm::cast<mlir::RankedTensorType>(type);
  NamedSlot slot{ir::slotKindOf(text(ir::attr::kind)),
                 text(ir::attr::name),
                 ir::HostTensor(tensor.getShape().vec(), ir::dtypeOf(tensor)),
                 {}};
  if (ir::isMetric(slot.kind))
    slot.name = ir::metricName(slot.kind, slot.name);
  else if (slot.name.empty())
    slot.name = ir::text(slot.kind);
  if (auto init = attributes ? attributes.getAs<ir::InitAttr>(ir::attr::init) : nullptr) {
    slot.distribution = init.getDistribution().str();
    slot.a = init.getA();
    slot.b = init.getB();
  }
  slot.trains = slot.kind == ir::SlotKind::Parameter && attributes && attributes.get(ir::attr::trainable);
  return slot;
}

std::vector<NamedSlot> argumentsOf(mlir::Operation *operation) {
  auto function = llvm::cast<mlir::func::FuncOp>(operation);
  std::vector<NamedSlot> list;
  for (unsigned i = 0; i < function.getNumArguments(); ++i)
    list.push_back(slotOf(function.getArgAttrDict(i), function.getArgumentTypes()[i]));
  return list;
}
std::vector<NamedSlot> resultsOf(mlir::Operation *operation) {
  auto function = llvm::cast<mlir::func::FuncOp>(operation);
  std::vector<NamedSlot> list;
  for (unsigned i = 0; i < function.getNumResults(); ++i)
    list.push_back(slotOf(function.getResultAttrDict(i), function.getResultTypes()[i]));
  return list;
}

// ---- the unsplit step -----------------------------------------------------------------------------------------------

Whole::Whole(const Recipe &recipe, GraphModule module, GraphModule prediction, const HashedData &data)
    : recipe(recipe), step(std::move(module)), prediction(std::move(prediction)), data(data) {
  const int64_t rows = recipe.rows();
  const uint64_t most = static_cast<uint64_t>(std::min(recipe.evalSamples, 2 * rows));
  predicted = 1 + static_cast<int64_t>(mix(recipe.seed) % most);
  auto forward = llvm::cast<mlir::func::FuncOp>(this->prediction.function("train"));
  if (partitioner::opThatMixesRows(forward, false)) // whole batches (requireWholeBatches)
    predicted -= predicted % rows;
  mixes = partitioner::opThatMixesRows(llvm::cast<mlir::func::FuncOp>(step.function("eval")), false);
}

DType Whole::sums() const {
  return recipe.reduceDtype == "fp16" ? DType::F16 : recipe.reduceDtype == "bf16" ? DType::BF16 : DType::F32;
}

double Whole::begin(const NamedSlot &slot, int64_t element) const {
  const double u = unit(hashOf(slot.name) + mix(recipe.seed) + static_cast<uint64_t>(element));
  if (slot.kind != ir::SlotKind::Parameter || slot.distribution.empty())
    return slot.a;
  if (recipe.wholeNumbers)
    return std::floor(u * 3) - 1;
  if (slot.distribution == "uniform")
    return slot.a + (slot.b - slot.a) * u;
  if (slot.distribution == "normal")
    return slot.a + slot.b * (2 * u - 1);
  return slot.a + 0.4 * (u - 0.5); // the weight of a norm: with 1 everywhere, errors would be hidden
}

ir::Slots Whole::beginning() const {
  ir::Slots slots;
  for (const char *name : {"train", "update"})
    for (const NamedSlot &slot : argumentsOf(step.function(name)))
      if (slot.kind == ir::SlotKind::Parameter || slot.kind == ir::SlotKind::Buffer ||
          slot.kind == ir::SlotKind::State) {
        ir::HostTensor tensor = slot.type;
        for (int64_t i = 0; i < tensor.size(); ++i)
          tensor.values[static_cast<size_t>(i)] = begin(slot, i);
        ir::RoundingScope scope({});
        tensor.round();
        slots[{slot.kind, slot.name}] = std::move(tensor);
      }
  return slots;
}

void Whole::addStep(ir::Slots &slots, int64_t at) const {
  slots[{ir::SlotKind::Scalar, "lr"}] = ir::HostTensor({}, DType::F32, recipe.lr);
  slots[{ir::SlotKind::Scalar, "step"}] = ir::HostTensor({}, DType::F32, static_cast<double>(at));
  const int64_t samples = data.samples(Split::Train), perEpoch = samples / recipe.batch;
  const int64_t epoch = 1 + (at - 1) / perEpoch, first = (at - 1) % perEpoch * recipe.batch;
  const std::vector<uint32_t> order = shuffledOrder(samples, runSeed, epoch);
  addInputs(slots, step.function("train"), recipe.microbatches, [&](int64_t row) {
    return SampleId{Split::Train, order[static_cast<size_t>(first + row)], epoch};
  });
}

void Whole::addEvaluation(ir::Slots &slots) const {
  addInputs(slots, step.function("eval"), recipe.microbatches,
            [&](int64_t row) { return SampleId{Split::Eval, row % recipe.evalSamples}; });
}

void Whole::addPrediction(ir::Slots &slots, int64_t first, int64_t count) const {
  addInputs(slots, prediction.function("train"), 1,
            [&](int64_t row) { return SampleId{Split::Eval, first + row % count}; });
}

template <class F>
void Whole::addInputs(ir::Slots &slots, mlir::Operation *function, int64_t microbatches, F sampleOf) const {
  for (const NamedSlot &slot : argumentsOf(function)) {
    if (slot.kind != ir::SlotKind::Input)
      continue;
    const size_t field = findField(data, slot.name, fieldTypeOf(planned(slot.type.dtype)),
                                   {slot.type.shape.begin() + 1, slot.type.shape.end()});
    for (int64_t m = 0; m < microbatches; ++m) {
      ir::HostTensor tensor = slot.type;
      for (int64_t row = 0; row < slot.type.shape[0]; ++row) {
        const std::vector<double> values = data.values(sampleOf(m * slot.type.shape[0] + row), field);
        std::copy(values.begin(), values.end(), tensor.values.begin() + row * static_cast<int64_t>(values.size()));
      }
      slots[{ir::SlotKind::Input, slot.name, m}] = std::move(tensor);
    }
  }
}

/// Runs a function of the step on a microbatch; adds gradients and metrics to those in `slots`.
static void runMicrobatch(mlir::Operation *function, ir::Slots &slots, int64_t step, int64_t m) {
  std::vector<ir::HostTensor> inputs;
  for (const NamedSlot &slot : argumentsOf(function))
    inputs.push_back(slots.at({slot.kind, slot.name, slot.kind == ir::SlotKind::Input ? m : 0}));
  const std::vector<NamedSlot> named = resultsOf(function);
  auto results = ir::evaluate(function, inputs, {.seed = runSeed, .trainingStep = step, .microbatch = m});
  for (size_t i = 0; i < results.size(); ++i) {
    const ir::SlotKind kind = named[i].kind;
    const ir::SlotKey key{ir::isMetric(kind) ? ir::SlotKind::Metric : kind, named[i].name};
    const auto before = slots.find(key);
    if (kind != ir::SlotKind::Buffer && before != slots.end()) {
      for (size_t j = 0; j < results[i].values.size(); ++j)
        results[i].values[j] += before->second.values[j];
      results[i].round();
    }
    slots[key] = std::move(results[i]);
  }
}

void readAverages(ir::Slots &slots) {
  for (auto &[key, tensor] : slots)
    if (const auto average = slots.find({ir::SlotKind::State, averageOf(key.name)});
        key.kind == ir::SlotKind::Parameter && average != slots.end())
      tensor = average->second;
}

Steps Whole::run() const {
  Steps all;
  ir::Slots slots = beginning();
  mlir::Operation *train = step.function("train"), *update = step.function("update"),
                  *weights = step.function("weights");
  const std::vector<NamedSlot> updateArguments = argumentsOf(update), updateResults = resultsOf(update);
  for (int64_t at = 1; at <= trainingSteps; ++at) {
    addStep(slots, at);
    std::erase_if(slots, [](const auto &entry) {
      return entry.first.kind == ir::SlotKind::Gradient || entry.first.kind == ir::SlotKind::Metric;
    });
    for (mlir::Operation *function : {weights, train})
      for (int64_t m = 0; function && m < recipe.microbatches; ++m)
        runMicrobatch(function, slots, at, m);
    std::vector<ir::HostTensor> inputs;
    for (const NamedSlot &slot : updateArguments)
      inputs.push_back(slots.at({slot.kind, slot.name}));
    auto results = ir::evaluate(update, inputs, {.seed = runSeed, .trainingStep = at});
    for (size_t i = 0; i < results.size(); ++i)
      slots[{updateResults[i].kind, updateResults[i].name}] = std::move(results[i]);
    ir::Slots &kept = all.emplace_back();
    for (const auto &[key, tensor] : slots)
      if (key.kind != ir::SlotKind::Input && key.kind != ir::SlotKind::Scalar)
        kept[key] = tensor;
  }
  readAverages(slots);
  evaluate(slots, all.back(), firstBatch, recipe.microbatches, 1, 0, std::min(recipe.evalSamples, recipe.evalBatch));
  const int64_t rows = recipe.evalBatch / recipe.microbatches;
  if (!mixes && !drawsInEvaluation() && recipe.evalSamples != recipe.evalBatch)
    for (int64_t sample = 0; sample < recipe.evalSamples; ++sample)
      evaluate(slots, all.back(), everySample, 1, 1 / static_cast<double>(rows), sample, 1);
  predict(slots, all.back());
  return all;
}

static ir::Context evaluationContext(const Recipe &recipe, int64_t first, int64_t count) {
  ir::Context context{.seed = runSeed};
  context.samples = {evaluationStream(trainingSteps), first, count, recipe.evalBatch / recipe.microbatches};
  return context;
}
ir::Context evaluationContext(const Recipe &recipe) {
  return evaluationContext(recipe, 0, std::min(recipe.evalSamples, recipe.evalBatch));
}

ir::Context predictionContext(const Recipe &recipe, int64_t first, int64_t count) {
  ir::Context context{.seed = runSeed};
  context.samples = {predictionStream(0), first, count, recipe.rows()};
  return context;
}

void Whole::evaluate(ir::Slots &slots, ir::Slots &sums, const char *group, int64_t microbatches, double factor,
                     int64_t first, int64_t count) const {
  mlir::Operation *eval = step.function("eval");
  const std::vector<NamedSlot> arguments = argumentsOf(eval), results = resultsOf(eval);
  addInputs(slots, eval, microbatches, [&](int64_t row) { return SampleId{Split::Eval, first + row % count}; });
  for (int64_t m = 0; m < microbatches; ++m) {
    std::vector<ir::HostTensor> inputs;
    for (const NamedSlot &slot : arguments)
      inputs.push_back(slots.at({slot.kind, slot.name, slot.kind == ir::SlotKind::Input ? m : 0}));
    ir::Context context = evaluationContext(recipe, first, count);
    context.microbatch = m;
    auto values = ir::evaluate(eval, inputs, context);
    for (size_t i = 0; i < values.size(); ++i) {
      values[i].values[0] *= factor;
      auto [sum, fresh] = sums.try_emplace(groupKey(group, results[i].name), values[i]);
      if (!fresh) {
        sum->second.values[0] += values[i].values[0];
        sum->second.round();
      }
    }
  }
}

bool Whole::drawsInEvaluation() const {
  bool draws = false;
  step.function("eval")->walk([&](ir::RandomUniformOp) { draws = true; });
  return draws;
}

std::optional<bool> Whole::addsUp(const ir::Slots &values) const {
  if (drawsInEvaluation())
    return std::nullopt;
  const int64_t rows = recipe.evalBatch / recipe.microbatches;
  ir::RoundingScope scope({ir::Rounding::Kind::None});
  ir::Slots slots = values, sums;
  const int64_t count = std::min(recipe.evalSamples, rows);
  evaluate(slots, sums, "together", 1, 1, 0, count);
  for (int64_t row = 0; row < rows; ++row)
    evaluate(slots, sums, "alone", 1, 1 / static_cast<double>(rows), row % count, 1);
  for (const auto &[key, together] : sums) {
    if (!ofGroup(key, "together"))
      continue;
    const double a = together.values[0], b = sums.at(groupKey("alone", nameInGroup(key))).values[0];
    if (!std::isfinite(a) || !std::isfinite(b))
      return std::nullopt;
    if (std::abs(a - b) > 1e-9 * (std::abs(a) + std::abs(b) + 1))
      return false;
  }
  return true;
}

/// Adds the model's outputs.
void Whole::predict(ir::Slots slots, ir::Slots &outputs) const {
  mlir::Operation *forward = prediction.function("train");
  const std::vector<NamedSlot> arguments = argumentsOf(forward), results = resultsOf(forward);
  outputs.merge(predictedOutputs(recipe, predicted, [&](int64_t first, int64_t count) {
    addPrediction(slots, first, count);
    std::vector<ir::HostTensor> inputs;
    for (const NamedSlot &slot : arguments)
      inputs.push_back(slots.at({slot.kind, slot.name}));
    const auto values = ir::evaluate(forward, inputs, predictionContext(recipe, first, count));
    ir::Slots batch;
    for (size_t i = 0; i < values.size(); ++i)
      if (results[i].kind == ir::SlotKind::Output) // not the counts of invalid indices
        batch[{results[i].kind, results[i].name}] = values[i];
    return batch;
  }));
}

ir::Slots predictedOutputs(const Recipe &recipe, int64_t samples,
                           const std::function<ir::Slots(int64_t first, int64_t count)> &ofBatch) {
  const int64_t rows = recipe.rows();
  ir::Slots all;
  for (int64_t first = 0; first < samples; first += rows) {
    const int64_t count = std::min(rows, samples - first);
    for (const auto &[key, batch] : ofBatch(first, count)) {
      const bool ofSamples = batch.rank() > 0;
      auto [entry, fresh] = all.try_emplace(key, ir::HostTensor(batch.shape, batch.dtype));
      ir::HostTensor &whole = entry->second;
      if (fresh) {
        whole.values.clear();
        if (!ofSamples)
          whole.shape.insert(whole.shape.begin(), 0);
        whole.shape[0] = 0;
      }
      const int64_t more = ofSamples ? count : count == rows;
      whole.shape[0] += more;
      whole.values.insert(whole.values.end(), batch.values.begin(),
                          batch.values.begin() + more * (batch.size() / (ofSamples ? rows : 1)));
    }
  }
  return all;
}

// ---- bounds ---------------------------------------------------------------------------------------------------------

std::vector<bool> exactSteps(const Whole &whole, const Steps &exact) {
  std::vector<bool> same(exact.size(), true);
  // Several precisions, because a single one may round to the exact result by accident.
  for (int digits = 20; digits < 24 && same.front(); ++digits) {
    ir::Rounding coarse{ir::Rounding::Kind::Digits};
    coarse.digits = digits;
    ir::RoundingScope scope(coarse);
    const Steps rounded = whole.run();
    for (size_t s = 0; s < exact.size(); ++s)
      same[s] = same[s] && (s == 0 || same[s - 1]) && rounded[s] == exact[s];
  }
  return same;
}

std::string difference(const ir::SlotKey &key, const ir::HostTensor &expected, const ir::HostTensor *spread,
                       const std::vector<int64_t> &indices, const std::vector<double> &values, bool equal) {
  const auto found = ir::firstOutside(expected, equal ? nullptr : spread, indices, values);
  return !found ? ""
                : fmt::format("{} {} {} is {:.17g}, the graph says {:.17g}, {}", text(key.kind), key.name,
                              ir::placeText(found->index, expected.shape), found->got, found->want,
                              equal ? "exactly" : fmt::format("within {:.3g}", found->bound));
}

// ---- central differences --------------------------------------------------------------------------------------------

namespace {

/// The loss at given parameters, summed over the microbatches of the first step.
class Losses {
public:
  Losses(const Recipe &recipe, const GraphModule &traced, const Whole &whole, double count)
      : recipe(recipe), count(count), function(traced.function("forward")), arguments(argumentsOf(function)),
        results(resultsOf(function)), slots(whole.beginning()) {
    whole.addStep(slots, 1);
    at(slots, true);
  }

  /// Times the static count.
  double operator()(const ir::Slots &parameters) { return at(parameters, false); }
  const ir::Slots &beginning() const { return slots; }

private:
  /// Buffers are those of the run with unchanged parameters, because no gradient flows through their old values.
  double at(const ir::Slots &parameters, bool keepBuffers) {
    std::map<std::string, double> sums; // by metric
    ir::Slots now = slots;
    for (int64_t m = 0; m < recipe.microbatches; ++m) {
      if (keepBuffers)
        buffers.push_back(now);
      std::vector<ir::HostTensor> inputs;
      for (const NamedSlot &slot : arguments)
        inputs.push_back(slot.kind == ir::SlotKind::Input ? slots.at({slot.kind, slot.name, m})
                         : slot.kind == ir::SlotKind::Buffer
                             ? buffers[static_cast<size_t>(m)].at({slot.kind, slot.name})
                             : parameters.at({slot.kind, slot.name}));
      auto values = ir::evaluate(function, inputs, {.seed = runSeed, .trainingStep = 1, .microbatch = m});
      for (size_t i = 0; i < values.size(); ++i)
        if (ir::isMetric(results[i].kind))
          sums[results[i].name] += values[i].values[0];
        else if (results[i].kind == ir::SlotKind::Buffer)
          now[{ir::SlotKind::Buffer, results[i].name}] = values[i];
    }
    if (!sums.count("loss.1"))
      return sums.at("loss");
    double loss = 0;
    for (size_t i = 0; sums.count(namesOfTerm(i).first); ++i)
      loss += sums.at(namesOfTerm(i).first) / std::max(1.0, sums.at(namesOfTerm(i).second));
    return loss * count;
  }

  const Recipe &recipe;
  const double count;
  mlir::Operation *function;
  std::vector<NamedSlot> arguments, results;
  ir::Slots slots;
  std::vector<ir::Slots> buffers;
};

} // namespace

std::string compareWithDifferences(const Recipe &recipe, const GraphModule &traced, const Whole &whole,
                                   const ir::Bounds &bounds) {
  ir::RoundingScope scope({ir::Rounding::Kind::None});
  const auto count = static_cast<double>(
      whole.graph().function("train")->getAttrOfType<mlir::IntegerAttr>("cleave.static_count").getInt());
  Losses loss(recipe, traced, whole, count);
  for (const NamedSlot &slot : argumentsOf(traced.function("forward"))) {
    const ir::SlotKey key{ir::SlotKind::Gradient, slot.name}, parameter{ir::SlotKind::Parameter, slot.name};
    if (!slot.trains)
      continue;
    const auto found = bounds.exact[0].find(key);
    const bool none = found == bounds.exact[0].end(); // the loss must not depend on it
    const ir::HostTensor zero(slot.type.shape, DType::F32, 0.0), &gradient = none ? zero : found->second,
                         &spread = none ? zero : bounds.spread[0].at(key);
    bool agrees = false;
    std::string text;
    std::optional<double> before;
    // Take differences along a random direction with decreasing step sizes, until no kink lies between the two points.
    for (const double h : {1e-4, 1e-5, 1e-6, 1e-7}) {
      ir::Slots up = loss.beginning(), down = up;
      double along = 0, size = 0, rounding = 0;
      for (size_t i = 0; i < gradient.values.size(); ++i) {
        const double direction = 2 * unit(hashOf(key.name) + i) - 1;
        up.at(parameter).values[i] += h * direction;
        down.at(parameter).values[i] -= h * direction;
        along += gradient.values[i] * direction;
        size += std::abs(gradient.values[i] * direction);
        rounding += 8 * spread.values[i];
      }
      along *= count;
      size *= count;
      rounding *= count;
      const double a = loss(up), b = loss(down), found = (a - b) / (2 * h);
      // Bound the rounding of the gradient, third derivatives, cancellation, and rounding inside the loss. The last is
      // estimated by the change of the quotient between two step sizes.
      const double bound = rounding + 1e-5 * (size + 1) + 1e-13 * (std::abs(a) + std::abs(b)) / h +
                           (before ? std::abs(found - *before) : 0);
      before = found;
      if (!std::isfinite(found) || std::abs(found - along) <= bound)
        agrees = true;
      text = fmt::format("gradient {}: along a direction the loss changes by {:.9g}, the gradient says {:.9g}", key.name,
                         found, along);
      if (agrees)
        break;
    }
    if (!agrees)
      return text;
  }
  return {};
}

} // namespace cleave::random_models
