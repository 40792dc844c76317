// What binds generated code to a plan: calls to the declaration of their kernel, declarations to the code.
#pragma once
#include "runtime/plan/PlanTypes.h"

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace cleave {

/// FNV-1a over all that a kernel declares: its name, its source, what it touches of its arguments, how it is started.
uint64_t kernelSignature(const plan::KernelInfo &kernel);
uint64_t kernelSignature(const plan::KernelInfoT &kernel);

/// SHA-256 of a plan's code, then its PTX; empty where there is neither.
std::vector<uint8_t> codeHash(std::span<const uint8_t> code, std::string_view ptx);

} // namespace cleave
