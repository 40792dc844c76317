// Prints a recipe as a C++ program.
#include "partitioner/strategy/Decisions.h"
#include "tests/random/Recipe.h"
#include "tests/random/Tables.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace cleave::random_models {

int64_t nodeCount(const Recipe &recipe) {
  int64_t count = 0;
  for (const Class &cls : recipe.classes)
    count += static_cast<int64_t>(cls.body.nodes.size());
  return count;
}

bool Recipe::suitsWinograd() const {
  for (const Class &cls : classes)
    for (const Part &member : cls.members)
      if (member.kind == "Conv2d" && member.ints[0] % 16 == 0 && member.ints[1] % 16 == 0 &&
          (member.ints[2] == 3 || member.ints[2] == 5))
        return true;
  return false;
}

std::string Recipe::strategy() const {
  if (!found.empty())
    return found;
  std::string text = fmt::format("mesh = \"{}\"\nschedule = {{ name = \"{}\", microbatches = {}, virtual = {} }}\n",
                                 mesh, schedule, microbatches, virtualStages);
  return text + stagesAndShards;
}

namespace {

std::string listOf(const std::vector<int64_t> &list, size_t from = 0) {
  return fmt::format("{{{}}}",
                     fmt::join(list.begin() + static_cast<long>(std::min(from, list.size())), list.end(), ", "));
}

/// Writes a number with a decimal point, so that C++ reads a floating-point literal.
std::string numberText(double value) {
  std::string text = fmt::format("{}", value);
  return text.find_first_of(".en") == std::string::npos ? text + ".0" : text;
}

std::string memberText(const Class &cls, int64_t member) { return cls.members[static_cast<size_t>(member)].name; }

/// C++ that reads a parameter of a layer: fc.weight, or *fc.bias if the parameter is optional.
std::string insideText(const Class &cls, const Node &node) {
  const Part &member = cls.members[static_cast<size_t>(node.member)];
  const bool optional = node.words[0] == "bias" && (member.kind == "Linear" || member.kind == "Conv2d");
  return fmt::format("({}{}.{}).tensor()", optional ? "*" : "", member.name, node.words[0]);
}

/// Replaces the placeholders of a `print` template (Tables.h).
std::string filled(const std::string &form, const std::vector<std::string> &operands, const std::vector<int64_t> &ints,
                   const std::vector<double> &reals, const std::vector<std::string> &words, const Class *cls,
                   const Node *node) {
  std::string out;
  for (size_t i = 0; i < form.size(); ++i) {
    if (form[i] != '$') {
      out += form[i];
      continue;
    }
    const char what = form.at(++i);
    const auto digit = [&] { return static_cast<size_t>(form.at(++i) - '0'); };
    if (what >= '0' && what <= '9')
      out += static_cast<size_t>(what - '0') < operands.size() ? operands[static_cast<size_t>(what - '0')] : "Tensor()";
    else if (what == '*')
      out += fmt::format("{}", fmt::join(operands, ", "));
    else if (what == 'i')
      out += fmt::format("{}", ints.at(digit()));
    else if (what == 'r')
      out += numberText(reals.at(digit()));
    else if (what == 'R') {
      out += "{";
      for (size_t r = 0; r < reals.size(); ++r)
        out += (r ? ", " : "") + numberText(reals[r]);
      out += "}";
    } else if (what == 'w')
      out += fmt::format("\"{}\"", words.at(digit()));
    else if (what == 'I')
      out += listOf(ints);
    else if (what == 'J')
      out += listOf(ints, 1);
    else if (what == 'K')
      out += listOf(ints, 2);
    else if (what == 'W') {
      out += "{";
      for (size_t w = 0; w < words.size(); ++w)
        out += fmt::format("{}\"{}\"", w ? ", " : "", words[w]);
      out += "}";
    } else if (what == 'M')
      out += memberText(*cls, ints.at(digit()));
    else if (what == 'm')
      out += memberText(*cls, node->member);
    else if (what == 'P')
      out += insideText(*cls, *node);
    else if (what == 'A') // index of the called module in a list
      out += ints.at(0) >= 0 ? fmt::format("[{}]", ints[0]) : "";
  }
  return out;
}

std::string declaration(const Recipe &recipe, const Part &m) {
  std::string freeze = m.frozen ? "   // frozen in the constructor" : "";
  const std::string begin = m.reals.size() == 2   ? fmt::format("init::uniform({}, {})", m.reals[0], m.reals[1])
                            : m.reals.size() == 1 ? fmt::format("init::constant({})", m.reals[0])
                                                  : "init::zeros()";
  if (m.kind == "Parameter" || m.kind == "Buffer")
    return fmt::format("  {} {}{{*this, \"{}\", {}, {}}};{}\n", m.kind, m.name, m.name, listOf(m.ints), begin, freeze);
  const std::string cls = m.cls >= 0 ? recipe.classes[static_cast<size_t>(m.cls)].name : "";
  if (m.kind == "Module")
    return fmt::format("  {} {}{{*this, \"{}\"}};{}\n", cls, m.name, m.name, freeze);
  if (m.kind == "List")
    return fmt::format("  ModuleList<{}> {}{{*this, \"{}\", {}}};{}\n", cls, m.name, m.name, m.ints[0], freeze);
  return fmt::format("  {} {}{{*this, \"{}\", {}}};{}\n", m.kind, m.name, m.name,
                     filled(layerKind(m.kind)->print, {}, m.ints, m.reals, m.words, nullptr, nullptr), freeze);
}

std::string classText(const Recipe &recipe, const Class &cls, bool root) {
  std::vector<int> results{cls.body.result};
  if (cls.body.second >= 0)
    results.push_back(cls.body.second);
  results.insert(results.end(), cls.body.others.begin(), cls.body.others.end());
  const bool several = results.size() > 1;
  std::string out = fmt::format("struct {} : {} {{\n", cls.name, several ? "ModuleOf<std::vector<Tensor>>" : "Module");
  if (!root)
    out += "  using Module::Module;\n";
  std::string freezes;
  for (const Part &member : cls.members) {
    out += declaration(recipe, member);
    if (member.frozen)
      freezes += fmt::format(" {}.{};", member.name, member.kind == "Parameter" ? "requiresGrad(false)" : "freeze()");
  }
  if (!freezes.empty())
    out += root ? fmt::format("  {}() {{{} }}\n", cls.name, freezes)
                : fmt::format("  {}(Module &parent, std::string name) : Module(parent, std::move(name)) {{{} }}\n",
                              cls.name, freezes);
  std::vector<std::string> names, arguments;
  for (int i = 0; i < cls.body.inputs; ++i) {
    names.push_back(root ? recipe.fields[static_cast<size_t>(i)].name : std::string(1, static_cast<char>('x' + i)));
    arguments.push_back("Tensor " + names.back());
  }
  out += fmt::format("  {} forward({}){} {{\n", several ? "std::vector<Tensor>" : "Tensor", fmt::join(arguments, ", "),
                     root ? "" : " override");
  for (const Node &node : cls.body.nodes) {
    std::vector<std::string> operands;
    for (const int value : node.in)
      operands.push_back(names[static_cast<size_t>(value)]);
    const std::string call = filled(opKind(node.op).print, operands, node.ints, node.reals, node.words, &cls, &node);
    const bool none = node.op == "stage" || node.op == "setBuffer";
    names.push_back(none ? "" : fmt::format("v{}", names.size()));
    out += none ? fmt::format("    {};\n", call) : fmt::format("    Tensor {} = {};\n", names.back(), call);
  }
  std::string returned;
  for (const int value : results)
    returned += (returned.empty() ? "" : ", ") + names[static_cast<size_t>(value)];
  return out + fmt::format("    return {};\n  }}\n}};\n\n", several ? "{" + returned + "}" : returned);
}

std::string dataText(const Recipe &recipe) {
  std::string fields;
  for (const Field &field : recipe.fields)
    fields += fmt::format("    {{\"{}\", FieldType::{}, {}, {}}},\n", field.name,
                          field.dtype == FieldType::I32 ? "I32" : field.dtype == FieldType::U8 ? "U8" : "F32",
                          listOf(field.shape), field.declared ? field.classes : 0);
  const char *hash = R"(      uint64_t h = (uint64_t(index) * 64 + field) * 4096 + uint64_t(i) + 1;
      h = (h ^ (h >> 31)) * 0x9E3779B97F4A7C15ull, h = (h ^ (h >> 29)) * 0xBF58476D1CE4E5B9ull, h ^= h >> 32;)";
  const char *arguments = recipe.drawnData ? "const SampleId &, Random &random, std::span<std::byte *const> to"
                                           : "Split, int64_t index, size_t field, std::byte *dst";
  return fmt::format(R"(struct Numbers : Dataset {{
  std::vector<DataField> list{{
{}  }};
  const std::vector<DataField> &fields() const override {{ return list; }}
  int64_t samples(Split split) const override {{ return split == Split::Train ? {} : {}; }}
  void read({}) const override {{
{}    const int64_t classes = list[field].classes ? list[field].classes : 5;
    for (int64_t i = 0; i < list[field].elements(); ++i) {{
{}
      const int32_t whole = int32_t(h % uint64_t(classes));
      const float real = {};
      if (list[field].dtype == FieldType::U8)
        dst[i] = std::byte(h % {});
      else
        std::memcpy(dst + 4 * i, list[field].dtype == FieldType::I32 ? (const void *)&whole : (const void *)&real, 4);
    }}
  }}
}};

)",
                     fields, (recipe.drawnData ? 1 : 2) * recipe.batch + 1, recipe.evalSamples, arguments,
                     recipe.drawnData
                         ? "    const int64_t shift = random.integer(0, 2);\n"
                           "    for (size_t field = 0; field < to.size(); ++field)\n"
                           "      if (to[field])\n"
                           "        write(shift, random.stream(field), field, to[field]);\n"
                           "  }\n"
                           "  void write(int64_t shift, Random random, size_t field, std::byte *dst) const {\n"
                         : "",
                     recipe.drawnData ? "      const uint64_t h = random();" : hash,
                     std::string(recipe.wholeNumbers ? "float(h % 5) - 2" : "float(h % 2001) / 1000 - 1") +
                         (recipe.drawnData ? " + float(shift)" : ""),
                     recipe.wholeNumbers ? 4 : 256);
}

std::string lossText(const Recipe &r) {
  const std::string first = lossKind(r.loss).print;
  if (r.targets() == 1)
    return r.classes[0].body.others.empty()
               ? first
               : fmt::format("[](std::span<const Tensor> p, std::span<const Tensor> t) {{\n"
                             "    const LossFunction first = {};\n    return first(p[0], t[0]);\n  }}",
                             first);
  return fmt::format("[](std::span<const Tensor> p, std::span<const Tensor> t) {{\n    const LossFunction first = {};\n"
                     "    return weightedSum({{{{first(p[0], t[0]), 1.0}}, {{mseLoss(p[1], t[1]), 0.5}}}});\n  }}",
                     first);
}

std::string optimizerText(const Recipe &r) {
  if (r.optimizer.starts_with("adam"))
    return fmt::format("{}{{.lr = {}, .eps = 1e-3, .weightDecay = {}}}", r.optimizer == "adam" ? "Adam" : "AdamW", r.lr,
                       r.weightDecay);
  return fmt::format("Sgd{{.lr = {}, .momentum = {}, .nesterov = {}, .weightDecay = {}}}", r.lr,
                     r.optimizer == "sgd" ? 0.0 : 0.5, r.optimizer == "nesterov", r.weightDecay);
}

} // namespace

std::string asCommand(const Recipe &r) {
  std::string text = "check --steps 2 --seed 3 --threads 1";
  if (!r.searched.empty() && r.found.empty()) // for devices of one kind, and without pinned lists
    text += fmt::format(" --strategy auto --devices {} --microbatches {}", partitioner::parseMesh(r.mesh).ranks(),
                        r.microbatches);
  else
    text += r.stagesAndShards.empty() && r.found.empty()
                ? fmt::format(" --mesh {} --schedule {} --microbatches {} --virtual {}", r.mesh, r.schedule,
                              r.microbatches, r.virtualStages)
                : " --strategy strategy.toml";
  if (r.evalBatch != r.batch)
    text += fmt::format(" --eval-batch {}", r.evalBatch);
  if (!r.recompute.empty())
    text += " --recompute " + r.recompute;
  if (r.sequence)
    text += " --sequence-parallel";
  if (r.zero)
    text += fmt::format(" --zero {}", r.zero);
  if (r.scatterGather)
    text += " --scatter-gather always";
  if (r.precision != "fp32")
    text += " --precision " + r.precision + " --opt-level " + r.optLevel;
  if (!r.reduceDtype.empty())
    text += " --reduce-dtype " + r.reduceDtype;
  if (r.layout != "nchw")
    text += " --layout " + r.layout + " --winograd " + r.winograd();
  return text;
}

std::string asProgram(const Recipe &recipe) {
  std::string out = fmt::format("// seed {}: ./net {}\n", recipe.seed, asCommand(recipe));
  if (!recipe.stagesAndShards.empty()) {
    out += "// strategy.toml:\n";
    for (size_t from = 0; const char c : recipe.strategy()) {
      out += from == 0 ? "//   " : "";
      out += c;
      from = c == '\n' ? 0 : 1;
    }
  }
  out += "#include <cleave/cleave.h>\n#include <cstring>\nusing namespace cleave;\n\n";
  for (size_t c = recipe.classes.size(); c-- > 0;)
    out += classText(recipe, recipe.classes[c], c == 0);
  out += dataText(recipe);
  out += fmt::format("int main(int argc, char **argv) {{\n  Program program{{\"net\", argc, argv}};\n"
                     "  return program.run<Net>({{.data = std::make_shared<Numbers>(),\n  .loss = {},\n"
                     "  .optimizer = {},\n  .clipNorm = {},\n  .ema = {},\n  .batch = {},\n  .targets = {}}});\n}}\n",
                     lossText(recipe), optimizerText(recipe), recipe.clipNorm, recipe.averages(), recipe.batch,
                     recipe.targets());
  return out;
}

} // namespace cleave::random_models
