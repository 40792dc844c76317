// Errors reported to the user. The message names the violated rule and the value found, in lower case; the status is
// the program's exit status. Internal bugs are assertions instead.
#pragma once
#include <stdexcept>
#include <string>

namespace cleave {

/// Exit status of every program: 0 success, 1 internal error, 2 user error, 3 a plan, check or environment that fails
/// (a full disk, a dead rank, too little memory).
enum class Status { Success = 0, Internal = 1, User = 2, Environment = 3 };

class Error : public std::runtime_error {
public:
  Error(Status status, const std::string &message) : std::runtime_error(message), status(status) {}
  Status status;
};

/// A user error: wrong option, wrong shape, missing file. Exit status 2.
inline Error userError(const std::string &message) { return {Status::User, message}; }
/// A plan, check or environment that fails. Exit status 3.
inline Error environmentError(const std::string &message) { return {Status::Environment, message}; }

} // namespace cleave
