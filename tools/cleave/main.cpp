// cleave: inspects plan files, and creates new programs. Each command has its own file; none needs the compiler.
#include "runtime/base/Error.h"
#include "runtime/base/Nearest.h"
#include "runtime/session/GuardedMain.h"
#include "tools/cleave/Commands.h"

#include <cstdio>
#include <cstring>
#include <fmt/format.h>

using namespace cleave;

namespace {
struct Command {
  const char *name, *about;
  int (*run)(int argc, char **argv);
};

const Command commands[] = {
    {"show", "print a plan as a page: mesh, stages, sharding, communication, memory, schedule", tool::show},
    {"verify", "check a plan: structure, memory, messages, collectives", tool::verify},
    {"simulate", "predict what a plan, or a pipeline schedule alone, costs: time, idle time, memory", tool::simulate},
    {"report", "write a page for a browser about a plan's predicted iteration", tool::report},
    {"calibrate", "fit a cluster's constants to traces of runs, for better predictions", tool::calibrate},
    {"solve", "find the best choices of a sharding-choice problem", tool::solve},
    {"explain", "say where a plan's time and memory go, what the other plans were, and what would change it",
     tool::explain},
    {"diff", "show the differences between two plans", tool::diff},
    {"data", "count and check the pictures of a data set", tool::data},
    {"new", "create a folder with a model that builds and trains", tool::create},
    {"doctor", "check what works on this machine, and how to fix the rest", tool::doctor},
};

std::string commandNames() {
  std::string out;
  for (const Command &command : commands)
    out += (out.empty() ? "" : ", ") + std::string(command.name);
  return out;
}

void help() {
  fmt::print("cleave COMMAND ...\n\n");
  for (const Command &command : commands)
    fmt::print("  {:<9} {}\n", command.name, command.about);
  fmt::print("\ncleave COMMAND --help lists a command's options; cleave --version prints the version.\n");
}

int run(int argc, char **argv) {
  const std::string word = argc > 1 ? argv[1] : "";
  if (word == "--help" || word == "-h" || word == "help") {
    help();
    return 0;
  }
  if (word == "--version") {
    fmt::print("cleave {}\n", CLEAVE_VERSION);
    return 0;
  }
  if (word.empty())
    throw userError(fmt::format("a command is missing: {}", commandNames()));
  for (const Command &command : commands)
    if (word == command.name)
      return command.run(argc - 1, argv + 1);
  std::vector<std::string> names;
  for (const Command &command : commands)
    names.push_back(command.name);
  throw userError(
      fmt::format("unknown command {}: the commands are {}{}", word, commandNames(), suggestion(word, names)));
}
} // namespace

int main(int argc, char **argv) {
  return guardedMain([&] { return run(argc, argv); });
}
