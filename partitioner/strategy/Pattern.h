// Module paths and patterns of them. A number in a path is an index into a list.
#pragma once
#include <string>
#include <string_view>

namespace cleave::partitioner {

/// Whether `name` matches `pattern`, in which `*` stands for any run of characters without a dot.
bool matches(const std::string &pattern, const std::string &name);

/// Whether a part of a path, between dots, is an index.
bool isIndex(std::string_view part);

/// Whether a layer is a member of a list: "blocks.3".
bool isListMember(const std::string &path);

/// "blocks.3.mlp" -> "blocks.*.mlp": the same for equal layers of a list.
std::string layerPattern(const std::string &path);

} // namespace cleave::partitioner
