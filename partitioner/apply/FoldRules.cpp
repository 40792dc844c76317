// Replaces numbers in paths by stars.
#include "partitioner/apply/FoldRules.h"
#include "partitioner/sharding/Pinned.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

namespace cleave::partitioner {

std::vector<ShardRule> foldRules(const std::vector<ShardRule> &rules, const std::vector<std::string> &names) {
  std::map<std::string, std::vector<const ShardRule *>> groups; // by pattern
  for (const ShardRule &rule : rules)
    groups[layerPattern(rule.pattern)].push_back(&rule);
  const auto foldable = [&](const std::string &pattern, const std::vector<const ShardRule *> &group) {
    const bool equal = std::all_of(group.begin(), group.end(), [&](const ShardRule *rule) {
      return std::tie(rule->dims, rule->origin) == std::tie(group[0]->dims, group[0]->origin);
    });
    if (group.size() == 1 || !equal)
      return false;
    const auto matched =
        std::count_if(names.begin(), names.end(), [&](const std::string &name) { return matches(pattern, name); });
    return matched == static_cast<int64_t>(group.size());
  };
  std::map<std::string, bool> folds;
  for (const auto &[pattern, group] : groups)
    folds[pattern] = foldable(pattern, group);
  std::vector<ShardRule> folded;
  for (const ShardRule &rule : rules) {
    const std::string pattern = layerPattern(rule.pattern);
    const auto group = groups.find(pattern);
    if (group == groups.end()) // already folded
      continue;
    if (!folds.at(pattern)) {
      folded.push_back(rule);
      continue;
    }
    folded.push_back({pattern, rule.dims, rule.origin});
    groups.erase(group);
  }
  return folded;
}

std::vector<Mark> foldMarks(std::vector<Mark> marks) {
  std::set<Mark> folded;
  std::map<Mark, int64_t> times; // by pattern
  const auto pattern = [](const Mark &mark) { return Mark{layerPattern(mark.path), mark.axes, mark.where}; };
  for (const Mark &mark : marks)
    ++times[pattern(mark)];
  for (Mark &mark : marks)
    folded.insert(times[pattern(mark)] > 1 ? pattern(mark) : std::move(mark));
  return {folded.begin(), folded.end()};
}

} // namespace cleave::partitioner
