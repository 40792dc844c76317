// A program's command line: declares the model's options, then runs commands.
#include "cleave/Program.h"
#include "frontend/program/CommandLine.h"
#include "frontend/program/Files.h"
#include "frontend/trace/Diagnose.h"
#include "runtime/base/AtomicFile.h"
#include "runtime/base/JsonText.h"
#include "runtime/base/Nearest.h"
#include "runtime/base/ParseNumber.h"
#include "runtime/base/StandardStreams.h"
#include "runtime/base/UserCode.h"
#include "runtime/checkpoint/Manifest.h"
#include "runtime/plan/PlanFile.h"
#include "runtime/plan/plan_generated.h"
#include "runtime/session/Launch.h"
#include "runtime/session/Progress.h"
#include "runtime/session/Report.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <limits>

namespace cleave {

struct Program::Impl {
  std::string name;
  std::vector<std::string> args; ///< without the program's name
  std::vector<Declared> declared;
  nlohmann::json stored;        ///< options of the checkpoint or plan that the command line names
  std::string storedIn;         ///< the checkpoint or plan that has `stored`, for messages
  std::optional<Error> mistake; ///< the first mistake found before `run`
  struct Own {
    std::string name, about;
    std::function<void(Predictor &)> body;
    int64_t batch = 1;
  };
  std::vector<Own> commands; ///< added by the program

  std::optional<std::string> find(const std::string &option) const;
  bool has(const std::string &flag) const { return std::find(args.begin(), args.end(), flag) != args.end(); }
  void loadStored();
  std::string optionsJson() const;
  void addOptions(CLI::App &app, std::vector<std::string> &ignored) const;
  void runOwn(const Own &own, RunOptions options, Trainer &trainer) const;
  int command(CommandLine &line, const CLI::App &app, Trainer &trainer);
};

/// The last value of an option, given as `--name value` or `--name=value`.
std::optional<std::string> Program::Impl::find(const std::string &option) const {
  std::optional<std::string> value;
  for (size_t i = 0; i < args.size(); ++i) {
    if (args[i] == option && i + 1 < args.size())
      value = args[i + 1];
    else if (args[i].starts_with(option + "="))
      value = args[i].substr(option.size() + 1);
  }
  return value;
}

void Program::Impl::loadStored() {
  std::string options;
  if (args.empty() || has("--help") || has("-h"))
    return;
  if (const auto plan = find("--plan")) {
    const auto file = PlanFile::load(*plan);
    if (!file->plan().model() || file->plan().model()->str() != name)
      return; // the plan is of another model; this is reported later
    storedIn = "the plan " + *plan;
    options = file->plan().options() ? file->plan().options()->str() : "{}";
  } else if (const auto folder = find("--checkpoint");
             folder && (args[0] != "train" || has("--resume") || (has("--resume-if-any") && hasCheckpoint(*folder)))) {
    std::optional<int64_t> step;
    if (const auto text = find("--at-step")) {
      step = parseNumber<int64_t>(*text);
      if (!step)
        return; // the option parser reports the invalid number
    }
    const CheckpointInfo info = readCheckpointInfo(*folder, step);
    if (info.model != name)
      return;
    options = info.options;
    storedIn = "the checkpoint " + *folder;
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
  if (!impl->args.empty() && !impl->args[0].starts_with("-") && impl->args[0] != "plan" && impl->args[0] != "graph")
    shortenThreadWaits(argc, argv);
  try {
    impl->loadStored();
  } catch (const Error &e) {
    impl->mistake = e;
  }
}

Program::~Program() = default;

// ---- the model's options ------------------------------------------------------------------------------------------

/// "a whole number", with its limits if T or the program sets any.
static std::string numberIn(int64_t least, int64_t most) {
  constexpr int64_t lowest = std::numeric_limits<int64_t>::min(), highest = std::numeric_limits<int64_t>::max();
  std::string text = "a whole number";
  if (least != lowest)
    text += fmt::format(" from {}", least);
  if (most != highest)
    text += fmt::format("{} to {}", least != lowest ? "" : " up", most);
  return text;
}

/// Describes why a value is invalid; empty if it is valid.
template <class Declared> static std::string problem(const Declared &option, const std::string &text) {
  using Kind = decltype(option.kind);
  const auto integer = [&](std::string_view part) {
    const std::optional<int64_t> value = parseNumber<int64_t>(part);
    return value && *value >= option.least && *value <= option.most;
  };
  const Kind kind = option.kind;
  if (!option.choices.empty())
    return std::find(option.choices.begin(), option.choices.end(), text) != option.choices.end()
               ? ""
               : fmt::format("must be one of {}{}", fmt::join(option.choices, ", "), suggestion(text, option.choices));
  if (kind == Kind::Integer && !integer(text))
    return "must be " + numberIn(option.least, option.most);
  if (kind == Kind::Integers)
    for (size_t at = 0; at <= text.size();) {
      const size_t comma = std::min(text.find(',', at), text.size());
      if (!integer(std::string_view(text).substr(at, comma - at)))
        return fmt::format("must be numbers separated by commas, each {}", numberIn(option.least, option.most));
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
    const std::string kept = textOf(impl->stored[key]);
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
    std::puts(toJson(reportPlan(*plan)).c_str());
    return;
  }
  std::puts(fmt::format("{}: plan {} for {}, {} bytes", path, plan->hash().substr(0, 6),
                        counted(plan->plan().ranks() ? plan->plan().ranks()->size() : 0, "rank"), plan->bytes().size())
                .c_str());
}

int Program::Impl::command(CommandLine &line, const CLI::App &app, Trainer &trainer) {
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
  else if (command == "graph")
    writeText(line.output, trainer.graph(line.run));
  else if (command == "plan") {
    if (launchedRank() != 0) // only one process writes
      return 0;
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
void Program::Impl::addOptions(CLI::App &app, std::vector<std::string> &ignored) const {
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

static std::vector<std::string> optionNames(const CLI::App &command) {
  std::vector<std::string> names;
  for (const CLI::Option *option : command.get_options()) {
    for (const std::string &name : option->get_lnames())
      names.push_back("--" + name);
    for (const std::string &name : option->get_snames())
      names.push_back("-" + name);
  }
  return names;
}

/// Parses the command line; returns false if help or version was printed.
static bool parse(CLI::App &app, std::vector<std::string> args) {
  std::vector<std::string> commands;
  for (const CLI::App *command : app.get_subcommands({}))
    commands.push_back(command->get_name());
  if (!args.empty() && !args[0].starts_with("-") &&
      std::find(commands.begin(), commands.end(), args[0]) == commands.end())
    throw userError(fmt::format("{} is not a command of {}; the commands are {}{}", args[0], app.get_name(),
                                fmt::join(commands, ", "), suggestion(args[0], commands)));
  if (!args.empty() && !args[0].starts_with("-")) {
    const CLI::App &command = *app.get_subcommand(args[0]);
    checkOptionNames(args, optionNames(command), app.get_name() + " " + args[0]);
  }
  std::reverse(args.begin(), args.end()); // CLI11 expects them reversed
  try {
    app.parse(args);
    return true;
  } catch (const CLI::CallForHelp &) {
    const auto chosen = app.get_subcommands();
    std::fputs(chosen.empty() ? app.help().c_str() : chosen[0]->help().c_str(), stdout);
  } catch (const CLI::CallForVersion &e) {
    std::puts(e.what());
  } catch (const CLI::ParseError &e) {
    throw userError(fmt::format("{} ({} --help lists the commands, {} COMMAND --help their options)", e.what(),
                                app.get_name(), app.get_name()));
  }
  return false;
}

int Program::run(TrainConfig config, const std::function<Made()> &make) {
  const auto work = [&]() -> int {
    CLI::App app{fmt::format("{}: a model compiled by Cleave and trained on many devices", impl->name), impl->name};
    app.set_version_flag("--version", fmt::format("cleave {}", CLEAVE_VERSION));
    CommandLine line;
    addCommands(app, line);
    for (const Impl::Own &own : impl->commands)
      addPrediction(*app.add_subcommand(own.name, own.about), line.run);
    std::vector<std::string> ignored(impl->declared.size());
    impl->addOptions(app, ignored);
    if (!parse(app, impl->args))
      return 0;
    if (impl->mistake)
      throw *impl->mistake;
    for (const auto &[key, value] : impl->stored.items())
      if (std::none_of(impl->declared.begin(), impl->declared.end(),
                       [&](const Declared &o) { return o.command.empty() && o.name == "--" + key; }))
        throw userError(fmt::format("{}: the model has no option --{}", impl->storedIn, key));
    if (!line.output.empty())
      checkFiles(config.data, line.run, {line.output});
    auto [module, model] = callUser([] { return "model"; }, make);
    model.name = impl->name;
    model.options = impl->optionsJson();
    Trainer trainer(std::move(model), std::move(config));
    return impl->command(line, app, trainer);
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
