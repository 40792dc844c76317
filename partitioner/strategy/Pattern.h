// Patterns of module paths.
#pragma once
#include <string>

namespace cleave::partitioner {

/// Whether `name` matches `pattern`, in which `*` stands for any run of characters without a dot.
bool matches(const std::string &pattern, const std::string &name);

} // namespace cleave::partitioner
