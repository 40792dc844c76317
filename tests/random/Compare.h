// Compares what a case computes with the reference.
#pragma once
#include "ir/interpreter/Distributed.h"
#include "runtime/session/RankJob.h"
#include "tests/random/Numbers.h"

#include <map>
#include <string>
#include <vector>

namespace cleave::random_models {

/// Describes the first tensor that is missing in `found` or differs from the reference; empty if there is none. `equal`:
/// whether it must have the same bits.
std::string compareWhole(const ir::Slots &expected, const ir::Slots &spread, const ir::Slots &found, bool equal);

/// The same for the tensors alone for which `is` holds, none of which may be added.
std::string compareOnly(const ir::Slots &expected, const ir::Slots &spread, const ir::Slots &found, bool equal,
                        bool (*is)(const ir::SlotKey &));
bool isOutput(const ir::SlotKey &key);
bool isOfFirstBatch(const ir::SlotKey &key);

/// The same for sums. `evaluated`: those of the evaluation after the last step.
std::string compareSums(const ir::Slots &expected, const ir::Slots &spread, const LossSums &sums,
                        const LossSums &evaluated, bool equal);

struct HeldPiece {
  unsigned rank;
  std::vector<int64_t> indices;
  std::vector<double> values;
};
using Pieces = std::map<ir::SlotKey, std::vector<HeldPiece>>;

/// The same for what the ranks hold.
std::string comparePieces(const ir::Slots &expected, const ir::Slots &spread, const Pieces &pieces, bool equal);

} // namespace cleave::random_models
