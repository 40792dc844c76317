// Declares options for CLI11, and turns its exceptions into errors.
#include "runtime/options/CommandLine.h"
#include "runtime/base/Error.h"
#include "runtime/base/Nearest.h"

#include <algorithm>
#include <cstdio>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <map>

namespace cleave {

static CLI::Option *addOption(CLI::App &app, const Option &option, const std::string &help, RunOptions &run) {
  const auto add = [&](auto field) {
    if constexpr (std::is_same_v<decltype(field), const OwnOption *>) // its value is read where it is declared
      return app.add_option(option.name, [](const CLI::results_t &) { return true; }, help)->type_name(option.type);
    else if constexpr (std::is_same_v<decltype(field), bool RunOptions::*>)
      return app.add_flag((run.*field ? "!" : "") + std::string(option.name), run.*field, help);
    else // CLI11 clamps large integers, wraps negative ones, and reads 1e-400 as 0
      return app.add_option(option.name, run.*field, help)->type_name(option.type)->check([&](const std::string &text) {
        if (const std::string problem = problemOf(option, text); !problem.empty())
          throw userError(fmt::format("{} {}: {}", option.name, text, problem));
        return std::string();
      });
  };
  return std::visit(add, option.field);
}

void addOptions(CLI::App &app, const std::vector<Option> &options, unsigned command, RunOptions &run) {
  for (const Option &option : options)
    for (const Option::Use &use : option.uses)
      if (use.commands & command) {
        CLI::Option *added = addOption(app, option, use.help, run)->required(use.required)->group(option.group);
        for (const char *other : option.excludes)
          if (CLI::Option *found = app.get_option_no_throw(other))
            added->excludes(found);
      }
}

std::function<std::string(const std::string &)> wholeNumberCheck(int64_t least, int64_t most) {
  return [=](const std::string &text) {
    const std::string problem = problemOfWhole(text, least, most);
    return problem.empty() ? problem : problem + ", found " + text;
  };
}

std::vector<std::string> optionNames(const CLI::App &command) {
  std::vector<std::string> names;
  for (const CLI::Option *option : command.get_options()) {
    for (const std::string &name : option->get_lnames())
      names.push_back("--" + name);
    for (const std::string &name : option->get_snames())
      names.push_back("-" + name);
  }
  return names;
}

/// Throws userError for an option that the command has not, that has no value, or that is given twice.
static void checkGiven(const CLI::App &command, const std::vector<GivenOption> &given, const std::string &who) {
  std::map<const CLI::Option *, const GivenOption *> first;
  for (const GivenOption &each : given) {
    if (each.name.empty())
      continue;
    const CLI::Option *option = command.get_option_no_throw(each.name);
    if (!option)
      throw userError(fmt::format("{} is not an option of {}{} ({} --help lists the options)", each.name, who,
                                  suggestion(each.name, optionNames(command)), who));
    if (option->get_expected_min() == 0) // a flag
      continue;
    if (!each.value)
      throw userError(
          fmt::format("{} needs a value, {} ({} --help lists the options)", each.name, option->get_type_name(), who));
    const auto [before, isFirst] = first.emplace(option, &each);
    if (!isFirst && option->get_multi_option_policy() == CLI::MultiOptionPolicy::Throw &&
        option->get_expected_max() == 1)
      throw userError(fmt::format("{} is given twice, {} and {}", each.name, *before->second->value, *each.value));
  }
}

void refuseEmptyTexts(CLI::App &command) {
  for (CLI::Option *option : command.get_options())
    if (option->get_expected_min() > 0) // not a flag
      option->check([](const std::string &text) { return text.empty() ? "must not be empty" : std::string(); });
}

bool parseCommandLine(CLI::App &app, std::vector<std::string> args) {
  app.set_version_flag("--version", std::string("cleave ") + CLEAVE_VERSION);
  std::vector<std::string> commands;
  for (const CLI::App *command : app.get_subcommands({}))
    commands.push_back(command->get_name());
  CLI::App *chosen = &app;
  if (!commands.empty() && !args.empty() && !args[0].starts_with("-")) {
    if (std::find(commands.begin(), commands.end(), args[0]) == commands.end())
      throw userError(fmt::format("{} is not a command of {}; the commands are {}{}", args[0], app.get_name(),
                                  fmt::join(commands, ", "), suggestion(args[0], commands)));
    chosen = app.get_subcommand(args[0]);
  }
  const std::string who = chosen == &app ? app.get_name() : app.get_name() + " " + chosen->get_name();
  if (chosen != &app || commands.empty()) {
    const std::vector<GivenOption> given = givenOptions(args, [&](const std::string &name) {
      const CLI::Option *option = chosen->get_option_no_throw(name);
      return !option ? TakesValue::Unknown : option->get_expected_min() == 0 ? TakesValue::No : TakesValue::Yes;
    });
    if (std::ranges::any_of(given, [](const GivenOption &one) { return one.name == "--help" || one.name == "-h"; })) {
      std::fputs(chosen->help().c_str(), stdout);
      return false;
    }
    checkGiven(*chosen, given, who);
  }
  if (commands.empty())
    refuseEmptyTexts(app);
  std::reverse(args.begin(), args.end()); // CLI11 expects them reversed
  try {
    app.parse(args);
    return true;
  } catch (const CLI::CallForHelp &) {
    std::fputs(chosen->help().c_str(), stdout);
  } catch (const CLI::CallForVersion &e) {
    std::puts(e.what());
  } catch (const CLI::ParseError &e) {
    throw userError(fmt::format("{} ({} --help lists the {})", e.what(), who,
                                chosen == &app && !commands.empty() ? "commands" : "options"));
  }
  return false;
}

} // namespace cleave
