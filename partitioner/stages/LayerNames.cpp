// Finds containers by paths alone: a number in a path is an index into a list.
#include "partitioner/stages/LayerNames.h"

#include <algorithm>

namespace cleave::partitioner {
namespace {

std::vector<std::string> componentsOf(const std::string &path) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin < path.size();) {
    const size_t end = std::min(path.find('.', begin), path.size());
    parts.push_back(path.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

} // namespace

LayerNames::LayerNames(const std::vector<std::string> &paths, std::set<std::string> given) : named(std::move(given)) {
  for (const std::string &path : paths) {
    std::string prefix;
    std::vector<std::string> before;
    for (const std::string &part : componentsOf(path)) {
      if (isIndex(part)) {
        containers.insert(before.begin(), before.end());
        break;
      }
      prefix += (prefix.empty() ? "" : ".") + part;
      before.push_back(prefix);
    }
  }
  for (bool descended = true; descended;) {
    std::set<std::string> layers;
    for (const std::string &path : paths)
      if (!path.empty())
        layers.insert(ofModule(path));
    descended = layers.size() == 1 && std::any_of(paths.begin(), paths.end(), [&](const std::string &path) {
                  return path.size() > layers.begin()->size();
                });
    if (descended)
      containers.insert(*layers.begin());
  }
}

std::string LayerNames::ofModule(const std::string &path) const {
  std::string prefix;
  for (const std::string &part : componentsOf(path)) {
    prefix += (prefix.empty() ? "" : ".") + part;
    if (!containers.count(prefix))
      break;
  }
  return prefix;
}

std::string longestNamed(const std::set<std::string> &named, const std::string &path) {
  std::string prefix = path;
  while (!prefix.empty() && !named.count(prefix)) {
    const size_t dot = prefix.rfind('.');
    prefix.resize(dot == std::string::npos ? 0 : dot);
  }
  return prefix;
}

std::string LayerNames::of(const std::string &path) const {
  std::string found = longestNamed(named, path);
  return found.empty() ? ofModule(path) : found;
}

} // namespace cleave::partitioner
