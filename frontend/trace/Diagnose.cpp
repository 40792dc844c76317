// Formats errors in the user's model.
#include "frontend/trace/Diagnose.h"
#include "frontend/trace/Trace.h"

#include <algorithm>
#include <cctype>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <fstream>
#include <string_view>

namespace cleave {

/// Line `number` of a file; empty if it cannot be read. Relative paths are also tried from the root of the sources.
static std::string sourceLine(const std::string &file, unsigned number) {
  std::string below = file;
  while (below.starts_with("../"))
    below.erase(0, 3);
  for (const std::string &path : {file, CLEAVE_SOURCE_DIR "/" + below}) {
    std::ifstream in(path);
    std::string line;
    for (unsigned i = 0; i < number; ++i)
      if (!std::getline(in, line))
        line.clear();
    if (!line.empty())
      return line;
  }
  return {};
}

/// The line without indentation, and a caret under `column` (1-based; 0: unknown).
static std::string quote(std::string line, unsigned column) {
  const size_t indent = line.find_first_not_of(" \t");
  if (indent == std::string::npos)
    return {};
  std::string text = "\n  " + line.substr(indent);
  if (column > indent && column <= line.size() + 1)
    text += "\n  " + std::string(column - 1 - indent, ' ') + "^";
  for (char &c : text)
    if (c == '\t')
      c = ' ';
  return text;
}

/// Some compilers (g++ always) report the column of a call's opening parenthesis. Returns the column at which the name
/// of the called function starts.
static unsigned calleeColumn(const std::string &line, unsigned column) {
  const auto inName = [&](unsigned at) {
    return at > 0 && (std::isalnum(static_cast<unsigned char>(line[at - 1])) || line[at - 1] == '_');
  };
  if (column < 2 || column > line.size() || line[column - 1] != '(')
    return column;
  unsigned start = column;
  while (inName(start - 1))
    --start;
  return start;
}

// ---- source locations -----------------------------------------------------------------------------------------------

static thread_local std::vector<Where> sites; // locations of nested ModuleList::emplace calls, innermost last
static thread_local Where lastModule;

internal::ConstructionSite::ConstructionSite(Where where) { sites.push_back(userPlace(where)); }
internal::ConstructionSite::~ConstructionSite() { sites.pop_back(); }

void noteModulePlace(Where where) { lastModule = where; }

/// Whether a file is one of the public headers: a header in a folder named cleave.
static bool isPublicHeader(std::string_view file) {
  const std::string_view folder = file.substr(0, std::min(file.rfind('/'), file.size()));
  return file.ends_with(".h") && (folder == "cleave" || folder.ends_with("/cleave"));
}

bool isUsersPlace(Where where) {
  const std::string_view file = where.file_name(), mine = __FILE__;
  const std::string_view frontend = mine.substr(0, mine.rfind("trace/"));
  return where.line() > 0 && file.find("/c++/") == file.npos && !isPublicHeader(file) && !file.starts_with(frontend);
}

Where userPlace(Where where) {
  if (isUsersPlace(where))
    return where;
  if (!sites.empty() && isUsersPlace(sites.back()))
    return sites.back();
  if (const Trace *trace = Trace::active(); trace && isUsersPlace(trace->userSite()))
    return trace->userSite();
  return isUsersPlace(lastModule) ? lastModule : where;
}

void failAt(const std::string &text, const Facts &facts, Where given) {
  const Where where = userPlace(given);
  const std::string line = sourceLine(where.file_name(), where.line());
  const unsigned column = calleeColumn(line, where.column());
  std::string message = where.line() ? fmt::format("{}:{}:{}: ", where.file_name(), where.line(), column) : "";
  message += "error: " + text + quote(line, column);
  std::vector<std::string> parts;
  for (const auto &[name, value] : facts)
    parts.push_back(fmt::format("{}: {}", name, value));
  if (!parts.empty())
    message += fmt::format("\n  {}", fmt::join(parts, "   "));
  throw ModelError(message);
}

void failRule(const char *op, int rule, const std::string &text, const Facts &facts, Where where) {
  failAt(fmt::format("{}: {} (rule {} C{})", op, text, op, rule), facts, where);
}

std::string shapeText(const Shape &shape) {
  return shape.empty() ? "scalar" : fmt::format("{}", fmt::join(shape, "x"));
}

std::string nameOr(Tensor tensor, const std::string &otherwise) {
  if (Trace *trace = Trace::active(); trace && tensor.defined())
    if (auto found = trace->names.find(valueOf(tensor).getAsOpaquePointer()); found != trace->names.end())
      return found->second;
  return otherwise;
}

std::pair<std::string, std::string> fact(Tensor tensor, const std::string &otherwise) {
  const std::string name = nameOr(tensor, "");
  return name.empty() ? std::pair(otherwise, tensor.str()) : std::pair(name, shapeText(tensor.shape()));
}

} // namespace cleave
