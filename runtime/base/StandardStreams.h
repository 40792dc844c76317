// Standard output and standard error where they are full, closed, or a pipe whose reader has left. What the user asked
// for and does not get is an error at the program's end, when all else is done; messages that are lost are none, and a
// reader that left has seen enough.
#pragma once
#include <string>

namespace cleave {

/// Gives the descriptors 0 to 2, where they are closed, to a place that can be neither read nor written, so that no
/// file opened later gets messages. Call it first.
void holdStandardDescriptors();

/// What the user asked for on standard error: --print-ir-after, --profile. Throws nothing.
void printOnStandardError(const std::string &text);

/// What a program says of standard output that it could not write.
std::string outputLost(const std::string &reason);

/// Whether standard output is a pipe whose reader has left.
bool outputReaderLeft();

/// Writes what is left. Throws environmentError where something was lost.
void finishStandardStreams();

} // namespace cleave
