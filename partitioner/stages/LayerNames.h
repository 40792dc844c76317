// Maps module paths to layers.
#pragma once
#include "partitioner/strategy/Pattern.h"

#include <set>
#include <string>
#include <vector>

namespace cleave::partitioner {

/// The longest of the paths in `named` that is `path` or contains it, as "blocks.3" contains "blocks.3.mlp"; "": none.
std::string longestNamed(const std::set<std::string> &named, const std::string &path);

/// A layer is a member of a list ("model.layers.3"), or a module without a list below it ("head", "model.embed").
/// Modules that contain lists are containers; their children are layers. If all paths are in one layer, that module is
/// a container too, as long as it has children.
class LayerNames {
public:
  /// `paths`: of all ops. `named`: paths that a strategy file names as layers. Each is a layer of its own; a path
  /// belongs to the longest named layer that contains it.
  LayerNames(const std::vector<std::string> &paths, std::set<std::string> named = {});

  /// "blocks.3.attention.qkv" -> "blocks.3"; "" -> "".
  std::string of(const std::string &path) const;

private:
  std::string ofModule(const std::string &path) const;

  std::set<std::string> containers, named;
};

} // namespace cleave::partitioner
