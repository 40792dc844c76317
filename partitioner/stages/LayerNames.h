// Which layer a module path belongs to.
#pragma once
#include <set>
#include <string>
#include <vector>

namespace cleave::partitioner {

/// Layers by module path. A layer is a member of a list ("model.layers.3"), or a module that has no list somewhere below
/// it ("head", "model.embed"): modules that hold lists are containers, and what they hold are the layers. Where all
/// paths lie in one layer, that module is a container, too, as long as it has children.
class LayerNames {
public:
  /// `paths`: of all ops. `named`: paths that someone names as layers (a strategy file): each is one, however coarse or
  /// fine, and the longest that a path lies in decides.
  LayerNames(const std::vector<std::string> &paths, std::set<std::string> named = {});

  /// "blocks.3.attention.qkv" -> "blocks.3"; "" -> "".
  std::string of(const std::string &path) const;

private:
  std::string ofModule(const std::string &path) const;

  std::set<std::string> containers, named;
};

} // namespace cleave::partitioner
