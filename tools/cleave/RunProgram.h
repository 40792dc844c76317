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
  /// The plan itself, with its alternatives (PROGRAM plan --like FILE.plan --alternatives). Throws as plan() does.
  std::shared_ptr<const PlanFile> withAlternatives() const;
  /// Predicted seconds of the best plan on each of these clusters, whose devices the plan's ranks take; 0: none fits.
  /// Throws as plan() does, also if none fits anywhere.
  std::vector<double> bestSteps(const std::vector<std::string> &clusterFiles) const;
  /// A file with this text that plan() can read; removed at the end.
  std::string file(const std::string &name, const std::string &text) const;

private:
  /// Runs `PROGRAM plan --like FILE.plan OPTIONS`; returns what it prints.
  std::string run(const std::vector<std::string> &options) const;
  std::shared_ptr<const PlanFile> made(std::vector<std::string> options) const;

  std::string planFile, program;
  uint32_t ranks = 0;
  std::filesystem::path folder;
};

} // namespace cleave::tool
