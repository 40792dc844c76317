// cleave new: creates a folder with a model that builds against an installed Cleave.
#include "runtime/base/AtomicFile.h"
#include "runtime/base/Error.h"
#include "runtime/options/CommandLine.h"
#include "tools/cleave/Commands.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fmt/format.h>

namespace cleave::tool {
namespace fs = std::filesystem;

namespace {

constexpr const char *buildFile =
    R"(# A model of your own. Needs an installed Cleave: where it is not in a standard place, configure with
# -DCMAKE_PREFIX_PATH=FOLDER, the one that Cleave was installed to.
cmake_minimum_required(VERSION 3.16)
project(@NAME@ LANGUAGES CXX)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()
find_package(cleave REQUIRED)
add_executable(@NAME@ @NAME@.cpp)
target_link_libraries(@NAME@ PRIVATE cleave::cleave)
)";

constexpr const char *modelFile = "// A network for images of digits: two convolutions and a classifier.\n"
                                  "#include <cleave/cleave.h>\n"
                                  R"(using namespace cleave;

struct Net : Module {
  int64_t width;
  Conv2d conv1{*this, "conv1", 1, width, {.kernel = 3, .stride = 2, .padding = 1}};
  Conv2d conv2{*this, "conv2", width, 2 * width, {.kernel = 3, .stride = 2, .padding = 1}};
  Linear fc{*this, "fc", 2 * width * 7 * 7, 10};

  explicit Net(int64_t width) : width(width) {}
  Tensor forward(Tensor image) { return fc(flatten(relu(conv2(relu(conv1(image)))), 1)); }
};

int main(int argc, char **argv) {
  Program program{"@NAME@", argc, argv};
  const int64_t width = program.option("--width", 16, "channels after the first convolution");
  return program.run<Net>({.data = Mnist{}, .loss = crossEntropy, .optimizer = Adam{.lr = 0.001}, .batch = 64}, width);
}
)";

std::string filled(std::string text, const std::string &name) {
  const std::string mark = "@NAME@";
  for (size_t at = text.find(mark); at != std::string::npos; at = text.find(mark, at + name.size()))
    text.replace(at, mark.size(), name);
  return text;
}

/// The name becomes a folder, a program, a build target and the name stored in checkpoints.
void checkName(const std::string &name) {
  const auto fits = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '-'; };
  if (name.empty() || !std::isalpha(static_cast<unsigned char>(name[0])) ||
      !std::all_of(name.begin(), name.end(), fits))
    throw userError(fmt::format("new \"{}\": a name begins with a letter and has letters, digits, _ and - only", name));
  if (name.size() > 64)
    throw userError(fmt::format("new {}: a name has at most 64 characters, found {}", name, name.size()));
  for (const char *taken :
       {"all", "clean", "help", "install", "package", "test", "depend", "edit_cache", "rebuild_cache"})
    if (name == taken)
      throw userError(fmt::format("new {}: CMake reserves this name for its own target", name));
}

void write(const fs::path &file, const std::string &text) {
  AtomicFile out(file.string());
  out.write(text.data(), text.size());
  out.commit();
}

/// The install prefix of this program, next to which the package is; empty in a build folder.
std::string ownPrefix() {
  std::error_code error;
  const fs::path prefix = fs::read_symlink("/proc/self/exe", error).parent_path().parent_path();
  for (const char *lib : {"lib", "lib64"})
    if (!error && fs::exists(prefix / lib / "cmake/cleave/cleaveConfig.cmake", error))
      return prefix.string();
  return "";
}

} // namespace

int create(int argc, char **argv) {
  CLI::App app{"Creates a folder with a CMakeLists.txt and a model that builds and trains.", "cleave new"};
  std::string name;
  app.add_option("name", name, "of the folder and of the program")->required()->type_name("NAME");
  if (!parseCommandLine(app, {argv + 1, argv + argc}))
    return 0;
  checkName(name);
  std::error_code error;
  if (fs::exists(fs::symlink_status(name, error)))
    throw userError(fmt::format("new {}: a file or folder of this name already exists", name));
  if (!fs::create_directory(name, error))
    throw userError(fmt::format("new {}: the folder cannot be created: {}", name, error.message()));
  write(fs::path(name) / "CMakeLists.txt", filled(buildFile, name));
  write(fs::path(name) / (name + ".cpp"), filled(modelFile, name));
  const std::string prefix = ownPrefix();
  fmt::print("{0}/CMakeLists.txt and {0}/{0}.cpp are written. To build the program and train it on made-up data:\n\n"
             "  cd {0}\n  cmake -S . -B build{1}\n  cmake --build build\n  build/{0} train --data synthetic\n",
             name, prefix.empty() ? "" : fmt::format(" -DCMAKE_PREFIX_PATH=\"{}\"", prefix));
  return 0;
}

} // namespace cleave::tool
