// Registers every pass, so that tools can name them in a pipeline.
#pragma once

namespace cleave::passes {

/// Idempotent.
void registerPasses();

} // namespace cleave::passes
