// The memory that processes of this machine can use.
#pragma once

namespace cleave {

/// Bytes: this machine's memory, or less if a control group (a container, a job of Slurm) limits this process.
double machineMemory();

} // namespace cleave
