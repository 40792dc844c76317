// Command lines: options and their values, and mistakes in them.
#include "runtime/base/Error.h"
#include "runtime/options/CommandLine.h"

#include <catch2/catch.hpp>

using namespace cleave;

namespace {

/// A command line with "-o FILE", "--lr X", "--mesh AXES", "--quiet" and "--what-if" that may be repeated.
struct Line {
  CLI::App app{"about", "p"};
  std::string output, lr, mesh;
  std::vector<std::string> changes;
  bool quiet = false;

  Line() {
    app.add_option("-o,--output", output)->type_name("FILE");
    app.add_option("--lr", lr)->type_name("X");
    app.add_option("--mesh", mesh)->type_name("AXES");
    app.add_option("--what-if", changes)->expected(1)->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
    app.add_flag("--quiet", quiet);
  }
  /// The message of the mistake; empty: there is none.
  std::string wrong(const std::vector<std::string> &words) {
    try {
      parseCommandLine(app, words);
    } catch (const Error &error) {
      CHECK(error.status == Status::User);
      return error.what();
    }
    return "";
  }
};

std::string wrong(const std::vector<std::string> &words) { return Line().wrong(words); }

} // namespace

TEST_CASE("words become options with values, and words again") {
  const auto takes = [](const std::string &name) {
    return name == "-o" ? TakesValue::Yes : name == "--quiet" ? TakesValue::No : TakesValue::Unknown;
  };
  const std::vector<std::string> words{"--lr", "-1",     "--mesh=dp=2", "--quiet", "word", "-o",
                                       "-",    "-ofile", "-lr",         "--name",  "",     "--at",
                                       "-.5",  "--tag=", "--packed",    "--",      "--lr", "1"};
  const auto given = givenOptions(words, takes);
  std::string text;
  for (const GivenOption &each : given)
    text += each.name + "[" + each.value.value_or("none") + "] ";
  CHECK(text == "--lr[-1] --mesh[dp=2] --quiet[none] [word] -o[-] -o[file] -lr[none] --name[] --at[-.5] --tag[] "
                "--packed[none] [--] [--lr] [1] ");
  CHECK(wordsOf(given) == std::vector<std::string>{"--lr=-1", "--mesh=dp=2", "--quiet", "word", "-o-", "-ofile", "-lr",
                                                   "--name", "", "--at=-.5", "--tag", "", "--packed", "--", "--lr",
                                                   "1"});
}

TEST_CASE("mistakes in a command line name the option and its values") {
  CHECK(wrong({"--lr", "-1", "--mesh=dp=2", "-o", "-", "--quiet"}).empty());
  CHECK(wrong({"--lr", "1", "--msh=3"}) ==
        "--msh is not an option of p; did you mean --mesh? (p --help lists the options)");
  CHECK(wrong({"--lr"}) == "--lr needs a value, X (p --help lists the options)");
  CHECK(wrong({"--lr", "--quiet"}) == "--lr needs a value, X (p --help lists the options)");
  CHECK(wrong({"--lr", "1", "--quiet", "--lr=2"}) == "--lr is given twice, 1 and 2");
  CHECK(wrong({"-o", "a", "--output", "b"}) == "--output is given twice, a and b");
  CHECK(wrong({"--what-if", "a", "--what-if", "b", "--quiet", "--quiet"}).empty());
}

TEST_CASE("help is printed wherever it is asked for") {
  Line line;
  CHECK(!parseCommandLine(line.app, {"--lr", "--help"}));
  CHECK(!parseCommandLine(line.app, {"--lr", "1", "--lr", "2", "--frob", "-h"}));
}
