// Precompiled header of the tools: the library for command lines and the plan's schema.
#pragma once
#include "cmake/RuntimePch.h"

#include <CLI/CLI.hpp>
