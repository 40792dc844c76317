// Data, references and bounds.
#include "tests/random/Numbers.h"
#include "ir/graph/Graph.h"
#include "runtime/data/Shuffle.h"
#include "runtime/device/RandomRows.h"
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
    : seed(recipe.seed), batch(recipe.batch), wholeNumbers(recipe.wholeNumbers) {
  inputs = recipe.fields.size() - recipe.targets();
  for (const Field &field : recipe.fields)
    list.push_back({field.name, field.integer ? FieldType::I32 : FieldType::F32, field.shape, field.classes});
}

double HashedData::value(Split split, int64_t index, size_t field, int64_t element) const {
  const uint64_t key = mix(mix(mix(seed ^ hashOf(list[field].name)) + static_cast<uint64_t>(index) * 2 + (split == Split::Eval)) +
                           static_cast<uint64_t>(element));
  const bool target = field >= inputs;
  if (list[field].dtype == FieldType::I32) {
    const int64_t classes = list[field].classes;
    if (target && unit(key ^ 1) < 0.12)
      return -1; // a label that the loss ignores
    return std::floor(unit(key) * static_cast<double>(classes));
  }
  return wholeNumbers ? std::floor(unit(key) * 4) - 1 : static_cast<float>(2 * unit(key) - 1);
}

void HashedData::read(Split split, int64_t index, size_t field, std::byte *dst) const {
  for (int64_t i = 0; i < list[field].elements(); ++i) {
    const double v = value(split, index, field, i);
    const auto real = static_cast<float>(v);
    const auto whole = static_cast<int32_t>(v);
    std::memcpy(dst + 4 * i, list[field].dtype == FieldType::I32 ? static_cast<const void *>(&whole) : &real, 4);
  }
}

// ---- slots ----------------------------------------------------------------------------------------------------------

static DType elementType(mlir::Type type) {
  return type.isF32()            ? DType::F32
         : type.isF16()          ? DType::F16
         : type.isBF16()         ? DType::BF16
         : type.isInteger(1)     ? DType::I1
         : type.isInteger(32)    ? DType::I32
                                 : DType::I64;
}

static NamedSlot slotOf(mlir::DictionaryAttr attributes, mlir::Type type) {
  const auto text = [&](llvm::StringRef key) {
    auto value = attributes ? attributes.getAs<mlir::StringAttr>(key) : nullptr;
    return value ? value.str() : std::string();
  };
  auto tensor = llvm::cast<mlir::RankedTensorType>(type);
  NamedSlot slot{text(ir::attr::kind), text(ir::attr::name),
                 ir::HostTensor(tensor.getShape().vec(), elementType(tensor.getElementType())), {}};
  if (slot.name.empty())
    slot.name = slot.kind;
  if (auto init = attributes ? attributes.getAs<ir::InitAttr>(ir::attr::init) : nullptr) {
    slot.distribution = init.getDistribution().str();
    slot.a = init.getA();
    slot.b = init.getB();
  }
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
    : recipe(recipe), step(std::move(module)), prediction(std::move(prediction)), data(data),
      rows(shuffledOrder(data.samples(Split::Train), runSeed, 1)) {}

DType Whole::sums() const {
  return recipe.reduceDtype == "fp16" ? DType::F16 : recipe.reduceDtype == "bf16" ? DType::BF16 : DType::F32;
}

double Whole::begin(const NamedSlot &slot, int64_t element) const {
  const double u = unit(hashOf(slot.name) + mix(recipe.seed) + static_cast<uint64_t>(element));
  if (slot.kind != "parameter" || slot.distribution.empty())
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
      if (slot.kind == "parameter" || slot.kind == "buffer" || slot.kind == "state") {
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
  slots[{"scalar", "lr"}] = ir::HostTensor({}, DType::F32, recipe.lr);
  slots[{"scalar", "step"}] = ir::HostTensor({}, DType::F32, static_cast<double>(at));
  addInputs(slots, step.function("train"), recipe.microbatches, [&](int64_t row) {
    return std::pair(Split::Train, static_cast<int64_t>(rows[static_cast<size_t>((at - 1) * recipe.batch + row)]));
  });
}

void Whole::addEvaluation(ir::Slots &slots) const {
  addInputs(slots, step.function("eval"), recipe.microbatches, [](int64_t row) { return std::pair(Split::Eval, row); });
}

void Whole::addPrediction(ir::Slots &slots, int64_t first, int64_t count) const {
  addInputs(slots, prediction.function("train"), 1,
            [&](int64_t row) { return std::pair(Split::Eval, first + row % count); });
}

template <class F>
void Whole::addInputs(ir::Slots &slots, mlir::Operation *function, int64_t microbatches, F sampleOf) const {
  for (const NamedSlot &slot : argumentsOf(function)) {
    if (slot.kind != "input")
      continue;
    const size_t field = findField(data, slot.name, slot.type.dtype == DType::I32 ? FieldType::I32 : FieldType::F32,
                                   {slot.type.shape.begin() + 1, slot.type.shape.end()});
    const int64_t each = data.fields()[field].elements();
    for (int64_t m = 0; m < microbatches; ++m) {
      ir::HostTensor tensor = slot.type;
      for (int64_t i = 0; i < tensor.size(); ++i) {
        const auto [split, sample] = sampleOf(m * slot.type.shape[0] + i / each);
        tensor.values[static_cast<size_t>(i)] = data.value(split, sample, field, i % each);
      }
      slots[{"input", slot.name, m}] = std::move(tensor);
    }
  }
}

Steps Whole::run() const {
  Steps all;
  ir::Slots slots = beginning();
  mlir::Operation *train = step.function("train"), *update = step.function("update");
  const std::vector<NamedSlot> trainArguments = argumentsOf(train), trainResults = resultsOf(train),
                               updateArguments = argumentsOf(update), updateResults = resultsOf(update);
  for (int64_t at = 1; at <= trainingSteps; ++at) {
    addStep(slots, at);
    std::erase_if(slots, [](const auto &entry) { return entry.first.kind == "gradient" || entry.first.kind == "metric"; });
    for (int64_t m = 0; m < recipe.microbatches; ++m) {
      std::vector<ir::HostTensor> inputs;
      for (const NamedSlot &slot : trainArguments)
        inputs.push_back(slots.at({slot.kind, slot.name, slot.kind == "input" ? m : 0}));
      auto results = ir::evaluate(train, inputs, {.seed = runSeed, .trainingStep = at, .microbatch = m});
      for (size_t i = 0; i < results.size(); ++i) {
        const std::string &kind = trainResults[i].kind;
        const bool metric = kind == "loss" || kind == "weight" || kind == "correct";
        const ir::SlotKey key{metric ? "metric" : kind, trainResults[i].name};
        const auto before = slots.find(key);
        if (kind != "buffer" && before != slots.end()) {
          for (size_t j = 0; j < results[i].values.size(); ++j)
            results[i].values[j] += before->second.values[j];
          results[i].round();
        }
        slots[key] = std::move(results[i]);
      }
    }
    std::vector<ir::HostTensor> inputs;
    for (const NamedSlot &slot : updateArguments)
      inputs.push_back(slots.at({slot.kind, slot.name}));
    auto results = ir::evaluate(update, inputs, {.seed = runSeed, .trainingStep = at});
    for (size_t i = 0; i < results.size(); ++i)
      slots[{updateResults[i].kind, updateResults[i].name}] = std::move(results[i]);
    ir::Slots &kept = all.emplace_back();
    for (const auto &[key, tensor] : slots)
      if (key.kind != "input" && key.kind != "scalar")
        kept[key] = tensor;
  }
  evaluate(slots, all.back());
  predict(slots, all.back());
  return all;
}

ir::Context evaluationContext(const Recipe &recipe) {
  ir::Context context{.seed = runSeed};
  context.samples = {evaluationStream(trainingSteps), 0, recipe.batch, recipe.rows()};
  return context;
}

ir::Context predictionContext(const Recipe &recipe, int64_t first, int64_t count) {
  ir::Context context{.seed = runSeed};
  context.samples = {predictionStream(0), first, count, recipe.rows()};
  return context;
}

/// Adds the evaluation's sums to `sums` under kind "eval".
void Whole::evaluate(ir::Slots &slots, ir::Slots &sums) const {
  mlir::Operation *eval = step.function("eval");
  const std::vector<NamedSlot> arguments = argumentsOf(eval), results = resultsOf(eval);
  addEvaluation(slots);
  for (int64_t m = 0; m < recipe.microbatches; ++m) {
    std::vector<ir::HostTensor> inputs;
    for (const NamedSlot &slot : arguments)
      inputs.push_back(slots.at({slot.kind, slot.name, slot.kind == "input" ? m : 0}));
    ir::Context context = evaluationContext(recipe);
    context.microbatch = m;
    const auto values = ir::evaluate(eval, inputs, context);
    for (size_t i = 0; i < values.size(); ++i) {
      auto [sum, first] = sums.try_emplace({"eval", results[i].name}, values[i]);
      if (!first) {
        sum->second.values[0] += values[i].values[0];
        sum->second.round();
      }
    }
  }
}

/// Adds the model's outputs under kind "output".
void Whole::predict(ir::Slots slots, ir::Slots &outputs) const {
  mlir::Operation *forward = prediction.function("train");
  const std::vector<NamedSlot> arguments = argumentsOf(forward), results = resultsOf(forward);
  outputs.merge(predictedOutputs(recipe, [&](int64_t first, int64_t count) {
    addPrediction(slots, first, count);
    std::vector<ir::HostTensor> inputs;
    for (const NamedSlot &slot : arguments)
      inputs.push_back(slots.at({slot.kind, slot.name}));
    const auto values = ir::evaluate(forward, inputs, predictionContext(recipe, first, count));
    ir::Slots batch;
    for (size_t i = 0; i < values.size(); ++i)
      batch[{results[i].kind, results[i].name}] = values[i];
    return batch;
  }));
}

int64_t predictedSamples(const Recipe &recipe) {
  return 1 + static_cast<int64_t>(mix(recipe.seed) % static_cast<uint64_t>(std::min(recipe.batch, 2 * recipe.rows())));
}

ir::Slots predictedOutputs(const Recipe &recipe,
                           const std::function<ir::Slots(int64_t first, int64_t count)> &ofBatch) {
  const int64_t samples = predictedSamples(recipe), rows = recipe.rows();
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

void Reference::widen(const Whole &whole, int samples, bool ofDouble, uint64_t seed) {
  for (int sample = 0; sample < samples; ++sample) {
    ir::Rounding noise{ir::Rounding::Kind::Noise};
    noise.ulps = 8;
    noise.ofDouble = ofDouble;
    noise.addends = whole.sums();
    noise.state = noise.sample = mix(seed + static_cast<uint64_t>(sample)) | 1;
    ir::RoundingScope scope(noise);
    const Steps noisy = whole.run();
    for (size_t s = 0; s < exact.size(); ++s)
      for (auto &[key, tensor] : spread[s]) {
        const ir::HostTensor &right = exact[s].at(key), &found = noisy[s].at(key);
        for (size_t i = 0; i < tensor.values.size(); ++i) {
          const double apart = std::abs(found.values[i] - right.values[i]);
          const bool same = std::isnan(found.values[i]) && std::isnan(right.values[i]);
          // Rounding of the result itself. In double at least 1e-16: a gradient may be 1 minus a probability near 1.
          const double last = ofDouble ? std::max(std::abs(right.values[i]) * 0x1p-52, 1e-16) : std::abs(right.values[i]) * 0x1p-24;
          tensor.values[i] = same ? tensor.values[i] : std::max({tensor.values[i], std::isnan(apart) ? INFINITY : apart, last});
        }
      }
  }
}

Reference referenceOf(const Whole &whole, bool ofDouble, int samples) {
  Reference reference;
  {
    ir::RoundingScope scope({ir::Rounding::Kind::None});
    reference.exact = whole.run();
    reference.largest = ir::RoundingScope::now().largest;
  }
  reference.spread = reference.exact;
  for (ir::Slots &slots : reference.spread)
    for (auto &[key, tensor] : slots)
      std::fill(tensor.values.begin(), tensor.values.end(), 0);
  reference.widen(whole, samples, ofDouble, 1);
  return reference;
}

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

static std::string place(int64_t index, const std::vector<int64_t> &shape) {
  std::vector<int64_t> at(shape.size());
  for (size_t d = shape.size(); d-- > 0; index /= shape[d])
    at[d] = index % shape[d];
  return fmt::format("[{}]", fmt::join(at, ", "));
}

std::string difference(const ir::SlotKey &key, const ir::HostTensor &expected, const ir::HostTensor *spread,
                       const std::vector<int64_t> &indices, const std::vector<double> &values, bool equal) {
  double largest = 0;
  for (size_t i = 0; spread && i < spread->values.size(); ++i)
    largest = std::max(largest, spread->values[i]);
  for (size_t i = 0; i < indices.size(); ++i) {
    const auto at = static_cast<size_t>(indices[i]);
    const double want = expected.values[at], got = values[i];
    if (want == got || (std::isnan(want) && std::isnan(got)))
      continue;
    const double bound = equal || !spread ? 0 : 8 * spread->values[at] + 2 * largest + 1e-35;
    if (!std::isfinite(bound) || (!equal && !(std::abs(want) + bound < 1e30))) // the largest f32 is 3e38
      continue;
    // A bound above both the value and 0.5 means that rounding errors were amplified, for example by several norms of
    // equal elements. Samples of noise do not bound them.
    if (!equal && bound > std::abs(want) && bound > 0.5)
      continue;
    if (!(std::abs(want - got) <= bound))
      return fmt::format("{} {} {} is {:.17g}, the graph says {:.17g}, {}", key.kind, key.name,
                         place(indices[i], expected.shape), got, want,
                         equal ? "exactly" : fmt::format("within {:.3g}", bound));
  }
  return {};
}

// ---- central differences --------------------------------------------------------------------------------------------

namespace {

/// The loss at given parameters, summed over the microbatches of the first step.
class Losses {
public:
  Losses(const Recipe &recipe, const GraphModule &traced, const Whole &whole)
      : recipe(recipe), function(traced.function("forward")), arguments(argumentsOf(function)),
        results(resultsOf(function)), slots(whole.beginning()) {
    whole.addStep(slots, 1);
    at(slots, true);
  }

  double operator()(const ir::Slots &parameters) { return at(parameters, false); }
  const ir::Slots &beginning() const { return slots; }

private:
  /// Buffers are those of the run with unchanged parameters, because no gradient flows through their old values.
  double at(const ir::Slots &parameters, bool keepBuffers) {
    double loss = 0;
    ir::Slots now = slots;
    for (int64_t m = 0; m < recipe.microbatches; ++m) {
      if (keepBuffers)
        buffers.push_back(now);
      std::vector<ir::HostTensor> inputs;
      for (const NamedSlot &slot : arguments)
        inputs.push_back(slot.kind == "input"    ? slots.at({slot.kind, slot.name, m})
                         : slot.kind == "buffer" ? buffers[static_cast<size_t>(m)].at({slot.kind, slot.name})
                                                 : parameters.at({slot.kind, slot.name}));
      auto values = ir::evaluate(function, inputs, {.seed = runSeed, .trainingStep = 1, .microbatch = m});
      for (size_t i = 0; i < values.size(); ++i)
        if (results[i].kind == "loss")
          loss += values[i].values[0];
        else if (results[i].kind == "buffer")
          now[{"buffer", results[i].name}] = values[i];
    }
    return loss;
  }

  const Recipe &recipe;
  mlir::Operation *function;
  std::vector<NamedSlot> arguments, results;
  ir::Slots slots;
  std::vector<ir::Slots> buffers;
};

} // namespace

std::string compareWithDifferences(const Recipe &recipe, const GraphModule &traced, const Whole &whole,
                                   const Reference &reference) {
  ir::RoundingScope scope({ir::Rounding::Kind::None});
  Losses loss(recipe, traced, whole);
  auto count = whole.graph().function("train")->getAttrOfType<mlir::IntegerAttr>("cleave.static_count");
  for (const auto &[key, gradient] : reference.exact[0]) {
    if (key.kind != "gradient")
      continue;
    const ir::SlotKey parameter{"parameter", key.name};
    const ir::HostTensor &spread = reference.spread[0].at(key);
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
      along *= static_cast<double>(count.getInt());
      size *= static_cast<double>(count.getInt());
      rounding *= static_cast<double>(count.getInt());
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
