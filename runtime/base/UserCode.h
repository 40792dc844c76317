// Calls of functions that the user wrote: an exception from them is the user's mistake, not Cleave's.
#pragma once
#include "runtime/base/Error.h"

#include <exception>
#include <new>

namespace cleave {

/// Returns fn(). An exception becomes a userError with its message after the text `where()`. Exceptions that have a
/// status already, and a lack of memory, pass.
template <class Where, class F> decltype(auto) callUser(const Where &where, F &&fn) {
  try {
    return fn();
  } catch (const Error &) {
    throw;
  } catch (const std::bad_alloc &) {
    throw;
  } catch (const std::exception &error) {
    throw userError(std::string(where()) + ": " + error.what());
  } catch (...) {
    throw userError(std::string(where()) + ": an exception that is not derived from std::exception");
  }
}

} // namespace cleave
