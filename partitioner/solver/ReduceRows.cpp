// The memory's part of the reductions.
#include "partitioner/solver/ReduceParts.h"

namespace cleave::partitioner {

/// Joins pieces of the same rows, and moves what every choice uses to the rows.
bool Reducer::shiftPieces(CoreNode &node) {
  std::sort(node.pieces.begin(), node.pieces.end(), [](const CorePiece &a, const CorePiece &b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  std::vector<CorePiece> out;
  for (CorePiece &piece : node.pieces) {
    if (piece.begin >= piece.end)
      continue;
    if (!out.empty() && out.back().begin == piece.begin && out.back().end == piece.end)
      std::transform(piece.use.begin(), piece.use.end(), out.back().use.begin(), out.back().use.begin(),
                     [](int64_t a, int64_t b) { return std::min(a + b, forbidden); });
    else
      out.push_back(std::move(piece));
  }
  std::erase_if(out, [&](CorePiece &piece) {
    const int64_t least = *std::min_element(piece.use.begin(), piece.use.end());
    for (uint32_t row = piece.begin; row < piece.end && least > 0; ++row)
      core.room[row] -= least;
    for (int64_t &use : piece.use)
      use -= least;
    return *std::max_element(piece.use.begin(), piece.use.end()) == 0;
  });
  const bool freed = out.empty() && !node.pieces.empty();
  node.pieces = std::move(out);
  return freed;
}

/// Drops the choices that do not fit even if every other node uses as little as it can.
bool Reducer::dropTooLarge() {
  bool dropped = false;
  for (uint32_t v = 0; v < core.nodes.size() && !core.infeasible; ++v) {
    CoreNode &node = core.nodes[v];
    if (node.pieces.empty())
      continue;
    // The sum of the node's pieces in each row: rows between two ends of pieces use the same.
    const std::vector<uint32_t> cuts = endsOf(node.pieces);
    std::vector<bool> tooLarge(node.costs.size(), false);
    std::vector<std::vector<int64_t>> change(cuts.size(), std::vector<int64_t>(node.costs.size(), 0));
    for (const CorePiece &piece : node.pieces) {
      const size_t from = size_t(std::lower_bound(cuts.begin(), cuts.end(), piece.begin) - cuts.begin());
      const size_t to = size_t(std::lower_bound(cuts.begin(), cuts.end(), piece.end) - cuts.begin());
      for (size_t i = 0; i < piece.use.size(); ++i) {
        change[from][i] += piece.use[i];
        change[to][i] -= piece.use[i];
      }
    }
    std::vector<int64_t> level(node.costs.size(), 0);
    for (size_t c = 0; c + 1 < cuts.size(); ++c) {
      const int64_t room = *std::min_element(core.room.begin() + cuts[c], core.room.begin() + cuts[c + 1]);
      for (size_t i = 0; i < level.size(); ++i) {
        level[i] += change[c][i];
        if (level[i] > room)
          tooLarge[i] = true;
      }
    }
    std::vector<uint32_t> kept;
    for (uint32_t i = 0; i < node.costs.size(); ++i)
      if (!tooLarge[i])
        kept.push_back(i);
    dropped |= kept.size() < node.costs.size();
    keepChoices(v, kept);
  }
  return dropped;
}

void Reducer::keepRows(const std::vector<bool> &kept) {
  std::vector<uint32_t> place(kept.size() + 1, 0); // the kept rows before each row
  for (size_t row = 0; row < kept.size(); ++row) {
    place[row + 1] = place[row] + kept[row];
    core.room[place[row]] = core.room[row];
    core.prices[place[row]] = core.prices[row];
  }
  core.room.resize(place.back());
  core.prices.resize(place.back());
  for (CoreNode &node : core.nodes)
    for (CorePiece &piece : node.pieces) {
      piece.begin = place[piece.begin];
      piece.end = place[piece.end];
    }
}

/// Drops rows without a price that cannot be exceeded while the others are not: rows where the largest usages fit
/// together; and a row whose room is at least that of another row and the largest usages of the pieces that the other
/// row does not have.
bool Reducer::dropRows() {
  const size_t rows = core.room.size();
  std::vector<WideCost> begins(rows + 1, 0), ends(rows + 1, 0); // largest usages of the pieces that do
  for (const CoreNode &node : core.nodes)
    for (const CorePiece &piece : node.pieces) {
      const int64_t use = *std::max_element(piece.use.begin(), piece.use.end());
      begins[piece.begin] += use;
      ends[piece.end] += use;
    }
  std::vector<bool> kept(rows, true);
  std::vector<uint32_t> last; // kept rows
  // The largest usages of the pieces of the last kept row that this row does not have, and of this row's that the last
  // kept one does not have.
  std::vector<WideCost> left(rows, 0), come(rows, 0);
  WideCost level = 0, gone = 0, came = 0;
  for (uint32_t row = 0; row < rows; ++row) {
    level += begins[row] - ends[row];
    gone += ends[row];
    came += begins[row];
    if (level <= core.room[row] && core.prices[row] == 0) {
      kept[row] = false;
      continue;
    }
    while (!last.empty() && kept[row]) {
      if (core.prices[row] == 0 && core.room[row] >= core.room[last.back()] + came)
        kept[row] = false;
      else if (core.prices[last.back()] == 0 && core.room[last.back()] >= core.room[row] + gone) {
        kept[last.back()] = false;
        gone += left[last.back()];
        came += come[last.back()];
        last.pop_back();
      } else
        break;
    }
    if (!kept[row])
      continue;
    left[row] = gone;
    come[row] = came;
    gone = came = 0;
    last.push_back(row);
  }
  if (std::find(kept.begin(), kept.end(), false) == kept.end())
    return false;
  keepRows(kept);
  return true;
}

bool Reducer::reduceMemory() {
  bool changed = false, again = true;
  while (again && !core.infeasible) {
    again = false;
    for (uint32_t v = 0; v < core.nodes.size(); ++v)
      if (!core.nodes[v].pieces.empty() && shiftPieces(core.nodes[v])) {
        touch(v);
        changed = true;
      }
    if (std::any_of(core.room.begin(), core.room.end(), [](int64_t room) { return room < 0; })) {
      core.infeasible = true;
      return true;
    }
    if (dropTooLarge())
      again = changed = true;
    if (allowed.rows && !again && dropRows())
      again = true;
  }
  return changed;
}

} // namespace cleave::partitioner
