// Standard output and standard error that may be full, closed, or a pipe without a reader. If output that the user
// requested is lost, the program reports an error at its end, after all other work. Lost messages are not errors, and
// neither is a reader that has closed the pipe.
#pragma once
#include <string>

namespace cleave {

/// Opens closed descriptors 0 to 2 on a place that can be neither read nor written, so that no file opened later
/// receives messages. Call this first.
void holdStandardDescriptors();

/// Prints output that the user requested on standard error: --print-ir-after, --profile. Does not throw.
void printOnStandardError(const std::string &text);

/// The error message for lost standard output.
std::string outputLost(const std::string &reason);

/// Whether standard output is a pipe whose reader has closed it.
bool outputReaderLeft();

/// Flushes both streams. Throws environmentError if output was lost.
void finishStandardStreams();

} // namespace cleave
