// Plans anew with the program that made a plan.
#pragma once
#include "runtime/plan/PlanFile.h"

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace cleave::tool {

/// Asks the program of a plan for other plans: `PROGRAM plan --like FILE.plan ...`.
class Replanner {
public:
  /// `program`: its path; empty: looks for the plan's model beside this program and on PATH. Throws userError if there
  /// is none.
  Replanner(std::string planFile, const PlanFile &plan, const std::string &program);
  Replanner(const Replanner &) = delete;
  ~Replanner();

  /// The plan that `PROGRAM plan --like FILE.plan OPTIONS` makes, without code. Throws an error with the program's
  /// message and status if it fails.
  std::shared_ptr<const PlanFile> plan(const std::vector<std::string> &options) const;
  /// A file with this text that plan() can read; removed at the end.
  std::string file(const std::string &name, const std::string &text) const;

private:
  std::string planFile, program;
  std::filesystem::path folder;
};

} // namespace cleave::tool
