// Cuts a list of costs into runs.
#pragma once
#include <cstddef>
#include <functional>
#include <vector>

namespace cleave::partitioner {

/// Splits `costs` into `parts` non-empty runs and minimises the largest sum; returns the start of each run.
std::vector<size_t> balancedCuts(const std::vector<double> &costs, size_t parts);

/// Cuts of parts that send each other messages. `sends`: the cost of the messages from the part before `part` and back,
/// if `part` begins with item `begin`. Minimises, up to a factor of 1.15, the largest sum or message of one direction
/// times `passes`, plus all messages.
std::vector<size_t> cutsBySends(const std::vector<double> &costs, size_t parts,
                                const std::function<double(size_t part, size_t begin)> &sends, double passes);

/// The same as balancedCuts for parts with costs of their own and limits.
struct UnevenParts {
  std::vector<std::vector<double>> costs; ///< of every item, by kind of part
  std::vector<size_t> kindOf;             ///< of each part
  /// The first item with which a run of this part may begin that ends before item `end`; does not fall as `end` grows.
  std::function<size_t(size_t part, size_t end)> earliest = [](size_t, size_t) { return size_t{0}; };
};
/// Returns nothing if no runs keep the limits.
std::vector<size_t> balancedCuts(const UnevenParts &parts);

} // namespace cleave::partitioner
