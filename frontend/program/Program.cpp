// A program's command line: declares the model's options, then runs commands.
#include "cleave/Program.h"
#include "frontend/program/DeviceTable.h"
#include "frontend/program/Files.h"
#include "frontend/program/Options.h"
#include "frontend/program/ShowSample.h"
#include "frontend/trace/Diagnose.h"
#include "partitioner/toml/Toml.h"
#include "runtime/base/AtomicFile.h"
#include "runtime/base/Counted.h"
#include "runtime/base/InputFile.h"
#include "runtime/base/JsonText.h"
#include "runtime/base/Nearest.h"
#include "runtime/base/ParseNumber.h"
#include "runtime/base/StandardStreams.h"
#include "runtime/base/UserCode.h"
#include "runtime/checkpoint/Manifest.h"
#include "runtime/options/CommandLine.h"
#include "runtime/plan/PlanFile.h"
#include "runtime/plan/plan_generated.h"
#include "runtime/plan/summary/PlanSummary.h"
#include "runtime/session/GuardedMain.h"
#include "runtime/session/Launcher.h"
#include "runtime/session/PrepareProcess.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <limits>
#include <set>

namespace cleave {

namespace {

struct CommandLine {
  RunOptions run;
  std::string output; ///< -o
  SampleRequest sample;
};

/// The commands of every program.
struct EveryProgram {
  const char *name, *about;
  unsigned command;                              ///< of `commands`
  const char *output = nullptr, *file = nullptr; ///< what -o is, and its type; null: there is no -o
  bool outputRequired = true;
};
constexpr EveryProgram everyProgram[] = {
    {"train", "trains the model", commands::train},
    {"eval", "evaluates a checkpoint on the data's evaluation split", commands::eval},
    {"predict", "writes the model's outputs for the data's evaluation split", commands::predict,
     "the file, one row a sample", "FILE.npy"},
    {"plan", "compiles the training step into a plan file", commands::planOnly, "the plan file", "FILE.plan", false},
    {"check", "compares the plan with the reference interpreter", commands::check},
    {"data", "shows what the model is given for one sample", commands::data, "write the first field",
     "FILE.npy|FILE.png", false},
    {"graph", "writes the traced graph as IR", commands::graph, "the IR file (default: standard output)", "FILE.mlir",
     false}};

/// Adds these commands with their options. `line` must outlive `app`.
void addCommands(CLI::App &app, CommandLine &line) {
  app.require_subcommand(1, 1);
  for (const EveryProgram &each : everyProgram) {
    CLI::App &added = *app.add_subcommand(each.name, each.about);
    addOptions(added, programOptions(), each.command, line.run);
    if (each.output)
      added.add_option("-o,--output", line.output, each.output)->type_name(each.file)->required(each.outputRequired);
    if (each.command != commands::data)
      continue;
    added.add_option("--split", line.sample.split, "train or eval (default: train)")
        ->type_name("train|eval")
        ->check(CLI::IsMember({"train", "eval"}));
    added.add_option("--index", line.sample.index, "number of the sample in the split (default: 0)")->type_name("K");
    added.add_option("--file", line.sample.file, "a picture instead of a sample")->type_name("PATH");
  }
}

/// Of `commands`; the program adds its own commands later.
unsigned commandNamed(const std::string &name) {
  for (const EveryProgram &each : everyProgram)
    if (name == each.name)
      return each.command;
  return commands::own;
}

/// The options of the command `args`, without those of the model; nullopt if they are wrong, or if help is asked for.
std::optional<RunOptions> optionsOf(const std::vector<std::string> &args) {
  CLI::App app;
  app.allow_extras();
  RunOptions run;
  addOptions(app, programOptions(), commandNamed(args[0]), run);
  try {
    app.parse(std::vector<std::string>(args.rbegin(), args.rend() - 1));
  } catch (const CLI::ParseError &) {
    return std::nullopt;
  } catch (const Error &) {
    return std::nullopt;
  }
  return run;
}

} // namespace

struct Program::Impl {
  std::string name;
  std::vector<std::string> args; ///< without the program's name
  /// Values of --recipe that are no options of commands, and those that other commands have.
  struct RecipeValue {
    std::string name, value, place; ///< place: file and line
    bool known;                     ///< an option of some command
  };
  std::vector<RecipeValue> recipe;
  std::vector<Declared> declared;
  nlohmann::json stored;            ///< options of the checkpoint or plan that the command line names
  bool storedYields = false;        ///< the command line may give other values
  std::string storedIn;             ///< the checkpoint or plan that has `stored`, for messages
  std::optional<DeviceTable> table; ///< of plans, instead of one plan
  std::optional<Error> mistake;     ///< the first mistake found before `run`
  struct Own {
    std::string name, about;
    std::function<void(Predictor &)> body;
    int64_t batch = 1;
  };
  std::vector<Own> commands; ///< added by the program

  std::optional<std::string> find(const std::string &option) const;
  void loadRecipe();
  void loadStored();
  std::string optionsJson() const;
  void addModelOptions(CLI::App &app, std::vector<std::string> &ignored) const;
  void runOwn(const Own &own, RunOptions options, Trainer &trainer) const;
  int command(const CommandLine &line, const CLI::App &app, Trainer &trainer, const Data &data);
};

/// The values of the command's options, without those that the command line gives, are appended to it.
void Program::Impl::loadRecipe() {
  if (args.empty() || args[0].starts_with("-"))
    return;
  const std::optional<RunOptions> given = optionsOf(args);
  if (!given || given->recipe.empty())
    return;
  std::set<std::string> everyCommands, ofCommand;
  for (const Option &option : programOptions())
    for (const Option::Use &use : option.uses) {
      everyCommands.insert(option.name);
      if (use.commands & commandNamed(args[0]))
        ofCommand.insert(option.name);
    }
  const std::string text = readTextFile(given->recipe, Status::User, 1 << 20);
  const toml::table table = partitioner::parseToml(text, given->recipe);
  for (const auto &[key, node] : partitioner::inFileOrder(table)) {
    const std::string option = "--" + key, place = partitioner::at(given->recipe, *node);
    if (option == "--recipe" || option == "--plan" || option == "--checkpoint" || option == "--like")
      throw userError(fmt::format("{}: {}: belongs on the command line", place, key));
    std::string value;
    const auto add = [&](const toml::node &one) {
      if (one.is_table() || one.is_array())
        throw userError(
            fmt::format("{}: {}: must be a text, a number, true or false, or a list of numbers", place, key));
      if (const auto word = one.value_exact<std::string>())
        value += *word;
      else if (const auto whole = one.value_exact<int64_t>())
        value += fmt::format("{}", *whole);
      else if (const auto truth = one.value_exact<bool>())
        value += *truth ? "true" : "false";
      else
        value += fmt::format("{}", one.value<double>().value_or(0));
    };
    if (const toml::array *list = node->as_array())
      for (size_t i = 0; i < list->size(); ++i) {
        value += i ? "," : "";
        add(*list->get(i));
      }
    else
      add(*node);
    if (!ofCommand.contains(option)) {
      recipe.push_back({option, value, place, everyCommands.contains(option)});
      continue;
    }
    const bool onLine = std::ranges::any_of(
        args, [&](const std::string &word) { return word == option || word.starts_with(option + "="); });
    if (onLine || (node->is_boolean() && value == "false"))
      continue;
    args.push_back(option);
    if (!node->is_boolean())
      args.push_back(value);
  }
}

/// The value of an option of the model, if it is given. Other options are skipped.
std::optional<std::string> Program::Impl::find(const std::string &option) const {
  CLI::App app;
  app.set_help_flag();
  app.allow_extras();
  std::string value;
  const CLI::Option *found = app.add_option(option, value)->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  try {
    app.parse(std::vector<std::string>(args.rbegin(), args.rend()));
  } catch (const CLI::ParseError &) { // `run` reports it
    return std::nullopt;
  }
  if (found->count())
    return value;
  for (const RecipeValue &each : recipe)
    if (each.name == option &&
        !stored.contains(option.substr(option.find_first_not_of('-')))) // a checkpoint's are used
      return each.value;
  return std::nullopt;
}

/// Reads the model's options of the plan or checkpoint that the command reads. Skips what `run` will report.
void Program::Impl::loadStored() {
  if (args.empty() || args[0].starts_with("-"))
    return;
  const std::optional<RunOptions> given = optionsOf(args);
  if (!given)
    return;
  const RunOptions &run = *given;
  std::string options;
  if (!run.plan.empty()) {
    const auto file = PlanFile::load(run.plan);
    if (!file->plan().model() || file->plan().model()->str() != name)
      return; // the plan is of another model
    storedIn = "the plan " + run.plan;
    options = file->plan().options() ? file->plan().options()->str() : "{}";
  } else if (!run.like.empty()) {
    const auto file = PlanFile::load(run.like);
    if (!file->plan().model() || file->plan().model()->str() != name)
      return;
    storedIn = "the plan " + run.like, storedYields = true;
    options = file->plan().options() ? file->plan().options()->str() : "{}";
  } else if (!run.checkpoint.empty() &&
             (args[0] != "train" || run.resume || (run.resumeIfAny && hasCheckpoint(run.checkpoint)))) {
    const CheckpointInfo info = readCheckpointInfo(run.checkpoint, run.atStep);
    if (info.model != name)
      return;
    options = info.options;
    storedIn = "the checkpoint " + run.checkpoint;
  } else
    return;
  stored = parseJson(options, storedIn + ": the model's options");
  if (!stored.is_object())
    throw environmentError(fmt::format("{}: the model's options must be a JSON object, found {}", storedIn, options));
}

Program::Program(std::string name, int argc, char **argv) : impl(new Impl) {
  prepareProcess();
  impl->name = std::move(name);
  impl->args.assign(argv + std::min(argc, 1), argv + argc);
  try {
    impl->table = DeviceTable::take(impl->args);
    impl->loadRecipe();
    impl->loadStored();
  } catch (const Error &e) {
    impl->mistake = e;
  }
}

Program::~Program() = default;

// ---- the model's options ------------------------------------------------------------------------------------------

/// Describes why a value is invalid; empty if it is valid.
template <class Declared> static std::string problem(const Declared &option, const std::string &text) {
  using Kind = decltype(option.kind);
  const auto integer = [&](const std::string &part) { return problemOfWhole(part, option.least, option.most); };
  const Kind kind = option.kind;
  if (!option.choices.empty())
    return std::find(option.choices.begin(), option.choices.end(), text) != option.choices.end()
               ? ""
               : fmt::format("must be one of {}{}", fmt::join(option.choices, ", "), suggestion(text, option.choices));
  if (kind == Kind::Integer)
    return integer(text);
  if (kind == Kind::Integers)
    for (size_t at = 0; at <= text.size();) {
      const size_t comma = std::min(text.find(',', at), text.size());
      if (!integer(text.substr(at, comma - at)).empty())
        return fmt::format("must be numbers separated by commas, each {}", wholeNumber(option.least, option.most));
      at = comma + 1;
    }
  if (kind == Kind::Number && !parseNumber<double>(text))
    return "must be a number";
  if (kind == Kind::Boolean && text != "true" && text != "false" && text != "1" && text != "0")
    return "must be true or false";
  return "";
}

/// A stored value as command line text.
static std::string textOf(const nlohmann::json &value) {
  if (value.is_string())
    return value.get<std::string>();
  if (!value.is_array())
    return jsonText(value);
  std::vector<std::string> parts;
  for (const auto &part : value)
    parts.push_back(jsonText(part));
  return fmt::format("{}", fmt::join(parts, ","));
}

std::string Program::declare(Declared option) {
  const std::string key = option.name.substr(std::min(option.name.size(), option.name.find_first_not_of('-')));
  const std::optional<std::string> given = impl->find(option.name);
  option.value = option.otherwise;
  const auto mistake = [&](const std::string &text) {
    if (!impl->mistake)
      impl->mistake = userError(text);
  };
  if (given) {
    if (const std::string wrong = problem(option, *given); !wrong.empty())
      mistake(fmt::format("{} {}: {}", option.name, *given, wrong));
    else
      option.value = *given;
  }
  if (option.command.empty() && impl->stored.contains(key)) {
    std::string kept = textOf(impl->stored[key]);
    if (given && impl->storedYields)
      kept = *given;
    if (given && *given != kept)
      mistake(fmt::format("{} {}: {} has {}", option.name, *given, impl->storedIn, kept));
    if (problem(option, kept).empty())
      option.value = kept;
    else
      mistake(fmt::format("{}: {}: {}", impl->storedIn, option.name, kept));
  }
  impl->declared.push_back(option);
  return option.value;
}

std::string Program::Impl::optionsJson() const {
  nlohmann::ordered_json json = nlohmann::json::object();
  for (const Declared &option : declared) {
    if (!option.command.empty())
      continue;
    const std::string key = option.name.substr(option.name.find_first_not_of('-'));
    if (option.kind == Kind::Word)
      json[key] = option.value;
    else if (option.kind == Kind::Boolean)
      json[key] = option.value == "true" || option.value == "1";
    else
      json[key] = parseJson(option.kind == Kind::Integers ? "[" + option.value + "]" : option.value, option.name);
  }
  return jsonText(json);
}

// ---- commands -----------------------------------------------------------------------------------------------------

static void writeText(const std::string &path, const std::string &text) {
  if (path.empty() || path == "-") {
    std::fwrite(text.data(), 1, text.size(), stdout); // main reports a write error at the end
    return;
  }
  AtomicFile file(path);
  file.write(text.data(), text.size());
  file.commit();
}

static void printPlan(const std::string &path, bool json) {
  const auto plan = PlanFile::load(path);
  if (json) {
    std::puts(toJson(summaryOf(*plan)).c_str());
    return;
  }
  std::puts(fmt::format("{}: plan {} for {}, {} bytes", path, plan->hash().substr(0, 6),
                        counted(plan->plan().ranks() ? plan->plan().ranks()->size() : 0, "rank"), plan->bytes().size())
                .c_str());
}

int Program::Impl::command(const CommandLine &line, const CLI::App &app, Trainer &trainer, const Data &data) {
  const std::string command = app.get_subcommands().at(0)->get_name();
  for (const Own &own : commands)
    if (command == own.name)
      runOwn(own, line.run, trainer);
  if (command == "train")
    trainer.train(line.run);
  else if (command == "eval")
    trainer.evaluate(line.run);
  else if (command == "predict")
    trainer.predict(line.run, line.output);
  else if (command == "data" && launchedRank() == 0) {
    SampleRequest request = line.sample;
    request.output = line.output;
    showSample(data, line.run, request);
  } else if (command == "graph")
    writeText(line.output, trainer.graph(line.run));
  else if (command == "plan") {
    if (launchedRank() != 0) // only one process writes
      return 0;
    if (table && !line.output.empty())
      throw userError(fmt::format("-o {}: a table of several plans is printed, not written", line.output));
    if (table) {
      table->print(trainer, line.run);
      return 0;
    }
    if (line.output.empty())
      throw userError("--output is required (plan --help lists the options)");
    writePlan(line.output, trainer.plan(line.run));
    printPlan(line.output, line.run.json);
  } else if (command == "check") {
    const CheckResult result = trainer.check(line.run);
    if (!result.difference.empty())
      throw environmentError("check: " + result.difference);
    std::puts(fmt::format("plan and graph agree: {} tensors compared, largest relative difference {:.1e}",
                          result.tensors, result.largest)
                  .c_str());
  }
  return 0;
}

Command Program::command(const std::string &name, const std::string &about) {
  impl->commands.push_back({name, about, {}});
  return {this, name};
}

void Command::does(std::function<void(Predictor &)> body, int64_t batch) {
  for (auto &own : program->impl->commands)
    if (own.name == name) {
      own.body = std::move(body);
      own.batch = batch;
    }
}

/// Adds the model's options to every command, and each command's own options. CLI11 stores their values into `ignored`,
/// because `declare` has read them already.
void Program::Impl::addModelOptions(CLI::App &app, std::vector<std::string> &ignored) const {
  for (CLI::App *command : app.get_subcommands({}))
    for (size_t i = 0; i < declared.size(); ++i) {
      const Declared &option = declared[i];
      if (!option.command.empty() && option.command != command->get_name())
        continue;
      command->add_option(option.name, ignored[i], fmt::format("{} (default: {})", option.help, option.otherwise))
          ->group(option.command.empty() ? "Model" : "Options")
          ->type_name(option.choices.empty() ? "VALUE" : fmt::format("{}", fmt::join(option.choices, "|")));
    }
}

void Program::Impl::runOwn(const Own &own, RunOptions options, Trainer &trainer) const {
  if (!own.body)
    throw Error(Status::Internal, fmt::format("the program does not define what its command {} does", own.name));
  if (!options.batch)
    options.batch = own.batch;
  Predictor predictor = trainer.predictor(options);
  const auto body = [&] {
    try {
      own.body(predictor);
    } catch (const std::invalid_argument &mistake) {
      throw userError(mistake.what());
    }
  };
  callUser([&] { return "command " + own.name; }, body);
}

int Program::run(TrainConfig config, const std::function<Made()> &make) {
  const auto work = [&]() -> int {
    CLI::App app{fmt::format("{}: a model compiled by Cleave and trained on many devices", impl->name), impl->name};
    CommandLine line;
    addCommands(app, line);
    for (const Impl::Own &own : impl->commands)
      addOptions(*app.add_subcommand(own.name, own.about), programOptions(), commands::own, line.run);
    for (CLI::App *command : app.get_subcommands({}))
      refuseEmptyTexts(*command); // the model's options, which are added now, may be empty
    std::vector<std::string> ignored(impl->declared.size());
    impl->addModelOptions(app, ignored);
    if (!parseCommandLine(app, impl->args))
      return 0;
    launched(); // refuses processes that do not know of each other, whatever the command
    if (impl->mistake)
      throw *impl->mistake;
    for (const Impl::RecipeValue &each : impl->recipe)
      if (!each.known && std::ranges::none_of(impl->declared, [&](const Declared &o) { return o.name == each.name; }))
        throw userError(fmt::format("{}: {} has no option {}", each.place, impl->name, each.name));
    for (const auto &[key, value] : impl->stored.items())
      if (std::none_of(impl->declared.begin(), impl->declared.end(),
                       [&](const Declared &o) { return o.command.empty() && o.name == "--" + key; }))
        throw userError(fmt::format("{}: the model has no option --{}", impl->storedIn, key));
    if (!line.output.empty())
      checkFiles(config.data, line.run, {line.output});
    auto [module, model] = callUser([] { return "model"; }, make);
    model.name = impl->name;
    model.options = impl->optionsJson();
    Trainer trainer(std::move(model), config);
    return impl->command(line, app, trainer, config.data);
  };
  return guardedMain([&]() -> int {
    try {
      return work();
    } catch (const ModelError &e) { // every process finds the mistake before any communication; only rank 0 reports it
      if (launchedRank() == 0)
        std::fputs(fmt::format("{}\n", e.what()).c_str(), stderr);
      return static_cast<int>(e.status);
    }
  });
}

} // namespace cleave
