// What a program does first: standard streams, signals, and how its threads wait.
//
// In programs with this file waiting OpenMP threads sleep soon, unless GOMP_SPINCOUNT or OMP_WAIT_POLICY say otherwise:
// by default GNU OpenMP spins for so long that on a busy machine a step takes a thousand times longer. It asks for its
// settings when it is loaded, so this answers (`getenv`).
#pragma once

namespace cleave {

/// Prepares standard streams and signals (Interrupt.h), and ignores SIGPIPE; call it as early as possible.
void prepareProcess();

} // namespace cleave
