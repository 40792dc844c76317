// A program's command line: declares the model's options, then runs commands.
#include "cleave/Program.h"
#include "frontend/program/DeviceTable.h"
#include "frontend/program/Files.h"
#include "frontend/program/Options.h"
#include "frontend/program/OwnOptions.h"
#include "frontend/program/ShowSample.h"
#include "frontend/trace/Diagnose.h"
#include "partitioner/toml/Toml.h"
#include "runtime/base/AtomicFile.h"
#include "runtime/base/Counted.h"
#include "runtime/base/InputFile.h"
#include "runtime/base/JsonText.h"
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
#include <cctype>
#include <cstdio>
#include <fmt/format.h>
#include <map>
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

/// The options of a command, without those of the program; nullopt if they are wrong.
std::optional<RunOptions> optionsOf(const std::string &command, const std::vector<GivenOption> &line) {
  CLI::App app;
  RunOptions run;
  addOptions(app, programOptions(), commandNamed(command), run);
  std::vector<GivenOption> known;
  std::ranges::copy_if(line, std::back_inserter(known),
                       [&](const GivenOption &each) { return app.get_option_no_throw(each.name) != nullptr; });
  std::vector<std::string> words = wordsOf(known);
  try {
    app.parse(std::vector<std::string>(words.rbegin(), words.rend()));
  } catch (const CLI::ParseError &) {
    return std::nullopt;
  } catch (const Error &) {
    return std::nullopt;
  }
  return run;
}

/// The names of the options that Cleave gives to every command (`own`: to the commands that a program adds).
std::set<std::string> builtInNames(bool own) {
  CLI::App app;
  CommandLine line;
  std::set<std::string> names{"--version"};
  if (own)
    addOptions(app, programOptions(), commands::own, line.run);
  else
    addCommands(app, line);
  std::vector<const CLI::App *> all{&app};
  for (const CLI::App *command : app.get_subcommands({}))
    all.push_back(command);
  for (const CLI::App *command : all)
    for (std::string &name : optionNames(*command))
      names.insert(std::move(name));
  return names;
}

/// Cuts the words after the command.
std::vector<GivenOption> lineOf(const std::string &command, const std::vector<std::string> &words) {
  std::set<std::string> flags{"--help", "-h", "--version"};
  for (const Option &option : programOptions())
    for (const Option::Use &use : option.uses)
      if ((use.commands & commandNamed(command)) && std::holds_alternative<bool RunOptions::*>(option.field))
        flags.insert(option.name);
  return givenOptions(words, [&](const std::string &name) {
    return flags.contains(name) ? TakesValue::No : name == "-o" ? TakesValue::Yes : TakesValue::Unknown;
  });
}

} // namespace

struct Program::Impl {
  std::string name;
  std::vector<std::string> args;    ///< without the program's name
  std::string command;              ///< empty: the command line does not begin with one
  OwnOptions own;                   ///< the options that the program declares
  std::optional<DeviceTable> table; ///< of plans, instead of one plan
  struct Own {
    std::string name, about;
    std::function<void(Predictor &)> body;
    Where where;
    int64_t batch = 1;
  };
  std::vector<Own> commands; ///< added by the program

  void loadRecipe();
  void loadStored();
  void runOwn(const Own &own, RunOptions options, Trainer &trainer) const;
  int runCommand(const CommandLine &line, Trainer &trainer, const Data &data);
};

/// A value of a recipe as the command line would give it.
static std::string textOfNode(const toml::node &node, const std::string &where, bool inList = false) {
  if (const auto word = node.value_exact<std::string>())
    return *word;
  if (const auto whole = node.value_exact<int64_t>())
    return fmt::format("{}", *whole);
  if (const auto truth = node.value_exact<bool>())
    return *truth ? "true" : "false";
  if (const auto number = node.value_exact<double>())
    return fmt::format("{}", *number);
  if (!node.is_array() || inList)
    throw userError(where + ": must be a text, a number, true or false, or a list of numbers");
  std::string list;
  for (const toml::node &one : *node.as_array())
    list += (&one == node.as_array()->get(0) ? "" : ",") + textOfNode(one, where, true);
  return list;
}

/// The values of the command's options, without those that the command line gives, are appended to it.
void Program::Impl::loadRecipe() {
  const std::optional<RunOptions> given = optionsOf(command, own.line);
  if (!given || given->recipe.empty())
    return;
  std::map<std::string, bool> ofCommand; // of every option; the command's are true
  std::set<std::string> flags;
  for (const Option &option : programOptions())
    for (const Option::Use &use : option.uses) {
      ofCommand[option.name] |= (use.commands & commandNamed(command)) != 0;
      if (std::holds_alternative<bool RunOptions::*>(option.field))
        flags.insert(option.name);
    }
  const std::string text = readTextFile(given->recipe, Status::User, 1 << 20);
  const toml::table table = partitioner::parseToml(text, given->recipe);
  for (const auto &[key, node] : partitioner::inFileOrder(table)) {
    const std::string option = "--" + key, place = partitioner::at(given->recipe, *node), where = place + ": " + key;
    if (option == "--recipe" || option == "--plan" || option == "--checkpoint" || option == "--like")
      throw userError(where + ": belongs on the command line");
    const std::string value = textOfNode(*node, where);
    const auto known = ofCommand.find(option);
    if (known == ofCommand.end() || !known->second) {
      own.recipe.push_back({option, value, place, known != ofCommand.end()});
      continue;
    }
    if (std::ranges::any_of(own.line, [&](const GivenOption &each) { return each.name == option; }))
      continue;
    if (!flags.contains(option))
      own.line.push_back({option, value});
    else if (!node->is_boolean())
      throw userError(where + ": must be true or false");
    else if (value == "true")
      own.line.push_back({option});
  }
}

/// Reads the model's options of the plan or checkpoint that the command reads. Skips what `run` will report.
void Program::Impl::loadStored() {
  const std::optional<RunOptions> given = optionsOf(command, own.line);
  if (!given)
    return;
  const RunOptions &run = *given;
  std::string options;
  if (const std::string &path = run.plan.empty() ? run.like : run.plan; !path.empty()) {
    const auto file = PlanFile::load(path);
    if (!file->plan().model() || file->plan().model()->str() != name)
      return; // the plan is of another model
    own.storedIn = "the plan " + path, own.storedYields = run.plan.empty();
    options = file->plan().options() ? file->plan().options()->str() : "{}";
  } else if (!run.checkpoint.empty() &&
             (command != "train" || run.resume || (run.resumeIfAny && hasCheckpoint(run.checkpoint)))) {
    const CheckpointInfo info = readCheckpointInfo(run.checkpoint, run.atStep);
    if (info.model != name)
      return;
    options = info.options;
    own.storedIn = "the checkpoint " + run.checkpoint;
  } else
    return;
  nlohmann::json stored = parseJson(options, own.storedIn + ": the model's options");
  if (!stored.is_object())
    throw environmentError(
        fmt::format("{}: the model's options must be a JSON object, found {}", own.storedIn, options));
  own.stored = std::move(stored);
}

Program::Program(std::string name, int argc, char **argv) : impl(new Impl) {
  prepareProcess();
  impl->name = std::move(name);
  impl->args.assign(argv + std::min(argc, 1), argv + argc);
  if (impl->args.empty() || impl->args[0].starts_with("-"))
    return;
  impl->command = impl->args[0];
  impl->own.line = lineOf(impl->command, {impl->args.begin() + 1, impl->args.end()});
  impl->own.keepMistake([&] {
    if (impl->command == "plan")
      impl->table = DeviceTable::take(impl->own.line);
    impl->loadRecipe();
    impl->loadStored();
  });
}

Program::~Program() = default;

double internal::asWritten(float value) { return parseNumber<double>(fmt::format("{}", value)).value_or(value); }

OptionValue Program::declare(OwnOption option, Where where) {
  static const std::set<std::string> everywhere = builtInNames(false), ofOwnCommands = builtInNames(true);
  const bool ofModel = option.command.empty();
  return impl->own.declare(std::move(option), ofModel ? everywhere : ofOwnCommands, where);
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

int Program::Impl::runCommand(const CommandLine &line, Trainer &trainer, const Data &data) {
  for (const Own &each : commands)
    if (command == each.name)
      runOwn(each, line.run, trainer);
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

Command Program::command(const std::string &name, const std::string &about, Where where) {
  impl->own.keepMistake([&] {
    const auto wrong = [&](const char *why) { failAt(fmt::format("command {}: {}", name, why), {}, where); };
    const auto fits = [](unsigned char c) { return std::isalnum(c) || c == '-' || c == '_'; };
    if (name.empty() || name[0] == '-' || !std::ranges::all_of(name, fits))
      wrong("a name is a word of letters, digits, dashes and underscores, such as sample");
    if (commandNamed(name) != commands::own)
      wrong("every program has a command of this name; choose another");
    if (std::ranges::any_of(impl->commands, [&](const Impl::Own &other) { return other.name == name; }))
      wrong("is declared twice");
    impl->commands.push_back({name, about, {}, where});
  });
  return {this, name};
}

void Command::does(std::function<void(Predictor &)> body, int64_t batch) {
  for (auto &own : program->impl->commands)
    if (own.name == name) {
      own.body = std::move(body);
      own.batch = batch;
    }
}

void Program::Impl::runOwn(const Own &own, RunOptions options, Trainer &trainer) const {
  if (!own.body)
    failAt(fmt::format("command {}: the program does not say what it does: Command::does", own.name), {}, own.where);
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
    for (CLI::App *command : app.get_subcommands({}))
      addOptions(*command, impl->own.rowsOf(command->get_name(), commands::own), commands::own, line.run);
    std::vector<std::string> words = impl->args;
    if (!impl->command.empty()) {
      words = wordsOf(impl->own.line);
      words.insert(words.begin(), impl->command);
    }
    if (!parseCommandLine(app, words))
      return 0;
    launched(); // refuses processes that do not know of each other, whatever the command
    impl->own.check(impl->name);
    if (!line.output.empty())
      checkFiles(config.data, line.run, {line.output});
    auto [module, model] = callUser([] { return "model"; }, make);
    model.name = impl->name;
    model.options = impl->own.json();
    Trainer trainer(std::move(model), config);
    return impl->runCommand(line, trainer, config.data);
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
