// What a program does first: standard streams, signals, and how its threads wait.
#pragma once

namespace cleave {

/// Prepares standard streams and signals (Interrupt.h), and ignores SIGPIPE; call it as early as possible.
void prepareProcess();

/// Makes waiting OpenMP threads sleep soon, unless the environment sets otherwise: by default GNU OpenMP spins for so
/// long that on a busy machine a step takes a thousand times longer. The library reads its setting before main, so this
/// restarts the program; call it first. Does nothing if `argv` is not this process's command line.
void shortenThreadWaits(int argc, char **argv);

} // namespace cleave
