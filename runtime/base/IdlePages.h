// Memory that a process used for work that is done.
#pragma once

namespace cleave {

/// Gives back free blocks of malloc, and the pages of code and constants of the program and its libraries: those that
/// run again are mapped again from the system's cache of files. Pages that differ from their file (breakpoints) stay.
/// After a compilation most of them belong to the compiler. Does nothing where the system does not say what is mapped.
void releaseIdlePages();

} // namespace cleave
