// Helpers of the descriptions: reporting accesses, comparing types and views.
#pragma once
#include "runtime/plan/Text.h"
#include "runtime/plan/steps/Steps.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace cleave::steps {

using check::Access;
using check::length;
using check::sane;

/// Reports what a step accesses.
struct Accesses {
  const plan::Program &program;
  const std::function<void(const Access &)> &fn;
  const plan::Plan *plan;

  uint64_t slotBytes(uint32_t slot) const {
    return slot < length(program.slots()) ? program.slots()->Get(slot)->bytes() : 0;
  }
  uint64_t elementBytes(uint32_t slot) const {
    return slot < length(program.slots()) ? dtypeSize(program.slots()->Get(slot)->dtype()) : 1;
  }
  void read(int64_t slot, uint64_t elements, int part = -1) const { contiguous(Access::Read, slot, elements, part); }
  void write(int64_t slot, uint64_t elements, int part = -1) const { contiguous(Access::Write, slot, elements, part); }
  /// A result; with `accumulate` it is added to what the slot holds.
  void result(int64_t slot, uint64_t elements, bool accumulate) const {
    const auto at = static_cast<uint32_t>(slot);
    emit({Access::Write, at, 0, elements * elementBytes(at)}, accumulate);
  }
  void whole(Access::Kind kind, uint32_t slot) const { fn({kind, slot, 0, slotBytes(slot)}); }
  /// Reports a strided window of the given sizes; a written window may accumulate.
  void window(Access::Kind kind, const plan::View *view, const std::vector<int64_t> &sizes, uint64_t element,
              bool accumulate = false) const {
    std::vector<Access::Repeat> dims;
    unsigned __int128 span = element;
    bool empty = false; // an empty window still needs a valid slot
    for (uint32_t d = 0; d < sizes.size(); ++d) {
      empty = empty || sizes[d] == 0;
      Access::Repeat dim{static_cast<uint64_t>(sizes[d]), static_cast<uint64_t>(view->strides()->Get(d)) * element};
      span += static_cast<unsigned __int128>(dim.count ? dim.count - 1 : 0) * dim.stride;
      if (dim.count > 1)
        dims.push_back(dim);
    }
    constexpr uint64_t beyond = 2 * check::largest; // more than any slot
    Access access{kind, view->slot(), view->offset(), beyond};
    if (empty) {
      access.bytes = 0;
    } else if (span < beyond) {
      access.bytes = static_cast<uint64_t>(span);
      joinDims(dims, element, access);
    }
    emit(std::move(access), accumulate);
  }

private:
  void contiguous(Access::Kind kind, int64_t slot, uint64_t elements, int part) const {
    const auto at = static_cast<uint32_t>(slot);
    Access access{kind, at, 0, elements * elementBytes(at)};
    access.part = part;
    fn(access);
  }

  void emit(Access access, bool accumulate) const {
    if (accumulate) {
      access.kind = Access::Read;
      access.accumulated = true;
      fn(access);
      access.kind = Access::Write;
      access.accumulated = false;
    }
    fn(access);
  }

  /// Merges contiguous dimensions.
  static void joinDims(std::vector<Access::Repeat> &dims, uint64_t element, Access &access) {
    std::sort(dims.begin(), dims.end(), [](const auto &a, const auto &b) { return a.stride < b.stride; });
    access.run = element;
    uint64_t below = element; // bytes spanned by the dimensions so far
    for (const Access::Repeat &dim : dims) {
      access.twice = access.twice || dim.stride < below;
      below += (dim.count - 1) * dim.stride;
      if (access.repeats.empty() && dim.stride <= access.run)
        access.run = below;
      else if (!access.repeats.empty() && dim.stride == access.repeats.back().count * access.repeats.back().stride)
        access.repeats.back().count *= dim.count;
      else
        access.repeats.push_back(dim);
    }
  }
};

inline std::vector<int64_t> listOf(const flatbuffers::Vector<int64_t> *sizes) {
  return sizes ? std::vector<int64_t>(sizes->begin(), sizes->end()) : std::vector<int64_t>();
}

inline uint64_t elements(std::initializer_list<int64_t> sizes) {
  uint64_t all = 1;
  for (int64_t size : sizes)
    all *= static_cast<uint64_t>(size);
  return all;
}

/// As a number of operations or bytes, which may be beyond 64 bits.
inline double product(std::initializer_list<int64_t> sizes, double of = 1) {
  for (int64_t size : sizes)
    of *= static_cast<double>(size);
  return of;
}

inline double sizeOf(plan::DType type) { return static_cast<double>(dtypeSize(type)); }

/// The work of a step that moves bytes.
inline Work moving(WorkClass kind, double bytes) {
  Work work;
  work.kind = kind;
  work.bytes = bytes;
  return work;
}

/// A step's elements must be in slots of its type, indices in slots of i32.
inline std::string typeProblem(const Context &c, plan::DType type, std::initializer_list<int64_t> values,
                               std::initializer_list<int64_t> indices = {}) {
  const auto differs = [&](int64_t slot, plan::DType wanted) {
    const plan::DType found = c.slot(slot).dtype();
    return found == wanted ? ""
                           : fmt::format("slot {} must be {}, found {}", slot, dtypeName(wanted), dtypeName(found));
  };
  for (int64_t slot : values)
    if (std::string problem = differs(slot, type); !problem.empty())
      return problem;
  for (int64_t slot : indices)
    if (std::string problem = differs(slot, plan::DType::I32); !problem.empty())
      return problem;
  return "";
}

/// A view must have as many strides as its step needs.
inline std::string viewProblem(const plan::View *view, uint32_t strides) {
  if (!view)
    return "a view is missing";
  return length(view->strides()) == strides
             ? ""
             : fmt::format("a view has {} strides, needs {}", length(view->strides()), strides);
}

/// Operands must have one float type; the result has that type or f32.
inline std::string productTypeProblem(const Context &c, uint32_t a, uint32_t b, uint32_t result, plan::DType type) {
  const plan::DType operands = c.slot(a).dtype();
  if (type > plan::DType::BF16 || operands > plan::DType::BF16)
    return fmt::format("a product of {} in {}", dtypeName(operands), dtypeName(type));
  if (type != operands && type != plan::DType::F32)
    return fmt::format("a result of {} from operands of {}", dtypeName(type), dtypeName(operands));
  if (std::string problem = typeProblem(c, operands, {b}); !problem.empty())
    return problem;
  return typeProblem(c, type, {result});
}

/// "%3" and, if it is not 0, the byte offset of the view.
inline std::string viewText(const plan::View *view) {
  if (!view)
    return "-";
  return view->offset() ? fmt::format("%{}+{}", view->slot(), view->offset()) : fmt::format("%{}", view->slot());
}

inline std::string biasText(int32_t bias) { return bias >= 0 ? fmt::format(" bias %{}", bias) : ""; }

inline std::string epilogueText(plan::Epilogue epilogue) {
  return epilogue == plan::Epilogue::None ? "" : fmt::format(" epilogue {}", EnumNameEpilogue(epilogue));
}

constexpr uint64_t usualWorkspace = uint64_t{32} << 20; // NVIDIA's recommendation for cuBLASLt on Hopper

} // namespace cleave::steps
