// Starts the program that made a plan.
#include "tools/cleave/RunProgram.h"

#include "runtime/base/AtomicFile.h"
#include "runtime/base/Error.h"
#include "runtime/base/InputFile.h"
#include "runtime/base/JsonText.h"
#include "runtime/plan/Text.h"
#include "runtime/plan/plan_generated.h"
#include "tools/cleave/Commands.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

namespace cleave::tool {

namespace fs = std::filesystem;

static bool isProgram(const fs::path &path) {
  std::error_code error;
  return fs::is_regular_file(path, error) && ::access(path.c_str(), X_OK) == 0;
}

static std::string findProgram(const std::string &file, const std::string &model) {
  if (model.empty() || model.find('/') != std::string::npos)
    throw userError(fmt::format("{}: does not say which program made it; name it with --program PATH", file));
  std::error_code error;
  std::vector<fs::path> folders{fs::read_symlink("/proc/self/exe", error).parent_path()};
  const char *variable = std::getenv("PATH");
  for (std::string rest = variable ? variable : ""; !rest.empty();) {
    const size_t colon = std::min(rest.find(':'), rest.size());
    folders.emplace_back(rest.substr(0, colon));
    rest.erase(0, colon + 1);
  }
  for (const fs::path &folder : folders)
    if (isProgram(folder / model))
      return folder / model;
  throw userError(
      fmt::format("{}: planning anew needs the program '{}', which is neither beside cleave nor on PATH; name "
                  "it with --program PATH",
                  file, model));
}

Replanner::Replanner(std::string planFile, const PlanFile &plan, const std::string &given)
    : planFile(std::move(planFile)) {
  ranks = plan.plan().ranks() ? plan.plan().ranks()->size() : 1;
  program = given.empty() ? findProgram(this->planFile, text(plan.plan().model())) : given;
  if (!isProgram(program))
    throw userError(fmt::format("--program {}: is not a program", program));
  std::string pattern = (fs::temp_directory_path() / "cleave-XXXXXX").string();
  if (!::mkdtemp(pattern.data()))
    throw environmentError(fmt::format("{}: no folder for temporary files: {}", pattern, std::strerror(errno)));
  folder = pattern;
}

Replanner::~Replanner() {
  std::error_code error;
  fs::remove_all(folder, error);
}

std::string Replanner::file(const std::string &name, const std::string &content) const {
  const std::string path = folder / name;
  AtomicFile out(path);
  out.write(content.data(), content.size());
  out.commit();
  return path;
}

std::shared_ptr<const PlanFile> Replanner::plan(const std::vector<std::string> &options) const {
  std::vector<std::string> all{"--no-code"};
  all.insert(all.end(), options.begin(), options.end());
  return made(std::move(all));
}

std::shared_ptr<const PlanFile> Replanner::withAlternatives() const { return made({"--alternatives"}); }

std::shared_ptr<const PlanFile> Replanner::made(std::vector<std::string> options) const {
  const std::string file = folder / "made.plan";
  options.insert(options.end(), {"-o", file});
  run(options);
  return loadSound(file);
}

std::vector<double> Replanner::bestSteps(const std::vector<std::string> &clusterFiles) const {
  const std::string files = fmt::format("{}", fmt::join(clusterFiles, ","));
  const auto table = parseJson(run({"--devices", std::to_string(ranks), "--cluster", files, "--json"}), program);
  std::vector<double> steps;
  for (const auto &row : table["rows"])
    steps.push_back(row.contains("step_ms") ? row["step_ms"].get<double>() / 1e3 : 0);
  return steps;
}

std::string Replanner::run(const std::vector<std::string> &options) const {
  const std::string said = folder / "said", printed = folder / "printed";
  std::vector<std::string> words{program, "plan", "--like", planFile};
  words.insert(words.end(), options.begin(), options.end());
  std::vector<char *> arguments;
  for (std::string &word : words)
    arguments.push_back(word.data());
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, printed.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, said.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  pid_t child = 0;
  const int failed = ::posix_spawn(&child, program.c_str(), &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (failed)
    throw environmentError(fmt::format("{}: cannot be started: {}", program, std::strerror(failed)));
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    std::string message = readTextFile(said, Status::Environment, 1 << 20);
    message.erase(message.find_last_not_of('\n') + 1);
    if (message.starts_with("error: "))
      message.erase(0, 7);
    const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 1;
    throw Error(code == 2   ? Status::User
                : code == 3 ? Status::Environment
                            : Status::Internal,
                message.empty() ? fmt::format("{} ended with status {}", program, code) : message);
  }
  return readTextFile(printed, Status::Environment, 1 << 24);
}

} // namespace cleave::tool
