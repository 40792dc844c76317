// Loop nests as text, for display in the plan and as the key for finding equal kernels.
#include "passes/codegen/nest/Affine.h"
#include "passes/codegen/nest/LoopNest.h"
#include "passes/codegen/nest/Sizes.h"

#include <algorithm>
#include <bit>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace cleave::passes::kernel {

namespace {

/// A number, or its place.
std::string text(int64_t number, Sizes::Place place) {
  return place ? fmt::format("s{}", *place) : std::to_string(number);
}

std::string text(const Expr &e, const LoopNest &p, const Sizes &sizes) {
  std::string out;
  for (int l = 0; l < static_cast<int>(p.loops.size()); ++l) {
    if (!e.coef[l])
      continue;
    out += out.empty() ? "" : " + ";
    out += e.coef[l] == 1 ? fmt::format("i{}", l)
                          : fmt::format("{}*i{}", text(e.coef[l], sizes.coefficient(l, e.coef[l])), l);
  }
  if (e.constant || out.empty())
    out += (out.empty() ? "" : " + ") + text(e.constant, sizes.offset(e.constant));
  return out;
}

std::string text(const std::vector<Condition> &conditions, const LoopNest &p, const Sizes &sizes) {
  std::string out;
  for (const Condition &c : conditions)
    out += fmt::format("{}{} <= {} < {}", out.empty() ? " where " : " and ", c.low, text(c.expr, p, sizes), c.high);
  return out;
}

std::string bufferName(int b, const LoopNest &p) {
  return b < 0          ? fmt::format("table{}", -1 - b)
         : b < p.inputs ? fmt::format("in{}", b)
                        : fmt::format("out{}", b - p.inputs);
}

std::string text(int value, const LoopNest &p, const Sizes &sizes) {
  const LoopValue &v = p.values[value];
  static const char *const relations[] = {"eq", "ne", "lt", "le", "gt", "ge"}, *const combines[] = {"sum", "max",
                                                                                                    "min"};
  std::string out;
  switch (v.kind) {
  case ValueKind::Load:
    return fmt::format("{}[{}]{}", bufferName(v.buffer, p), text(v.expr, p, sizes), text(v.conditions, p, sizes));
  case ValueKind::Scalar:
    return fmt::format("scalar {}", v.buffer);
  case ValueKind::Constant:
    if (const Sizes::Place place = sizes.constant(value))
      return fmt::format("s{}", *place);
    return fmt::format("{}", v.constant);
  case ValueKind::Index:
    return fmt::format("index {}", text(v.expr, p, sizes));
  case ValueKind::Op:
    out = nodeName(v.op);
    if (v.op == NodeKind::Compare)
      out += fmt::format(" {}", relations[static_cast<int>(v.relation)]);
    if (v.tanh)
      out += " tanh";
    break;
  case ValueKind::Guarded:
    out = "guarded";
    break;
  case ValueKind::Reduce:
    out = fmt::format("reduce {}", combines[static_cast<int>(v.combine)]);
    break;
  }
  for (size_t i = 0; i < v.operands.size(); ++i)
    out += fmt::format("{}%{}", i ? ", " : " ", v.operands[i]);
  return out + text(v.conditions, p, sizes);
}

} // namespace

/// The values of a table; of a long one the first, and a hash of all (FNV-1a), so that different kernels have different
/// texts.
static std::string text(const std::vector<double> &table) {
  constexpr size_t shown = 16;
  std::string out;
  for (size_t i = 0; i < std::min(table.size(), shown); ++i)
    out += fmt::format(" {}", table[i]);
  if (table.size() <= shown)
    return out;
  uint64_t hash = 0xcbf29ce484222325;
  for (const double value : table)
    hash = (hash ^ std::bit_cast<uint64_t>(value)) * 0x100000001b3;
  return out + fmt::format(" ... of {} values, hash {:016x}", table.size(), hash);
}

/// A loop's number of iterations. A place comes with what the code makes of the number.
static std::string extentText(const LoopNest &p, int l, const Sizes &sizes) {
  const Sizes::Place place = sizes.extent(l);
  std::string out = p.anyExtent() ? "n" : text(p.loops[l].extent, place);
  for (const int step : {p.width * p.unroll, p.width})
    if (place && l == p.vectorLoop && p.loops[l].extent % step == 0)
      return out + fmt::format(" in steps of {}", step);
  return out;
}

std::string LoopNest::str() const { return str(Sizes()); }

std::string LoopNest::str(const Sizes &sizes) const {
  static const char *const shapes[] = {"map", "rows", "columns"};
  std::string out = fmt::format("{} {} x {}", shapes[static_cast<int>(shape)], width, unroll);
  for (int l = 0; l < static_cast<int>(loops.size()); ++l)
    out +=
        fmt::format("{} i{}{} < {}", l ? "," : "", l, loops[l].reduced ? " reduced" : "", extentText(*this, l, sizes));
  if (vectorLoop >= 0)
    out += fmt::format("; vector i{}", vectorLoop);
  if (width == 1)
    out += fmt::format("; {} threads, {} a group, {} x {} elements{}", threads.block, threads.group, threads.passes,
                       threads.chunk, threads.held ? " held" : "");
  for (int i = 0; i < inputs; ++i) // unused inputs are arguments too
    if (std::none_of(values.begin(), values.end(),
                     [&](const LoopValue &v) { return v.kind == ValueKind::Load && v.buffer == i; }))
      out += fmt::format("; {} unread", bufferName(i, *this));
  out += "\n";
  for (int i = 0; i < static_cast<int>(values.size()); ++i) {
    const Placement &at = placements[i];
    out += fmt::format("%{}: {} = {}", i, dtypeName(values[i].type), text(i, *this, sizes));
    if (at.sweep)
      out += fmt::format("  ; sweep {}", at.sweep);
    if (at.scratch >= 0)
      out += fmt::format("  ; scratch {} from sweep {}", at.scratch, at.scratchFrom);
    out += "\n";
  }
  for (const Store &s : stores)
    out += fmt::format("{}[{}]: {} = %{}{}\n", bufferName(s.buffer, *this), text(s.expr, *this, sizes),
                       dtypeName(buffers[s.buffer]), s.value,
                       shape == Shape::Map ? ""
                       : s.sweep < 0       ? "  ; end"
                                           : fmt::format("  ; sweep {}", s.sweep));
  for (size_t t = 0; t < tables.size(); ++t)
    out += fmt::format("table{}: {} ={}\n", t, dtypeName(tableTypes[t]), text(tables[t]));

  return out;
}

std::string LoopNest::key() const {
  return anyExtent() ? str() : fmt::format("{}buffers of {}", str(), fmt::join(bufferSizes, ", "));
}

} // namespace cleave::passes::kernel
