// A strategy: every decision about the split, as data. TOML that a person edits, keyed by module path.
#pragma once
#include "ir/dist/Sharding.h"

#include <map>
#include <string>
#include <vector>

namespace cleave::partitioner {

/// Who decided something: "default", "code", "file", "search".
using Origin = std::string;

/// A sharding asked for a tensor, by module path; `*` in `pattern` stands for any run of characters without a dot.
struct ShardRule {
  std::string pattern;                     // "blocks.*.attention.qkv.weight"
  std::map<std::string, std::string> dims; // "0", "0:3x4x16.1" or "heads" -> axes
  Origin origin = "file";
};

struct Strategy {
  Mesh mesh;                     // axes dp, tp, pp, always in this order
  std::string schedule = "1f1b"; // gpipe | 1f1b
  int64_t microbatches = 1;
  /// Module paths of every stage, in order; empty: cut by estimated FLOPs.
  std::vector<std::vector<std::string>> stages;
  Origin stagesOrigin = "default";
  std::vector<ShardRule> shard;

  /// Reads TOML. Throws userError naming file, line, rule and value.
  static Strategy parse(const std::string &toml, const std::string &fileName);
  static Strategy load(const std::string &path);
  std::string toToml() const;
};

/// Reads `dp=2,tp=2,pp=2` (any order, any subset). Throws userError naming the unknown axis or the value.
Mesh parseMesh(const std::string &text);

/// A mesh for `devices` devices by kind of parallelism: data, model, pipeline or hybrid (data x model x pipeline as
/// even as the number's divisors allow). `auto` is refused by name until there is a search.
Mesh meshFor(int64_t devices, const std::string &kind);

} // namespace cleave::partitioner
