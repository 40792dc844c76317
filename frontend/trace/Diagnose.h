// Errors in the user's model: one message with the user's line, the rule that is broken and what was found.
#pragma once
#include "cleave/Tensor.h"
#include "runtime/base/Error.h"

#include <string>
#include <utility>
#include <vector>

namespace cleave {

/// A mistake in the model; the message begins with its place in the user's program.
struct ModelError : Error {
  explicit ModelError(const std::string &message) : Error(Status::User, message) {}
};

/// More than any memory holds: elements of a tensor, and bytes of all parameters in f32.
constexpr int64_t mostElements = int64_t(1) << 40;
constexpr int64_t mostParameterBytes = int64_t(1) << 46;
/// More than compiles in the memory of a machine: ops of a pass over the model; modules, parameters and buffers.
constexpr int64_t mostOps = int64_t(1) << 20;
constexpr int64_t mostParts = int64_t(1) << 20;

/// Whether a place lies in the user's program: not in the standard library, where default arguments are evaluated when
/// it makes an object (std::optional::emplace, std::make_unique), nor in Cleave.
bool isUsersPlace(Where where);
/// `where` if it is the user's; else the innermost place of the user's program that is known: of ModuleList::emplace,
/// of a module's call while a model is traced, else of the module that was made last or its parent.
Where userPlace(Where where);
/// Told by modules as they are made.
void noteModulePlace(Where where);

/// What stands behind a name in the last line of a message, for example {"input", "tensor<128x1024xf32>"}.
using Facts = std::vector<std::pair<std::string, std::string>>;

/// Throws the ModelError
///   FILE:LINE:COL: error: OP: TEXT (rule OP C<RULE>)
///     the source line
///         ^
///     name: value   name: value
/// at userPlace(where).
[[noreturn]] void failRule(const char *op, int rule, const std::string &text, const Facts &facts, Where where);

/// The same for mistakes that have no numbered rule.
[[noreturn]] void failAt(const std::string &text, const Facts &facts, Where where);

/// "2x3x4"; "scalar" for rank 0.
std::string shapeText(const Shape &shape);

/// Name of the parameter behind a tensor, or `otherwise`; and a fact for it: parameters show their shape, others their
/// type.
std::string nameOr(Tensor tensor, const std::string &otherwise);
std::pair<std::string, std::string> fact(Tensor tensor, const std::string &otherwise);

} // namespace cleave
