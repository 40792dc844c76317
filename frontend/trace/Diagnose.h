// Errors in the user's model. Messages show the user's line, the violated rule and the values found.
#pragma once
#include "cleave/Tensor.h"
#include "runtime/base/Error.h"

#include <string>
#include <utility>
#include <vector>

namespace cleave {

/// A mistake in the model; the message begins with its source location.
struct ModelError : Error {
  explicit ModelError(const std::string &message) : Error(Status::User, message) {}
};

/// Limits that no machine can exceed: elements of a tensor, and bytes of all parameters in f32.
constexpr int64_t mostElements = int64_t(1) << 40;
constexpr int64_t mostParameterBytes = int64_t(1) << 46;
/// Limits for compilation: ops in one pass over the model; modules, parameters and buffers.
constexpr int64_t mostOps = int64_t(1) << 20;
constexpr int64_t mostParts = int64_t(1) << 20;

/// Whether a location is in the user's program, that is neither in Cleave nor in the standard library. (If the standard
/// library constructs an object, as in std::optional::emplace and std::make_unique, a default argument
/// `Where::current()` is a location in the standard library.)
bool isUsersPlace(Where where);
/// `where` if it is in the user's program. Otherwise the innermost known location in the user's program: of
/// ModuleList::emplace, of the module call being traced, of the module created last, or of its parent.
Where userPlace(Where where);
/// Records the location at which a module is created; called by the constructors of Module.
void noteModulePlace(Where where);

/// Names and values shown in the last line of a message, for example {"input", "tensor<128x1024xf32>"}.
using Facts = std::vector<std::pair<std::string, std::string>>;

/// Throws the ModelError
///   FILE:LINE:COL: error: OP: TEXT (rule OP C<RULE>)
///     the source line
///         ^
///     name: value   name: value
/// at userPlace(where).
[[noreturn]] void failRule(const char *op, int rule, const std::string &text, const Facts &facts, Where where);

/// The same for mistakes without a numbered rule.
[[noreturn]] void failAt(const std::string &text, const Facts &facts, Where where);

/// "2x3x4"; "scalar" for rank 0.
std::string shapeText(const Shape &shape);

/// The name of the parameter behind a tensor, or `otherwise`. fact() pairs it with the parameter's shape, or with the
/// type of another tensor.
std::string nameOr(Tensor tensor, const std::string &otherwise);
std::pair<std::string, std::string> fact(Tensor tensor, const std::string &otherwise);

} // namespace cleave
