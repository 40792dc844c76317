// Hashes that bind generated code to a plan: calls to their kernel's declaration, and declarations to the code.
#pragma once
#include "runtime/plan/PlanTypes.h"

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace cleave {

/// FNV-1a over a kernel's declaration: its name, source, accesses of arguments, and launch configuration.
uint64_t kernelSignature(const plan::KernelInfo &kernel);
uint64_t kernelSignature(const plan::KernelInfoT &kernel);

/// SHA-256 of a plan's code followed by its PTX; empty if it has neither.
std::vector<uint8_t> codeHash(std::span<const uint8_t> code, std::string_view ptx);

} // namespace cleave
