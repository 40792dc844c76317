// A program's command line: options of the model, commands, exit statuses.
#include "tests/unit/frontend/Support.h"

#include <cstdio>
#include <fstream>
#include <unistd.h>

using namespace cleave;
using namespace cleave::test;

namespace {

struct Mlp : Module {
  ModuleList<Linear> layers{*this, "layers"};
  explicit Mlp(const std::vector<int64_t> &hidden) {
    int64_t in = 784;
    for (int64_t width : hidden)
      layers.emplace(std::exchange(in, width), width);
    layers.emplace(in, 10);
  }
  Tensor forward(Tensor image) { return layers(flatten(image, 1)); }
};

/// Runs the program with these arguments; returns its status.
int run(std::vector<std::string> args) {
  args.insert(args.begin(), "mlp");
  std::vector<char *> argv;
  for (std::string &arg : args)
    argv.push_back(arg.data());
  Program program{"mlp", static_cast<int>(argv.size()), argv.data()};
  auto hidden = program.option("--hidden", std::vector<int64_t>{32}, "widths");
  auto shape = program.option("--shape", "plain", "shape", {"plain", "odd"});
  return program.run<Mlp>({.data = Mnist{}}, shape == "odd" ? std::vector<int64_t>{17} : hidden);
}

std::string graphOf(std::vector<std::string> args) {
  const std::string path = "/tmp/cleave-frontend-test-" + std::to_string(getpid()) + ".mlir";
  args.insert(args.begin(), {"graph", "-o", path});
  REQUIRE(run(args) == 0);
  std::ifstream in(path);
  std::string text((std::istreambuf_iterator<char>(in)), {});
  std::remove(path.c_str());
  return text;
}

} // namespace

TEST_CASE("options of the model reach the model") {
  CHECK(has(graphOf({}), "tensor<32x784xf32>"));
  CHECK(has(graphOf({"--hidden", "24,12"}), "tensor<12x24xf32>"));
  CHECK(has(graphOf({"--hidden=40"}), "tensor<40x784xf32>"));
  CHECK(has(graphOf({"--shape", "odd"}), "tensor<17x784xf32>"));
}

TEST_CASE("whole numbers of options may be anything, unless a range is said") {
  const auto read = [](std::vector<std::string> args, auto declare) {
    const std::string file = "/tmp/cleave-options-test-" + std::to_string(getpid()) + ".mlir";
    args.insert(args.begin(), {"p", "graph", "-o", file});
    std::vector<char *> argv;
    for (std::string &arg : args)
      argv.push_back(arg.data());
    Program program{"p", static_cast<int>(argv.size()), argv.data()};
    const auto value = declare(program);
    const int status = program.run<Mlp>({.data = Mnist{}}, std::vector<int64_t>{4});
    std::remove(file.c_str());
    return std::pair(value, status);
  };
  const auto free = [](Program &program) { return program.option("--shift", 3, "a number"); };
  CHECK(read({"--shift", "-7"}, free) == std::pair(-7, 0));
  CHECK(read({"--shift=0"}, free) == std::pair(0, 0));
  CHECK(read({"--shift", "3000000000"}, free) == std::pair(3, 2)); // too large for an int
  CHECK(read({"--shift", "2.5"}, free) == std::pair(3, 2));
  const auto some = [](Program &program) { return program.option("--heads", int64_t(4), "heads", between(1, 8)); };
  CHECK(read({"--heads", "8"}, some) == std::pair(int64_t(8), 0));
  CHECK(read({"--heads", "0"}, some) == std::pair(int64_t(4), 2));
  CHECK(read({"--heads", "9"}, some) == std::pair(int64_t(4), 2));
  const auto list = [](Program &program) {
    return program.option("--at", std::vector<int64_t>{1}, "places", atLeast(-1));
  };
  CHECK(read({"--at", "-1,0,5"}, list) == std::pair(std::vector<int64_t>{-1, 0, 5}, 0));
  CHECK(read({"--at", "-2"}, list).second == 2);
}

TEST_CASE("names that Cleave has are mistakes of the program, with every command") {
  const auto status = [](std::vector<std::string> args, auto declare) {
    args.insert(args.begin(), "p");
    std::vector<char *> argv;
    for (std::string &arg : args)
      argv.push_back(arg.data());
    Program program{"p", static_cast<int>(argv.size()), argv.data()};
    declare(program);
    return program.run<Mlp>({.data = Mnist{}}, std::vector<int64_t>{4});
  };
  const std::string file = "/tmp/cleave-names-test-" + std::to_string(getpid()) + ".mlir";
  const std::vector<std::string> graph{"graph", "-o", file};
  for (const char *name : {"--batch", "--split", "--output", "--help", "--version", "width", "-w", "--recipe"})
    CHECK(status(graph, [&](Program &p) { p.option(name, 3, "a number"); }) == 2);
  for (const char *name : {"train", "data", "", "--sample", "a b"})
    CHECK(status(graph, [&](Program &p) { p.command(name, "about"); }) == 2);
  CHECK(status(graph, [](Program &p) { p.command("sample", "").option("--mesh", "", "text"); }) == 2);
  CHECK(status({"sample", "--checkpoint", "/none"}, [](Program &p) { p.command("sample", ""); }) == 2); // does nothing
  CHECK(status(graph, [](Program &p) {
          p.command("a", "").option("--epochs", 3, "only of other commands"); // and twice, in two commands
          p.command("b", "").option("--epochs", 3, "a number");
          p.option("--ratio", 0.5f, "a number");
        }) == 0);
  std::remove(file.c_str());
}

TEST_CASE("a microbatch is traced") {
  CHECK(has(graphOf({"--batch", "48", "--microbatches", "4"}), "tensor<12x1x28x28xf32>"));
}

TEST_CASE("mistakes on the command line end with status 2") {
  CHECK(run({}) == 2);
  CHECK(run({"frobnicate"}) == 2);
  CHECK(run({"graph", "--frobnicate"}) == 2);
  CHECK(run({"graph", "--hidden", "4,x"}) == 2);
  CHECK(run({"graph", "--hidden", "0"}) == 2);
  CHECK(run({"graph", "--shape", "round"}) == 2);
  CHECK(run({"graph", "--batch", "many"}) == 2);
  CHECK(run({"graph", "--batch", "99999999999999999999"}) == 2);
  CHECK(run({"graph", "--seed", "-1"}) == 2);
  for (const char *command : {"", "a b", "a=b", "!graph", "graphs"})
    CHECK(run({command}) == 2);
  CHECK(run({"graph", "-o", "/no/such/folder/file.mlir"}) == 2);
  CHECK(run({"train", "--plan", "/no/such.plan", "--data", "synthetic"}) == 2);
  CHECK(run({"eval", "--checkpoint", "/no/such/ck", "--data", "synthetic"}) == 2);
  CHECK(run({"train", "--data", "/no/such/place"}) == 2);
  CHECK(run({"train", "--data", "synthetic", "--steps", "1", "--epochs", "1"}) == 2);
}

TEST_CASE("help and version are no mistakes") {
  CHECK(run({"--help"}) == 0);
  CHECK(run({"train", "--help"}) == 0);
  CHECK(run({"--version"}) == 0);
}
